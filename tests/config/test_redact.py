"""What is saved is read back unchanged, and holds nothing that should not be shared."""

import copy
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pipeline.config import Config, config_hash, load, public, save
from pipeline.config.groups import GROUPS, configs_folder
from pipeline.config.redact import saved_hash
from pipeline.errors import ConfigError, StorageError

CONFIGS = configs_folder()
BASE = CONFIGS / "base.yaml"
FILES = sorted(p for p in CONFIGS.glob("**/*.yaml") if p.parent.name not in GROUPS)
SECRET = "hunter2hunter2"


@pytest.mark.parametrize("file", FILES, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_every_run_of_every_file_is_read_back_unchanged(file: Path, tmp_path: Path) -> None:
    runs = load(file, [])
    assert runs
    for config in runs:
        save(config, tmp_path / "config.yaml")
        again = load(tmp_path / "config.yaml", [])
        assert again == [config]
        assert config_hash(again[0]) == config_hash(config) == saved_hash(tmp_path / "config.yaml")
        assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == public(config)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_awkward_values_are_read_back_unchanged(tmp_path: Path) -> None:
    overrides = ["experiment='010'", "runs='a #b: {é}'", "data.text_key=' no'", "position=t5"]
    overrides += [
        "wandb.entity='1e-3'",
        "wandb.mode=offline",
        "trainer.threads=3",
        "data.source=a.jsonl",
    ]
    overrides += ["optimizer.epsilon=1e-12", "optimizer.learning_rate=0.30000000000000004"]
    config = load(BASE, overrides)[0]
    save(config, tmp_path / "config.yaml")
    assert load(tmp_path / "config.yaml", []) == [config]
    assert saved_hash(tmp_path / "config.yaml") == config_hash(config)
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == public(config)


def test_settings_that_came_later_do_not_change_what_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    save(Config(), path)
    text = path.read_text()
    older = text.replace("  keep: 2\n", "")
    assert older != text
    path.write_text(older)
    then = saved_hash(path)
    assert load(path, []) == [Config()] and then != config_hash(Config())
    path.write_text(older.replace("runs: runs", "runs: elsewhere"))
    assert saved_hash(path) == then
    path.write_text(older.replace("seed: 0", "seed: 1"))
    assert saved_hash(path) != then


def test_saving_where_nothing_can_be_written_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=re.escape(str(tmp_path / "no" / "config.yaml"))):
        save(Config(), tmp_path / "no" / "config.yaml")


def test_saving_replaces_the_file_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    save(Config(), path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        save(Config(seed=5), path)
    assert path.read_bytes() == before


def test_the_hash_covers_everything_but_where_runs_are_kept() -> None:
    base = config_hash(Config())
    assert re.fullmatch("[0-9a-f]{64}", base)
    assert config_hash(replace(Config(), runs="elsewhere")) == base
    others = [replace(Config(), seed=1), replace(Config(), experiment="x")]
    others += load(BASE, ["position.base=10001.0"]) + load(BASE, ["model.layers=5"])
    assert len({base, *map(config_hash, others)}) == 5


def test_the_hash_does_not_depend_on_how_a_value_was_written() -> None:
    config = Config()
    config.optimizer.gradient_clip = 1
    assert config_hash(config) == config_hash(Config())
    assert config_hash(load(BASE, ["optimizer.learning_rate=0.001"])[0]) == config_hash(Config())


def test_the_environment_is_used_but_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", "/private/scratch")
    monkeypatch.setenv("NODES", "2")
    overrides = ["runs=${oc.env:SCRATCH}/runs", "trainer.nodes=${oc.env:NODES}"]
    overrides += ["data.prepared=${oc.env:NOT_SET,fallback}"]
    config = load(BASE, overrides)[0]
    assert (config.runs, config.trainer.nodes) == ("/private/scratch/runs", 2)
    assert config.data.prepared == "fallback"
    for kept in (config, copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        save(kept, tmp_path / "config.yaml")
        text = (tmp_path / "config.yaml").read_text()
        assert "private" not in text
        assert "runs: ${oc.env:SCRATCH}/runs\n" in text
        assert "nodes: ${oc.env:NODES}\n" in text
        assert load(tmp_path / "config.yaml", []) == [config]
    config.runs = "changed"
    assert public(config)["runs"] == "changed"
    assert public(config)["trainer"]["nodes"] == "${oc.env:NODES}"
    later = load(BASE, [*overrides, "trainer.nodes=2"])[0]
    assert public(later)["trainer"]["nodes"] == 2


def test_the_identity_of_a_run_survives_another_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashes = set()
    for place in ("/here", "/there"):
        monkeypatch.setenv("PLACE", place)
        hashes.add(config_hash(load(BASE, ["data.prepared=${oc.env:PLACE}"])[0]))
    assert len(hashes) == 1


@pytest.mark.parametrize(
    "key",
    ["seed", "train_length", "optimizer.learning_rate", "position.base", "trainer.precision",
     "evaluate.stride_fraction", "data.vocab", "experiment", "extension.scale"],
)  # fmt: skip
def test_what_decides_numbers_is_written_down(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text would be the same for every value, in hashes and in reports."""
    monkeypatch.setenv("VALUE", "1")
    more = ["extension=yarn"] if key.startswith("extension") else []
    with pytest.raises(ConfigError, match=rf"`{key}` = '\$\{{oc.env:VALUE\}}' is not allowed"):
        load(BASE, [*more, f"{key}=${{oc.env:VALUE}}"])
    swept = f"sweep={{{key}: ['${{oc.env:VALUE}}']}}"
    with pytest.raises(ConfigError, match=r"oc.env:VALUE\}' is not allowed"):
        load(BASE, [*more, swept])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("${oc.env:NOT_SET}", "environment variable NOT_SET is not set"),
        ("${seed}", "only .*oc.env:NAME"),
        ("${oc.env:${oc.env:HOME}}", "only .*oc.env:NAME"),
        ("${oc.env:HOME", "only .*oc.env:NAME"),
        ("\\${oc.env:HOME}", "without backslashes"),
        ("${oc.env:NESTED}", "holds another"),
        ("${oc.env:EMPTY}", "`runs` = '' is not allowed"),
    ],
)
def test_a_reference_that_cannot_be_resolved_is_refused(
    value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NESTED", "${oc.env:HOME}")
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(ConfigError, match=words):
        load(BASE, [f"runs={value}"])


@pytest.mark.parametrize("text", ["two", "010", "1.5", ""])
def test_a_number_from_the_environment_is_checked_like_any(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODES", text)
    with pytest.raises(ConfigError, match="`trainer.nodes` = "):
        load(BASE, ["trainer.nodes=${oc.env:NODES}"])


@pytest.mark.parametrize(
    "override",
    [
        f"wandb.entity={SECRET}",
        f"runs=a/{SECRET}/b",
        f"position={SECRET}",
        f"{SECRET}",
        f"wandb.api_key={SECRET}",
        f"hf_token={SECRET}",
        "data.source=https://user:pass@host/corpus",
        "data.source=https://pass@host/corpus",
        "data.source=https://user:@host/corpus",
        "wandb.entity=0123456789abcdef0123456789abcdef01234567",
        "wandb.entity=hf_abcdefghijABCDEFGHIJabcdefghij",
        "wandb.entity=AKIAIOSFODNN7EXAMPLE",
        "runs=${oc.env:MY_API_KEY}",
        "runs=${oc.env:SHORT_API_KEY}",
        "runs=${oc.env:DISGUISED}",
    ],
)
def test_a_secret_is_refused_and_not_shown(override: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    monkeypatch.setenv("SHORT_API_KEY", "abc")
    monkeypatch.setenv("DISGUISED", f"https://user:{SECRET}@host")
    with pytest.raises(ConfigError, match="No setting takes a secret") as caught:
        load(BASE, [override])
    value = override.partition("=")[2]
    assert SECRET not in str(caught.value)
    assert value.startswith("$") or not value or value not in str(caught.value)


def test_a_secret_in_a_file_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    for line in (f"runs: {SECRET}", f"model: {SECRET}", f"sweep: {{position: [{SECRET}]}}"):
        (tmp_path / "run.yaml").write_text(line + "\n")
        with pytest.raises(ConfigError, match="run.yaml:1: .*No setting takes a secret") as caught:
            load(tmp_path / "run.yaml", [])
        assert SECRET not in str(caught.value)


def test_ordinary_words_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENS_FOLDER", "/data/tokens")
    monkeypatch.setenv("PWD", "/home/someone")
    monkeypatch.setenv("SHORT_KEY", "a")
    config = load(BASE, ["data.source=${oc.env:TOKENS_FOLDER}", "runs=/home/someone/a@b"])[0]
    assert (config.data.source, config.runs) == ("/data/tokens", "/home/someone/a@b")
    digits = "0" * 40
    assert load(BASE, [f"wandb.entity='{digits}'"])[0].wandb.entity == digits
