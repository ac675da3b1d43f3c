"""The same training in one process of plain torch: no Lightning, no DeepSpeed, no sharding, the
loss as one mean over all labels of the step. In bf16, of weights kept in fp32."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.config.schema import Config
from pipeline.data.sequences import step_indices
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.model.loss import IGNORED
from pipeline.training.optimizer import learning_rate
from pipeline.training.start import build_decoder
from tests.distributed.matrix_cases import OTHERS
from tests.distributed.toy import ToySequences, oracle_of
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
    weights = {n: p.detach().clone() for n, p in decoder.named_parameters()}
    if config.trainer.precision == "bf16":
        decoder.bfloat16()
    losses, norms = [], []
    first: dict[str, Tensor] = {}
    suffix_losses: dict[tuple[int, int], float | None] = {}
    for step in range(config.trainer.max_steps):
        rows = step_indices(config.seed, step, config.trainer.batch_sequences, len(data))
        tokens = torch.from_numpy(data.tokens[rows, :-1])
        logits = _logits(decoder, tokens).flatten(0, 1)
        labels = torch.from_numpy(data.labels[rows]).flatten()
        loss = F.cross_entropy(logits, labels, ignore_index=IGNORED)
        decoder.zero_grad()
        loss.backward()
        gradients = {n: p.grad.float() for n, p in decoder.named_parameters() if p.grad is not None}
        first = first or gradients
        norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
        clipped = min(1.0, config.optimizer.gradient_clip / (float(norm) + 1e-6))
        rate = learning_rate(step, config.trainer.max_steps, config.optimizer)
        with torch.no_grad():
            for name, parameter in decoder.named_parameters():
                parameter.copy_(weights[name].sub_(rate * clipped * gradients[name]))
        if (step + 1) % config.trainer.evaluate_every == 0:
            suffix_losses |= _suffix_losses(config, decoder, step + 1)
        losses.append(loss.item())
        norms.append(float(norm))
    return Plain(losses, norms, first, weights, suffix_losses)


def _logits(decoder: Decoder, tokens: Tensor) -> Tensor:
    """tokens [B,S] -> [B,S,V] fp32."""
    ids = torch.arange(tokens.shape[1])[None]
    return F.linear(decoder.hidden(tokens, ids, Exchange()), decoder.head.weight).float()


def _suffix_losses(
    config: Config, decoder: Decoder, step: int
) -> dict[tuple[int, int], float | None]:
    """Mean nats, summed in fp64, of the last targets of every document, per length."""
    losses: dict[tuple[int, int], float | None] = {}
    limit = decoder.position.max_length
    for length in config.eval_lengths:
        nats = []
        for document in toy_documents().tokens if limit is None or length <= limit else ():
            shown = torch.from_numpy(document[-length - 1 :])
            nats.append(_nats(config, decoder, shown)[-config.evaluate.suffix_tokens :])
        losses[step, length] = float(torch.cat(nats).mean()) if nats else None
    return losses


@torch.no_grad()
def _nats(config: Config, decoder: Decoder, shown: Tensor) -> Tensor:
    """tokens [S+1] -> [S] fp64, by the fp64 oracle; by the decoder itself where it rounds to bf16,
    or where the oracle has loops that take too long."""
    if config.position["name"] in OTHERS or config.trainer.precision == "bf16":
        logits = _logits(decoder, shown[None, :-1])[0]
        return F.cross_entropy(logits.double(), shown[1:], reduction="none")
    return oracle_of(config, decoder).nats(shown[:-1], shown[1:])
