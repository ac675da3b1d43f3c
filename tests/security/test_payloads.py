"""No file that is loaded runs code, whatever stands in it: it is refused, in one line."""

import contextlib
import hashlib
import io
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from pipeline.checkpoint.export import load_export, load_manifest, save_export
from pipeline.checkpoint.state import Keeper, TrainingState, find_state, load_state
from pipeline.config import load
from pipeline.config.groups import configs_folder
from pipeline.data.prepare import open_prepared, prepare
from pipeline.errors import CheckpointError, ConfigError, DataError, StorageError
from pipeline.launch.cli import main
from pipeline.record.evaluation import read_values
from pipeline.record.folder import RunFolder
from pipeline.record.metrics import MetricsLog, read_rows
from pipeline.report.reading import read_run
from tests.data.corpus import config_for, folder_of_text
from tests.record.mirroring import mirror
from tests.report.synthetic import write_run
from tests.security.payloads import PAYLOADS, arrays, plain_pickle, put, seal_again, torch_file

Payload = Callable[[Path], bytes]
every_payload = pytest.mark.parametrize("payload", PAYLOADS, ids=lambda p: p.__name__)
SMOKE = configs_folder() / "smoke.yaml"
WEIGHTS = {"a": torch.ones(3)}


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.mark.parametrize("payload", [plain_pickle, torch_file, arrays], ids=lambda p: p.__name__)
def test_the_payloads_work_on_careless_readers(payload: Payload, canary: Path) -> None:
    """Or their absence would show nothing."""
    content = io.BytesIO(payload(canary))
    if payload is torch_file:
        torch.load(content, weights_only=False)
    elif payload is arrays:
        _ = np.load(content, allow_pickle=True)["nats"]
    else:
        pickle.load(content)
    assert canary.is_dir()


def test_the_tag_works_on_a_careless_reader(canary: Path) -> None:
    yaml.unsafe_load(f"a: !!python/object/apply:os.mkdir [{canary}]")
    assert canary.is_dir()


@every_payload
def test_weights_whose_manifest_fits_run_nothing(
    payload: Payload, tmp_path: Path, canary: Path
) -> None:
    folder = save_export(tmp_path / "c", WEIGHTS, step=1, tokens=1, config_hash="")
    put(folder, "weights.pt", payload(canary))
    with pytest.raises(CheckpointError, match=r"weights\.pt: holds no plain tensors"):
        load_export(folder)
    assert not canary.exists()


@every_payload
@pytest.mark.parametrize("file", ["weights.pt", "optimizer.pt"])
def test_a_state_to_go_on_from_whose_manifest_fits_runs_nothing(
    file: str, payload: Payload, tmp_path: Path, canary: Path
) -> None:
    moments = {"exp_avg": WEIGHTS, "exp_avg_sq": WEIGHTS}
    folder = Keeper(tmp_path / "c", 2, {"config_hash": ""}).save(
        TrainingState(1, 1, 0.0, WEIGHTS, moments)
    )
    put(folder, file, payload(canary))
    found = find_state(folder.parent)
    assert found is not None and found.folder == folder, "the manifest fits"
    with pytest.raises(CheckpointError, match=f"{file}: holds no plain tensors"):
        load_state(folder, found.manifest["seal"])
    assert not canary.exists()


@pytest.mark.parametrize(
    "content", [[1, 2], WEIGHTS["a"], {"a": 1}, {"a": [WEIGHTS["a"]]}, {1: WEIGHTS["a"]}, None]
)
def test_weights_that_are_no_tensors_by_name_are_refused(content: Any, tmp_path: Path) -> None:
    folder = save_export(tmp_path / "c", WEIGHTS, step=1, tokens=1, config_hash="")
    buffer = io.BytesIO()
    torch.save(content, buffer)
    put(folder, "weights.pt", buffer.getvalue())
    with pytest.raises(CheckpointError, match=r"weights\.pt: holds no plain tensors"):
        load_export(folder)


@every_payload
def test_a_manifest_of_a_checkpoint_runs_nothing(
    payload: Payload, tmp_path: Path, canary: Path
) -> None:
    folder = save_export(tmp_path / "c", WEIGHTS, step=1, tokens=1, config_hash="")
    (folder / "manifest.json").write_bytes(payload(canary))
    for read in (load_manifest, load_export, lambda own: find_state(own.parent)):
        with pytest.raises(CheckpointError, match=r"manifest\.json"):
            read(folder)
    assert not canary.exists()


@pytest.mark.parametrize("key", ["sha256", "bytes"])
@pytest.mark.parametrize("value", [None, [], "9", 9])
def test_a_sealed_manifest_that_says_too_little_is_refused(
    key: str, value: object, tmp_path: Path
) -> None:
    folder = save_export(tmp_path / "c", WEIGHTS, step=1, tokens=1, config_hash="")
    manifest = json.loads((folder / "manifest.json").read_text())
    if value is None:
        del manifest["files"]["weights.pt"][key]
    else:
        manifest["files"]["weights.pt"][key] = value
    seal_again(folder, manifest)
    with pytest.raises(CheckpointError, match=r"manifest\.json|weights\.pt"):
        load_export(folder)


@every_payload
@pytest.mark.parametrize("file", ["manifest.json", "tokenizer.model", "train.tokens"])
def test_a_prepared_folder_runs_nothing(
    file: str, payload: Payload, tmp_path: Path, canary: Path, prepared_once: Path
) -> None:
    folder = Path(shutil.copytree(prepared_once, tmp_path / "prepared"))
    (folder / file).write_bytes(payload(canary))
    with pytest.raises(DataError, match=file):
        open_prepared(folder)
    assert not canary.exists()


@pytest.fixture(scope="module")
def prepared_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpus = folder_of_text(tmp_path_factory.mktemp("source") / "corpus", documents=20)
    return prepare(config_for(corpus, tmp_path_factory.mktemp("prepared"))).folder


@every_payload
def test_a_configuration_runs_nothing(payload: Payload, tmp_path: Path, canary: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(payload(canary))
    with pytest.raises(ConfigError, match=r"config\.yaml:1: "):
        load(path, [])
    assert not canary.exists()


FILES = (
    "config.yaml", "summary.json", "environment.json", "metrics.jsonl", "evaluation/rows.jsonl",
)  # fmt: skip


@every_payload
@pytest.mark.parametrize("file", FILES)
def test_a_report_on_a_run_folder_runs_nothing(
    file: str, payload: Payload, tmp_path: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "runs", "rope")
    assert (run / file).is_file()
    # ended, or it would be a last row that a kill cut short, which is left out
    (run / file).write_bytes(payload(canary) + b"\n")
    with pytest.raises(DataError, match=file):
        read_run(run)
    assert main(["report", str(run), "--out", str(tmp_path / "report")]) == 2
    said = capsys.readouterr().err
    assert file in said and "Traceback" not in said
    assert not canary.exists() and not (tmp_path / "report").exists()


def test_values_named_by_a_row_run_nothing_in_a_report(
    tmp_path: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "runs", "rope")
    path = run / "evaluation" / "rows.jsonl"
    rows = read_rows(path)
    path.unlink()
    (path.parent / "values").mkdir(exist_ok=True)
    content = arrays(canary)
    name = f"bad-{hashlib.sha256(content).hexdigest()[:12]}.npz"
    (path.parent / "values" / name).write_bytes(content)
    with MetricsLog(path) as log:
        for row in rows:
            log.write({**row, "values": name})
    assert main(["report", str(run), "--out", str(tmp_path / "report")]) == 2
    said = capsys.readouterr().err
    assert f"{name}: cannot be read" in said and "Traceback" not in said
    assert not canary.exists()


@every_payload
def test_rows_and_values_run_nothing_where_an_evaluation_goes_on(
    payload: Payload, tmp_path: Path, canary: Path
) -> None:
    content = payload(canary)
    name = f"x-{hashlib.sha256(content).hexdigest()[:12]}.npz"
    (tmp_path / "values").mkdir()
    (tmp_path / "values" / name).write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        read_values(tmp_path / "rows.jsonl", {"values": name})
    (tmp_path / "rows.jsonl").write_bytes(content + b"\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:\d+: "):
        read_rows(tmp_path / "rows.jsonl")
    assert not canary.exists()


@every_payload
def test_what_marks_a_run_folder_runs_nothing(
    payload: Payload, tmp_path: Path, canary: Path
) -> None:
    config = load(SMOKE, [f"runs={tmp_path}", "sweep={}"])[0]
    made = RunFolder.create(config, name="a")
    (made.path / "lock").write_bytes(payload(canary))
    with contextlib.suppress(StorageError):
        made.take()
    made.mark_finished()
    (made.path / "finished").write_bytes(payload(canary))
    with pytest.raises(ConfigError, match=r"config\.yaml was changed after the run finished"):
        RunFolder.create(config, name="a")
    assert not canary.exists()


def test_the_id_of_a_wandb_run_names_nothing_outside(tmp_path: Path) -> None:
    said = "../../outside"
    config = load(SMOKE, [f"runs={tmp_path / 'runs'}", "sweep={}"])[0]
    folder = RunFolder.create(config, name="a").path
    (folder / "wandb_id").write_text(said)
    before = everything(tmp_path, without=folder)
    mirror(folder, ["wandb.mode=offline"], rows=[])
    assert everything(tmp_path, without=folder) == before
    minted = (folder / "wandb_id").read_text().strip()
    assert len(minted) == 8 and minted != said
    assert [p for p in (folder / "wandb").glob("offline-run-*") if p.name.endswith(f"-{minted}")]


def everything(top: Path, without: Path) -> set[Path]:
    """What lies below `top`, but for one folder and the caches that W&B keeps in a home."""
    left = {path for path in top.rglob("*") if not path.is_relative_to(without)}
    return {path for path in left if "cache" not in str(path) and ".config" not in str(path)}
