"""Settings that do not fit together are refused with the key, what is allowed and a fix."""

from dataclasses import replace

import pytest

from pipeline.config import Config, load, validate
from pipeline.config.groups import configs_folder
from pipeline.config.schema import NAMED_GROUPS
from pipeline.errors import ConfigError

BASE = configs_folder() / "base.yaml"


def test_the_defaults_are_valid() -> None:
    validate(Config())


def test_nothing_is_trained_under_an_extension() -> None:
    extended = replace(Config(), extension={"name": "yarn", "scale": 4.0})
    validate(extended, trains=False)
    words = "changes a trained encoding when it is tested.*evaluate RUN extension=yarn"
    with pytest.raises(ConfigError, match=words):
        validate(extended)


@pytest.mark.parametrize("group", NAMED_GROUPS)
def test_every_named_group_has_a_name_and_plain_settings(group: str) -> None:
    for bad, key in (({}, "name"), ({"name": "a b"}, "name"), ({"name": "a", "b": None}, "b")):
        with pytest.raises(ConfigError, match=f"`{group}.{key}` = .* is not allowed"):
            config = Config()
            setattr(config, group, bad)
            validate(config, trains=False)


@pytest.mark.parametrize(
    ("overrides", "key", "fix"),
    [
        (["model.width=130"], "model.width", "Use 128, or 136"),
        (["model.width=4"], "model.width", "Use 8"),
        (["model.heads=3"], "model.width", "Use 126, or 132"),
        (["model.width=60", "model.heads=4"], "model.width", "Use 56, or 64"),
        (["trainer.sequence_parallel=3"], "trainer.sequence_parallel", "Use one of 1, 2, 4"),
        (["trainer.sequence_parallel=8"], "trainer.sequence_parallel", "Use one of 1, 2, 4"),
        (["trainer.sequence_parallel=4"], "trainer.sequence_parallel", "Use one of 1, 2, or a mul"),
        (["trainer.sequence_parallel=3"], "trainer.sequence_parallel", "`trainer.ring` = 3, or a"),
        (["trainer.ring=3"], "trainer.ring", "Use one of 1, 2"),
        (["model.attention_window=2048"], "model.attention_window", "Use at most 2047, or null"),
        (
            ["trainer.processes=3"],
            "trainer.sequence_parallel",
            "Use `trainer.sequence_parallel=1`, or a multiple of 2 ranks \\(under SLURM: "
            "--nodes x --ntasks-per-node\\)",
        ),
        (
            ["trainer.processes=3", "trainer.ring=2"],
            "trainer.sequence_parallel",
            "Use a multiple of 2 ranks",
        ),
        (["trainer.batch_sequences=7", "trainer.nodes=2"], "trainer.batch_sequences", "Use 6 or 8"),
        (["trainer.accumulate=5"], "trainer.batch_sequences", "Use 30 or 35"),
        (["trainer.accumulate=64"], "trainer.batch_sequences", "Use 64 or 128"),
        (["eval_lengths=[128, 64]"], "eval_lengths", r"Write \[64, 128\]"),
        (["eval_lengths=[64, 64]"], "eval_lengths", r"Write \[64\]"),
        (["eval_lengths=[32, 64]"], "evaluate.suffix_tokens", "Use at most 32"),
        (["train_length=63"], "evaluate.suffix_tokens", "Use at most 63"),
        (["evaluate.suffix_tokens=65"], "evaluate.suffix_tokens", "Use at most 64"),
        (["optimizer.min_learning_rate=2e-3"], "optimizer.min_learning_rate", "Use at most 0.001"),
        (["optimizer.warmup_steps=301"], "optimizer.warmup_steps", "Use 0 to 300"),
        (["trainer.evaluate_every=301"], "trainer.evaluate_every", "Use 0 to 300"),
        (["trainer.log_every=301"], "trainer.log_every", "Use 1 to 300"),
        (["data.validation_fraction=0.95"], "data.validation_fraction", "less than 1"),
        (["data.test_fraction=0"], "evaluate.split", "give `data.test_fraction` a share"),
        (["data.validation_fraction=0"], "trainer.evaluate_every", "Use 0, for never"),
        (
            ["data.validation_fraction=0", "evaluate.split=validation", "trainer.evaluate_every=0"],
            "evaluate.split",
            "give `data.validation_fraction` a share",
        ),
        (["data.text_key=body"], "data.text_key", "Leave it out"),
        (["data.text_key=body", "data.source=a.txt"], "data.text_key", "Leave it out"),
        (["evaluate.short_documents=33"], "evaluate.short_documents", "Use at most 32"),
        (["evaluate.sliding_documents=33"], "evaluate.sliding_documents", "Use at most 32"),
    ],
)
def test_settings_that_do_not_fit_are_refused(overrides: list[str], key: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=f"`{key}` = .* is not allowed: .*{fix}"):
        load(BASE, overrides)


def test_a_test_of_a_trained_run_need_not_fit_training() -> None:
    for overrides in (
        ["trainer.processes=3", "trainer.sequence_parallel=1"],
        ["model.attention_window=100", "train_length=64", "eval_lengths=[64]"],
    ):
        assert load(BASE, overrides, trains=False)
        with pytest.raises(ConfigError):
            load(BASE, overrides)
    with pytest.raises(ConfigError, match="trainer.sequence_parallel"):
        load(BASE, ["trainer.sequence_parallel=3"], trains=False)


@pytest.mark.parametrize(
    "overrides",
    [
        ["trainer.sequence_parallel=4", "trainer.nodes=2"],
        ["trainer.ring=2"],
        ["trainer.processes=3", "trainer.sequence_parallel=3", "trainer.ring=3"],
        ["trainer.processes=8", "trainer.sequence_parallel=8", "trainer.ring=2"],
        ["model.attention_window=2047"],
        ["trainer.sequence_parallel=1", "trainer.processes=1"],
        ["trainer.batch_sequences=6", "trainer.nodes=2", "trainer.accumulate=3"],
        ["train_length=64"],
        ["evaluate.suffix_tokens=1", "train_length=2", "eval_lengths=[1]"],
        ["optimizer.warmup_steps=300"],
        ["optimizer.min_learning_rate=1e-3"],
        ["trainer.evaluate_every=300", "trainer.log_every=300"],
        ["data.validation_fraction=0", "trainer.evaluate_every=0"],
        ["data.test_fraction=0", "evaluate.split=validation"],
        ["data.text_key=body", "data.source=corpus"],
        ["trainer.zero_stage=3", "optimizer.gradient_clip=0", "trainer.threads=1"],
    ],
)
def test_the_edges_of_what_fits_are_accepted(overrides: list[str]) -> None:
    assert len(load(BASE, overrides)) == 1


def test_a_sequence_needs_a_token_for_every_rank() -> None:
    config = Config(train_length=2, eval_lengths=[2])
    config.evaluate.suffix_tokens = 1
    config.trainer.processes = config.trainer.sequence_parallel = 4
    with pytest.raises(ConfigError, match="`train_length` = 2 is not allowed: .*Use at least 4"):
        validate(config)


def test_a_sweep_is_not_one_run() -> None:
    with pytest.raises(ConfigError, match="`sweep` = .* is not allowed in a single run"):
        validate(replace(Config(), sweep={"seed": [1]}))


def test_derived_sizes() -> None:
    config = load(BASE, ["trainer.nodes=3", "trainer.processes=4", "trainer.batch_sequences=36"])[0]
    assert (config.trainer.world, config.trainer.data_parallel) == (12, 6)
    assert config.model.head_width == 32
