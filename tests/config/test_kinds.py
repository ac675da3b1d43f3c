"""Every setting against values of every kind: each is held exactly as it was written, or refused;
and files that are hostile are refused at once, with their place."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import load, save
from pipeline.config.groups import configs_folder, names, own_settings
from pipeline.config.schema import NAMED_GROUPS
from pipeline.config.strict_yaml import Located, read, read_value
from pipeline.config.values import MOST_ITEMS, Setting, convert, settings
from pipeline.errors import ConfigError
from pipeline.launch.checks import check_model
from tests.config.conftest import Write

CONFIGS = configs_folder()
BASE = CONFIGS / "base.yaml"
NEVER = object()
# what is written, and what it means; `NEVER` stands for what no setting may take in silence
MEANINGS: dict[str, Any] = {
    **dict.fromkeys(("no", "yes", "on", "off", "010", "-07", "0x1F", "0b1", "1_000"), NEVER),
    **dict.fromkeys(("1:30", "2024-01-01", ".nan", ".inf", "-.inf", "1e999", "9" * 400), NEVER),
    **dict.fromkeys(("1e-300", "1e39", "-1e300"), NEVER),
    **dict.fromkeys(("{a: 1}", "[[1]]", "[.nan]", "[no]", "[010]", "[1e39]"), NEVER),
    **dict.fromkeys(("'no'", "'010'", "'1e-3'", "'true'", "'null'", "'[]'"), NEVER),
    "true": True, "false": False, "null": None, "~": None, "[]": [], "[1, 2]": [1, 2],
    "[-1]": [-1], "[true]": [True], "['7']": ["7"], "0": 0, "-1": -1, "1": 1, "7": 7, "0.5": 0.5,
    "-0.5": -0.5, "2.0": 2.0, "1e-3": 1e-3, "1000000000000": 10**12, "'7'": "7", "word": "word",
    "''": "", str(2**63): 2**63, str(-(2**64)): -(2**64),
}  # fmt: skip


def own_tables() -> Iterator[tuple[str, dict[str, Setting]]]:
    for group in NAMED_GROUPS:
        for name in names(CONFIGS, group):
            table, _ = own_settings(CONFIGS, group, Located(name, "here"))
            yield f"{group}={name}", {setting.key: setting for setting in table.values()}


TABLES = {"base.yaml": settings(), **dict(own_tables())}
OWN = [name for name, table in TABLES.items() if table and "=" in name]


def held(setting: Setting, found: Located) -> Any:
    """The value that a setting takes, or NEVER if it is refused with its key and what it takes."""
    try:
        value, template = convert(setting, found)
    except ConfigError as error:
        assert str(error).startswith(f"{found.where}: `{setting.key}` = ")
        assert "takes" in str(error)
        return NEVER
    assert template is None
    return value


def check_exact(setting: Setting, text: str, value: Any) -> None:
    """Nothing but what was written, in the setting's own type."""
    meant = MEANINGS[text]
    words = setting.kind is str or setting.item is str
    if meant is NEVER:
        # text that was put into quotes is meant as text; `off` may be one of the choices
        assert words and value in (text.strip("'"), text) and value, f"{setting.key}={text}"
        assert text.startswith("'") or text in setting.allowed.choices
        return
    if value is None or type(value) is bool or type(meant) is bool:
        assert value is meant, f"{setting.key}={text}"
        return
    assert value == meant, f"{setting.key}={text}"
    assert isinstance(value, setting.kind), f"{setting.key}={text}"
    items = value if isinstance(value, list) else []
    assert all(type(item) is setting.item for item in items), f"{setting.key}={text}"


@pytest.fixture(scope="module")
def typed() -> dict[str, Located]:
    """What each text is read as on the command line."""
    return {text: read_value(text, "key", "command line") for text in MEANINGS}


@pytest.mark.parametrize("table", TABLES)
def test_a_value_typed_is_held_exactly_or_refused(table: str, typed: dict[str, Located]) -> None:
    for setting in TABLES[table].values():
        for text, found in typed.items():
            value = held(setting, found)
            if value is not NEVER:
                check_exact(setting, text, value)


def test_a_value_in_a_file_is_read_as_when_it_is_typed(
    write: Write, typed: dict[str, Located]
) -> None:
    entries = read(write("".join(f"k{i}: {text}\n" for i, text in enumerate(typed)))).value
    for (text, found), entry in zip(typed.items(), entries.values(), strict=True):
        # written out, because nan is not equal to itself, and 1 is to true
        assert repr(entry.plain()) == repr(found.plain()), text
        assert entry.ambiguous == found.ambiguous, text


def test_the_meanings_are_tried_on_every_kind(typed: dict[str, Located]) -> None:
    taken: dict[Any, int] = {}
    for setting in settings().values():
        for found in typed.values():
            if held(setting, found) is not NEVER:
                taken[setting.kind] = taken.get(setting.kind, 0) + 1
    # none of the kinds refuses everything, which would make the tests above empty
    assert {int, float, bool, str, list} == set(taken)
    assert min(taken.values()) > 3


@pytest.mark.parametrize("value", [2.0**-127, 2.0**128, -1e300, 10**400, -(10**400)])
def test_a_number_that_fp32_cannot_hold_is_refused_with_the_reason(value: float) -> None:
    with pytest.raises(ConfigError, match="`position.base` = .* takes a finite number.*fit into"):
        load_position("rope", "base", value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**29])
def test_an_integer_that_64_bits_cannot_hold_is_refused_with_the_reason(value: int) -> None:
    with pytest.raises(ConfigError, match=r"`position.buckets` = .* It must fit into 64 bits\."):
        load_position("t5", "buckets", value)


def load_position(name: str, key: str, value: float) -> None:
    table, _ = own_settings(CONFIGS, "position", Located(name, "here"))
    convert(table[key], Located(value, "here"))


def test_the_widest_numbers_are_taken() -> None:
    table, _ = own_settings(CONFIGS, "position", Located("rope", "here"))
    for value in (2.0**-126, (2 - 2**-23) * 2.0**127, 0.0, -1.0):
        assert convert(table["base"], Located(value, "here")) == (value, None)
    steps = settings()["trainer.max_steps"]
    assert convert(steps, Located(10**9, "here")) == (10**9, None)


def test_a_list_has_an_end() -> None:
    lengths = settings()["eval_lengths"]
    fits = [Located(n, "here") for n in range(1, MOST_ITEMS + 1)]
    assert len(convert(lengths, Located(fits, "here"))[0]) == MOST_ITEMS
    with pytest.raises(ConfigError, match=f"at most {MOST_ITEMS} of them"):
        convert(lengths, Located([*fits, fits[0]], "here"))


@pytest.mark.slow
@pytest.mark.parametrize("table", OWN)
def test_what_an_encoding_is_given_builds_or_is_refused(table: str) -> None:
    """A number that the configuration takes meets the code that uses it, of the smallest and the
    largest, and gets no further than a ConfigError."""
    group = table.partition("=")[0]
    for setting in TABLES[table].values():
        for text in EDGES.get(setting.kind, ()):
            overrides = [*FITTING.get(table, ()), table, f"{setting.key}={text}", *SMALL]
            try:
                config = load(BASE, overrides, trains=group != "extension")[0]
                check_model(config)
            except ConfigError as error:
                assert setting.key.rpartition(".")[2] in str(error), error


EDGES = {
    int: ("0", "-1", "1000000000000", str(2**63 - 1), str(-(2**63))),
    float: ("0", "-1", "1.2e-38", "3.4e38", "-3.4e38"),
    list: ("[0]", "[-1.0]", "[3.4e38]", "[1.2e-38]"),
    str: ("word",),
}
# what does not fit the encoding of base.yaml
FITTING = {
    "position_ids=shifted": ["position=sinusoidal"],
    "extension=hierarchical": ["position=learned"],
}
SMALL = ("model.width=32", "model.layers=1", "eval_lengths=[64,256]")


HOSTILE: dict[str, tuple[str | bytes, int]] = {
    "a key twice": ("seed: 1\nmodel: {width: 8}\nseed: 2\n", 3),
    "a key twice in a section": ("model:\n  width: 64\n  width: 64\n", 3),
    "a tab": ("model:\n\twidth: 64\n", 2),
    "a byte order mark": (b"\xef\xbb\xbfseed: 1\n", 1),
    "UTF-16": ("seed: 1\n".encode("utf-16-le"), 1),
    "a list": ("- seed: 1\n", 1),
    "a tag of Python": ("runs: a\nseed: !!python/object/apply:os.system ['echo']\n", 2),
    "a tag of a module": ("runs: a\nseed: !!python/module:os\n", 2),
    "a variable that is not set": ("runs: a\n\ndata:\n  source: ${oc.env:NOT_SET_ANYWHERE}\n", 4),
    "an include that climbs out": ("seed: 1\ninclude: [../../etc/passwd]\n", 2),
    "an include from the root": ("seed: 1\ninclude: [/etc/passwd]\n", 2),
    "an include of itself": ("include: [run]\n", 1),
    "a billion laughs": ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", 1),
    "deep nesting": ("seed: " + "[" * 40_000 + "\n", 1),
    "a long text": (f"runs: a\nseed: {'x' * 90_000}\n", 2),
    "a long name": (f"position: {'x' * 90_000}\n", 1),
    "a long key": (f"{'k' * 1000}: 1\n", 1),
    "a long number": (f"seed: {'9' * 90_000}\n", 1),
    "a long fraction": (f"seed: 0.{'9' * 90_000}\n", 1),
    "many addresses": (f"runs: {'a://b' * 18_000}\n", 1),
    "many at signs": (f"runs: '{'://@' * 22_000}'\n", 1),
    "many dollars": (f"runs: {'${' * 45_000}\n", 1),
    "many lengths": (f"eval_lengths: [{'1,' * 10_000}1]\n", 1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_at_once_with_its_line(what: str, write: Write) -> None:
    text, line = HOSTILE[what]
    path = write(text)
    error = refused_at_once(path)
    assert str(error).startswith(f"{path}:{line}: "), str(error)[:300]
    assert error.exit_code == 2 and len(str(error)) < 3000


def refused_at_once(path: Path) -> ConfigError:
    """The refusal of `path`, which takes a second of the processor at most. What else this process
    and this machine do can only add to it, so the least of three counts."""
    took: list[float] = []
    for _ in range(3):
        began = time.thread_time()
        with pytest.raises(ConfigError) as caught:
            load(path, [])
        took.append(time.thread_time() - began)
        if took[-1] < 1.0:
            return caught.value
    raise AssertionError(f"refused after {took} seconds")


def test_a_file_that_is_too_large_is_not_parsed(write: Write) -> None:
    path = write("".join(f"a{i}: 1\n" for i in range(20_000)))
    assert "is too large for a configuration" in str(refused_at_once(path))


def test_a_sweep_without_end_is_refused_before_it_is_unfolded(write: Write) -> None:
    axes = {"seed": 30, "trainer.max_steps": 30, "model.layers": 30, "data.workers": 30}
    lines = [f"  {key}: {list(range(30, 30 + count))}\n" for key, count in axes.items()]
    path = write("sweep:\n" + "".join(lines))
    said = str(refused_at_once(path))
    assert "the sweep has 810000 runs (30 seed x 30 trainer" in said
    assert "at most 4096 are allowed" in said
    assert math.prod(axes.values()) == 810_000


@pytest.mark.parametrize("group", NAMED_GROUPS)
def test_a_setting_of_another_encoding_has_no_effect_and_is_refused(group: str) -> None:
    """Each name with one setting that others of its group have and it has not."""
    every = {key: text for name in names(CONFIGS, group) for key, text in _defaults(group, name)}
    tried = 0
    for number, name in enumerate(names(CONFIGS, group)):
        own = dict(_defaults(group, name))
        foreign = [key for key in every if key not in own]
        if not foreign:
            continue
        key = foreign[number % len(foreign)]
        with pytest.raises(ConfigError) as caught:
            load(BASE, [f"{group}={name}", f"{group}.{key}={every[key]}"], trains=False)
        assert f"`{key}` is not used by {group} '{name}'; it takes: " in str(caught.value)
        tried += 1
    assert tried >= 5


def _defaults(group: str, name: str) -> list[tuple[str, Any]]:
    _, defaults = own_settings(CONFIGS, group, Located(name, "here"))
    return [(key, found.plain()) for key, found in defaults.items()]


@pytest.mark.parametrize("group", ["extension", "model", "data", "cluster"])
def test_every_file_of_a_group_comes_back_from_what_is_saved(group: str, tmp_path: Path) -> None:
    """The groups whose files no study of configs/ names all of."""
    axis = f"sweep.{group}=[{', '.join(names(CONFIGS, group))}]"
    fitting = ["model.heads=8"] if group == "cluster" else []
    for config in load(BASE, [axis, *fitting], trains=False):
        save(config, tmp_path / "config.yaml")
        assert load(tmp_path / "config.yaml", [], trains=False) == [config]
