"""The decoder language model: embedding, blocks, norm, head. h0 = embed(sqrt(D) E[x]).

E ~ N(0, 1/sqrt(D)), so the stream starts at unit spread under every encoding (the input scale of
Vaswani et al. 2017, section 3.4); projections ~ N(0, 1/sqrt(inputs)), those back into the stream
divided by sqrt(2 layers) (GPT-2). N(0, s): normal with standard deviation s. Legend: B batch, T
tokens held by this rank, S whole sequence, D width.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pipeline.config.schema import Config
from pipeline.errors import CheckpointError
from pipeline.model.block import Block, RMSNorm
from pipeline.model.exchange import Exchange
from pipeline.model.loss import Head
from pipeline.positions import registry
from pipeline.positions.base import Position, Shape


def shape_of(config: Config) -> Shape:
    """What the configured encoding may know of the model."""
    model = config.model
    return Shape(model.width, model.layers, model.heads, config.train_length)


class Decoder(nn.Module):
    """Pre-norm decoder whose position encoding is a part like any other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        model, self.width = config.model, config.model.width
        self.checkpointing = model.activation_checkpointing
        self.embedding = nn.Embedding(config.data.vocab, model.width)
        nn.init.normal_(self.embedding.weight, 0.0, model.width**-0.5)
        self.blocks = nn.ModuleList(Block(model, layer) for layer in range(model.layers))
        self.norm = RMSNorm(model.width)
        weight: nn.Parameter = self.embedding.weight  # type: ignore[assignment]
        if not model.tied_embeddings:
            weight = nn.Parameter(torch.empty_like(weight).normal_(0.0, model.width**-0.5))
        self.head = Head(weight)
        # last, so that all other weights start equal under every encoding
        self.position: Position = registry.build(config.position, shape_of(config))

    def hidden(
        self, tokens: Tensor, ids: Tensor, exchange: Exchange, consecutive: bool = True
    ) -> Tensor:
        """tokens [B,T], ids [B,S] or [1,S] global positions of whole sequences -> [B,T,D]."""
        self.position.check_length(ids.shape[1])
        x = self.width**0.5 * self.embedding(tokens)
        x = self.position("embed", x, ids[:, exchange.tokens(ids.shape[1])], tokens)
        for block in self.blocks:
            own = (ids, self.position, exchange, consecutive)
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, *own, use_reentrant=False)
            else:
                x = block(x, *own)
        return self.norm(x)

    def forward(
        self,
        tokens: Tensor,
        labels: Tensor,
        ids: Tensor,
        exchange: Exchange | None = None,
        consecutive: bool = True,
    ) -> Tensor:
        """Nats of each label.

        Args:
            tokens: [B,T] token ids held by this rank.
            labels: [B,T] the next tokens; IGNORED labels cost nothing.
            ids: [B,S], or [1,S] for all rows, global positions of the whole sequence, the same on
                all ranks of a group.
            exchange: how this rank's tokens and heads relate to the whole; None = one rank.
            consecutive: ids rise by one from token to token.

        Returns:
            [B,T] fp32 nats, 0 where the label is IGNORED.

        Raises:
            ConfigError: the sequence is longer than the encoding is defined for.
        """
        hidden = self.hidden(tokens, ids, exchange or Exchange(), consecutive)
        return self.head(hidden.flatten(0, 1), labels.flatten()).view_as(labels)


def parameter_counts(decoder: Decoder) -> tuple[int, int]:
    """Parameters in all (a shared table once), and those of the position encoding."""
    return (
        sum(p.numel() for p in decoder.parameters()),
        sum(p.numel() for p in decoder.position.parameters()),
    )


def load_weights(decoder: Decoder, weights: Mapping[str, Tensor]) -> None:
    """Copy `weights`, by parameter name, into the decoder.

    Raises:
        CheckpointError: names or shapes are not those of this decoder.
    """
    own = dict(decoder.named_parameters())
    wrong = sorted(own.keys() ^ weights.keys())
    wrong += [n for n in own.keys() & weights.keys() if own[n].shape != weights[n].shape]
    if wrong:
        raise CheckpointError(
            f"the checkpoint is of another model: {', '.join(wrong[:5])} differ; evaluate it with "
            "the configuration it was trained with"
        )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])
