"""The whole bench: memory of each subject in its own process, then times, length after length.

Memory comes first, so that a subject that does not fit ends its own process and not this one; it is
then not timed.
"""

import json
import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

import torch
from tqdm import tqdm

from pipeline.bench.cases import build_case, prepare_torch
from pipeline.bench.gemm import Product, peak, products, rates
from pipeline.bench.memory import Peak, measure_peak
from pipeline.bench.options import Options, Subject
from pipeline.bench.picture import draw
from pipeline.bench.table import text_table
from pipeline.bench.timing import interleaved, paired, paired_ratio
from pipeline.config.durable import write_file
from pipeline.config.redact import public
from pipeline.config.schema import Config
from pipeline.errors import StorageError
from pipeline.model.flops import attention_flops, step_flops
from pipeline.record.environment import environment
from pipeline.record.progress import progress_bar
from pipeline.report.output import save_png

RIVAL_PACKAGES = ("transformers", "litgpt", "x-transformers")


def bench(options: Options) -> None:
    """Measure, print the tables, and leave bench.json and bench.png in `options.out`.

    bench.json is written after every length, with every sample.

    Raises:
        StorageError: `options.out` cannot be written.
    """
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        record = _opening(options)
        device = prepare_torch(options.config, record["environment"]["cores"])
        record["device"], record["threads"] = _device(device), torch.get_num_threads()
        every = products(options.config, device)
        total = sum(
            len(subjects) + (len(subjects) + len(every)) * (options.repeats + 1)
            for subjects in map(options.subjects, options.lengths)
        )
        bar = progress_bar(total, "bench", "step")
        for length in options.lengths:
            rows, measured = _one_length(options, length, every, device, bar)
            record["results"] += rows
            record["products"] += measured
            record["load_average"][1] = os.getloadavg()[0]
            write_file(options.out / "bench.json", json.dumps(record, indent=1).encode())
        bar.close()
        print(text_table(record))
        save_png(draw(record), options.out / "bench.png")
    except OSError as error:
        raise StorageError(f"--out={options.out}: {error}; name a folder to write to") from error
    print(f"bench: {options.out / 'bench.json'}")


def _opening(options: Options) -> dict[str, Any]:
    """The record before anything is measured."""
    load = os.getloadavg()[0]
    settings = {name: public(config) for name, config in options.configs.items()}
    return {
        "environment": environment(),
        "rivals": {name: _version(name) for name in RIVAL_PACKAGES},
        "load_average": [load, load],
        "repeats": options.repeats,
        "precision": options.config.trainer.precision,
        "configs": settings,
        "products": [],
        "results": [],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _one_length(
    options: Options,
    length: int,
    every: Sequence[Product],
    device: torch.device,
    bar: "tqdm[None]",
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the subjects and of the matrix products measured beside them."""

    def said(key: Subject | Product) -> None:
        kind = f"{key.measure} {key.name}" if isinstance(key, Subject) else "matrix products"
        bar.set_description(f"{length} tokens: {kind}", refresh=False)
        bar.update()

    peaks: dict[Subject, Peak] = {}
    for subject in options.subjects(length):
        said(subject)
        config = options.config_of(subject)
        peaks[subject] = measure_peak(subject, config, torch.get_num_threads())
    alive = [subject for subject, found in peaks.items() if found.failure is None]
    cases = {s: build_case(s, options.config_of(s), device) for s in alive}
    runs: dict[Subject | Product, Any] = {product: product.runner(device) for product in every}
    runs |= {subject: case.run for subject, case in cases.items()}
    took = interleaved(runs, options.repeats, device, said)
    bar.update((len(peaks) - len(alive)) * (options.repeats + 1))
    rate = rates({product: took[product] for product in every}, device)
    best = peak(rate, options.config.trainer.precision)
    rows = []
    for subject, found in peaks.items():
        row = _row(subject, options.config, found)
        if subject in cases:
            row["parameters"] = cases[subject].parameters
            row |= _times(subject, row["flops"] / best, took)
        rows.append(row)
    return rows, [
        {
            "length": length,
            "product": product.name,
            "precision": product.precision,
            "seconds": took[product],
            "flops_per_second": rate[product],
        }
        for product in every
    ]


def _row(subject: Subject, config: Config, found: Peak) -> dict[str, Any]:
    """What is known of a subject without its times."""
    model, length = config.model, subject.length
    if subject.measure == "attention":
        flops = attention_flops(model, length)
    else:
        flops = step_flops(model, config.data.vocab, length)
    return {
        "measure": subject.measure,
        "subject": subject.name,
        "maker": subject.maker,
        "position": subject.position,
        "length": length,
        "yardstick": subject.yardstick,
        "flops": flops,
        "peak_bytes": found.bytes,
        "bytes_per_token": None if found.bytes is None else found.bytes / length,
        "failure": found.failure,
    }


def _times(
    subject: Subject, least: float, took: dict[Subject | Product, list[float]]
) -> dict[str, Any]:
    """Seconds, and what follows from them; `least` is the time at the peak of matrix products."""
    own = took[subject]
    middle = median(own)
    times: dict[str, Any] = {
        "seconds": own,
        "median_seconds": middle,
        "tokens_per_second": subject.length / middle,
        "mfu": least / middle,
    }
    for other, samples in took.items():
        if isinstance(other, Subject) and (other.measure, other.name) == (
            subject.measure, subject.yardstick,
        ):  # fmt: skip
            times["ratios"] = paired(own, samples)
            times["ratio"] = paired_ratio(own, samples)
    return times
