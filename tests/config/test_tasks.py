"""Settings of tasks: shares, names and depths."""

from fractions import Fraction

import pytest

from pipeline.config import load
from pipeline.config.groups import configs_folder
from pipeline.config.schema import MixConfig
from pipeline.config.tasks import mixed_shares
from pipeline.errors import ConfigError

BASE = configs_folder() / "base.yaml"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["data.mix.copy=0.6", "data.mix.sort=0.5"], r"data.mix` \(copy 0.6, sort 0.5\).* to 1.1,"),
        (
            ["data.mix.copy=1", "data.mix.sort=1e-9"],
            "`data.mix` .* at most 1, which leaves no text",
        ),
        (["data.mix.copy=1.5"], "`data.mix.copy` = 1.5 is not allowed: it takes a finite number"),
        (["data.mix.coppy=0.5"], "`data.mix.coppy` is not a setting.*`data.mix.copy`"),
        (["data.mix=0.5"], "`data.mix` is not a setting. Did you mean .*`data.mix.copy`"),
        (["evaluate.tasks=[copi]"], "'copi' is not a task. Did you mean `copy`.*Allowed: copy, re"),
        (["evaluate.tasks=[copy, sort, copy]"], r"must stand once. Write \['copy', 'sort'\]"),
        (
            ["evaluate.tasks=copy"],
            "`evaluate.tasks` = 'copy' is not .* a list, .*or \\[\\] for none",
        ),
        (["evaluate.tasks=[1]"], "`evaluate.tasks` = .* each item the name of a task"),
        (["evaluate.task_examples=8"], "task_examples` = 8 .* no effect, .*does not name a task"),
        (
            ["evaluate.task_examples=0", "evaluate.tasks=[copy]"],
            "task_examples` = 0 is not allowed",
        ),
        (
            ["evaluate.needle_depths=[0.5]", "evaluate.tasks=[copy, multi_value]"],
            "needle_depths` = .*no effect, .*does not name one of passkey, multi_key",
        ),
        (
            ["evaluate.needle_depths=[0.5, 0]", "evaluate.tasks=[passkey]"],
            r"must ascend and stand once each. Write \[0.0, 0.5\]",
        ),
        (
            ["evaluate.needle_depths=[0, 0.5, 0.5]", "evaluate.tasks=[passkey]"],
            r"must ascend and stand once each. Write \[0.0, 0.5\]",
        ),
        (["evaluate.needle_depths=[0.5, 1.5]"], "each item a finite number from 0 to 1"),
        (["evaluate.needle_depths=[.nan]"], "each item a finite number from 0 to 1"),
        (["evaluate.needle_depths=[]"], "each item a finite number from 0 to 1"),
        (["evaluate.needle_depths=[half]"], "each item a finite number from 0 to 1"),
        (["evaluate.protocols=[sliding, sliding]"], r"stand once. Write \['sliding'\]"),
        (["evaluate.protocols=[slide]"], "protocols` = .* each item one of sliding, non-overl"),
        (
            ["evaluate.protocols=[non-overlapping]", "evaluate.stride_fraction=0.5"],
            r"stride_fraction` = 0.5 .*no effect, .*protocols` = .* does not name sliding",
        ),
        (
            ["evaluate.protocols=[]", "evaluate.sliding_documents=4"],
            "sliding_documents` = 4 .*no effect, .*does not name a protocol",
        ),
    ],
)
def test_settings_of_tasks_that_do_not_fit_are_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(BASE, overrides)


def test_a_test_of_a_trained_run_may_leave_out_what_its_settings_are_about() -> None:
    settings = ["evaluate.tasks=[copy]", "evaluate.task_examples=5", "evaluate.stride_fraction=0.5"]
    left_out = ["evaluate.tasks=[]", "evaluate.protocols=[]"]
    assert load(BASE, [*settings, *left_out], trains=False)[0].evaluate.task_examples == 5
    with pytest.raises(ConfigError, match="no effect"):
        load(BASE, [*settings, *left_out])


def test_settings_of_tasks_that_fit_are_held() -> None:
    config = load(
        BASE,
        [
            "data.mix.copy=1e-3",
            "evaluate.tasks=[multi_key, copy]",
            "evaluate.task_examples=5",
            "evaluate.needle_depths=[0, 0.3, 1]",
        ],
    )[0]
    assert config.data.mix == MixConfig(copy=0.001)
    assert config.evaluate.tasks == ["multi_key", "copy"]
    assert config.evaluate.task_examples == 5
    assert config.evaluate.needle_depths == [0.0, 0.3, 1.0]
    assert all(type(depth) is float for depth in config.evaluate.needle_depths)
    assert load(BASE, ["evaluate.tasks=[]"])[0].evaluate.tasks == []


def test_shares_are_the_decimal_numbers_that_were_written() -> None:
    """0.7 + 0.2 + 0.1 is below 1 in floating point, ten times 0.1 too; here they are exact."""
    shares = ["data.mix.copy=0.7", "data.mix.sort=0.2", "data.mix.parity=0.1"]
    mix = load(BASE, shares)[0].data.mix
    assert mixed_shares(mix) == {
        "copy": Fraction(7, 10),
        "sort": Fraction(2, 10),
        "parity": Fraction(1, 10),
    }
    assert sum(mixed_shares(mix).values()) == 1
    assert mixed_shares(MixConfig(copy=1e-7)) == {"copy": Fraction(1, 10**7)}
    assert mixed_shares(MixConfig()) == {}


def test_a_share_can_be_swept() -> None:
    runs = load(BASE, ["sweep.data.mix.copy=[0.0, 0.2]"])
    assert [run.data.mix.copy for run in runs] == [0.0, 0.2]
