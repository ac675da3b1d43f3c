"""The decoder language model: embedding, blocks, norm, head. h0 = embed(sqrt(D) E[x]).

E ~ N(0, 1/sqrt(D)), so the stream starts at unit spread under every encoding (the input scale of
Vaswani et al. 2017, section 3.4); projections ~ N(0, 1/sqrt(inputs)), those back into the stream
divided by sqrt(2 layers) (GPT-2). N(0, s): normal with standard deviation s. Legend: B batch, T
tokens held by this rank, S whole sequence, D width.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pipeline.config.schema import Config
from pipeline.errors import CheckpointError, ConfigError
from pipeline.model.block import Block, RMSNorm
from pipeline.model.exchange import Exchange
from pipeline.model.loss import Head
from pipeline.model.modifiers import Dropped, check_position
from pipeline.positions import registry
from pipeline.positions.base import Position, Shape
from pipeline.positions.none import NoPosition
from pipeline.positions.position_ids import pack_ids


def shape_of(config: Config) -> Shape:
    """What the configured encoding may know of the model; its train length is that of the run that
    trained it first, whatever it is trained on at."""
    model = config.model
    return Shape(model.width, model.layers, model.heads, config.scale_length, config.data.vocab)


class Decoder(nn.Module):
    """Pre-norm decoder whose position encoding is a part like any other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        model, self.width = config.model, config.model.width
        self.checkpointing = model.activation_checkpointing
        self.embedding = nn.Embedding(config.data.vocab, model.width)
        nn.init.normal_(self.embedding.weight, 0.0, model.width**-0.5)
        self.blocks = nn.ModuleList(
            Block(model, layer, config.scale_length) for layer in range(model.layers)
        )
        self.norm = RMSNorm(model.width)
        weight: nn.Parameter = self.embedding.weight  # type: ignore[assignment]
        if not model.tied_embeddings:
            weight = nn.Parameter(torch.empty_like(weight).normal_(0.0, model.width**-0.5))
        self.head = Head(weight)
        # last, so that all other weights start equal under every encoding
        self.position: Position = registry.build(config.position, shape_of(config))
        name, self.seed = config.position["name"], config.seed
        self.position_ids = registry.build_ids(
            config.position_ids, self.position, name, config.train_length
        )
        check_position(config, self.position)
        self.bare_every, self.bare_after = model.no_position_every, model.drop_position_after
        drops = self.bare_after is not None
        bare = Dropped(self.position) if drops else NoPosition(shape_of(config))
        self.bare: Position = bare
        self.at_step(0)

    def at_step(self, step: int) -> None:
        """Be the model of optimizer step `step`, counted from 0."""
        self.dropped = self.bare_after is not None and step >= self.bare_after

    def position_of(self, layer: int) -> Position:
        """The encoding of a layer, counted from 0, or none where the layer goes without."""
        skipped = self.bare_every is not None and (layer + 1) % self.bare_every == 0
        return self.bare if self.dropped or skipped else self.position

    def check_length(self, length: int) -> None:
        """Refuse a sequence longer than the encoding, or its ids, are defined for.

        Raises:
            ConfigError: `length`, in tokens, is too long.
        """
        if not self.dropped:
            self.position.check_length(length)
        most = self.position_ids.max_length
        if most is not None and length > most:
            raise ConfigError(
                f"a sequence of {length} tokens: these position ids are not defined beyond {most} "
                f"tokens; use sequences up to {most}, or others"
            )

    def test_ids(self, tokens: npt.NDArray[np.int64]) -> Tensor:
        """The position ids of tested sequences, tokens [B,S] -> [1,S], or [B,S] where they depend
        on the text."""
        scheme, length = self.position_ids, tokens.shape[1]
        if not scheme.reads_tokens:
            return pack_ids([scheme.tested(length, None, self.seed)])
        return pack_ids([scheme.tested(length, row, self.seed) for row in tokens])

    def hidden(
        self, tokens: Tensor, ids: Tensor, exchange: Exchange, consecutive: bool = True
    ) -> Tensor:
        """tokens [B,T], ids [B,S] or [1,S] global positions of whole sequences -> [B,T,D]."""
        self.check_length(ids.shape[1])
        here = exchange.tokens(ids.shape[1])
        x = self.width**0.5 * self.embedding(tokens)
        position = self.bare if self.dropped else self.position
        x = position("embed", x, ids[:, here], tokens)
        x = self.position_ids("embed", x, ids, here)
        for layer, block in enumerate(self.blocks):
            own = (ids, self.position_of(layer), exchange, consecutive)
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

    @torch.no_grad()
    def standings(
        self,
        tokens: Tensor,
        labels: Tensor,
        ids: Tensor,
        choices: Tensor,
        exchange: Exchange | None = None,
        consecutive: bool = True,
    ) -> Tensor:
        """Nats of each label, its rank among all tokens, and its rank among `choices` [C].

        Arguments and errors are those of `forward`; ranks are those of `Head`, ties against the
        label. Decoding greedily after the same tokens gives the label if its rank is 1.

        Returns:
            [B,T,3] fp32, 0 where the label is IGNORED.
        """
        hidden = self.hidden(tokens, ids, exchange or Exchange(), consecutive)
        found: Tensor = self.head(hidden.flatten(0, 1), labels.flatten(), choices)
        return found.view(*labels.shape, 3)


def parameter_counts(decoder: Decoder) -> tuple[int, int]:
    """Parameters in all (a shared table once), and those of the position encoding and its ids."""
    own = [*decoder.position.parameters(), *decoder.position_ids.parameters()]
    return sum(p.numel() for p in decoder.parameters()), sum(p.numel() for p in own)


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
