"""Layers, groups and sweeps: the last one wins, and nothing that was asked for is lost."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Config, load
from pipeline.config.groups import configs_folder
from pipeline.config.schema import NAMED_GROUPS
from pipeline.errors import ConfigError
from tests.config.conftest import Write

CONFIGS = configs_folder()
BASE = CONFIGS / "base.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of configs/ that a test may add files to."""
    return shutil.copytree(CONFIGS, tmp_path / "configs")


def one(path: Path, *overrides: str, **more: Any) -> Config:
    (config,) = load(path, overrides, **more)
    return config


def test_later_layers_win(write: Write, folder: Path) -> None:
    write("seed: 1\ntrain_length: 64\nruns: first\n", "configs/first.yaml")
    write("include: [first]\nseed: 2\ntrain_length: 96\n", "configs/second.yaml")
    path = write("include: [second]\ntrain_length: 80\n")
    config = one(path, "eval_lengths=[64]", "trainer.nodes=3", "trainer.nodes=4", folder=folder)
    assert (config.seed, config.train_length, config.runs) == (2, 80, "first")
    assert (config.eval_lengths, config.trainer.nodes) == ([64], 4)
    assert config.trainer.max_steps == 300


def test_includes_stay_in_their_order(write: Write, folder: Path) -> None:
    write("seed: 1\n", "configs/first.yaml")
    write("seed: 2\n", "configs/second.yaml")
    assert one(write("include: [first, second]\n"), folder=folder).seed == 2
    assert one(write("include: [second, first]\n"), folder=folder).seed == 1


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/passwd", "demo.yaml", "dem", "model/tiny", "study/../demo", "~", "./demo"],
)
def test_an_include_is_a_name_in_the_configs(name: str, write: Write) -> None:
    path = write(f"# line 1\ninclude: ['{name}']\n")
    with pytest.raises(
        ConfigError, match="is not a file in configs/ .*Allowed: base, bench, compare"
    ) as e:
        load(path, [])
    assert str(e.value).startswith(f"{path}:2: ")


def test_an_include_is_given_as_a_list_in_a_file(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"must be a list of names: include: \[demo\]"):
        load(write("include: demo\n"), [])
    with pytest.raises(ConfigError, match="`include` belongs into a file"):
        load(BASE, ["include=[demo]"])


def test_an_include_loop_is_refused(write: Write, folder: Path) -> None:
    write("include: [b]\nseed: 1\n", "configs/a.yaml")
    path = write("include: [a]\nseed: 2\n", "configs/b.yaml")
    with pytest.raises(ConfigError, match=r"a.yaml:1: .* loop: b.yaml -> a.yaml -> b.yaml"):
        load(path, [], folder=folder)
    path = write("include: [self]\n", "configs/self.yaml")
    with pytest.raises(ConfigError, match=r"self.yaml:1: .* loop: self.yaml -> self.yaml"):
        load(path, [], folder=folder)


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("position: t5\n", []),
        ("position: {name: t5}\n", []),
        ("seed: 0\n", ["position=t5"]),
        ("seed: 0\n", ["position.name=t5"]),
        ("seed: 0\n", ["position={name: t5}"]),
    ],
)
def test_a_position_given_by_name_is_replaced_by_its_file(
    text: str, overrides: list[str], write: Write
) -> None:
    position = one(write(text), *overrides).position
    assert position == {"name": "t5", "buckets": 32, "max_distance": 128}


def test_position_settings_change_what_the_file_gives(write: Write) -> None:
    path = write("position: {base: 5e5, name: rope}\n")
    rope = {"name": "rope", "layout": "interleaved"}
    assert one(path).position == {**rope, "base": 500000.0}
    assert one(path, "position.base=7").position["base"] == 7.0
    assert type(one(path, "position.base=7").position["base"]) is float
    assert one(path, "position=rope").position["base"] == 10000.0
    assert one(path, "position=alibi").position == {"name": "alibi"}
    assert one(path, "position={base: 9.0}").position == {**rope, "base": 9.0}


def test_a_setting_that_the_position_does_not_use_is_refused(write: Write) -> None:
    with pytest.raises(
        ConfigError, match="`base` is not used by position 'alibi'; it takes: no set"
    ):
        load(BASE, ["position=alibi", "position.base=5"])
    path = write("position:\n  name: t5\n  base: 1.0\n")
    words = "run.yaml:3: `base` is not used by position 't5'; it takes: `buckets`, `max_distance`"
    with pytest.raises(ConfigError, match=words):
        load(path, [])


@pytest.mark.parametrize("value", ["3.5", "true", "'32'", "010", "null", ".nan", "[32]"])
def test_a_position_setting_has_the_type_of_its_default(value: str) -> None:
    with pytest.raises(ConfigError, match="`position.buckets` = .*takes? an integer"):
        load(BASE, ["position=t5", f"position.buckets={value}"])


def test_a_new_position_needs_a_file_and_nothing_else(write: Write, folder: Path) -> None:
    write("scale: 1e-2\nlearned: true\nfactors: [1, 2]\nmode: exact\n", "configs/position/new.yaml")
    config = one(BASE, "position=new", "position.factors=[3]", folder=folder)
    expected = {"name": "new", "scale": 0.01, "learned": True, "factors": [3], "mode": "exact"}
    assert config.position == expected
    write("scale: null\n", "configs/position/bad.yaml")
    with pytest.raises(ConfigError, match="`scale` = null cannot be the default"):
        load(BASE, ["position=bad"], folder=folder)


@pytest.mark.parametrize("group", NAMED_GROUPS)
def test_every_named_group_is_a_file_with_settings_of_its_own(
    group: str, write: Write, folder: Path
) -> None:
    write("scale: 4.0\nsize: 2\n", f"configs/{group}/made.yaml")
    write("other: 1\n", f"configs/{group}/else.yaml")

    def found(*overrides: str) -> Any:
        return getattr(one(BASE, *overrides, folder=folder, trains=False), group)

    assert found(f"{group}=made", f"{group}.scale=8") == {"name": "made", "scale": 8.0, "size": 2}
    assert found(f"{group}.name=made")["scale"] == 4.0
    assert found(f"{group}={{name: made, size: 3}}") == {"name": "made", "scale": 4.0, "size": 3}
    runs = load(BASE, [f"sweep.{group}=[made, else]"], folder=folder, trains=False)
    assert [getattr(run, group)["name"] for run in runs] == ["made", "else"]
    for bad, words in (
        (
            [f"{group}=made", f"{group}.scael=8"],
            f"not used by {group} 'made'.*Did you mean `scale`",
        ),
        ([f"{group}=else", f"{group}.scale=8"], f"not used by {group} 'else'; it takes: `other`"),
        ([f"{group}.scale=8", f"{group}=made"], "has no effect, because .* after it replaces it"),
        ([f"{group}=made", f"{group}.size=x"], f"`{group}.size` = 'x' is not allowed"),
        ([f"{group}=mad"], f"`{group}` = 'mad' is not known. Did you mean `made`"),
    ):
        with pytest.raises(ConfigError, match=words):
            found(*bad)


def test_a_name_of_no_group_is_no_setting() -> None:
    for override in (".name=1", "sweep={.name: [1]}", "model.name=tiny"):
        with pytest.raises(ConfigError, match="is not a setting"):
            load(BASE, [override])


@pytest.mark.parametrize("group", ["position", "position_ids", "extension", "model", "cluster"])
@pytest.mark.parametrize("name", ["nonesuch", "../x", "no", "7", "null", "[a]", "true", "''"])
def test_an_unknown_name_of_a_group_is_refused(group: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"`{group}` = .* is not known.*Allowed: "):
        load(BASE, [f"{group}={name}"])


def test_a_name_close_to_a_known_one_is_suggested() -> None:
    with pytest.raises(ConfigError, match="Did you mean `sinusoidal`"):
        load(BASE, ["position=sinusoid"])


def test_a_model_and_a_data_group_replace_their_keys(write: Write) -> None:
    path = write("model:\n  mlp_width: 77\n  width: 64\n", "x.yaml")
    assert (one(path).model.width, one(path).model.layers) == (64, 4)
    small = one(path, "model=small").model
    assert (small.width, small.layers, small.heads, small.mlp_width) == (512, 8, 8, 1536)
    path = write("data: {name: stdlib, vocab: 512}\nmodel: {layers: 2, name: small}\n", "y.yaml")
    assert (one(path).data.source, one(path).data.vocab) == ("stdlib", 512)
    assert (one(path).model.layers, one(path).model.width) == (2, 512)


def test_a_cluster_sets_ranks_before_the_file_changes_them(write: Write) -> None:
    path = write("trainer: {nodes: 4}\ncluster: slurm\nmodel: {name: base, heads: 16}\n")
    config = one(path)
    assert (config.trainer.nodes, config.trainer.processes) == (4, 8)
    assert (config.trainer.precision, config.data.workers) == ("bf16", 2)
    assert one(path, "cluster=single").trainer.nodes == 1


def test_a_cluster_file_holds_nothing_else(write: Write, folder: Path) -> None:
    write("seed: 5\n", "configs/cluster/bad.yaml")
    with pytest.raises(ConfigError, match="`seed` does not belong into a cluster file"):
        load(BASE, ["cluster=bad"], folder=folder)
    with pytest.raises(ConfigError, match="Settings of a cluster belong under `trainer`"):
        load(BASE, ["cluster={nodes: 2}"])


@pytest.mark.parametrize(
    "overrides",
    [
        ["position.base=5", "position=rope"],
        ["position.base=5", "position.name=rope"],
        ["model.layers=2", "model=tiny"],
        ["model={layers: 2}", "model.layers=3", "model=tiny"],
        ["trainer.nodes=2", "cluster=single"],
        ["trainer={nodes: 2}", "cluster=single"],
        ["data.workers=2", "data=stdlib"],
        ["position.base=5", "sweep.position=[rope, alibi]"],
        ["model.layers=2", "sweep.model=[tiny]"],
    ],
)
def test_an_override_that_a_later_one_undoes_is_refused(overrides: list[str]) -> None:
    with pytest.raises(ConfigError, match="has no effect, because .* after it replaces it"):
        load(BASE, overrides)


@pytest.mark.parametrize("override", ["seed", "", "=1", " =1", "trainer", "position"])
def test_an_override_needs_a_key_and_a_value(override: str) -> None:
    with pytest.raises(ConfigError, match="is not an override. Write key=value"):
        load(BASE, [override])


def test_nothing_typed_is_lost_as_a_comment() -> None:
    for value in ("a #b", "#b", "'a' # b", "[1, 2] # c"):
        with pytest.raises(ConfigError, match="everything from '#' on would be lost"):
            load(BASE, [f"runs={value}"])
    assert one(BASE, "runs='a #b'").runs == "a #b"
    assert one(BASE, "runs=a#b=c").runs == "a#b=c"


def test_a_section_is_no_value_and_a_setting_no_section(write: Write) -> None:
    with pytest.raises(
        ConfigError, match="`trainer` takes settings, not the value 5. It takes: max_"
    ):
        load(BASE, ["trainer=5"])
    with pytest.raises(ConfigError, match=r":2: `seed` = \{'a': 1\} is not allowed"):
        load(write("seed:\n  a: 1\n"), [])
