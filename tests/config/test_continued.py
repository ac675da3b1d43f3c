"""Which settings of a continued run must be those of the run that it continues."""

from pathlib import Path

import pytest

from pipeline.config.continued import check_origin, origin_path
from pipeline.errors import ConfigError
from tests.launch.made_origin import small_config

GOES_ON = ("init_from=first/rope-L32-s0", "train_length=64")


def test_seed_and_position_in_the_path_are_those_of_the_run(tmp_path: Path) -> None:
    pattern = "init_from=a-s{seed}/{position}-L32-s{seed}"
    config = small_config(tmp_path, pattern, "seed=3", "position=t5")
    assert origin_path(config) == Path("a-s3/t5-L32-s3")
    assert config.init_from == "a-s{seed}/{position}-L32-s{seed}"


@pytest.mark.parametrize("path", ["runs/a-s{sed}", "runs/{}", "runs/{seed", "runs/seed}"])
def test_other_braces_in_the_path_are_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`init_from` = .*: in braces it takes \{seed\}"):
        small_config(tmp_path, f"init_from={path}")


def test_what_only_a_continued_run_has_is_refused_in_others(tmp_path: Path) -> None:
    for length in (32, 64):
        with pytest.raises(ConfigError, match="`encoding_length` = .* only a run that continues"):
            small_config(tmp_path, f"encoding_length={length}")
    with pytest.raises(ConfigError, match="`extension` = 'yarn'.* or train on under it with init_"):
        small_config(tmp_path, "extension=yarn")


REFUSED = [
    ("position.base", ["position.base=500.0"], "500.0", "10000.0"),
    ("position.layout", ["position.layout=halves"], "'halves'", "'interleaved'"),
    ("position.name", ["position=alibi"], "'alibi'", "'rope'"),
    ("model.width", ["model.width=32"], "32", "16"),
    ("model.layers", ["model.layers=3"], "3", "2"),
    ("model.heads", ["model.heads=4"], "4", "2"),
    ("model.mlp_width", ["model.mlp_width=32"], "32", "24"),
    ("model.tied_embeddings", ["model.tied_embeddings=false"], "false", "true"),
    ("model.attention_window", ["model.attention_window=20"], "20", "null"),
    (
        "model.attention_mask",
        ["model.attention_mask=blockwise", "model.mask_tokens=8"],
        "'blockwise'",
        "'none'",
    ),
    ("model.score_scale", ["model.score_scale=log_n"], "'log_n'", "'none'"),
    ("model.qk_norm", ["model.qk_norm=key"], "'key'", "'none'"),
    ("model.qk_bias", ["model.qk_bias=true"], "true", "false"),
    ("model.no_position_every", ["model.no_position_every=2"], "2", "null"),
    ("model.drop_position_after", ["model.drop_position_after=9"], "9", "null"),
    ("data.vocab", ["data.vocab=300"], "300", "260"),
    ("data.validation_fraction", ["data.validation_fraction=0.1"], "0.1", "0.05"),
    ("data.test_fraction", ["data.test_fraction=0.1"], "0.1", "0.05"),
    ("encoding_length", ["encoding_length=64"], "64", "32"),
]


@pytest.mark.parametrize(("key", "overrides", "own", "there"), REFUSED, ids=lambda x: str(x)[:24])
def test_another_model_is_refused_by_key_both_values_and_folder(
    key: str, overrides: list[str], own: str, there: str, tmp_path: Path
) -> None:
    origin, folder = small_config(tmp_path), Path("first/rope-L32-s0")
    config = small_config(tmp_path, *GOES_ON, *overrides)
    with pytest.raises(ConfigError) as caught:
        check_origin(config, origin, folder)
    assert f"`{key}` = {own} here, {there} there" in str(caught.value)
    assert "first/rope-L32-s0 (`init_from`)" in str(caught.value)


def test_a_mask_of_training_alone_is_no_part_of_the_model(tmp_path: Path) -> None:
    plain = small_config(tmp_path, *GOES_ON)
    sizes = ("model.mask_tokens=8", *GOES_ON)
    grouped, blocks = (
        small_config(tmp_path, f"model.attention_mask={mask}", *sizes)
        for mask in ("shifted_groups", "blockwise")
    )
    check_origin(plain, grouped, tmp_path)
    check_origin(grouped, plain, tmp_path)
    with pytest.raises(ConfigError, match="`model.attention_mask` = 'blockwise' here, 'none' "):
        check_origin(blocks, grouped, tmp_path)


def test_several_keys_are_named_at_once(tmp_path: Path) -> None:
    config = small_config(tmp_path, *GOES_ON, "position=t5", "data.vocab=300")
    with pytest.raises(ConfigError) as caught:
        check_origin(config, small_config(tmp_path), tmp_path)
    for words in (
        "`position.name` = 't5' here, 'rope' there",
        "`position.buckets` = 32 here, absent there",
        "`position.base` = absent here, 10000.0 there",
        "`data.vocab` = 300 here, 260 there",
    ):
        assert words in str(caught.value)


def test_a_run_that_dropped_its_encoding_cannot_be_continued(tmp_path: Path) -> None:
    dropped = small_config(tmp_path, *GOES_ON, "model.drop_position_after=5")
    for config in (dropped, small_config(tmp_path, *GOES_ON)):
        with pytest.raises(ConfigError, match="dropped its encoding in training"):
            check_origin(config, dropped, tmp_path)
