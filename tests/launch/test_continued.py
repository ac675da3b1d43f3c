"""Which runs can be continued, what a continued run takes from its origin, and its lineage."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.checkpoint.export import latest_export, load_manifest, save_export
from pipeline.config.compose import load
from pipeline.config.redact import config_hash, public, save
from pipeline.config.schema import Config
from pipeline.errors import CheckpointError, ConfigError, DataError, FarsightError
from pipeline.evaluate.extended import extend_decoder
from pipeline.launch.checks import check_model
from pipeline.launch.continued import (
    check_same_origin,
    check_tokenizer,
    find_origin,
    read_start,
    settle,
)
from pipeline.model.decoder import Decoder, load_weights
from pipeline.positions.position_ids import generator
from pipeline.record.folder import RunFolder
from tests.launch.made_origin import asked, continued, finish, small_config

NONE = ["extension=none"]
POSE = ["position_ids=pose", "position_ids.target_length=128"]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finish(small_config(tmp_path_factory.mktemp("runs")))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_encoding_stays_scaled_to_what_it_was_and_the_saved_file_says_so(
    origin: Path, tmp_path: Path
) -> None:
    config = continued(origin, "extension=yarn")
    assert (config.train_length, config.encoding_length, config.scale_length) == (64, 32, 32)
    save(config, tmp_path / "config.yaml")
    assert load(tmp_path / "config.yaml", []) == [config]
    assert settle([config]) == [config] and config_hash(settle([config])[0]) == config_hash(config)
    plain = small_config(tmp_path)
    assert settle([plain])[0] is plain and plain.scale_length == 32


def test_every_seed_continues_its_own_origin(origin: Path) -> None:
    again = finish(small_config(origin.parents[1], "seed=3"))
    pattern = f"init_from={origin.parent}/{{position}}-L32-s{{seed}}"
    for seed, folder in ((0, origin), (3, again)):
        assert find_origin(continued(origin, pattern, f"seed={seed}")).folder == folder


def test_a_path_from_the_environment_stays_one(origin: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("FIRST", str(origin))
    config = continued(origin, "init_from=${oc.env:FIRST}")
    assert public(config)["init_from"] == "${oc.env:FIRST}"


def test_another_model_is_refused_before_anything_is_written(origin: Path) -> None:
    before = contents(origin.parents[1])
    for setting in ("position.base=500.0", "model.mlp_width=32"):
        with pytest.raises(ConfigError, match=f"`{setting.partition('=')[0]}` = .*{origin}"):
            continued(origin, setting)
    assert contents(origin.parents[1]) == before


@pytest.mark.parametrize(
    "overrides",
    [
        ["seed=9"], ["train_length=96"], ["eval_lengths=[16,64]"], ["extension=yarn"],
        ["train_length=32"], [*POSE, "extension=interpolation"], ["runs=elsewhere"],
        ["model.attention_mask=shifted_groups", "model.mask_tokens=8"],
        ["model.attention_path=tile"], ["model.activation_checkpointing=true"],
        ["model.tiled_mlp=true"], ["optimizer.learning_rate=2e-5", "optimizer.warmup_steps=0",
         "optimizer.min_learning_rate=0.0"],
        ["trainer.zero_stage=3", "trainer.processes=2", "trainer.sequence_parallel=2"],
        ["evaluate.documents=40"], ["wandb.mode=offline"], ["data.prepared=elsewhere"],
        ["encoding_length=32"], ["data.workers=2"],
    ],
    ids=lambda x: x[0],
)  # fmt: skip
def test_what_does_not_change_the_weights_meaning_is_free(
    overrides: list[str], origin: Path
) -> None:
    config = continued(origin, *overrides)
    assert config.scale_length == 32
    check_model(config)


def test_position_ids_with_weights_of_their_own_cannot_change(tmp_path: Path) -> None:
    segments = finish(small_config(tmp_path, "position_ids=segments", "position_ids.places=9"))
    with pytest.raises(ConfigError, match="`position_ids` = consecutive here, segments .*weights"):
        continued(segments, "position_ids=consecutive")
    assert continued(segments).position_ids["places"] == 9


def test_a_run_that_dropped_its_encoding_cannot_be_continued(tmp_path: Path) -> None:
    folder = finish(small_config(tmp_path, "model.drop_position_after=5"))
    with pytest.raises(ConfigError, match="dropped its encoding in training"):
        continued(folder)


def spoil_weights(folder: Path) -> None:
    path = folder / "checkpoints" / "step-300" / "weights.pt"
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def spoil_config(folder: Path) -> None:
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("base: 10000.0", "base: 500.0"))


def spoil_model(folder: Path) -> None:
    """Whole weights of another model."""
    own = load(folder / "config.yaml", [])[0]
    other = Decoder(small_config(folder.parent, "model.mlp_width=32")).named_parameters()
    weights = {name: weight.detach() for name, weight in other}
    identity = config_hash(own)
    save_export(folder / "checkpoints", weights, step=301, tokens=1, config_hash=identity)


def spoil_summary(folder: Path) -> None:
    (folder / "summary.json").write_text("{}")


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (shutil.rmtree, ConfigError, "`init_from` = .* is not a run folder"),
        (
            lambda x: (x / "finished").unlink(),
            ConfigError,
            "`init_from` = .* not finished",
        ),
        (lambda x: shutil.rmtree(x / "checkpoints"), CheckpointError, "holds no checkpoint"),
        (spoil_weights, CheckpointError, "weights.pt: sha256"),
        (spoil_config, CheckpointError, "config.yaml is not what .*: it was changed"),
        (spoil_model, CheckpointError, "`init_from` = .*mlp.* differ"),
        (spoil_summary, DataError, "summary.json: cannot be read"),
    ],
)
def test_an_origin_that_is_not_whole_is_refused(
    spoil: Any, kind: type[FarsightError], words: str, tmp_path: Path
) -> None:
    folder = finish(small_config(tmp_path))
    config = asked(folder)
    spoil(folder)
    with pytest.raises(kind, match=words):
        settle([config])


def hidden(config: Config, weights: dict[str, torch.Tensor], extension: dict[str, Any]) -> Any:
    decoder = Decoder(config)
    load_weights(decoder, weights)
    extend_decoder(decoder, Config(position=config.position, extension=extension))
    tokens = torch.arange(64)[None] % 50
    with torch.no_grad():
        return decoder(tokens, tokens.roll(-1, 1), torch.arange(64)[None])


@pytest.mark.parametrize(
    ("settings", "extension"),
    [
        (["model.score_scale=log_n"], NONE), (["model.qk_norm=cosine"], NONE),
        (["position=fire"], NONE), (["position=deberta"], NONE), (["position=rerope"], NONE),
        (["position=rope"], ["extension=yarn"]), (["position=rope"], ["extension=dynamic_ntk"]),
        (["position=learned"], ["extension=hierarchical"]),
    ],
    ids=lambda x: x[0],
)  # fmt: skip
def test_whatever_depends_on_a_length_sees_that_of_the_origin(
    settings: list[str], extension: list[str], tmp_path: Path
) -> None:
    """The same model of a run that was trained at 32 tokens and of one that goes on at 64."""
    first = small_config(tmp_path, *settings)
    config = continued(finish(first), *extension)
    weights = find_origin(config).weights
    there, here = (hidden(one, weights, config.extension) for one in (first, config))
    assert torch.equal(there, here)
    longer = small_config(tmp_path, *settings, "train_length=64")
    if settings[0] in ("position=learned", "position=deberta"):
        with pytest.raises(CheckpointError, match="position.table"):
            hidden(longer, weights, config.extension)
    else:
        assert not torch.equal(hidden(longer, weights, config.extension), here)


def test_a_learned_table_is_not_read_beyond_its_end(tmp_path: Path) -> None:
    folder = finish(small_config(tmp_path, "position=learned"))
    with pytest.raises(ConfigError, match="64 tokens.* not defined beyond 32"):
        check_model(continued(folder))
    check_model(continued(folder, "train_length=32"))
    check_model(continued(folder, "extension=hierarchical"))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([*POSE, "extension=log_n"], "`extension` = log_n .* `position_ids` = pose: it takes"),
        ([*POSE, "train_length=32", "extension=dynamic_ntk"], "`extension` = dynamic_ntk .* = 32"),
        (["train_length=32", "extension=temperature"], "changes nothing up to 32"),
        (["position_ids=pose", "position_ids.target_length=64"], "above train_length=64"),
        (["extension=hierarchical"], "extension=hierarchical does not fit position=rope"),
        (
            ["extension=blockwise", "model.attention_mask=shifted_groups", "model.mask_tokens=8"],
            "extension=blockwise does not fit model.attention_mask",
        ),
    ],
)
def test_an_extension_or_ids_that_training_would_not_see_are_refused(
    overrides: list[str], words: str, origin: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        check_model(continued(origin, *overrides))


def test_pose_goes_to_the_target_from_the_length_it_trains_at(origin: Path) -> None:
    """Longer than the encoding is scaled to: the gap is what is left of the target."""
    scheme = Decoder(continued(origin, *POSE, "extension=interpolation")).position_ids
    draws = [scheme.drawn(64, None, generator(seed)) for seed in range(40)]
    assert max(int(ids[-1]) for ids in draws) <= 127 and scheme.largest == 127
    assert Decoder(continued(origin)).position_ids.largest == 63


def test_lineage_and_steps_of_a_run_continued_twice(origin: Path) -> None:
    second = continued(origin, "extension=yarn", "trainer.max_steps=200", "experiment=second")
    start, lineage = read_start(second)
    assert start is not None and start.steps == 300
    folder = finish(second, seed=1, lineage=lineage)
    third = continued(folder, "experiment=third", "train_length=128", "extension.scale=8")
    start, lineage = read_start(third)
    assert third.encoding_length == 32 and start is not None and start.steps == 500
    names = ("run", "step", "tokens", "train_length", "extension")
    yarn = "yarn form=code scale=4 alpha=1 beta=32"
    assert [[one[name] for name in names] for one in lineage] == [
        ["first/rope-L32-s0", 300, 300 * 32 * 32, 32, "none"],
        ["second/rope-L64-s0", 200, 200 * 32 * 64, 64, yarn],
    ]
    for path, config, one in zip((origin, folder), (None, second), lineage, strict=True):
        manifest = load_manifest(latest_export(path / "checkpoints"))
        assert one["weights_sha256"] == manifest["sha256"]
        assert config is None or one["config_hash"] == config_hash(config)
    assert start.weights.keys() == find_origin(second).weights.keys()
    assert not torch.equal(
        start.weights["embedding.weight"], find_origin(second).weights["embedding.weight"]
    )
    assert read_start(small_config(origin.parent)) == (None, [])


def test_leaving_the_extension_of_the_origin_is_said(
    origin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = finish(continued(origin, "extension=yarn", "experiment=said"))
    capsys.readouterr()
    continued(second, "experiment=fourth")
    assert not capsys.readouterr().err
    continued(second, "extension=none", "experiment=fourth")
    assert re.search("trained under the extension yarn .*has none", capsys.readouterr().err)


def test_another_tokenizer_is_refused(origin: Path) -> None:
    config = continued(origin)
    prepared: Any = SimpleNamespace(tokenizer=SimpleNamespace(sha256="70" * 32))
    check_tokenizer(config, prepared)
    prepared.tokenizer.sha256 = "ab" * 32
    check_tokenizer(small_config(origin.parent), prepared)
    with pytest.raises(DataError, match=f"abababababab.* is not 707070707070.*{origin}"):
        check_tokenizer(config, prepared)


def test_a_continued_run_is_not_kept_if_its_origin_was_trained_again(tmp_path: Path) -> None:
    folder = finish(small_config(tmp_path))
    config = continued(folder)
    _, lineage = read_start(config)
    own = RunFolder(finish(config, lineage=lineage))
    check_same_origin(config, own)
    shutil.rmtree(folder)
    finish(small_config(tmp_path), seed=5)
    with pytest.raises(CheckpointError, match=f"{own.path} continued weights .* of {folder}"):
        check_same_origin(config, own)


def test_rows_of_the_own_extension_are_the_runs_own(origin: Path, tmp_path: Path) -> None:
    config = continued(origin, "extension=interpolation", f"runs={tmp_path}")
    folder = RunFolder(finish(config))
    other = {"name": "interpolation", "scale": 8.0}
    assert folder.evaluation_of(config.extension) == folder.evaluation
    assert folder.evaluation_of({"name": "none"}).parent.name == "none"
    assert folder.evaluation_of(other).parent.name == "interpolation-scale=8"
