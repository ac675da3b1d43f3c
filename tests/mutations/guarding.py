"""Faults that let bad input, secrets and code through."""

from tests.mutations.mutation import Mutation

PAYLOADS = "tests/security/test_payloads.py"
SECRETS = "tests/security/test_secrets.py"
TYPOS = "tests/config/test_typos.py"
KINDS = "tests/config/test_kinds.py"
ZOO = "tests/data/test_zoo.py"

FAULTS = (
    Mutation(
        "weights may hold code",
        "pipeline/checkpoint/folder.py",
        "weights_only=True, mmap=True",
        "weights_only=False, mmap=True",
        PAYLOADS,
    ),
    Mutation(
        "values may hold code",
        "pipeline/record/evaluation.py",
        "allow_pickle=False) as found",
        "allow_pickle=True) as found",
        PAYLOADS,
    ),
    Mutation(
        "the id of a W&B run may be a path",
        "pipeline/record/wandb_mirror.py",
        're.fullmatch("[0-9a-f]{8}", minted)',
        "minted",
        PAYLOADS,
    ),
    Mutation(
        "secrets in a file are looked for late",
        "pipeline/config/layers.py",
        "    _refuse_secrets(root, path.name)\n",
        "",
        SECRETS,
    ),
    Mutation(
        "the value of a variable is saved in its place",
        "pipeline/config/redact.py",
        "return template if template and template_holds(key, template, value) else value",
        "return value",
        "tests/config/test_redact.py",
    ),
    Mutation(
        "an include may climb out of the configurations",
        "pipeline/config/layers.py",
        "if not isinstance(name, str) or not _INCLUDE.fullmatch(name) or name not in known:",
        "if not isinstance(name, str):",
        KINDS,
    ),
    Mutation(
        "a name may be a path",
        "pipeline/config/schema.py",
        'NAME = r"[a-z0-9][a-z0-9_.-]{0,63}"',
        'NAME = r"[a-z0-9/.$][a-z0-9_/.-]{0,63}"',
        "tests/security/test_names.py",
    ),
    Mutation(
        "no section is suggested for a typo",
        "pipeline/config/groups.py",
        "known = dict.fromkeys([*siblings, *sections, *table])",
        "known = dict.fromkeys([*siblings, *table])",
        TYPOS,
    ),
    Mutation(
        "DeepSpeed is told a key that it does not know",
        "pipeline/training/strategy.py",
        '"communication_data_type": "fp32"',
        '"comunication_data_type": "fp32"',
        TYPOS,
    ),
    Mutation(
        "a number may be too large for fp32",
        "pipeline/config/values.py",
        "_SMALLEST <= abs(value) <= _LARGEST",
        "_SMALLEST <= abs(value)",
        KINDS,
    ),
    Mutation(
        "the first of two texts of a line is dropped",
        "pipeline/data/readers.py",
        "json.loads(line, object_pairs_hook=_distinct)",
        "json.loads(line)",
        ZOO,
    ),
    Mutation(
        "a large file is read before it is refused",
        "pipeline/data/prepare.py",
        "    check_sizes(source)\n",
        "",
        ZOO,
    ),
    Mutation(
        "a row of parquet is unfolded before it is refused",
        "pipeline/data/readers.py",
        "if mean > MAX_DOCUMENT_BYTES:",
        "if mean > 1000 * MAX_DOCUMENT_BYTES:",
        "tests/security/test_bombs.py",
    ),
)
