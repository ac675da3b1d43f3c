"""Faults of the planner: what it counts, keeps and sends."""

from tests.mutations.mutation import Mutation

ACCOUNTING = "tests/model/test_accounting.py"
TRACE = "tests/launch/test_plan_trace.py"
PLAN = "tests/launch/test_plan.py"

FAULTS = (
    Mutation(
        "a window keeps the keys of the whole sequence",
        "pipeline/model/accounting.py",
        "    kept = min(length, model.attention_window or length)",
        "    kept = length",
        ACCOUNTING,
    ),
    Mutation(
        "biases of queries are counted with the encoding",
        "pipeline/model/accounting.py",
        '("attention", ".attention.")',
        '("position", ".attention.")',
        ACCOUNTING,
    ),
    Mutation(
        "attention is traced by a quadratic kernel",
        "pipeline/launch/planning/trace.py",
        "        with fused(), tracker,",
        "        with tracker,",
        TRACE,
    ),
    Mutation(
        "of a ring only the last step is counted",
        "pipeline/launch/planning/trace.py",
        "            self.ring += sum(",
        "            self.ring = sum(",
        TRACE,
    ),
    Mutation(
        "one rank does the work of all",
        "pipeline/launch/planning/rate.py",
        "(rate * workers)",
        "rate",
        PLAN,
    ),
    Mutation(
        "the copy of gradients that is reduced is forgotten",
        "pipeline/launch/planning/zero.py",
        "            together = max(copies, share)",
        "            together = 0",
        PLAN,
    ),
    Mutation(
        "what gloo copies is forgotten",
        "pipeline/launch/planning/zero.py",
        "copied = self._bucket(WIDE) if",
        "copied = 0 if",
        PLAN,
    ),
    Mutation(
        "only one layer multiplies what the encoding adds",
        "pipeline/launch/planning/products.py",
        "return one + (layers - 1) * (two - one)",
        "return one",
        "tests/launch/planning/test_products.py",
    ),
    Mutation(
        "the GPUs that are planned for do not reach the configuration",
        "pipeline/launch/planning/asked.py",
        "load(path, [*overrides, *ranks])",
        "load(path, overrides)",
        "tests/launch/planning/test_asked.py",
    ),
    Mutation(
        "hours without what the encoding multiplies",
        "pipeline/launch/planning/figures.py",
        '"hours": self.hours(whole)',
        '"hours": self.hours(run_flops(config))',
        "tests/launch/planning/test_time.py",
    ),
)
