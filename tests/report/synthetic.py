"""Run folders made up for tests of the report: plausible curves, no model behind them."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipeline.config.label import file_name
from pipeline.evaluate.means import standard_error
from pipeline.record.folder import RunFolder

TRAIN_LENGTH = 128
REASON = f"this position encoding is not defined beyond {TRAIN_LENGTH} tokens"
LENGTHS = (64, 128, 256, 512, 1024, 2048)
# Loss added per doubling beyond the train length; None: not defined there.
FATE: dict[str, float | None] = {
    "none": 0.55, "learned": None, "sinusoidal": 0.8, "rope": 0.45, "alibi": -0.015, "t5": 0.02,
}  # fmt: skip


def write_run(
    root: Path,
    position: str,
    seed: int = 0,
    *,
    config: Mapping[str, Any] | None = None,
    row: Mapping[str, Any] | None = None,
) -> Path:
    """A finished run folder; ``config`` overrides settings, ``row`` fields of evaluation rows."""
    settings: dict[str, Any] = {
        "experiment": "compare", "seed": seed, "runs": "runs", "train_length": TRAIN_LENGTH,
        "eval_lengths": list(LENGTHS), "position": {"name": position},
        "model": {"width": 128, "layers": 4, "heads": 4}, **(config or {}),
    }  # fmt: skip
    folder = root / settings["experiment"] / f"{position}-L{settings['train_length']}-s{seed}"
    (folder / "evaluation").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    RunFolder(folder).mark_finished()
    environment = {
        "python": "3.11.9", "packages": {"torch": "2.13.0", "wandb": None}, "platform": "Linux",
        "cpu": "A processor", "cores": 2, "git": {"commit": "a" * 40, "changed": False},
    }  # fmt: skip
    (folder / "environment.json").write_text(json.dumps(environment))
    write_rows(folder / "metrics.jsonl", _metrics(position, seed))
    common = {
        "split": "test", "text_sha256": "ab" * 32, "position": position, "seed": seed,
        "precision": "fp32", "corpus_sha256": "c0" * 32, "tokenizer_sha256": "70" * 32,
        "code_sha256": "de" * 32,
        "train_length": settings["train_length"], "step": 300, "tokens": 1_228_800, **(row or {}),
    }  # fmt: skip
    write_rows(
        folder / "evaluation" / "rows.jsonl",
        ({**found, **common} for found in _rows(position, seed)),
    )
    summary = {
        "position": position, "seed": seed, "train_length": settings["train_length"],
        "parameters": 1_050_000, "position_parameters": 16384 if position == "learned" else 0,
        "attention_path": "tile" if position in ("alibi", "t5") else "sdpa",
        "tokens_per_second": 21000.0 - 900 * len(position), "peak_memory_bytes": 700 * 2**20,
        "train_seconds": 61.0, "evaluate_seconds": 14.0, "final_loss": 2.9 + seed * 0.01,
        "corpus_sha256": "c0" * 32, "tokenizer_sha256": "70" * 32, "training_sha256": ["7a" * 32],
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def write_extended(folder: Path, name: str, settings: str, change: float = 0.0) -> Path:
    """Rows of a run folder under an extension: its own, each loss changed; returns their file."""
    rows = [json.loads(x) for x in (folder / "evaluation" / "rows.jsonl").read_text().splitlines()]
    path = folder / "evaluation" / file_name(f"{name} {settings}".rstrip()) / "rows.jsonl"
    path.parent.mkdir()
    own = {"extension": name, "extension_settings": settings}
    write_rows(path, ({**row, **own, "loss": row["loss"] and row["loss"] + change} for row in rows))
    return path


def write_kept(root: Path, position: str, seed: int = 0, **changes: Any) -> Path:
    """A run as `write_run` writes it that keeps the nats behind its rows."""
    folder = write_run(root, position, seed, **changes)
    write_values(folder / "evaluation" / "rows.jsonl")
    return folder


def write_values(rows_path: Path) -> None:
    """Nats behind the rows of a file, as means say; documents are alike in all runs."""
    rows = [json.loads(line) for line in rows_path.read_text().splitlines()]
    (rows_path.parent / "values").mkdir()
    for number, row in enumerate(rows):
        if row["defined"] and row["protocol"] not in ("per-position", "task"):
            targets = row["suffix_tokens"] or row["length"]
            size = row["documents"], targets
            text = np.random.default_rng(7).gamma(2.0, 0.5, (size[0], 1))
            own = np.random.default_rng([number, row["seed"], len(row["position"])])
            nats = text + 0.05 * own.normal(size=(size[0], 1)) + own.normal(0.0, 0.3, size)
            nats += row["loss"] - nats.mean()
            row["values"] = f"{row['protocol'].replace(' ', '-')}-{row['length']}.npz"
            row["scored_tokens"] = nats.size
            row["standard_error"] = standard_error(nats.mean(axis=1))
            kept = nats.astype(np.float32).ravel()
            np.savez_compressed(rows_path.parent / "values" / row["values"], nats=kept)
    write_rows(rows_path, rows)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def loss_at(position: str, length: int, seed: int) -> float | None:
    """The made-up suffix loss of an encoding; None where it is not defined."""
    doublings, fate = math.log2(length / TRAIN_LENGTH), FATE.get(position, 0.1)
    if doublings > 0 and fate is None:
        return None
    noise = 0.015 * np.random.default_rng([seed, length, len(position)]).normal()
    change = -0.12 * doublings if doublings <= 0 else (fate or 0.0) * doublings
    return float(2.9 + 0.02 * len(position) + change + noise)


def _rows(position: str, seed: int) -> list[dict[str, Any]]:
    rows = []
    for length in LENGTHS:
        loss = loss_at(position, length, seed)
        rows.append(_row("suffix", length, loss, suffix_tokens=64))
        rows.append(_row("sliding", length, loss and loss - 0.05, stride=length // 4))
        rows.append(_row("non-overlapping", length, loss and loss + 0.2))
    control = loss_at(position, TRAIN_LENGTH, seed)
    rows.append(_row("window control", TRAIN_LENGTH, control, suffix_tokens=64, stride=32))
    longest = max(length for length in LENGTHS if loss_at(position, length, seed) is not None)
    curve = [
        (loss_at(position, max(start + 8, 32), seed) or 0) + 2.5 / (start + 4) ** 0.5
        for start in range(0, longest, 16)
    ]
    rows.append(_row("per-position", longest, 2.9, bin=16, losses=curve))
    return rows


def _row(protocol: str, length: int, loss: float | None, **more: Any) -> dict[str, Any]:
    return {
        "protocol": protocol, "length": length, "defined": loss is not None,
        "reason": None if loss is not None else REASON,
        "loss": loss, "perplexity": None if loss is None else math.exp(loss),
        "bits_per_byte": None if loss is None else loss / math.log(2) / 3,
        "standard_error": None if loss is None else 0.02, "scored_tokens": 2048, "documents": 32,
        "suffix_tokens": None, "stride": None, **more,
    }  # fmt: skip


def _metrics(position: str, seed: int) -> list[dict[str, Any]]:
    noise = np.random.default_rng([seed, len(position)])
    rows: list[dict[str, Any]] = []
    for step in range(10, 301, 10):
        loss = 2.9 + 4.5 * math.exp(-step / 60) + 0.05 * noise.normal()
        tokens = step * 4096
        rows.append({
            "kind": "train", "step": step, "tokens": tokens, "loss": loss, "learning_rate": 1e-3,
            "gradient_norm": 0.8, "tokens_per_second": 20000.0, "seconds": step * 0.2,
        })  # fmt: skip
        for length in (128, 1024) if step % 100 == 0 else ():
            short = loss_at(position, length, seed)
            extra = 4.5 * math.exp(-step / 60)
            row = _row("suffix", length, None if short is None else short + extra, suffix_tokens=64)
            rows.append({"kind": "evaluation", "step": step, "tokens": tokens, **row})
    return rows
