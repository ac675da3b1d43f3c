"""Faults of how an evaluation is put together, kept and held against others."""

from tests.mutations.mutation import Mutation

SCORE = "tests/evaluate/test_score.py"
EXTENDED = "tests/evaluate/test_extended.py"
EVALUATION = "tests/record/test_evaluation.py"
COMPARABLE = "tests/report/test_comparable.py"
VALUES = "tests/report/test_values.py"
OWN_ROWS = "tests/report/test_own_rows.py"

NEEDLES = "tests/data/test_tasks_needles.py"

FAULTS = (
    Mutation(
        "the number of a needle split into tokens as text",
        "pipeline/data/tasks/needles.py",
        "return np.concatenate([self._before, key, self._between, number, self._after])",
        "return np.concatenate([self._before, key, self.symbols.text(self.sentence[1] + ''.join("
        "str(self.symbols.digits.tolist().index(i)) for i in number)), self._after])",
        NEEDLES,
    ),
    Mutation(
        "means of windows averaged",
        "pipeline/evaluate/suite.py",
        "**_loss(float(nats.sum() / len(nats))),",
        "**_loss(float(np.mean([part.mean() for part in np.split(nats, np.cumsum("
        "[w.scored for w in self.windows])[:-1]) if len(part)]))),",
        SCORE,
    ),
    Mutation(
        "a rescaling remembers the longest sequence so far",
        "pipeline/positions/extensions/dynamic_ntk.py",
        "grown = max(0.0, length / self.shape.train_length - 1.0)",
        "self._most = length = max(length, getattr(self, '_most', 0)); "
        "grown = max(0.0, length / self.shape.train_length - 1.0)",
        EXTENDED,
    ),
    Mutation(
        "rows of another evaluation taken over",
        "pipeline/record/evaluation.py",
        'if row.get("evaluation_sha256") != self.identity:',
        'if row.get("evaluation_sha256") is None:',
        EVALUATION,
    ),
    Mutation(
        "values that are damaged taken over",
        "pipeline/record/evaluation.py",
        "if named and hashlib.sha256(content).hexdigest()[:12] != named[1]:",
        "if len(content) == 0:",
        EVALUATION,
    ),
    Mutation(
        "rows before their values",
        "pipeline/record/evaluation.py",
        "os.replace(partial, self._values / name)",
        "partial.unlink()",
        EVALUATION,
    ),
    Mutation(
        "numbers of different code in one table",
        "pipeline/report/comparable.py",
        'SAME_IN_TESTS = ("precision", "corpus_sha256", "tokenizer_sha256", "code_sha256")',
        'SAME_IN_TESTS = ("precision", "corpus_sha256", "tokenizer_sha256")',
        COMPARABLE,
    ),
    Mutation(
        "only suffix losses are held against their values",
        "pipeline/report/held_values.py",
        'if not row.get("values") or row["protocol"] in WHOLE:',
        'if not row.get("values") or row["protocol"] != "suffix":',
        VALUES,
    ),
    Mutation(
        "standard errors are taken as rows have them",
        "pipeline/report/held_values.py",
        '_check(path, row, "standard_error", standard_error(by_document.mean(axis=1)))',
        "pass",
        VALUES,
    ),
    Mutation(
        "values that were left behind are passed over",
        "pipeline/report/held_values.py",
        "        path = _path(run, row)\n",
        '        if not (run.path / "evaluation/values" / row["values"]).is_file():\n'
        "            continue\n"
        "        path = _path(run, row)\n",
        VALUES,
    ),
    Mutation(
        "losses and errors below nothing are taken",
        "pipeline/report/own_rows.py",
        "if not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0.0):",
        "if not isinstance(value, int | float):",
        OWN_ROWS,
    ),
    Mutation(
        "a row that was changed is reported",
        "pipeline/report/own_rows.py",
        'if digests and row.get("row_sha256") != row_sha256(row):',
        "if False:",
        "tests/report/test_own_rows.py",
    ),
    Mutation(
        "a row that was changed is gone on with",
        "pipeline/record/evaluation.py",
        'if row.get("row_sha256") not in (None, row_sha256(row)):',
        "if False:",
        "tests/record/test_evaluation.py",
    ),
    Mutation(
        "the digest of a row leaves out its numbers",
        "pipeline/record/evaluation.py",
        'for key in row if key != "row_sha256"}',
        'for key in row if key == "key"}',
        "tests/record/test_evaluation.py",
    ),
)
