"""Every modifier that is listed can be turned on as it says, and has the parameters it says."""

from typing import Any

import pytest

from pipeline.config.compose import load
from pipeline.config.schema import ModelConfig
from pipeline.model.decoder import Decoder, parameter_counts
from pipeline.model.modifier_facts import MODIFIERS, ModifierFacts
from tests.distributed.ranks import ROOT

BASE = ROOT / "configs" / "base.yaml"
VALUES = {"W": "16", "B": "16", "G": "16", "N": "2", "STEPS": "9"}


@pytest.mark.parametrize("facts", MODIFIERS, ids=lambda facts: facts.name)
def test_a_listed_modifier_is_a_setting_and_adds_what_it_says(facts: ModifierFacts) -> None:
    chosen = [
        f"{key}={VALUES.get(value, value)}"
        for key, _, value in (part.partition("=") for part in facts.setting.split())
    ]
    counts = []
    for overrides in ([], chosen):
        config = load(BASE, overrides)[0]
        counts.append(parameter_counts(Decoder(config))[0])
    known: dict[str, Any] = {"width": 128, "layers": 4, "heads": 4}
    expected = eval(facts.extra_parameters, {"__builtins__": {}}, known)
    assert counts[1] - counts[0] == expected


def test_every_modifier_of_the_model_is_listed() -> None:
    listed = " ".join(facts.setting for facts in MODIFIERS)
    keys = ("attention_window", "attention_mask", "mask_tokens", "score_scale", "qk_norm")
    for key in (*keys, "qk_bias", "no_position_every", "drop_position_after"):
        assert hasattr(ModelConfig(), key) and f"model.{key}=" in listed
