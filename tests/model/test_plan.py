"""Which path a configuration takes is known before anything is computed."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.config.schema import Config
from pipeline.errors import ConfigError
from pipeline.model.plan import as_tested, attention_path
from tests.distributed.toy import toy_config


def config_of(position: str, ring: int = 1, precision: str = "fp32", **model: Any) -> Config:
    config = toy_config(position, ring=ring, precision=precision)
    return replace(config, model=replace(config.model, **model))


@pytest.mark.parametrize(
    ("config", "device", "length", "path"),
    [
        (config_of("rope"), "cpu", 8192, "sdpa"),
        (config_of("rope", attention_window=100), "cpu", 8192, "tile"),
        (config_of("rope", attention_window=100), "cpu", 100, "sdpa"),
        (config_of("alibi"), "cuda", 8192, "tile"),
        (config_of("alibi", precision="bf16"), "cuda", 8192, "fold"),
        (config_of("alibi", precision="bf16"), "cpu", 8192, "tile"),
        (config_of("alibi", precision="bf16", ring=2), "cuda", 8192, "tile"),
        (config_of("t5"), "cpu", 7231, "tile"),
        (config_of("t5"), "cpu", 7232, "far_near"),
        (config_of("t5"), "cuda", 128, "far_near"),
        (config_of("t5", ring=2), "cuda", 8192, "tile"),
        (config_of("t5", attention_path="tile"), "cuda", 8192, "tile"),
        (config_of("rope", attention_mask="blockwise", mask_tokens=64), "cuda", 8192, "tile"),
        (config_of("none", attention_mask="shifted_groups", mask_tokens=64), "cpu", 512, "tile"),
        (config_of("t5", drop_position_after=3), "cuda", 128, "far_near"),
        (config_of("t5", no_position_every=2), "cuda", 128, "far_near"),
        (config_of("rope", score_scale="ssmax", qk_norm="cosine", qk_bias=True), "cpu", 99, "sdpa"),
    ],
)
def test_path_taken(config: Config, device: str, length: int, path: str) -> None:
    assert attention_path(config, device, length) == path


def test_tests_after_training_take_any_path_in_fp32() -> None:
    """A path for bf16 alone would end a trained run without a result."""
    trained = config_of("alibi", precision="bf16", attention_path="fold")
    assert attention_path(trained, "cpu", 64) == "fold"
    with pytest.raises(ConfigError, match="'fold' does not serve .* in float32 on cpu; use auto"):
        attention_path(replace(trained, trainer=as_tested(trained).trainer), "cpu", 64)
    assert attention_path(as_tested(trained), "cpu", 64) == "tile"
    dropped = config_of("t5", drop_position_after=3)
    assert attention_path(as_tested(dropped), "cuda", 128) == "sdpa"
    grouped = config_of("rope", attention_mask="shifted_groups", mask_tokens=4)
    assert attention_path(as_tested(grouped), "cpu", 64) == "sdpa"
    assert attention_path(grouped, "cpu", 64) == "tile"
    assert trained.model.attention_path == "fold"


@pytest.mark.parametrize("key", ["drop_position_after", "no_position_every"])
def test_a_path_must_serve_layers_and_steps_without_the_encoding_too(key: str) -> None:
    chosen: dict[str, Any] = {key: 2}
    config = config_of("t5", attention_path="far_near", **chosen)
    with pytest.raises(ConfigError, match="'far_near' does not serve"):
        attention_path(config, "cuda", 128)
    assert attention_path(config_of("t5", attention_path="far_near"), "cuda", 128) == "far_near"
