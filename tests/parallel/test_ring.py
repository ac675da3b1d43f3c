"""The meeting of two stripes, on one process: geometry, work and what travels."""

from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.parallel.ring import meet
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
