"""The settings of every registered extension, and which encodings it refuses; a new extension is
tested here with no edit, but for settings whose other values cannot be guessed."""

import itertools
from typing import Any

import pytest
import yaml

from pipeline.errors import ConfigError
from pipeline.positions import registry
from tests.distributed.ranks import ROOT
from tests.oracles.attention import dense_scores
from tests.positions.cases import NAMES, build, random_qkv, scores_of
from tests.positions.extension_cases import (
    KINDS,
    LONG,
    chosen,
    extend,
    fitting,
    inputs,
    moved,
    reached,
)

# another value of a setting where it cannot be guessed, and the settings it is tried with
FACTORS = [1.0, 2.0, 3.0, 4.0]
OTHER: dict[tuple[str, str], tuple[dict[str, Any], Any]] = {
    ("longrope", "factors"): ({}, FACTORS),
    ("longrope", "scale"): ({"factors": FACTORS}, 8.0),
    ("yarn", "form"): ({}, "paper"),
    # heads as narrow as these leave the ramp between whole pairs no room
    ("yarn", "alpha"): ({"form": "paper"}, 2.0),
    ("yarn", "beta"): ({"form": "paper"}, 16.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_yaml_lists_every_setting_with_its_default(kind: str) -> None:
    written = (ROOT / "configs" / "extension" / f"{kind}.yaml").read_text()
    assert written.startswith("# ")
    # a sequence is a list in one and a tuple in the other
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in _settings(kind).items()}
    assert (yaml.safe_load(written) or {}) == plain


def _settings(kind: str) -> dict[str, Any]:
    return registry.extension_settings(kind)


SETTINGS = [(kind, key) for kind in KINDS for key in _settings(kind)]


def _tried(kind: str, key: str) -> tuple[dict[str, Any], list[Any]]:
    """Settings, and values of another one that are not its default."""
    default = _settings(kind)[key]
    if (kind, key) in OTHER:
        context, value = OTHER[kind, key]
        return context, [value]
    if default is None:
        return {}, [5]
    assert isinstance(default, int | float), f"extension {kind}: give {key} another value in OTHER"
    return {}, [2 * default + 1, default / 2, default * 0.75]


@pytest.mark.parametrize(("kind", "key"), SETTINGS)
def test_every_setting_changes_something(kind: str, key: str) -> None:
    """The scores or the input of some encoding that the extension fits."""
    context, values = _tried(kind, key)
    differences = []
    for name, value in itertools.product(chosen(kind), values):
        usual = extend(build(name), name, kind, **context)
        try:
            other = extend(build(name), name, kind, **(context | {key: value}))
        except ConfigError:
            # a guessed value may be none that is allowed; one of them must be
            continue
        q, k, _ = random_qkv(min(reached(usual, LONG), reached(other, LONG)))
        one, two = (dense_scores(scores_of(own, q, k)) for own in (usual, other))
        both = (inputs(own, q.shape[2]) for own in (usual, other))
        differences += [moved(one, two), moved(*both)]
    assert max(differences) > 1e-4


REFUSED = [(k, n) for k, n in itertools.product(KINDS, NAMES) if n not in fitting(k)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoding_that_does_not_fit_is_refused_with_the_reason(kind: str) -> None:
    about = registry.extension_class(kind).about
    assert about.fits and about.source and about.formula and fitting(kind)
    for name in (n for k, n in REFUSED if k == kind):
        with pytest.raises(ConfigError, match=f"extension={kind} does not fit position={name}: .+"):
            extend(build(name), name, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_setting_that_it_does_not_take_is_refused(kind: str) -> None:
    name = fitting(kind)[0]
    with pytest.raises(ConfigError, match=f"extension.windwo: not used by '{kind}', which takes"):
        extend(build(name), name, kind, windwo=3)


def test_none_is_the_trained_encoding_itself() -> None:
    trained = build("rope")
    assert registry.extended(trained, "rope", {"name": registry.NO_EXTENSION}) is trained
    assert registry.NO_EXTENSION not in KINDS


@pytest.mark.parametrize(
    ("name", "kind", "settings", "message"),
    [
        ("rope", "rerope", {"window_share": 0.01}, "window_share=0.01: 0 tokens of train_length"),
        ("rope", "rerope", {"window_share": float("nan")}, "window_share=nan: .* must give 1 to"),
        ("rope", "leaky_rerope", {"window_share": -1.0}, "window_share=-1.0: .* must give 1 to"),
        ("rope", "leaky_rerope", {"factor": 0.5}, "factor=0.5: must be a number from 1 on"),
        ("rope", "leaky_rerope", {"factor": float("inf")}, "factor=inf: must be a number from 1"),
        ("rope", "self_extend", {"window_share": 0.0}, "window_share=0.0: 0 tokens"),
        ("rope", "self_extend", {"group": 0}, "group=0: must be a whole number of tokens"),
        ("rope", "self_extend", {"group": 2.5}, "group=2.5: must be a whole number of tokens"),
        ("rope", "dual_chunk", {"chunk_share": 0.0}, "chunk_share=0.0: 0 tokens"),
        ("rope", "dual_chunk", {"window_share": 0.0}, "window_share=0.0: 0 tokens"),
        ("rope", "dual_chunk", {"window_share": 0.6}, "14 tokens, less than the chunk of 15"),
        ("rope", "lm_infinite", {"window_share": 0.0}, "window_share=0.0: 0 tokens"),
        ("rope", "lm_infinite", {"global_tokens": -1}, "global_tokens=-1: must be a whole number"),
        ("rope", "log_n", {"length_share": 0.05}, "must give at least 2"),
        ("rope", "log_n", {"length_share": float("inf")}, "must give at least 2"),
        ("rope", "window", {"window_share": 0.0}, "window_share=0.0: 0 tokens"),
        ("rope", "blockwise", {"block_share": 0.0}, "block_share=0.0: 0 tokens"),
        ("rope", "temperature", {"coefficient": -0.1}, "coefficient=-0.1: must be 0 to"),
        ("rope", "temperature", {"coefficient": float("nan")}, "coefficient=nan: must be 0 to"),
        ("learned", "hierarchical", {"alpha": 0.5}, "alpha=0.5: must be above 0, below 1 and not"),
        ("learned", "hierarchical", {"alpha": 0.0}, "alpha=0.0: must be above 0"),
        ("learned", "hierarchical", {"alpha": 1.0}, "alpha=1.0: must be above 0"),
        ("alibi", "dual_chunk", {}, "does not fit position=alibi: it changes the distances of rot"),
        ("rerope", "rerope", {}, "does not fit position=rerope: "),
        ("rope", "hierarchical", {}, "does not fit position=rope: there is no table of positions"),
    ],
)
def test_bad_settings_say_what_is_allowed(
    name: str, kind: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        extend(build(name), name, kind, **settings)
