"""One rank that breaks trainings off and resumes them: many cases, so that it starts only once."""

import gc
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.checkpoint.folder import load_manifest
from pipeline.checkpoint.state import Keeper, TrainingState, load_state
from pipeline.config.schema import Config
from pipeline.config.tasks import mixed_shares
from pipeline.data.mixture import Mixture
from pipeline.data.module import TrainingSequences
from pipeline.positions.registry import extension_settings, facts_of, names
from pipeline.training import strategy
from pipeline.training.fit import fit
from pipeline.training.module import Pretraining
from pipeline.training.start import build_decoder
from pipeline.training.whole import whole_moments
from tests.distributed.matrix_worker import shard_everything
from tests.distributed.toy import VOCAB, ToySequences, toy_config
from tests.evaluate.test_score import toy_documents
from tests.evaluate.toy_task import ToyTask
from tests.training.continued_worker import SCALED_TO, start_of

# ten sequences, four a step: epochs end inside step 2 and after steps 5 and 10
STEPS, BOUNDARY, MIDDLE = 8, 5, 4
EVERYWHERE = (1, MIDDLE, BOUNDARY - 1, BOUNDARY, BOUNDARY + 1, STEPS - 1)
WITH_STATE = ("cope", "fox", "learned")
"""Encodings that stand for all where seconds count: gates, tables, and what is learned apart."""
TIMES = ("seconds", "tokens_per_second", "mfu", "peak_memory_bytes")


@dataclass(frozen=True)
class Case:
    """A training that is saved after every step, and resumed after each of `steps`."""

    name: str
    position: str
    steps: tuple[int, ...]
    sequence_parallel: int = 2
    zero_stage: int = 1
    accumulate: int = 1
    precision: str = "fp32"
    workers: int = 0
    dropped: int | None = None
    ids: str = "consecutive"
    extension: str | None = None
    mixed: float = 0.0

    @property
    def config(self) -> Config:
        parallel = min(self.sequence_parallel, int(os.environ.get("WORLD_SIZE", "2")))
        config = toy_config(
            self.position,
            processes=int(os.environ.get("WORLD_SIZE", "2")),
            sequence_parallel=parallel,
            zero_stage=self.zero_stage,
            accumulate=self.accumulate,
            precision=self.precision,
        )
        config.trainer.max_steps, config.trainer.save_every = STEPS, 1
        config.optimizer.learning_rate, config.optimizer.min_learning_rate = 0.01, 0.001
        config.optimizer.warmup_steps = 3
        config.data.workers = self.workers
        config.model.drop_position_after = self.dropped
        config.position_ids = {"name": self.ids}
        config.data.mix.copy = self.mixed
        if self.extension is not None:
            config.init_from, config.encoding_length = "origin", SCALED_TO
            own = extension_settings(self.extension)
            config.extension = {"name": self.extension, **own}
        return config


def exact_cases() -> list[Case]:
    """Every stage and precision at every step; data loader, extensions and the rest at some."""
    # loader processes first: they are forks, and this process grows with every engine
    own = [Case("workers", "rope", (BOUNDARY,), sequence_parallel=1, accumulate=2, workers=2)]
    own += [
        Case(f"zero{stage}-{precision}", "t5", EVERYWHERE, zero_stage=stage, precision=precision)
        for stage in (1, 2, 3)
        for precision in ("fp32", "bf16")
    ]
    own += [
        Case("accumulated", "fire", (1, BOUNDARY), zero_stage=3, accumulate=2),
        Case("accumulated-bf16", "learned", (3,), zero_stage=2, accumulate=2, precision="bf16"),
        Case("dropped", "t5", (2, 3, 4), dropped=3),
        Case("drawn-ids", "rope", (3,), ids="randomized"),
        Case("segment-ids", "rope", (3,), zero_stage=3, ids="segments"),
        Case("continued", "rope", (2, BOUNDARY), zero_stage=3, extension="yarn"),
        Case("continued-ids", "rope", (3,), ids="randomized", extension="interpolation"),
        Case("mixed", "rope", (3, BOUNDARY), mixed=0.5),
    ]
    return own + [case for case in everywhere() if case.position in WITH_STATE]


def everywhere() -> list[Case]:
    """Every encoding after every step, accumulated, at one stage or another."""
    steps = tuple(range(1, STEPS))
    return [
        Case(f"encoding-{name}", name, steps, _most_parallel(name), 1 + number % 3, accumulate=2)
        for number, name in enumerate(names())
    ]


def _most_parallel(name: str) -> int:
    return 2 if facts_of(name)["head_shardable"] else 1


class Watched(Pretraining):
    """Keeps the moments of Adam as they are in the end."""

    moments: dict[str, Any]

    def on_train_end(self) -> None:
        super().on_train_end()
        self.moments = whole_moments(self.engine, self.decoder, STEPS, self.trainer.is_global_zero)


class TwoAnswered(ToyTask):
    """As a mixture asks for it."""

    def answer_tokens(self, length: int) -> int:
        return 2


class Draws(ToySequences):
    """Every read draws from the global generators, as foreign code may."""

    def read(self, index: int, start: int, stop: int) -> Any:
        torch.rand(3)
        np.random.rand(3)
        return super().read(index, start, stop)


def sequences_of(config: Config, seed: int) -> TrainingSequences:
    """Text, or text mixed with a task; with a `seed` it draws from the global generators."""
    text: Any = Draws() if seed else ToySequences()
    shares = mixed_shares(config.data.mix)
    return Mixture(text, [(TwoAnswered(), share) for share in shares.values()]) if shares else text


def run(
    config: Config,
    keeper: Keeper | None = None,
    resumed: TrainingState | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """What a training leaves: rows without times, weights, moments. `seed` must not matter."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    rows: list[dict[str, Any]] = []
    start = start_of(config) if config.init_from else None
    module = Watched(config, build_decoder(config, start))
    fitted = fit(
        config,
        sequences_of(config, seed),
        toy_documents(),
        write=rows.append,
        name="",
        module=module,
        vocabulary=[b"." if token % 5 == 0 else b"a" for token in range(VOCAB)],
        start=start,
        keeper=keeper,
        resumed=resumed,
    )
    gc.collect()  # DeepSpeed's engines are held by cycles
    kept = [{k: v for k, v in row.items() if k not in TIMES} for row in rows]
    clock = [row["seconds"] for row in rows if "seconds" in row]
    weights: dict[str, Tensor] = fitted.weights
    return {
        "rows": kept,
        "clock": clock,
        "tokens": fitted.tokens,
        "weights": weights,
        "moments": module.moments,
    }


def keeper_of(folder: Path) -> Keeper:
    if dist.get_rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
    return Keeper(folder / "checkpoints", STEPS, {"config_hash": "c"})


def read(folder: Path, step: int) -> TrainingState:
    path = folder / "checkpoints" / f"step-{step}"
    return load_state(path, load_manifest(path)["seal"])


def exact(case: Case, out: Path) -> dict[str, Any]:
    """Without checkpoints, with one after every step, and resumed from them."""
    config, folder = case.config, out / case.name
    plain = run(config)
    saved = run(config, keeper_of(folder))
    resumed = {}
    for step in case.steps:
        resumed[step] = run(config, None, read(folder, step), seed=step)
    shutil.rmtree(folder, ignore_errors=True)
    return {"plain": plain, "saved": saved, "resumed": resumed}


def repeated(out: Path) -> dict[str, Any]:
    """Resumed three times, twice of these in one epoch: each from what the last one saved."""
    config = Case("repeated", "shaw", ()).config
    plain = run(config, keeper_of(out / "repeated-0"))
    resumed = {}
    for number, step in enumerate((2, 3, 4, 6)):
        state = read(out / f"repeated-{number}", step)
        keeper = keeper_of(out / f"repeated-{number + 1}")
        resumed[step] = run(config, keeper, state, seed=step)
    return {"plain": plain, "saved": plain, "resumed": resumed}


# how a checkpoint was made -> how training goes on from it
WORLDS = {
    "sp2 -> dp2": (Case("", "t5", ()), Case("", "t5", (), sequence_parallel=1)),
    "dp2 -> sp2": (Case("", "t5", (), sequence_parallel=1), Case("", "t5", ())),
    "zero1 -> zero3": (Case("", "t5", ()), Case("", "t5", (), zero_stage=3)),
    "zero3 -> zero2": (Case("", "t5", (), zero_stage=3), Case("", "t5", (), zero_stage=2)),
}


def moved(out: Path) -> dict[str, Any]:
    """Two ranks that go on otherwise than they began, and from what one rank began."""
    results = {}
    for number, (name, (before, after)) in enumerate(WORLDS.items()):
        folder = out / f"moved-{number}"
        began = run(before.config, keeper_of(folder))
        results[name] = {"began": began, "resumed": run(after.config, None, read(folder, MIDDLE))}
    for parallel in (1, 2):
        config = Case("", "t5", (), sequence_parallel=parallel).config
        state = read(out / "alone", MIDDLE)
        results[f"1 -> sp{parallel}"] = {"resumed": run(config, None, state)}
    return results


def four(out: Path) -> dict[str, Any]:
    """Four ranks that go on, shared in every way, from what one rank began; and that begin."""
    state = read(out / "alone", MIDDLE)
    results = {
        f"1 -> 4, sp{parts}": run(Case("", "t5", (), parts).config, None, state)
        for parts in (1, 2, 4)
    }
    results["began"] = run(Case("", "t5", (), 2).config, keeper_of(out / "four"))
    return results


def main() -> None:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    strategy.deepspeed_config = shard_everything
    job, out, wanted = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo")
    results: dict[str, Any] = {}
    if job == "begin":
        results["alone"] = run(Case("", "t5", ()).config, keeper_of(out / "alone"))
        folders = (out / "alone" / "checkpoints").glob("step-*")
        manifests = [load_manifest(folder) for folder in folders]
        results["judged"] = {one["step"]: one["validation_loss"] for one in manifests}
    elif job == "alone":
        for name in ("moved-0", "moved-1"):
            results[name] = run(Case("", "t5", ()).config, None, read(out / name, MIDDLE))
    elif job == "four":
        results = four(out)
    elif job == "after four":
        results["resumed"] = run(Case("", "t5", ()).config, None, read(out / "four", MIDDLE))
    elif job == "moved":
        results = moved(out)
    elif job == "everywhere":
        results = {c.name: exact(c, out) for c in everywhere() if c.name in wanted.split()}
    else:
        results = {c.name: exact(c, out) for c in exact_cases() if wanted in c.name}
        if wanted in "repeated":
            results["repeated"] = repeated(out)
    if dist.get_rank() == 0:
        torch.save(results, out / f"{job}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
