"""Faults of ranks, of task rows and of their pictures."""

from tests.mutations.mutation import Mutation

LOSS = "tests/model/test_loss.py"
SCORE = "tests/evaluate/test_score.py"
TASKS = "tests/evaluate/test_tasks.py"
KNOWN = "tests/evaluate/test_known_answers.py"
REPORT = "tests/report/test_tasks.py"

FAULTS = (
    Mutation(
        "ties counted for the model",
        "pipeline/model/loss.py",
        "reached = ~(logits < own)",
        "reached = (logits > own).scatter(-1, labels[part, None], True)",
        KNOWN,
    ),
    Mutation(
        "what is no number counted for the label",
        "pipeline/model/loss.py",
        "reached = ~(logits < own)",
        "reached = logits >= own",
        LOSS,
    ),
    Mutation(
        "rank among choices off by one",
        "pipeline/model/loss.py",
        "reached[:, choices].sum(-1).float()",
        "reached[:, choices].sum(-1).float() - 1",
        SCORE,
    ),
    Mutation(
        "exact match by the first answer token only",
        "pipeline/evaluate/tasks.py",
        "np.logical_and.reduceat(found.rank == 1, starts)",
        "(found.rank == 1)[starts]",
        KNOWN,
    ),
    Mutation(
        "exact match among the choices only",
        "pipeline/evaluate/tasks.py",
        "reduceat(found.rank == 1, starts)",
        "reduceat(found.among == 1, starts)",
        KNOWN,
    ),
    Mutation(
        "a shorter example accepted under its label",
        "pipeline/evaluate/tasks.py",
        "if not FILLED * self.length <= example.length <= self.length:",
        "if not example.length <= self.length:",
        TASKS,
    ),
    Mutation(
        "the label of a cell for its real length",
        "pipeline/evaluate/tasks.py",
        "float(np.mean([example.length for example in examples]))",
        "float(self.length)",
        TASKS,
    ),
    Mutation(
        "a task row's examples depend on the seed",
        "pipeline/evaluate/tasks.py",
        "numbers = range(self.count)",
        "numbers = range(config.seed, config.seed + self.count)",
        TASKS,
    ),
    Mutation(
        "a heatmap upside down",
        "pipeline/report/heatmap.py",
        "shares[depths.index(row",
        "shares[-1 - depths.index(row",
        REPORT,
    ),
)
