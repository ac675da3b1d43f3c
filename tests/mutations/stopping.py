"""Faults of what stops a run: numbers, ranks, locks and disks."""

from tests.mutations.mutation import Mutation

NUMBERS = "tests/faults/test_numbers.py"
SPIKES = "tests/training/test_spikes.py"
MODULE = "tests/training/test_module.py"
HANG = "tests/faults/test_hang.py"
DISK = "tests/faults/test_disk.py"
ORPHANS = "tests/faults/test_orphans.py"
LOCK = "tests/record/test_lock.py"

FAULTS = (
    Mutation(
        "a gradient that is not finite reaches the weights",
        "pipeline/training/module.py",
        "    def on_before_optimizer_step(self, optimizer: Any) -> None:",
        "    def on_train_batch_end(self, *optimizer: Any) -> None:",
        NUMBERS,
    ),
    Mutation(
        "only the loss is watched, not the gradients",
        "pipeline/training/finite.py",
        "        if not self._norms:",
        "        if self._norms:",
        NUMBERS,
    ),
    Mutation(
        "the norm that DeepSpeed calls -1 passes for finite",
        "pipeline/training/module.py",
        "        if not 0.0 <= norm < math.inf:",
        "        if not math.isfinite(norm):",
        MODULE,
    ),
    Mutation(
        "usual ups and downs are spikes",
        "pipeline/training/spikes.py",
        "loss > mean + DEVIATIONS * deviation",
        "loss > mean + deviation",
        SPIKES,
    ),
    Mutation(
        "a run that goes on has forgotten what losses are usual",
        "pipeline/training/callbacks/recorder.py",
        "        self.spikes = SpikeDetector(losses)",
        "        self.spikes = SpikeDetector()",
        SPIKES,
    ),
    Mutation(
        "those that wait are named, not the rank that hangs",
        "pipeline/parallel/watch.py",
        "if count == min(counts)]",
        "if count == max(counts)]",
        HANG,
    ),
    Mutation(
        "a rank that writes a checkpoint is taken for one that hangs",
        "pipeline/parallel/watch.py",
        "if count != last or self.watch.resting:",
        "if count != last:",
        HANG,
    ),
    Mutation(
        "ranks that still load outlive our launcher",
        "pipeline/launch/begin.py",
        "    die_with_parent()",
        "    die_with_parent",
        ORPHANS,
    ),
    Mutation(
        "ranks wait for a torchrun that went before they looked",
        "pipeline/parallel/parent.py",
        "            os.kill(os.getpid(), signal.SIGTERM)",
        "            return",
        ORPHANS,
    ),
    Mutation(
        "two jobs recover the lock of a third at once",
        "pipeline/record/lock.py",
        "    with _one_at_a_time(lock):",
        "    with contextlib.nullcontext():",
        LOCK,
    ),
    Mutation(
        "whatever process has the number of one that is gone holds its lock",
        "pipeline/record/lock.py",
        '    return holder.get("began") in (None, _began(holder["pid"]))',
        "    return True",
        LOCK,
    ),
    Mutation(
        "a file that the disk refused leaves its half behind",
        "pipeline/config/durable.py",
        "            partial.unlink(missing_ok=True)",
        "            pass",
        DISK,
    ),
    Mutation(
        "a full quota is a mistake of the program",
        "pipeline/errors.py",
        "errno.ENOSPC, errno.EDQUOT, errno.EIO",
        "errno.ENOSPC, errno.EIO",
        DISK,
    ),
)
