"""One of four ranks: the exchange and whole gradients, for every way to share a sequence."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from pipeline.evaluate.score import Scorer
from pipeline.evaluate.suite import plan, run_suite
from pipeline.evaluate.tasks import TaskStep
from pipeline.model.decoder import Decoder
from pipeline.model.exchange import Exchange
from pipeline.model.loss import IGNORED
from pipeline.parallel.mesh import Mesh, build_mesh
from pipeline.parallel.ring import exchange_for
from pipeline.positions import registry
from pipeline.positions.position_ids import generator, pack_ids, unpack_ids
from pipeline.training.start import build_decoder
from tests.distributed.toy import LENGTH, VOCAB, ToySequences, scattered, toy_config
from tests.evaluate.test_score import toy_evaluation
from tests.evaluate.toy_task import ToyTask

ROWS = 4
CPU = torch.device("cpu")
# sequence_parallel, ring
MESHES = ((4, 1), (2, 1), (4, 4), (4, 2))
# encodings under settings of `model`: every modifier of attention once
MODIFIED: dict[str, tuple[str, dict[str, Any]]] = {
    "norm, bias and scale": (
        "rope",
        {"qk_norm": "cosine", "qk_bias": True, "score_scale": "ssmax"},
    ),
    "blocks": (
        "alibi",
        {
            "qk_norm": "key",
            "score_scale": "log_n",
            "attention_mask": "blockwise",
            "mask_tokens": 5,
        },
    ),
    "groups": (
        "t5",
        {"attention_mask": "shifted_groups", "mask_tokens": 6, "no_position_every": 2},
    ),
}


def serves(position: str, parts: int, ring: int) -> bool:
    """Whether an encoding allows its heads and tokens to be shared so."""
    facts = registry.position_class(position).facts
    return (facts.head_shardable or parts == ring) and (facts.ring_shardable or ring == 1)


def round_trip(mesh: Mesh) -> list[float]:
    """Largest errors of to_heads against the whole tensor, and of to_tokens back again."""
    exchange = exchange_for(mesh)
    errors = []
    for length in (1, 2, 5, 8, 21):
        whole = torch.randn(3, length, 4, 6, generator=torch.Generator().manual_seed(length))
        here = exchange.tokens(length)
        heads = exchange.heads(4)
        traded = exchange.to_heads(whole[:, here], length)
        expected = whole[:, exchange.attended(length), heads.start : heads.stop]
        assert traded.shape == expected.shape
        errors.append(float((traded - expected).abs().max()) if traded.numel() else 0.0)
        back = exchange.to_tokens(traded)
        assert back.shape == whole[:, here].shape
        errors.append(float((back - whole[:, here]).abs().max()) if back.numel() else 0.0)
    return errors


# schemes of position ids: integers and real numbers, drawn per row, and one that embeds
NUMBERED: dict[str, tuple[str, dict[str, Any]]] = {
    "pose": ("alibi", {"name": "pose", "target_length": 90}),
    "randomized": ("fire", {"name": "randomized", "positions": 90}),
    "augmented": ("rope", {"name": "augmented"}),
    "segments": ("rope", {"name": "segments", "places": 3}),
}


def numbered(decoder: Decoder, tokens: npt.NDArray[np.int64]) -> tuple[torch.Tensor, bool]:
    """The position ids of the rows of `tokens`, and whether they are consecutive."""
    scheme = decoder.position_ids
    scheme.read_vocabulary([b"a." if i % 5 == 0 else b"a" for i in range(VOCAB)])
    rows = [scheme.drawn(LENGTH, row, generator(1, n)) for n, row in enumerate(tokens)]
    ids = unpack_ids(pack_ids(rows), scheme.facts.real)
    return ids.expand(ROWS, -1), scheme.facts.consecutive


def gradient_errors(
    mesh: Mesh, position: str, ids_of: dict[str, Any] | None = None, **model: Any
) -> tuple[float, float]:
    """Loss error, and the largest gradient error relative to that gradient's largest entry; with
    weights far from their start, which is zero for some."""
    config, data = toy_config(position), ToySequences()
    config.model = replace(config.model, **model)
    config.position_ids = ids_of or config.position_ids
    decoder = scattered(build_decoder(config))
    ids, consecutive = numbered(decoder, data.tokens[1 : ROWS + 1, :-1])
    tokens = torch.from_numpy(data.tokens[1 : ROWS + 1, :-1])
    labels = torch.from_numpy(data.labels[1 : ROWS + 1])
    total = int((labels != IGNORED).sum())
    whole = decoder(tokens, labels, ids, Exchange(), consecutive).sum() / total
    whole.backward()
    expected = {n: p.grad.clone() for n, p in decoder.named_parameters() if p.grad is not None}
    decoder.zero_grad()
    share = ROWS // mesh.data_parallel
    rows = slice(mesh.data_rank * share, (mesh.data_rank + 1) * share)
    exchange = exchange_for(mesh)
    here = exchange.tokens(LENGTH)
    own = (tokens[rows, here], labels[rows, here], ids[rows])
    nats = decoder(*own, exchange, consecutive).sum()
    (nats / total * mesh.world).backward()
    loss = nats.detach() / total
    dist.all_reduce(loss)
    worst = 0.0
    norm = torch.stack([g.norm() for g in expected.values()]).norm()
    for name, parameter in decoder.named_parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(grad)
        size = expected[name].abs().max()
        if size < 1e-6 * norm:
            size = norm  # zero in truth, as of a number added to whole rows: noise
        if expected[name].numel() == config.model.layers:
            # one number a layer, whose gradient is a sum over all pairs that cancels to a hundredth
            # (fire's c): rounding is on the scale of the encoding's whole gradient
            size = max(g.abs().max() for n, g in expected.items() if n.startswith("position."))
        error = (grad / mesh.world - expected[name]).abs().max() / size
        worst = max(worst, float(error))
    return abs(float(loss) - float(whole.detach())), worst


def evaluation_error(mesh: Mesh, position: str) -> float:
    """Largest difference of any loss of the suite between this mesh and one rank alone."""
    config, decoder, documents = toy_evaluation(position)
    for parameter in decoder.parameters():
        dist.broadcast(parameter.data, 0)
    scorer = Scorer(decoder, mesh, exchange_for(mesh), torch.device("cpu"), 64)
    steps = plan(config, documents)
    sharded = [row["loss"] for row, _ in run_suite(config, scorer, steps)]
    told = [sharded]
    if mesh.rank == 0:
        dist_off = Scorer(decoder, Mesh(), Exchange(), torch.device("cpu"), 64)
        initialized, dist.is_initialized = dist.is_initialized, lambda: False
        alone = [row["loss"] for row, _ in run_suite(config, dist_off, steps)]
        dist.is_initialized = initialized
        told = [alone]
    dist.broadcast_object_list(told, 0)
    return float(max(abs((a or 0.0) - (b or 0.0)) for a, b in zip(sharded, told[0], strict=True)))


def task_differences(mesh: Mesh, position: str) -> list[str]:
    """Fields of a task row, and values behind it, that differ between this mesh and one rank alone;
    losses by more than rounding."""
    config, decoder, _ = toy_evaluation(position)
    for parameter in decoder.parameters():
        dist.broadcast(parameter.data, 0)
    step = TaskStep(ToyTask(), 19, None, 9, "test")
    row, values = step.measure(config, Scorer(decoder, mesh, exchange_for(mesh), CPU, 64))
    told = [(row, values)]
    if mesh.rank == 0:
        with mock.patch.object(dist, "is_initialized", lambda: False):
            told = [step.measure(config, Scorer(decoder, Mesh(), Exchange(), CPU, 64))]
    dist.broadcast_object_list(told, 0)
    alone, behind = told[0]
    differing = [name for name in alone if name != "loss" and row[name] != alone[name]]
    differing += ["loss"] if abs(row["loss"] - alone["loss"]) > 1e-6 else []
    return differing + [n for n in behind if not np.allclose(values[n], behind[n], atol=1e-5)]


def traffic(mesh: Mesh) -> dict[str, int]:
    """Bytes this rank hands to collectives and to its neighbour in one training step."""
    sent = {"all_to_all": 0, "ring": 0}
    trade, pass_on = dist.all_to_all_single, dist.batch_isend_irecv

    def counted_trade(y: torch.Tensor, x: torch.Tensor, **more: Any) -> Any:
        sent["all_to_all"] += x.numel() * x.element_size()
        return trade(y, x, **more)

    def counted_pass(operations: list[Any]) -> Any:
        sent["ring"] += sum(
            op.tensor.numel() * op.tensor.element_size() for op in operations if op.op is dist.isend
        )
        return pass_on(operations)

    with (
        mock.patch.object(dist, "all_to_all_single", counted_trade),
        mock.patch.object(dist, "batch_isend_irecv", counted_pass),
    ):
        gradient_errors(mesh, "rope")
    return sent


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results: dict[str, object] = {}
    for parts, ring in MESHES:
        mesh = build_mesh(parts, ring)
        key = f"{parts}-{ring}"
        results[f"heads-{key}"] = list(exchange_for(mesh).heads(8))
        results[f"tokens-{key}"] = list(range(21)[mesh.tokens(21)])
        results[f"round-trip-{key}"] = max(round_trip(mesh))
        results[f"traffic-{key}"] = traffic(mesh)
        results[f"tasks-{key}"] = task_differences(mesh, "rope")
        for name, (position, model) in MODIFIED.items():
            results[f"modified-{key}-{name}"] = gradient_errors(mesh, position, **model)
        for name, (position, ids_of) in NUMBERED.items():
            results[f"numbered-{key}-{name}"] = gradient_errors(mesh, position, ids_of)
        for position in filter(lambda name: serves(name, parts, ring), registry.names()):
            results[f"gradients-{key}-{position}"] = gradient_errors(mesh, position)
            results[f"evaluation-{key}-{position}"] = evaluation_error(mesh, position)
    gathered: list[dict[str, object] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, results)
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(gathered))
    dist.barrier()
    # or a thread of gloo may be alive when the interpreter ends, and abort it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
