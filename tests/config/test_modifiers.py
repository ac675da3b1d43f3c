"""Modifiers of attention that contradict the model, or have no effect in it, are refused."""

import pytest

from pipeline.config import load
from pipeline.config.groups import configs_folder
from pipeline.errors import ConfigError

BASE = configs_folder() / "base.yaml"
BLOCKWISE, SHIFTED = "model.attention_mask=blockwise", "model.attention_mask=shifted_groups"


@pytest.mark.parametrize(
    ("overrides", "key", "fix"),
    [
        (["model.mask_tokens=8"], "model.mask_tokens", "Use null, or choose a mask"),
        ([BLOCKWISE], "model.mask_tokens", "Give the tokens of a block or group"),
        ([SHIFTED], "model.mask_tokens", "Give the tokens of a block or group"),
        ([SHIFTED, "model.mask_tokens=7"], "model.mask_tokens", "Use 8"),
        ([SHIFTED, "model.mask_tokens=128"], "model.mask_tokens", "Use at most 126"),
        (
            [BLOCKWISE, "model.mask_tokens=1024"],
            "model.mask_tokens",
            "Use at most 1023, or no mask",
        ),
        (
            [BLOCKWISE, "model.mask_tokens=63", "eval_lengths=[64]", "train_length=100"],
            "model.mask_tokens",
            "Use at most 49, or no mask",
        ),
        (
            [BLOCKWISE, "model.mask_tokens=8", "model.attention_window=9"],
            "model.attention_window",
            "Use at least 10, or no mask",
        ),
        (
            [SHIFTED, "model.mask_tokens=8", "model.heads=1", "trainer.sequence_parallel=1"],
            "model.heads",
            "Use 2, or another mask",
        ),
        (
            [BLOCKWISE, "model.mask_tokens=8", "position_ids=pose"],
            "model.attention_mask",
            "Use none, or position_ids=consecutive",
        ),
        (
            [
                "model.qk_norm=cosine",
                "train_length=3",
                "evaluate.suffix_tokens=1",
            ],
            "model.qk_norm",
            "Use a train_length of at least 4, or key",
        ),
        (["model.no_position_every=5"], "model.no_position_every", "Use 2 to 4, or null"),
        (
            ["model.no_position_every=2", "model.layers=1"],
            "model.no_position_every",
            "Use null, or more layers",
        ),
        (["model.drop_position_after=300"], "model.drop_position_after", "Use 1 to 299, or null"),
        (
            [
                "model.drop_position_after=1",
                *("trainer.max_steps=1", "trainer.log_every=1", "trainer.evaluate_every=0"),
                "optimizer.warmup_steps=0",
            ],
            "model.drop_position_after",
            "Use null, or train longer",
        ),
    ],
)
def test_modifiers_that_do_not_fit_are_refused(overrides: list[str], key: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=f"`{key}` = .* is not allowed: .*{fix}"):
        load(BASE, overrides)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.no_position_every=1", "from 2 to 1024, or null"),
        ("model.drop_position_after=0", "from 1 to 1000000000, or null"),
        ("model.score_scale=log", "one of none, log_n, ssmax"),
        ("model.qk_norm=query", "one of none, key, cosine"),
        ("model.attention_mask=full", "one of none, blockwise, shifted_groups"),
    ],
)
def test_values_out_of_range_are_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"`{override.partition('=')[0]}` = .*takes.*{words}"):
        load(BASE, [override])


@pytest.mark.parametrize(
    "overrides",
    [
        [BLOCKWISE, "model.mask_tokens=1023", "model.attention_window=1025"],
        [SHIFTED, "model.mask_tokens=126", "model.attention_window=9"],
        ["model.qk_norm=cosine", "model.score_scale=ssmax", "model.qk_bias=true"],
        ["model.no_position_every=4", "model.drop_position_after=299"],
        ["model.score_scale=log_n", "position_ids=pose"],
    ],
)
def test_modifiers_that_fit_are_accepted(overrides: list[str]) -> None:
    assert load(BASE, overrides)


def test_a_test_of_a_trained_run_may_be_shorter_than_its_blocks() -> None:
    short = [BLOCKWISE, "model.mask_tokens=100", "train_length=64", "eval_lengths=[64]"]
    assert load(BASE, short, trains=False)
    with pytest.raises(ConfigError, match=r"model\.mask_tokens"):
        load(BASE, short)
