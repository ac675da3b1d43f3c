"""Faults of tasks, in training and in tests."""

from tests.mutations.mutation import Mutation

TASKS = "tests/data/test_tasks.py"
NEEDLES = "tests/data/test_tasks_needles.py"
CHANCE = "tests/data/test_tasks_chance.py"
MIXTURE = "tests/data/test_mixture.py"
SETTINGS = "tests/config/test_tasks.py"

FAULTS = (
    Mutation(
        "prompts of tasks are trained on",
        "pipeline/data/mixture.py",
        "labels[end - 1 - example.answer : end - 1] = example.tokens[-example.answer :]",
        "labels[place : end - 1] = example.tokens[1:]",
        MIXTURE,
    ),
    Mutation(
        "text is skipped where tasks stand",
        "pipeline/data/mixture.py",
        "ordered(seed, start, stop, len(self.text))",
        "ordered(seed, first, first + stop - start, len(self.text))",
        MIXTURE,
    ),
    Mutation(
        "every seed trains on the same tasks",
        "pipeline/data/mixture.py",
        "generator(_STREAM, seed, count)",
        "generator(_STREAM, count)",
        MIXTURE,
    ),
    Mutation(
        "depth without the head of the prompt",
        "pipeline/data/tasks/needles.py",
        "(HEAD + before) / (len(tokens) - DIGITS)",
        "before / (len(tokens) - DIGITS)",
        NEEDLES,
    ),
    Mutation(
        "the first letter wins a tie",
        "pipeline/data/tasks/counting.py",
        "draw.permutation(first)",
        "first",
        CHANCE,
    ),
    Mutation(
        "carries stop at nine",
        "pipeline/data/tasks/addition.py",
        "np.where(sums != 9,",
        "np.where(sums >= 0,",
        TASKS,
    ),
    Mutation(
        "bos in the middle of a haystack",
        "pipeline/data/tasks/haystack.py",
        "parts.append(part[part != BOS])",
        "parts.append(part)",
        NEEDLES,
    ),
    Mutation(
        "depths that no task uses are accepted",
        "pipeline/config/unused.py",
        "any(t in NEEDLE_TASKS for t in tested.tasks)",
        "bool(tested.tasks)",
        SETTINGS,
    ),
)
