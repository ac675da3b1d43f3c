"""A sweep is the product of its axes, in the order in which they are listed."""

from itertools import product

import pytest

from pipeline.config import Config, load
from pipeline.config.groups import configs_folder
from pipeline.errors import ConfigError
from tests.config.conftest import Write

CONFIGS = configs_folder()
BASE = CONFIGS / "base.yaml"
SIX = ["none", "learned", "sinusoidal", "rope", "alibi", "t5"]


def points(runs: list[Config]) -> list[tuple[str, int]]:
    return [(config.position["name"], config.seed) for config in runs]


def test_the_last_axis_varies_fastest(write: Write) -> None:
    path = write("sweep:\n  position: [rope, alibi]\n  seed: [2, 0, 1]\n")
    assert points(load(path, [])) == list(product(["rope", "alibi"], [2, 0, 1]))
    path = write("sweep:\n  seed: [2, 0]\n  position: [rope, alibi]\n")
    assert points(load(path, [])) == [("rope", 2), ("alibi", 2), ("rope", 0), ("alibi", 0)]
    assert all(config.sweep == {} for config in load(path, []))
    path = write("sweep:\n  model.layers: [1, 2]\n  seed: [3, 4]\n  model: [tiny, small]\n")
    found = [(c.model.layers, c.seed, c.model.width) for c in load(path, [])]
    assert found == list(product([1, 2], [3, 4], [128, 512]))


def test_an_axis_on_the_command_line_comes_last_or_takes_the_place_of_its_own(write: Write) -> None:
    path = write("sweep:\n  position: [rope, alibi]\n")
    runs = load(path, ["sweep.optimizer.learning_rate=[1e-3, 3e-4]", "sweep.position=[t5, none]"])
    found = [(config.position["name"], config.optimizer.learning_rate) for config in runs]
    assert found == list(product(["t5", "none"], [1e-3, 3e-4]))


def test_a_value_on_the_command_line_takes_an_axis_away() -> None:
    compare = CONFIGS / "compare.yaml"
    assert points(load(compare, ["seed=7"])) == [(name, 7) for name in SIX]
    assert points(load(compare, ["position=alibi"])) == [("alibi", 0), ("alibi", 1), ("alibi", 2)]
    assert points(load(compare, ["position=alibi", "seed=1"])) == [("alibi", 1)]
    assert len(load(compare, ["sweep={}"])) == 1
    assert points(load(compare, ["sweep={seed: [4, 5]}"])) == [("rope", 4), ("rope", 5)]


def test_a_group_on_the_command_line_takes_the_axes_over_it_away(write: Write) -> None:
    path = write("sweep: {position.base: [1e4, 5e5], model: [tiny, small], model.layers: [1, 2]}\n")
    assert len(load(path, [])) == 8
    (config,) = load(path, ["position=alibi", "model=small"])
    assert (config.position, config.model.layers) == ({"name": "alibi"}, 8)


def test_a_sweep_replaces_that_of_an_included_file(write: Write) -> None:
    path = write("include: [compare]\nsweep: {seed: [8, 9]}\nposition: none\n")
    assert points(load(path, [])) == [("none", 8), ("none", 9)]
    path = write("include: [compare]\nposition: none\n")
    assert points(load(path, [])) == [("none", 0), ("none", 1), ("none", 2)]


def test_settings_reach_every_run_of_a_swept_group(write: Write) -> None:
    path = write("model: {layers: 2}\nsweep: {model: [tiny, small]}\n")
    assert [(c.model.width, c.model.layers) for c in load(path, [])] == [(128, 2), (512, 2)]
    path = write("sweep: {position.base: [1e4, 5e5]}\n")
    assert [config.position["base"] for config in load(path, [])] == [1e4, 5e5]
    path = write("sweep: {position: [rope, {name: rope, base: 5.0}, alibi]}\n")
    assert [config.position.get("base") for config in load(path, [])] == [1e4, 5.0, None]
    with pytest.raises(ConfigError, match="`base` is not used by position 'alibi'"):
        load(path, ["position.base=3.0"])


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ("[seed]", "must be a mapping of settings to lists"),
        ("{seed: 1}", "`sweep.seed` = 1 must be a list of one or more values"),
        ("{seed: []}", "must be a list of one or more"),
        ("{seed: [1, 2, 1]}", "`sweep.seed` lists 1 twice"),
        ("{optimizer: {learning_rate: [1e-3]}}", "`optimizer` is not a setting"),
        ("{sed: [1]}", "Did you mean `seed`"),
        ("{sweep: [1]}", "`sweep` is not a setting"),
        ("{include: [demo]}", "`include` is not a setting"),
        ("{seed: [1, x]}", "`seed` = 'x' is not allowed"),
        ("{seed: [1, 010]}", "`seed` = '010' is ambiguous"),
        ("{position: [rope, aliby]}", "Did you mean `alibi`"),
        ("{position.bse: [1.0]}", "`bse` is not used by position 'rope'"),
    ],
)
def test_a_malformed_sweep_is_refused_with_its_line(sweep: str, words: str, write: Write) -> None:
    path = write(f"seed: 0\nsweep: {sweep}\n" if "seed" not in sweep else f"\nsweep: {sweep}\n")
    with pytest.raises(ConfigError, match=words) as caught:
        load(path, [])
    assert str(caught.value).startswith(f"{path}:2: ")


@pytest.mark.parametrize(
    "text",
    [
        "seed: 1\nsweep: {seed: [1, 2]}\n",
        "position: rope\nsweep: {position: [rope, t5]}\n",
        "position: {name: rope, base: 5.0}\nsweep: {position: [rope, t5]}\n",
        "model: {width: 64}\nsweep: {model.width: [64, 128]}\n",
    ],
)
def test_setting_and_sweeping_a_key_in_one_file_is_refused(text: str, write: Write) -> None:
    with pytest.raises(ConfigError, match="is set and swept in the same file"):
        load(write(text), [])


def test_an_axis_without_effect_is_refused(write: Write) -> None:
    path = write("sweep: {model.layers: [3, 5]}\n")
    with pytest.raises(
        ConfigError, match="axis `model.layers` has no effect, because the axis `mo"
    ):
        load(path, ["sweep.model=[tiny, small]"])
    path = write("sweep: {position: [rope, {name: rope, base: 1e4}]}\n")
    with pytest.raises(ConfigError, match="the same run twice .*position='rope'"):
        load(path, [])


def test_a_run_of_a_sweep_that_does_not_fit_is_named(write: Write) -> None:
    path = write("sweep: {seed: [0, 1], model.heads: [4, 3]}\n")
    with pytest.raises(ConfigError, match=r"\(run seed=0, model.heads=3\): `model.width` = 128"):
        load(path, [])


@pytest.mark.parametrize(
    "overrides",
    [
        ["sweep.seed=[0,1]", "seed=3"],
        ["sweep.position.base=[100.0,1000.0]", "position=rope"],
        ["sweep.position=[rope,alibi]", "position=t5"],
    ],
)
def test_an_axis_that_a_setting_after_it_undoes_is_refused(overrides: list[str]) -> None:
    """Both were typed; the axis of a file may be taken away."""
    with pytest.raises(ConfigError, match=r"`sweep\..* has no effect, because .* replaces it"):
        load(BASE, overrides)
