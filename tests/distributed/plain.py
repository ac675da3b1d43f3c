"""The same training in one process of plain torch: no Lightning, no DeepSpeed, no sharding, the
loss as one mean over all labels of the step."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.config.schema import Config
from pipeline.data.sequences import step_indices
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.model.loss import IGNORED
from pipeline.training.module import build_decoder
from pipeline.training.optimizer import learning_rate
from tests.distributed.toy import LENGTH, ToySequences, oracle_of
from tests.evaluate.test_score import toy_documents


@dataclass
class Plain:
    losses: list[float]
    norms: list[float]
    gradients: dict[str, Tensor]
    weights: dict[str, Tensor]
    suffix_losses: dict[tuple[int, int], float | None]


def train(config: Config) -> Plain:
    """SGD with the configured schedule and clipping."""
    config.model.activation_checkpointing = config.model.tiled_mlp = False
    decoder, data = build_decoder(config), ToySequences()
    losses, norms, gradients = [], [], {}
    suffix_losses: dict[tuple[int, int], float | None] = {}
    for step in range(config.trainer.max_steps):
        rows = step_indices(config.seed, step, config.trainer.batch_sequences, len(data))
        tokens = torch.from_numpy(data.tokens[rows, :-1])
        labels = torch.from_numpy(data.labels[rows])
        ids = torch.arange(LENGTH)[None]
        hidden = decoder.hidden(tokens, ids, Exchange())
        logits = F.linear(hidden, decoder.head.weight)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        decoder.zero_grad()
        loss.backward()
        if step == 0:
            named = decoder.named_parameters()
            gradients = {n: p.grad.clone() for n, p in named if p.grad is not None}
        norm = torch.nn.utils.clip_grad_norm_(decoder.parameters(), config.optimizer.gradient_clip)
        rate = learning_rate(step, config.trainer.max_steps, config.optimizer)
        with torch.no_grad():
            for parameter in decoder.parameters():
                assert parameter.grad is not None
                parameter.sub_(rate * parameter.grad)
        if (step + 1) % config.trainer.evaluate_every == 0:
            suffix_losses |= _suffix_losses(config, decoder, step + 1)
        losses.append(float(loss))
        norms.append(float(norm))
    weights = {n: p.detach().clone() for n, p in decoder.named_parameters()}
    return Plain(losses, norms, gradients, weights, suffix_losses)


def _suffix_losses(
    config: Config, decoder: Decoder, step: int
) -> dict[tuple[int, int], float | None]:
    """By the fp64 oracle: mean nats of the last targets of every document, per length."""
    oracle = oracle_of(config, decoder)
    losses: dict[tuple[int, int], float | None] = {}
    limit = decoder.position.max_length
    for length in config.eval_lengths:
        nats = []
        for document in toy_documents().tokens if limit is None or length <= limit else ():
            shown = torch.from_numpy(document[-length - 1 :])
            nats.append(oracle.nats(shown[:-1], shown[1:])[-config.evaluate.suffix_tokens :])
        losses[step, length] = float(torch.cat(nats).mean()) if nats else None
    return losses
