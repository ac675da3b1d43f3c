"""Faults of stopping when asked to, and of starting again."""

from tests.mutations.mutation import Mutation

STOP = "tests/parallel/test_stop.py"
PREEMPTION = "tests/training/test_preemption.py"
BATCH = "tests/slurm/test_requeueing.py"
MARKER = "tests/record/test_marker.py"
LOCK = "tests/record/test_lock.py"
AS_RANK = "tests/launch/test_as_rank.py"
ENVIRONMENT = "tests/launch/test_rank_environment.py"
STOPPABLE = "tests/launch/test_stoppable.py"

FAULTS = (
    Mutation(
        "a forked child takes the flag for its own",
        "pipeline/parallel/stop.py",
        "        if os.getpid() == self._process:",
        "        if True:",
        STOP,
    ),
    Mutation(
        "loader processes die of the signal",
        "pipeline/parallel/signals.py",
        "        signal.signal(number, signal.SIG_IGN)",
        "        signal.signal(number, signal.SIG_DFL)",
        STOP,
    ),
    Mutation(
        "Lightning takes SIGTERM, with a collective in its handler",
        "pipeline/training/fit.py",
        "    trainer._signal_connector.register_signal_handlers = lambda: None",
        "    trainer._signal_connector.teardown = lambda: None",
        PREEMPTION,
    ),
    Mutation(
        "training stops without a checkpoint",
        "pipeline/training/callbacks/preemption.py",
        "        self.checkpoints.save(pl_module, trainer.is_global_zero)",
        "        pass",
        PREEMPTION,
    ),
    Mutation(
        "the last failure of a job replaces its cause",
        "pipeline/record/marker.py",
        "            os.link(partial, path)",
        "            os.link(partial, path) if not path.exists() else os.replace(partial, path)",
        MARKER,
    ),
    Mutation(
        "a job takes the lock of its own start from itself",
        "pipeline/record/lock.py",
        'holder.get("restart", 0) < _restart()',
        'holder.get("restart", 0) <= _restart()',
        LOCK,
    ),
    Mutation(
        "the bare number of an array task is requeued",
        "slurm/job.sh",
        '  elif ! scontrol requeue "$job"; then',
        '  elif ! scontrol requeue "$SLURM_JOB_ID"; then',
        BATCH,
    ),
    Mutation(
        "a job starts again for ever without getting on",
        "slurm/job.sh",
        "[ ${#starts[@]} = 3 ]",
        "[ ${#starts[@]} = 4 ]",
        BATCH,
    ),
    Mutation(
        "a rank that was asked to stop takes the others with it",
        "pipeline/launch/as_rank.py",
        "        if marker.wanted():",
        "        if not marker.wanted():",
        AS_RANK,
    ),
    Mutation(
        "a rank that waits for the others hears no signal",
        "pipeline/parallel/stop.py",
        "        signal.set_wakeup_fd(self._alone)",
        "        pass",
        ENVIRONMENT,
    ),
    Mutation(
        "a rank beyond the world waits for ever",
        "pipeline/launch/ranks.py",
        "        _whole_number(name, 0, world - 1, fix)",
        "        _whole_number(name, 0, None, fix)",
        ENVIRONMENT,
    ),
    Mutation(
        "our launcher keeps a request to stop to itself",
        "pipeline/launch/ranks.py",
        "                os.kill(rank, signal.SIGUSR1)",
        "                pass",
        PREEMPTION,
    ),
    Mutation(
        "ranks that do not come to an end cannot be ended",
        "pipeline/launch/ranks.py",
        "        if again or not ranks:",
        "        if not ranks:",
        PREEMPTION,
    ),
    Mutation(
        "our launcher ends at a signal while its ranks run",
        "pipeline/launch/commands/listening.py",
        "        if signal.getsignal(signal.SIGTERM) is heard and once",
        "        if once",
        STOPPABLE,
    ),
    Mutation(
        "our launcher does not hear a signal in foreign code",
        "pipeline/launch/commands/listening.py",
        "    stop.end_alone(end)\n",
        "",
        STOPPABLE,
    ),
    Mutation(
        "every rank repeats the error of the first",
        "pipeline/launch/cli.py",
        "    if first == own or not first.endswith(digest):",
        "    if True:",
        AS_RANK,
    ),
    Mutation(
        "the error of another rank is not said",
        "pipeline/launch/cli.py",
        "    if first == own or not first.endswith(digest):",
        "    if first == own:",
        AS_RANK,
    ),
    Mutation(
        "status takes the rows of an earlier start for those of this one",
        "pipeline/launch/reached.py",
        "return rows.st_mtime_ns < taken.st_mtime_ns",
        "return False",
        "tests/slurm/test_watch.py",
    ),
)
