"""Faults of checkpoints, of resuming from them, and of what is known of the code that trained."""

from tests.mutations.mutation import Mutation

STATE = "tests/checkpoint/test_state.py"
KEEPING = "tests/checkpoint/test_keeping.py"
SPACE = "tests/checkpoint/test_space.py"
RESUMING = "tests/launch/test_resuming.py"
RESUME = "tests/training/test_resume.py"
SHA256 = "tests/record/test_training_sha256.py"
TRAINING_CODE = "tests/report/test_training_code.py"
EXPORT = "tests/checkpoint/test_export.py"
FOREIGN = "tests/launch/test_foreign.py"
LOST = "tests/launch/test_lost_weights.py"

FAULTS = (
    Mutation(
        "files of a checkpoint not hashed when it is loaded",
        "pipeline/checkpoint/folder.py",
        'if found != expected["sha256"]:',
        "if not found:",
        STATE,
    ),
    Mutation(
        "a file without an entry in the manifest accepted",
        "pipeline/checkpoint/folder.py",
        'for file in sorted(found ^ manifest["files"].keys()):',
        'for file in sorted(manifest["files"].keys() - found):',
        STATE,
    ),
    Mutation(
        "the manifest's own seal not asked",
        "pipeline/checkpoint/folder.py",
        'if manifest["seal"] != _seal(manifest):',
        'if not manifest["seal"]:',
        STATE,
    ),
    Mutation(
        "code in a checkpoint is run",
        "pipeline/checkpoint/folder.py",
        "weights_only=True",
        "weights_only=False",
        STATE,
    ),
    Mutation(
        "a checkpoint renamed before it is verified",
        "pipeline/checkpoint/folder.py",
        "        verify(partial, final.name)\n",
        "",
        KEEPING,
    ),
    Mutation(
        "one checkpoint too many deleted",
        "pipeline/checkpoint/state.py",
        "kept = usable[: self.keep]",
        "kept = usable[: self.keep - 1]",
        KEEPING,
    ),
    Mutation(
        "bad checkpoints skipped without a word",
        "pipeline/checkpoint/state.py",
        "            bad.append(str(error))\n",
        "",
        STATE,
    ),
    Mutation(
        "room for one checkpoint only",
        "pipeline/checkpoint/space.py",
        "ROOM = 2.2",
        "ROOM = 1.1",
        SPACE,
    ),
    Mutation(
        "rows after the checkpoint kept",
        "pipeline/launch/resuming.py",
        "    cut_rows(folder.metrics, step)\n",
        "",
        RESUMING,
    ),
    Mutation(
        "rows of the checkpoint's own step dropped",
        "pipeline/record/metrics.py",
        'if row["step"] <= step',
        'if row["step"] < step',
        RESUMING,
    ),
    Mutation(
        "another learning rate taken without a word",
        "pipeline/config/free.py",
        'or key.startswith("wandb.")',
        'or key.startswith(("wandb.", "optimizer."))',
        RESUMING,
    ),
    Mutation(
        "moments not restored",
        "pipeline/training/whole.py",
        "            put(parameter, state.moments[moment][name], moment)\n",
        "            pass\n",
        RESUME,
        "zero1-fp32",
    ),
    Mutation(
        "Adam counts its steps from 0 again",
        "pipeline/training/whole.py",
        '"step": torch.tensor(float(state.step), device=flat.device),',
        '"step": torch.tensor(0.0, device=flat.device),',
        RESUME,
        "zero1-fp32",
    ),
    Mutation(
        "masters of bf16 weights made from these",
        "pipeline/training/whole.py",
        "        put(parameter, state.weights[name], None)\n",
        "",
        RESUME,
        "zero1-bf16",
    ),
    Mutation(
        "data from the start after a resume",
        "pipeline/data/module.py",
        "divmod(self.first * self.accumulate + number, self.accumulate)",
        "divmod(number, self.accumulate)",
        RESUME,
        "zero1-fp32",
    ),
    Mutation(
        "micro-batches taken for steps after a resume",
        "pipeline/data/module.py",
        "divmod(self.first * self.accumulate + number, self.accumulate)",
        "divmod(self.first + number, self.accumulate)",
        RESUME,
        "accumulated-bf16",
    ),
    Mutation(
        "tokens counted from 0 again",
        "pipeline/training/callbacks/recorder.py",
        "self._done, self.tokens, self._before = step, tokens, seconds",
        "self._done, self.tokens, self._before = step, 0, seconds",
        RESUME,
        "zero1-fp32",
    ),
    Mutation(
        "a continued run that is resumed reads the text of its origin",
        "pipeline/training/fit.py",
        "done_before = start.steps if start is not None else 0",
        "done_before = start.steps if start is not None and resumed is None else 0",
        RESUME,
        "continued",
    ),
    Mutation(
        "other code trains on without a word",
        "pipeline/launch/resuming.py",
        "if codes[-1] != code:",
        "if not code:",
        RESUMING,
    ),
    Mutation(
        "of the code that trained a run the last only is known",
        "pipeline/launch/resuming.py",
        "= before if before[-1] == code else [*before, code]",
        "= [code]",
        RESUMING,
    ),
    Mutation(
        "the optimizer is no code of a training",
        "pipeline/record/environment.py",
        '"parallel", "data", "training", "checkpoint",',
        '"parallel", "data", "checkpoint",',
        SHA256,
    ),
    Mutation(
        "runs trained by other code stand in one table",
        "pipeline/report/comparable.py",
        "    _check_training_code(runs)\n",
        "",
        TRAINING_CODE,
    ),
    Mutation(
        "runs of the same two codes are one training",
        "pipeline/report/comparable.py",
        "run.path if len(codes) > 1 else None",
        "None",
        TRAINING_CODE,
    ),
    Mutation(
        "older weights are tested where the last ones are gone",
        "pipeline/checkpoint/export.py",
        "        if (folder / OPTIMIZER).exists():",
        "        if False:",
        EXPORT,
    ),
    Mutation(
        "a run that lost its weights counts as trained",
        "pipeline/launch/resuming.py",
        "        folder.reopen()\n",
        "",
        LOST,
    ),
    Mutation(
        "a run that lost its weights goes on from those of another",
        "pipeline/launch/resuming.py",
        '        folder.check_checkpoint(found.folder, found.manifest["config_hash"])\n',
        "",
        LOST,
    ),
    Mutation(
        "a run without weights is tested further",
        "pipeline/launch/resuming.py",
        "    if not folder.finished:\n",
        "    if False:\n",
        LOST,
    ),
    Mutation(
        "a checkpoint copied in is laid to config.yaml",
        "pipeline/record/foreign.py",
        "    if own in others:",
        "    if False:",
        FOREIGN,
    ),
    Mutation(
        "a changed config.yaml is laid to the checkpoint",
        "pipeline/record/foreign.py",
        "    if others.keys() == {trained_by}:",
        "    if False:",
        FOREIGN,
    ),
)
