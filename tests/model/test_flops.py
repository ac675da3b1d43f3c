"""The formula against torch's count of a dense decoder written a second time."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pipeline.model.decoder import Decoder
from pipeline.model.flops import attention_flops, matmul_parameters, step_flops
from tests.distributed.toy import oracle_of, toy_config


@pytest.mark.parametrize("tied", [True, False])
def test_a_dense_decoder_does_twice_the_attention_and_the_same_rest(tied: bool) -> None:
    """Forward and backward of the fp64 oracle, which attends to the future too, masked."""
    config = toy_config("none")
    config.model.tied_embeddings = tied
    oracle = oracle_of(config, Decoder(config))
    for weight in oracle.w.values():
        weight.requires_grad_()
    text = torch.randint(0, config.data.vocab, (19,))
    with FlopCounterMode(display=False) as counter:
        oracle.nats(text[:-1], text[1:]).sum().backward()
    length = 18
    dense = config.model.layers * attention_flops(config.model, length)
    assert counter.get_total_flops() == step_flops(config.model, config.data.vocab, length) + dense


def test_the_weights_that_multiply_are_the_matrices_and_the_head() -> None:
    config = toy_config("none")
    config.model.tied_embeddings = True
    matrices = [p for p in Decoder(config).parameters() if p.ndim == 2]
    assert matmul_parameters(config.model, config.data.vocab) == sum(p.numel() for p in matrices)


def test_a_window_counts_the_pairs_it_shows() -> None:
    config = toy_config("none")
    length, window = 4096, 64
    whole = attention_flops(config.model, length)
    config.model.attention_window = window
    pairs = sum(min(i + 1, window) for i in range(length))
    counted = attention_flops(config.model, length)
    assert counted == pytest.approx(12 * config.model.width * pairs, rel=0.01)
    config.model.attention_window = 2 * length
    assert attention_flops(config.model, length) == whole
