"""Faults in what intervals, guesses and captions claim."""

from tests.mutations.mutation import Mutation

CHANCE = "tests/data/test_tasks_chance.py"
DIFFERENCES = "tests/report/test_differences.py"
LINEAGE = "tests/report/test_lineage.py"
PROBES = "tests/report/test_probes.py"
ROWS = "tests/evaluate/test_tasks.py"
SHARES = "tests/report/test_task_shares.py"
USABLE = "tests/evaluate/test_usable.py"

FAULTS = (
    Mutation(
        "the same examples of all seeds pooled",
        "pipeline/report/task_shares.py",
        "    middle, error = statistics.fmean(values)",
        "    low, high = wilson(sum(right.values()), sum(asked.values()))\n"
        '    return Share(shares, fewest, low, high, "seeds", None)\n'
        "    middle, error = statistics.fmean(values)",
        SHARES,
    ),
    Mutation(
        "seeds that agree leave no doubt",
        "pipeline/report/task_shares.py",
        "    if len(set(values)) == 1:",
        "    if len(values) == 1:",
        SHARES,
    ),
    Mutation(
        "no guess among the answers shown",
        "pipeline/report/task_shares.py",
        "1 / shown if shown and shown > 1 else 0.0",
        "0.0",
        SHARES,
    ),
    Mutation(
        "a row says as many answers at every length",
        "pipeline/evaluate/tasks.py",
        "self.task.shown(self.length)",
        "self.task.shown(self.task.least)",
        ROWS,
    ),
    Mutation(
        "multi_key shows one number",
        "pipeline/data/tasks/needles.py",
        "return self.needles // self.answers",
        "return self.answers // self.needles or 1",
        CHANCE,
    ),
    Mutation(
        "what is worse at the train length is usable beyond",
        "pipeline/evaluate/usable.py",
        "trained = int(inside.sum()) - 1",
        "trained = min(int(inside.sum()), good.shape[1] - 1)",
        USABLE,
    ),
    Mutation(
        "continuations of one run are independent seeds",
        "pipeline/report/lineage.py",
        "len(roots) > 1 and len(set(roots)) == 1",
        "len(roots) < 1",
        LINEAGE,
    ),
    Mutation(
        "probes of other places stand side by side",
        "pipeline/report/probes.py",
        '"documents", "suffix_tokens",',
        '"documents",',
        PROBES,
    ),
)
