"""Ring attention with any scores: keys and values travel, queries stay.

Station r of R holds the stripe of tokens r, r + R, ...: query a is token r + R a, and key b of
station s is token s + R b. Their distance is R (a - b) + r - s, a function of a - b: a table by
distance of the whole is, stripe against stripe, another table by distance, read with step R. And
j <= i exactly if b <= a (s <= r) or b < a (s > r): each stripe is causal against each, so every
station has the same work at every step, and any kernel for whole sequences serves a pair of
stripes. The parts are merged by their log-sum-exps; in the backward pass keys and values travel
again, and their gradients with them.

Ring: Liu et al. 2023, arXiv 2310.01889. Stripes: Brandon et al. 2023, arXiv 2311.09431. Legend:
B batch, h heads held by this rank, A tokens of its stripe, d head width, N entries of a table.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.exchange import Exchange
from pipeline.model.kernel import Gradients, Kernel, Wanted, merge
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.shard import stripe
from pipeline.parallel.ulysses import Ulysses
from pipeline.positions.scores import Scores

Local = Callable[[Scores], Kernel]


@dataclass(frozen=True)
class Meeting:
    """The queries of one stripe and the keys of another as causal scores of `size` tokens.

    `lead` queries at the front see none of these keys; entry m of a local table is entry
    `entries[m]` of the whole one; the keys are `keys` of the whole sequence.
    """

    scores: Scores
    lead: int
    size: int
    entries: Tensor | None
    keys: slice


def meet(scores: Scores, station: int, other: int, stations: int) -> Meeting | None:
    """The scores of this station's queries against another's keys, or None if there are none.

    `scores.pairs` hold this station's q and the other's k; `scores.ids_k` those of all tokens.
    """
    lead = 1 if other > station else 0
    offset = (station - other) % stations
    size = scores.pairs[0][0].shape[2] - lead
    window = scores.window
    if window is not None:
        window = -((offset - window) // stations)
    if size <= 0 or (window is not None and window <= 0):
        return None
    entries, constant_from = None, None
    if scores.by_distance:
        device, last = scores.by_distance[0].device, scores.by_distance[0].shape[1] - 1
        count = size
        if scores.constant_from is not None:
            constant_from = max(0, -((offset - scores.constant_from) // stations))
            count = constant_from + 1
        entries = (torch.arange(count, device=device) * stations + offset).clamp(max=last)
    table, keys, key_table, values = (
        None if whole is None else whole[:, entries]
        for whole in (scores.table, scores.keys, scores.key_table, scores.values)
    )
    stripe_of_keys = slice(other, other + stations * size, stations)
    met = replace(
        scores,
        pairs=tuple((q[:, :, lead:], k[:, :, :size]) for q, k in scores.pairs),
        queries=None if scores.queries is None else scores.queries[:, :, lead:],
        ids_q=scores.ids_q[lead:],
        ids_k=scores.ids_k[stripe_of_keys],
        constant_from=constant_from,
        table=table,
        keys=keys,
        key_table=key_table,
        values=values,
        decay_q=None if scores.decay_q is None else scores.decay_q[..., lead:],
        decay_k=None if scores.decay_k is None else scores.decay_k[..., stripe_of_keys],
        window=None if window is None or window >= size else window,
        folded=None,
    )
    return Meeting(met, lead, size, entries, stripe_of_keys)


class RingKernel:
    """See `pipeline.model.kernel.Kernel`; all ranks of the ring call it together."""

    def __init__(self, group: dist.ProcessGroup, local: Local) -> None:
        self.group, self.local = group, local
        self.stations, self.station = dist.get_world_size(group), dist.get_rank(group)

    def _pass_on(self, x: Tensor) -> Callable[[], Tensor]:
        """Send `x` to the next station; the returned function waits for that of the one before."""
        ranks = dist.get_process_group_ranks(self.group)
        ahead = ranks[(self.station + 1) % self.stations]
        behind = ranks[(self.station - 1) % self.stations]
        y = torch.empty_like(x)
        work = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, x, ahead, self.group),
                dist.P2POp(dist.irecv, y, behind, self.group),
            ]
        )

        def arrived() -> Tensor:
            for request in work:
                request.wait()
            return y

        return arrived

    def _visits(self, scores: Scores, v: Tensor) -> Iterator[tuple[Meeting | None, Tensor]]:
        """The meetings of this station's queries with all stations' keys, each with its values.

        Its own come first. The next station's are on their way while one is worked on.
        """
        payload = self._payload(scores, v)
        for step in range(self.stations):
            last = step == self.stations - 1
            arrived = None if last else self._pass_on(payload)
            yield self._meet(scores, payload, step)
            if arrived is not None:
                payload = arrived()

    def _payload(self, scores: Scores, v: Tensor) -> Tensor:
        """Keys of all branches and values side by side, padded to the longest stripe."""
        whole = torch.cat([*(k for _, k in scores.pairs), v], dim=-1)
        longest = -(-len(scores.ids_k) // self.stations)
        return F.pad(whole, (0, 0, 0, longest - whole.shape[2])).contiguous()

    def _meet(self, scores: Scores, payload: Tensor, step: int) -> tuple[Meeting | None, Tensor]:
        """This station's queries and what travelled `step` stations: the meeting, and its v."""
        branches = [k.shape[-1] for _, k in scores.pairs]
        *keys, v = payload.split([*branches, payload.shape[-1] - sum(branches)], -1)
        pairs = tuple((q, k) for (q, _), k in zip(scores.pairs, keys, strict=True))
        other = (self.station - step) % self.stations
        meeting = meet(replace(scores, pairs=pairs), self.station, other, self.stations)
        return meeting, v if meeting is None else v[:, :, : meeting.size]

    def forward(self, scores: Scores, v: Tensor) -> tuple[Tensor, Tensor]:
        """v [B,h,A,d] -> out [B,h,A,d], lse [B,h,A] fp32."""
        out = torch.zeros_like(v, dtype=torch.float32)
        lse = torch.full_like(out[..., 0], -math.inf)
        for meeting, values in self._visits(scores, v):
            if meeting is not None:
                lead = meeting.lead
                part = self.local(meeting.scores).forward(meeting.scores, values)
                mixed = merge(out[:, :, lead:], lse[..., lead:], *part)
                out[:, :, lead:], lse[..., lead:] = mixed
        return out.to(v.dtype), lse

    def backward(
        self, scores: Scores, v: Tensor, out: Tensor, lse: Tensor, d_out: Tensor, wanted: Wanted
    ) -> tuple[Tensor, Gradients]:
        """Gradients of v and of `scores.tensors()`."""
        count, width = len(scores.pairs), v.shape[-1]
        totals = [
            None if t is None else torch.zeros_like(t, dtype=torch.float32)
            for t in scores.tensors()
        ]
        travelling = torch.zeros_like(self._payload(scores, v), dtype=torch.float32)
        for meeting, values in self._visits(scores, v):
            if meeting is not None:
                lead = meeting.lead
                d_values, found = self.local(meeting.scores).backward(
                    meeting.scores, values, out[:, :, lead:], lse[..., lead:],
                    d_out[:, :, lead:], wanted,
                )  # fmt: skip
                d_keys = [x for x in found[1 : 2 * count : 2] if x is not None]
                travelling[:, :, : meeting.size] += torch.cat([*d_keys, d_values], -1).float()
                _gather(totals, found, meeting, count)
            travelling = self._pass_on(travelling)()
        # after as many steps as there are stations, what was gathered underway is home
        *d_keys, d_v = travelling[:, :, : v.shape[2]].split(
            [*(k.shape[-1] for _, k in scores.pairs), width], -1
        )
        totals[1 : 2 * count : 2] = d_keys
        gradients = tuple(
            None if total is None or whole is None else total.to(whole.dtype)
            for total, whole in zip(totals, scores.tensors(), strict=True)
        )
        return d_v.to(v.dtype), gradients


def _gather(totals: list[Tensor | None], found: Gradients, meeting: Meeting, branches: int) -> None:
    """Add a meeting's gradients, in the order of `Scores.tensors`, to those of the whole."""
    table, queries, keys, key_table, values, decay = range(2 * branches, 2 * branches + 6)
    for place, (total, part) in enumerate(zip(totals, found, strict=True)):
        if total is None or part is None or (place < 2 * branches and place % 2):
            continue
        if place < 2 * branches or place == queries:
            total[:, :, meeting.lead :] += part
        elif place in (table, keys, key_table, values):
            assert meeting.entries is not None
            total.index_add_(1, meeting.entries, part.float())
        elif place == decay:
            total[..., meeting.keys] += part
        else:
            total += part


class _Gather(torch.autograd.Function):
    """x [...], of every station -> [R,...]; the gradient of x is the sum of what all stations have
    for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        y = x.new_empty(dist.get_world_size(group), *x.shape)
        # gloo takes what is put side by side along the first dimension, not a new one
        dist.all_gather_into_tensor(y.flatten(0, 1), x.contiguous(), group=group)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad[dist.get_rank(ctx.group)], None


class Ring(Exchange):
    """Stations in a ring; inside one, heads are traded as `inner` does."""

    def __init__(self, group: dist.ProcessGroup, inner: Exchange) -> None:
        self.group, self.inner = group, inner
        self.stations, self.station = dist.get_world_size(group), dist.get_rank(group)

    def _held(self, length: int) -> int:
        return len(range(length)[self.attended(length)])

    def heads(self, heads: int) -> range:
        """Global indices of the h heads this rank attends with."""
        return self.inner.heads(heads)

    def tokens(self, length: int) -> slice:
        """The tokens this rank holds of a sequence of `length`."""
        own = self.inner.tokens(self._held(length))
        start, stop = (self.station + self.stations * x for x in (own.start, own.stop))
        return slice(start, stop, self.stations)

    def attended(self, length: int) -> slice:
        """The stripe of this rank's station."""
        return stripe(length, self.stations, self.station)

    def to_heads(self, x: Tensor, length: int) -> Tensor:
        """x [B,T,H,E], `length` = S -> [B,A,h,E]."""
        return self.inner.to_heads(x, self._held(length))

    def to_tokens(self, x: Tensor) -> Tensor:
        """x [B,A,h,E] -> [B,T,H,E]."""
        return self.inner.to_tokens(x)

    def whole(self, x: Tensor, length: int) -> Tensor:
        """x [B,A,h,E], `length` = S -> [B,S,h,E]."""
        longest = -(-length // self.stations)
        padded = F.pad(x, (0, 0, 0, 0, 0, longest - x.shape[1]))
        stripes: Tensor = _Gather.apply(padded, self.group)
        return stripes.permute(1, 2, 0, 3, 4).flatten(1, 2)[:, :length]

    def kernel(self, local: Local) -> Kernel:
        """Keys and values travel around the ring."""
        return RingKernel(self.group, local)


def exchange_for(mesh: Mesh) -> Exchange:
    """The exchange that this rank's decoder needs."""
    station = Exchange() if mesh.station is None else Ulysses(mesh.station)
    return station if mesh.ring is None else Ring(mesh.ring, station)
