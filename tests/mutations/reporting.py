"""Faults of the page of a report: its script, its policy, and the facts it shows."""

from tests.mutations.mutation import Mutation

BROWSER = "tests/report/test_browser.py"
INTERACTIVE = "tests/report/test_interactive.py"
DECLARED = "tests/positions/test_declared.py"

FAULTS = (
    Mutation(
        "means stand for chosen seeds",
        "pipeline/report/style.py",
        '[data-kind="seed"], .by-seed [data-kind="mean"], .by-seed .over-seeds,',
        '[data-kind="seed"], .by-seed .over-seeds,',
        BROWSER,
    ),
    Mutation(
        "what is not defined is sorted before all losses",
        "pipeline/report/page.js",
        "return (a === null) - (b === null);",
        "return sign * ((b === null) - (a === null));",
        BROWSER,
    ),
    Mutation(
        "the words of run folders are looked through for styles",
        "pipeline/report/shell.py",
        'r"<[a-z][^<>]*>"',
        'r"[^\\n]+"',
        INTERACTIVE,
    ),
    Mutation(
        "the policy allows any script in the page",
        "pipeline/report/shell.py",
        "script-src {_allowed(script)};",
        "script-src 'unsafe-inline';",
        INTERACTIVE,
    ),
    Mutation(
        "a picture for papers shows the seeds that a page hides",
        "pipeline/report/output.py",
        'found[2] == "seed"',
        'found[2] == "none"',
        INTERACTIVE,
    ),
    Mutation(
        "facts that hold of no encoding are declared",
        "pipeline/positions/tupe.py",
        '        max_length="train_length",\n',
        "",
        DECLARED,
    ),
)
