"""Faults of what survives kills, clocks, failures of rank 0 and labels that lie unevenly."""

from tests.mutations.mutation import Mutation

BEST = "tests/checkpoint/test_best.py"
CLOCKS = "tests/faults/test_clocks.py"
UNEVEN = "tests/faults/test_uneven.py"
AGREE = "tests/parallel/test_agree.py"
UNUSED = "tests/config/test_unused.py"
COMMAND = "tests/faults/test_command.py"
SPIKES = "tests/training/test_spikes.py"
DISK = "tests/faults/test_disk.py"

FAULTS = (
    Mutation(
        "the best checkpoint deleted when it is old",
        "pipeline/checkpoint/state.py",
        "            kept[-1] = best\n",
        "            pass\n",
        BEST,
    ),
    Mutation(
        "the worst checkpoint kept as the best",
        "pipeline/checkpoint/state.py",
        "    return min(measured,",
        "    return max(measured,",
        BEST,
    ),
    Mutation(
        "the best promised where only the newest is kept",
        "pipeline/config/unused.py",
        "            trainer.keep > 1,",
        "            trainer.keep > 0,",
        UNUSED,
    ),
    Mutation(
        "the newest checkpoint is the one of the latest file time",
        "pipeline/checkpoint/folder.py",
        'sorted(named, key=lambda p: int(p.name.removeprefix("step-")), reverse=True)',
        "sorted(named, key=lambda p: p.stat().st_mtime, reverse=True)",
        CLOCKS,
    ),
    Mutation(
        "every rank finds a checkpoint by itself",
        "pipeline/launch/resuming.py",
        "    found = told_by_first(lambda: _find(folder, facts))",
        "    found = _find(folder, facts)",
        CLOCKS,
    ),
    Mutation(
        "labels weigh by their micro-batch and rank",
        "pipeline/training/module.py",
        '        return nats / max(batch["step_tokens"], 1) * scale',
        "        return nats / max(int((labels != IGNORED).sum()), 1) * scale",
        UNEVEN,
    ),
    Mutation(
        "a step without labels divided by zero",
        "pipeline/training/module.py",
        'max(batch["step_tokens"], 1)',
        'batch["step_tokens"]',
        UNEVEN,
    ),
    Mutation(
        "an error told to others made again from its words",
        "pipeline/parallel/agree.py",
        "self.kind.__new__(self.kind, *self.words)",
        "self.kind(*self.words)",
        AGREE,
    ),
    Mutation(
        "an error told to others without its exit code",
        "pipeline/parallel/agree.py",
        "        made.__dict__.update(self.more)\n",
        "",
        AGREE,
    ),
    Mutation(
        "a study begins on a volume without room",
        "pipeline/launch/study.py",
        "            check_space(folder.path, parameters)",
        "            pass",
        COMMAND,
    ),
    Mutation(
        "a rank begins on a volume without room",
        "pipeline/launch/as_rank.py",
        "        check_space(RunFolder.at(config, name).path, parameters)\n",
        "",
        COMMAND,
    ),
    Mutation(
        "free space is asked of where the command is given",
        "pipeline/launch/study.py",
        "check_space(folder.path, parameters)",
        'check_space(type(folder.path)("runs"), parameters)',
        COMMAND,
    ),
    Mutation(
        "losses are not looked at for spikes",
        "pipeline/training/callbacks/recorder.py",
        "        self._mind_spike(last, trainer.is_global_zero)\n",
        "",
        SPIKES,
    ),
    Mutation(
        "spikes are not counted",
        "pipeline/launch/rank.py",
        'sum(row["kind"] == "spike" for row',
        'sum(row["kind"] == "spikes" for row',
        SPIKES,
    ),
    Mutation(
        "refused rows do not say how much is free",
        "pipeline/record/metrics.py",
        "{free_space(self.path)}. Free some space;",
        "Free some space;",
        DISK,
    ),
)
