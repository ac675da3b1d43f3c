"""What tasks in training and in tests mean before anything is written, and for tables."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.schema import Config, EvaluateConfig, MixConfig
from pipeline.data.prepare import Prepared
from pipeline.errors import ConfigError
from pipeline.launch.checks import data_key, describe, prepare_all
from pipeline.launch.tables import decides_text
from tests.data.corpus import config_for, folder_of_text


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    corpus = folder_of_text(tmp_path_factory.mktemp("source") / "corpus")
    return Config(
        train_length=64,
        eval_lengths=[64, 128],
        data=config_for(corpus, tmp_path_factory.mktemp("prepared")),
        evaluate=EvaluateConfig(suffix_tokens=32, documents=4, short_documents=2),
    )


def mixed(config: Config, **shares: float) -> Config:
    return replace(config, data=replace(config.data, mix=MixConfig(**shares)))


def prepared(config: Config) -> Prepared:
    return prepare_all([config])[data_key(config.data)]


def test_a_mix_prepares_no_text_of_its_own_and_scores_none(config: Config) -> None:
    other = mixed(config, copy=0.5)
    assert len(prepare_all([config, other])) == 1
    assert prepared(config).folder == prepared(other).folder
    assert decides_text(config) == decides_text(other)
    assert not [key for key in decides_text(config) if key.startswith("data.mix")]
    tested = replace(config, evaluate=replace(config.evaluate, tasks=["copy"]))
    assert decides_text(tested) != decides_text(config)


def test_a_task_longer_than_training_is_refused_with_the_corpus(config: Config) -> None:
    prepared(mixed(config, copy=0.5))
    folder = Path(config.data.prepared)
    before = sorted(folder.iterdir())
    with pytest.raises(ConfigError, match="`data.mix.multi_key` = 0.25 .*`train_length` = 64"):
        prepared(mixed(config, copy=0.5, multi_key=0.25))
    assert sorted(folder.iterdir()) == before


def test_a_task_longer_than_every_test_is_refused_with_the_corpus(config: Config) -> None:
    for lengths in ([64], [64, 128], [64, 512]):
        asked = replace(
            config,
            eval_lengths=lengths,
            evaluate=replace(config.evaluate, tasks=["copy", "multi_key"]),
        )
        if lengths[-1] == 512:
            prepared(asked)
        else:
            words = (
                f"`evaluate.tasks`: multi_key cannot be tested: .* `eval_lengths` is {lengths[-1]}"
            )
            with pytest.raises(ConfigError, match=words):
                prepared(asked)


def test_the_plan_of_a_mixed_run_says_how_many_targets_there_are_at_most(config: Config) -> None:
    tokens = "300 steps, 614,400 tokens"
    assert tokens in describe(config)
    assert tokens.replace("steps, ", "steps, at most ") in describe(mixed(config, copy=0.5))
