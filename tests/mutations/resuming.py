"""Faults of checkpoints and of resuming from them."""

from tests.mutations.mutation import Mutation

STATE = "tests/checkpoint/test_state.py"
KEEPING = "tests/checkpoint/test_keeping.py"
SPACE = "tests/checkpoint/test_space.py"
RESUMING = "tests/launch/test_resuming.py"
RESUME = "tests/training/test_resume.py"

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
        "pipeline/config/changes.py",
        'self.key.startswith("wandb.")',
        'self.key.startswith(("wandb.", "optimizer."))',
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
)
