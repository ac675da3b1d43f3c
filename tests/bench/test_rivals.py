"""The other libraries' decoders have our shape and read causally. Skipped without the extra."""

import pytest
import torch

from pipeline.bench.options import read_options
from pipeline.bench.rivals import RIVALS, build_rival
from pipeline.config.schema import Config
from pipeline.model.decoder import Decoder

CASES = [(rival, position) for rival in RIVALS for position in RIVALS[rival][1]]


def _config(position: str, tied: bool) -> Config:
    # one layer: without positions it could not tell the order of what it read
    shape = ["model.layers=1", "model.width=96", "model.heads=3", "model.mlp_width=160"]
    more = ["data.vocab=300", f"model.tied_embeddings={str(tied).lower()}"]
    return read_options(
        [*shape, *more], positions=position, lengths="24", measure="step", against="", repeats=1,
        out=None,
    ).config  # fmt: skip


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("rival", "position"), CASES)
def test_a_rival_has_our_weights(rival: str, position: str, tied: bool) -> None:
    pytest.importorskip(RIVALS[rival][0])
    config = _config(position, tied)
    ours = sum(p.numel() for p in Decoder(config).parameters())
    theirs = sum(p.numel() for p in build_rival(rival, position, config, 24).parameters())
    # x-transformers cannot leave out the bias of its gate
    extra = 2 * config.model.mlp_width if rival == "x-transformers" else 0
    assert theirs == ours + extra


@pytest.mark.parametrize(("rival", "position"), CASES)
def test_a_rival_predicts_from_the_past_and_uses_positions(rival: str, position: str) -> None:
    pytest.importorskip(RIVALS[rival][0])
    torch.manual_seed(0)
    decoder = build_rival(rival, position, _config(position, True), 24).eval()
    if position == "t5":  # its table starts at zero
        for name, parameter in decoder.named_parameters():
            if "relative_attention_bias" in name:
                torch.nn.init.normal_(parameter)
    tokens = torch.randint(300, (1, 24))
    changed, swapped = tokens.clone(), tokens.clone()
    changed[0, 12] = (tokens[0, 12] + 1) % 300
    swapped[0, :2] = tokens[0, :2].flip(0)
    with torch.no_grad():
        logits, other, moved = (decoder(x) for x in (tokens, changed, swapped))
    assert logits.shape == (1, 24, 300)
    assert torch.allclose(logits[:, :12], other[:, :12], atol=1e-5)
    assert not torch.allclose(logits[:, 12:], other[:, 12:], atol=1e-5)
    assert not torch.allclose(logits[:, 2:], moved[:, 2:], atol=1e-6)


def test_hf_attends_by_torchs_kernel() -> None:
    pytest.importorskip("transformers")
    decoder = build_rival("hf", "rope", _config("rope", True), 24)
    assert decoder.decoder.config._attn_implementation == "sdpa"  # type: ignore[union-attr]
