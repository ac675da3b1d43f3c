"""A setting that nothing of the run uses is refused; the same setting is taken where it is used."""

import pytest

from pipeline.config.compose import load
from pipeline.config.unused import check_tests_used
from pipeline.errors import ConfigError
from tests.distributed.ranks import ROOT

BASE = ROOT / "configs" / "base.yaml"


@pytest.mark.parametrize(
    ("idle", "used", "setting"),
    [
        ("trainer.evaluate_every=0", "trainer.evaluate_every=5", "evaluate.short_documents=3"),
        ("trainer.save_every=0", "trainer.save_every=5", "trainer.keep=3"),
        ("wandb.mode=off", "wandb.mode=offline", "wandb.project=mine"),
        ("wandb.mode=off", "wandb.mode=auto", "wandb.entity=us"),
        ("wandb.mode=off", "wandb.mode=online", "wandb.init_timeout=3"),
        ("wandb.mode=off", "wandb.mode=online", "wandb.finish_timeout=3"),
    ],
)
def test_a_setting_without_effect_is_refused(idle: str, used: str, setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(
        ConfigError, match=f"`{key}` = '?{value}(.0)?'? is not .*no effect, .*leave"
    ):
        load(BASE, [idle, setting])
    assert load(BASE, [used, setting])
    assert load(BASE, [idle])
    assert load(BASE, [idle, setting], trains=False)


@pytest.mark.parametrize(
    ("idle", "why"),
    [
        ("trainer.save_every=0", "`trainer.save_every` = 0"),
        ("trainer.evaluate_every=0", "`trainer.evaluate_every` = 0"),
        ("trainer.evaluate_every=30", "`trainer.evaluate_every` = 30"),
        ("trainer.max_steps=100", "`trainer.max_steps` = 100"),
        ("eval_lengths=[64, 256]", "Add 128 to `eval_lengths`"),
        ("trainer.keep=1", "Keep 2 or more"),
    ],
)
def test_no_best_checkpoint_where_none_can_be_chosen_or_kept(idle: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"`trainer.keep_best` = true is not .*no effect.*{why}"):
        load(BASE, [idle, "trainer.keep_best=true"])
    assert load(BASE, [idle]) and load(BASE, ["trainer.keep_best=true"])
    assert load(BASE, ["trainer.keep_best=true", "trainer.evaluate_every=25", "trainer.keep=5"])


def test_one_rank_alone_is_not_watched() -> None:
    one = ["trainer.processes=1", "trainer.sequence_parallel=1"]
    with pytest.raises(ConfigError, match="hang_timeout` = 9.0 .*one rank waits for no other"):
        load(BASE, [*one, "trainer.hang_timeout=9"])
    assert load(BASE, one) and load(BASE, ["trainer.hang_timeout=9"])


@pytest.mark.parametrize(
    ("settings", "key", "used"),
    [
        (["evaluate.task_examples=1"], "evaluate.task_examples", ["evaluate.tasks=[copy]"]),
        (["evaluate.needle_depths=[0.5]"], "evaluate.needle_depths", ["evaluate.tasks=[passkey]"]),
        (["evaluate.protocols=[]", "evaluate.sliding_documents=2"], "evaluate.sliding_documents",
         ["evaluate.protocols=[sliding]"]),
        (["evaluate.short_documents=3"], "evaluate.short_documents", None),
    ],
)  # fmt: skip
def test_a_test_refuses_what_was_just_asked_for_in_vain(
    settings: list[str], key: str, used: list[str] | None
) -> None:
    config = load(BASE, settings, trains=False)[0]
    with pytest.raises(ConfigError, match=f"`{key}` = .* no effect"):
        check_tests_used(config, [key])
    # what the run itself was trained with does not count
    check_tests_used(config, ["eval_lengths"])
    if used:
        check_tests_used(load(BASE, [*settings, *used], trains=False)[0], [key])


def test_fewer_documents_than_short_evaluations_score_are_a_matter_of_training() -> None:
    assert load(BASE, ["evaluate.documents=2"], trains=False)
    with pytest.raises(ConfigError, match="short_documents"):
        load(BASE, ["evaluate.documents=2"])
