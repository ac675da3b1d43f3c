"""Faults in what is refused as another run's, or as without effect, and in what W&B is shown."""

from tests.mutations.mutation import Mutation

ROWS = "tests/report/test_own_rows.py"
UNUSED = "tests/config/test_unused.py"
DASHBOARD = "tests/report/test_dashboard.py"

FAULTS = (
    Mutation(
        "rows of another seed are taken",
        "pipeline/report/own_rows.py",
        '        "seed": config["seed"],\n',
        "",
        ROWS,
    ),
    Mutation(
        "a row may stand twice",
        "pipeline/report/own_rows.py",
        "        if place in seen:",
        "        if False:",
        ROWS,
    ),
    Mutation(
        "a file of rows that was cut is read",
        "pipeline/report/own_rows.py",
        'if not path.read_bytes().endswith(b"\\n"):',
        "if not path.read_bytes():",
        ROWS,
    ),
    Mutation(
        "settings that came later change the identity of a run",
        "pipeline/record/folder.py",
        "return saved_hash(self.config)",
        "return str(load(self.config, [])[0])",
        "tests/record/test_folder.py",
    ),
    Mutation(
        "a report takes a run whose configuration was changed after it",
        "pipeline/report/reading.py",
        "        RunFolder(folder).check_finished()\n",
        "        pass\n",
        "tests/report/test_reading.py",
    ),
    Mutation(
        "files of an older report stay beside those of a new one",
        "pipeline/report/output.py",
        "_OWN.fullmatch(path.name)",
        "False",
        "tests/report/test_page.py",
    ),
    Mutation(
        "an older page stands beside files of a new report",
        "pipeline/report/output.py",
        "            (out / page).unlink(missing_ok=True)\n",
        "",
        "tests/report/test_page.py",
    ),
    Mutation(
        "one damaged run takes the table of a study with it",
        "pipeline/launch/status.py",
        "except (FarsightError, OSError) as error:",
        "except KeyboardInterrupt as error:",
        "tests/slurm/test_status.py",
    ),
    Mutation(
        "a log that nobody reads any more is taken for a reader that has enough",
        "pipeline/launch/cli.py",
        "        sys.stderr.flush()\n",
        "",
        "tests/launch/test_edges.py",
    ),
    Mutation(
        "a setting that was just asked for in vain is taken",
        "pipeline/config/unused.py",
        'elif not used and f"evaluate.{key}" in (asked or ()):',
        "elif False:",
        UNUSED,
    ),
    Mutation(
        "curves of a dashboard are not grouped over seeds",
        "pipeline/report/dashboard.py",
        'groupby_rangefunc="stddev",',
        'groupby_rangefunc="minmax",',
        DASHBOARD,
    ),
    Mutation(
        "a dashboard is made anew each time",
        "pipeline/report/dashboard.py",
        'report.id = kept.get("report", "")',
        'report.id = ""',
        DASHBOARD,
    ),
    Mutation(
        "a workspace is saved before the folder is known to take a note of it",
        "pipeline/report/dashboard.py",
        "        _keep(state, kept)\n        workspace.save()\n",
        "        workspace.save()\n",
        DASHBOARD,
    ),
    Mutation(
        "a damaged note of a dashboard is taken",
        "pipeline/report/dashboard.py",
        "        if len(names) != 3 or not all(isinstance(name, str) for name in names):",
        "        if False:",
        DASHBOARD,
    ),
)
