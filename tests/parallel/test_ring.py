"""Rings in one process: the geometry of two stripes, and stations as threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import Queue
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.errors import ConfigError
from pipeline.model.attention import attention, part_kernel
from pipeline.model.exchange import Exchange
from pipeline.model.kernel import Kernel
from pipeline.model.tile import TileKernel
from pipeline.parallel.ring import RingKernel, meet
from pipeline.positions.scores import Scores


def stripes(length: int, stations: int, station: int, other: int, **more: Any) -> Scores:
    """One head whose q is the position of the query and whose k that of the key."""
    ids = torch.arange(length)
    q = ids[station::stations].float().view(1, 1, -1, 1)
    k = ids[other::stations].float().view(1, 1, -1, 1)
    own = ids[station::stations]
    return Scores(pairs=((q, k),), scale=1.0, ids_q=own, ids_k=ids, **more)


def seen(length: int, stations: int, **more: Any) -> Tensor:
    """How often each (query, key) is scored, over all meetings of all stations."""
    times = torch.zeros(length, length, dtype=torch.int64)
    for station in range(stations):
        for other in range(stations):
            scores = stripes(length, stations, station, other, **more)
            meeting = meet(scores, station, other, stations)
            if meeting is None:
                continue
            ((q, k),) = meeting.scores.pairs
            assert q.shape[2] == k.shape[2] == meeting.size
            assert torch.equal(q.flatten().long(), meeting.scores.ids_q)
            assert torch.equal(k.flatten().long(), meeting.scores.ids_k)
            for a, i in enumerate(meeting.scores.ids_q):
                for b, j in enumerate(meeting.scores.ids_k[: a + 1]):
                    window = meeting.scores.window
                    times[i, j] += window is None or a - b < window
    return times


@pytest.mark.parametrize("length", [1, 2, 5, 12, 13])
@pytest.mark.parametrize("stations", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("window", [None, 1, 2, 5])
def test_every_key_in_sight_is_met_once(length: int, stations: int, window: int | None) -> None:
    i = torch.arange(length)
    distance = i[:, None] - i
    expected = (distance >= 0) & (distance < (window or length))
    assert torch.equal(seen(length, stations, window=window), expected.long())


@pytest.mark.parametrize("stations", [2, 3, 4])
@pytest.mark.parametrize("constant_from", [None, 1, 3, 7])
def test_tables_are_read_at_the_true_distance(stations: int, constant_from: int | None) -> None:
    length = 13
    entries = length if constant_from is None else constant_from + 1
    table = torch.arange(entries).float()[None]
    for station in range(stations):
        for other in range(stations):
            more = {"table": table, "constant_from": constant_from}
            scores = stripes(length, stations, station, other, **more)
            meeting = meet(scores, station, other, stations)
            assert meeting is not None and meeting.scores.table is not None
            local = meeting.scores.table[0]
            for a, i in enumerate(meeting.scores.ids_q):
                for b, j in enumerate(meeting.scores.ids_k[: a + 1]):
                    read = local[min(a - b, len(local) - 1)]
                    assert read == min(int(i - j), entries - 1)


def test_causal_work_is_even() -> None:
    """Stations differ by at most one row of scores at any step."""
    length, stations = 64, 4
    for step in range(stations):
        work = []
        for station in range(stations):
            other = (station - step) % stations
            meeting = meet(stripes(length, stations, station, other), station, other, stations)
            assert meeting is not None
            work.append(meeting.size * (meeting.size + 1) // 2)
        assert max(work) - min(work) <= length // stations


Post = dict[tuple[int, int], Queue[Tensor]]


class Station(RingKernel):
    """A station that is a thread; its n-th message is the next station's n-th to come."""

    def __init__(self, station: int, stations: int, post: Post) -> None:
        self.local, self.post, self.number = part_kernel, post, 0
        self.stations, self.station = stations, station

    def _pass_on(self, x: Tensor) -> Callable[[], Tensor]:
        self.number += 1
        ahead = (self.station + 1) % self.stations
        self.post.setdefault((ahead, self.number), Queue()).put(x)
        return self.post.setdefault((self.station, self.number), Queue()).get


def ring(scores: Scores, v: Tensor, d_out: Tensor, stations: int) -> list[Tensor | None]:
    """out, and the gradients of v and of `scores.tensors()`, put together from all stations."""
    post: Post = {}
    branches, wanted = 2 * len(scores.pairs), tuple(t is not None for t in scores.tensors())
    rows = {*range(branches), branches + 1}

    def run(station: int) -> list[Tensor | None]:
        own = slice(station, None, stations)
        held = [
            None if t is None else t[:, :, own] if place in rows else t
            for place, t in enumerate(scores.tensors())
        ]
        decay_q = None if scores.decay_q is None else scores.decay_q[..., own]
        part = scores.with_tensors(tuple(held))
        part = replace(part, ids_q=scores.ids_q[own], decay_q=decay_q)
        kernel: Kernel = Station(station, stations, post)
        out, lse = kernel.forward(part, v[:, :, own])
        d_v, found = kernel.backward(part, v[:, :, own], out, lse, d_out[:, :, own], wanted)
        return [out, d_v, *found]

    with ThreadPoolExecutor(stations) as pool:
        parts = list(pool.map(run, range(stations)))
    whole: list[Tensor | None] = []
    for place, (first, like) in enumerate(zip(parts[0], (v, v, *scores.tensors()), strict=True)):
        if first is None or like is None:
            whole.append(None)
        elif place < 2 or place - 2 in rows:
            total = torch.empty_like(like)
            for station, part in enumerate(parts):
                total[:, :, station::stations] = part[place]  # type: ignore[assignment]
            whole.append(total)
        else:
            whole.append(torch.stack([part[place] for part in parts]).sum(0))  # type: ignore
    return whole


def scattered(length: int, clip: int | None, **more: Any) -> tuple[Scores, Tensor, Tensor]:
    """Scores with a table and vectors by distance on both sides, and v and a gradient."""
    torch.manual_seed(2)
    entries = length if clip is None else clip + 1
    q, k, r, v, pull = torch.randn(5, 2, 2, length, 8)
    keys, values = torch.randn(2, 2, entries, 8)
    ids = torch.arange(length)
    scores = Scores(
        pairs=((q, k),),
        scale=8**-0.5,
        ids_q=ids,
        ids_k=ids,
        constant_from=clip,
        table=torch.randn(2, entries),
        queries=r,
        keys=keys,
        values=values,
        **more,
    )
    return scores, v, pull


@pytest.mark.parametrize("stations", [2, 3])
@pytest.mark.parametrize(
    ("length", "clip", "more"),
    [
        (77, None, {}),
        (77, 5, {}),
        (77, 5, {"window": 20}),
        # long enough for the far/near path, which needs whole rows, were it taken
        (1100, 4, {}),
    ],
)
def test_a_ring_equals_the_whole(
    length: int, clip: int | None, more: dict[str, Any], stations: int
) -> None:
    """Output, and the gradients of everything that has one."""
    scores, v, pull = scattered(length, clip, **more)
    whole = TileKernel()
    out, lse = whole.forward(scores, v)
    d_v, found = whole.backward(scores, v, out, lse, pull, (True,) * len(scores.tensors()))
    for own, expected in zip(ring(scores, v, pull, stations), (out, d_v, *found), strict=True):
        assert (own is None) == (expected is None)
        if own is not None and expected is not None:
            assert (own - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_a_path_that_needs_whole_rows_is_refused_in_a_ring() -> None:
    class InRing(Exchange):
        def kernel(self, local: Any) -> Kernel:
            return TileKernel()

    scores, v, _ = scattered(40, 5)
    attention(scores, v, "far_near")
    with pytest.raises(ConfigError, match="far_near.*in a ring.*use auto, tile"):
        attention(scores, v, "far_near", InRing())
