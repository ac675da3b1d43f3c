"""Forward and backward of the real decoder on tensors without memory, with every byte counted.

What torch would allocate on a rank, and what the rank would hand to its sequence group, follow from
the shapes alone. So the decoder itself runs on the meta device, and torch's MemTracker follows its
tensors: no second description of the model can drift from it. A process group that moves nothing
stands for the other ranks.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.config.schema import Config
from pipeline.evaluate.extended import extend_decoder, tested_path
from pipeline.launch.planning.fused import fused
from pipeline.model.decoder import Decoder, parameter_counts
from pipeline.model.plan import PRECISIONS
from pipeline.parallel.mesh import build_mesh
from pipeline.parallel.ring import exchange_for

# Longer sequences are extrapolated: of paths whose work in Python grows with the length, beyond so
# many tokens a rank; of those whose tiles grow with its square, beyond so many tokens in all.
MOST_HELD, MOST_TILED = 4096, 4096
_TILED = ("tile", "contextual")
_BARE = 16  # tokens of a vocabulary that is as good as none
META = torch.device("meta")


@dataclass(frozen=True)
class Place:
    """One rank of a sequence group: `sequences` at a time, of `length` tokens in the whole group.

    `micro_batches` run one after another; `gradients` is what becomes of one when it is made:
    "kept" and added to, "widened" to fp32 and so, or "moved" away.
    `device` is the type of the device planned for: `cpu` or `cuda`.
    """

    length: int
    sequences: int
    parts: int = 1
    ring: int = 1
    micro_batches: int = 1
    gradients: str = "kept"
    device: str = "cpu"


@dataclass(frozen=True)
class Traced:
    """Bytes of one micro-batch on one rank.

    `peak` is the most that is alive at once beyond the weights; of it, `activations` are tensors of
    the forward pass and `gradients` those of weights, the rest is temporary. `all_to_all` and
    `ring` are what the rank hands to the exchange and to its neighbour, forward and backward.
    """

    peak: int
    activations: int
    gradients: int
    all_to_all: int
    ring: int

    def towards(self, other: "Traced", share: float) -> "Traced":
        """The point `share` of the way to `other` on the line through both."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        return Traced(*(round(a + share * (b - a)) for a, b in pairs))


@dataclass(frozen=True)
class Line:
    """What long sequences need, beyond `start` tokens: `half` and `whole` are traces of start / 2
    and start tokens, `least` and `earlier` are bytes of gradients that these leave out.

    Gradients are moved away in them, and `blocks` are the peaks of the same two lengths with hardly
    a vocabulary, those of its gradient added: in long sequences the most is there in the backward
    pass of a block, which in short ones gradients and logits may hide.
    """

    start: int
    half: Traced
    whole: Traced
    blocks: tuple[int, int]
    least: int
    earlier: int

    def at(self, length: int) -> Traced:
        """A sequence of `length` tokens."""
        share = (length - self.start // 2) / (self.start - self.start // 2)
        found = self.half.towards(self.whole, share)
        half, whole = self.blocks
        peak = max(found.peak, round(half + share * (whole - half)))
        return replace(found, peak=max(self.least, peak + self.earlier))

    def reaching(self, peak: int) -> int:
        """The tokens of which the peak is so many bytes."""
        room, tokens = peak - self.earlier, self.start - self.start // 2
        lines = ((self.half.peak, self.whole.peak), self.blocks)
        return min(int(self.start + (room - b) * tokens / (b - a)) for a, b in lines)


def trace(config: Config, place: Place) -> Traced:
    """What a micro-batch takes at `place`, whose sequence groups count, not those of `config`."""
    path = _path(config, place)
    if place.length <= _start(path, place):
        return _trace(by_path(config, path), place)
    return line(config, place).at(place.length)


def line(config: Config, place: Place) -> Line:
    """The line that the needs of sequences as long as that of `place`, and longer ones, follow."""
    path = _path(config, place)
    config, start = by_path(config, path), _start(path, place)
    moved = replace(place, gradients="moved", micro_batches=1)
    lengths = [replace(moved, length=n) for n in (start // 2, start)]
    half, whole = (_trace(config, one) for one in lengths)
    bare = replace(config, data=replace(config.data, vocab=_BARE))
    table = 4 * (config.data.vocab - _BARE) * config.model.width
    blocks = tuple(_trace(bare, one).peak + table for one in lengths)
    with META:
        wide = 4 * parameter_counts(Decoder(config))[0]
    return Line(
        start,
        half,
        whole,
        blocks=(blocks[0], blocks[1]),
        least=_trace(config, replace(place, length=start)).peak,
        earlier=wide if place.micro_batches > 1 else 0,
    )


def _path(config: Config, place: Place) -> str:
    placed = replace(config, trainer=replace(config.trainer, ring=place.ring))
    return tested_path(placed, place.device, place.length)


def _start(path: str, place: Place) -> int:
    return MOST_TILED * place.ring if path in _TILED else MOST_HELD * place.parts


def by_path(config: Config, path: str) -> Config:
    """The same with `path`, which the meta device would not choose; layers without the encoding
    have another one, and choose as on a CPU."""
    model = config.model
    if model.no_position_every is not None or model.drop_position_after is not None:
        return config
    return replace(config, model=replace(model, attention_path=path))


def _trace(config: Config, place: Place) -> Traced:
    kind = PRECISIONS[config.trainer.precision]
    with pretended(place.parts), META:
        mesh = build_mesh(place.parts, place.ring)
        exchange = exchange_for(mesh)
        decoder = Decoder(config)
        extend_decoder(decoder, config)
        decoder.to(kind)
        facts, length = decoder.position_ids.facts, place.length
        held = len(range(length)[exchange.tokens(length)])
        rows = 1 if facts.consecutive else place.sequences
        ids = torch.arange(length).expand(rows, length).contiguous()
        tokens = torch.zeros(place.sequences, held, dtype=torch.int64)
        labels = tokens.clone()
        tracker, sent = MemTracker(), _Sent()
        tracker.track_external(decoder)
        with fused(), tracker, _handled(decoder, place.gradients):
            for last in range(1 - place.micro_batches, 1):
                tracker.reset_mod_stats()
                with sent if last == 0 else nullcontext():
                    decoder(tokens, labels, ids, exchange, facts.consecutive).sum().backward()
    snapshot = tracker.get_tracker_snapshot("peak")[META]
    found = {kind: snapshot[kind] for kind in _MemRefType if kind is not _MemRefType.PARAM}
    return Traced(
        peak=sum(found.values()),
        activations=found[_MemRefType.ACT],
        gradients=found[_MemRefType.GRAD],
        all_to_all=sent.all_to_all,
        ring=sent.ring,
    )


@contextmanager
def pretended(world: int) -> Iterator[None]:
    """This process as rank 0 of a process group whose other ranks do not exist; none for one."""
    if world == 1:
        yield
        return
    dist.init_process_group("cpu:fake,meta:fake", store=FakeStore(), rank=0, world_size=world)
    world_group = dist.group.WORLD
    assert world_group is not None
    # or torch warns that none of the two devices has the usual backend
    world_group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def _handled(decoder: nn.Module, how: str) -> Iterator[None]:
    """Do with every gradient what the engine does, as soon as autograd has it."""
    wide: dict[nn.Parameter, Tensor] = {}

    def widen(parameter: nn.Parameter) -> None:
        assert parameter.grad is not None
        own = parameter.grad.float()
        wide[parameter] = own if parameter not in wide else wide[parameter].add_(own)
        parameter.grad = None

    def move(parameter: nn.Parameter) -> None:
        parameter.grad = None

    hook: Callable[[Any], None] | None = {"kept": None, "widened": widen, "moved": move}[how]
    hooks = [
        parameter.register_post_accumulate_grad_hook(hook)
        for parameter in decoder.parameters()
        if hook is not None
    ]
    with warnings.catch_warnings():
        # the tracker wonders where the gradient is that a hook before its own has taken away
        warnings.filterwarnings("ignore", module=r"torch\.distributed\._tools\..*")
        yield
    for one in hooks:
        one.remove()


class _Sent(TorchDispatchMode):
    """Counts the bytes handed to all-to-alls and to other ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.all_to_all, self.ring = 0, 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.ops.c10d.alltoall_base_.default:
            self.all_to_all += _bytes(args[1])
        elif function is torch.ops.c10d.send.default:
            self.ring += sum(map(_bytes, args[0]))
        return function(*args, **(kwargs or {}))


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
