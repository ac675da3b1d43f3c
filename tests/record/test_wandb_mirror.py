"""The mirror through the real client: online against a stand-in server, offline, and off."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from pipeline.record.wandb_points import points
from tests.record.fake_wandb import FakeWandb
from tests.record.mirroring import KEY, POINTS, ROOT, ROWS, SHORT, mirror, sync


def test_online_every_row_arrives_and_runs_group(folder: Path, server: FakeWandb) -> None:
    _, said = mirror(folder, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    run = server.only_run()
    assert len(run.rows) == POINTS
    assert [row["train/loss"] for row in run.rows[:5]] == [3 - step / 8 for step in range(1, 6)]
    assert (run.display_name, run.group, run.job_type) == ("rope-L64-s0", "compare", "pretrain")
    assert run.tags == ["rope", "L64"]
    assert run.settings["position"] == "rope"
    assert run.settings["position_base"] == 10000
    assert run.settings["position_ids"] == "consecutive"
    assert run.settings["extension"] == "none"
    assert run.settings["train_length"] == 64
    assert run.settings["model_width"]
    assert run.exit_code == 0
    assert server.unknown == []
    assert said.splitlines() == [f"W&B: {server.url}/lab/farsight/runs/{run.name}"]


def test_metrics_are_defined_by_exact_names_over_our_own_axes(
    folder: Path, server: FakeWandb
) -> None:
    mirror(folder, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    run = server.only_run()
    assert run.patterns == []
    assert set(run.axes.values()) == {"train/tokens", "eval/length", "eval/position"}
    for name, axis in (
        ("train/loss", "train/tokens"),
        ("train/step", "train/tokens"),
        ("train/suffix_loss_L64", "train/tokens"),
        ("eval/suffix_loss", "eval/length"),
        ("eval/suffix_perplexity", "eval/length"),
        ("eval/window_control_loss", "eval/length"),
        ("eval/sliding_bits_per_byte", "eval/length"),
        ("eval/non_overlapping_loss", "eval/length"),
        ("eval/per_position_loss", "eval/position"),
    ):
        assert run.axes[name] == axis, name
    for row in run.rows:
        for name in row.keys() - set(run.axes.values()):
            assert run.axes[name] in row, f"{name} has no x in its row"


def test_a_second_start_goes_on_as_the_same_run(folder: Path, server: FakeWandb) -> None:
    mirror(folder, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    minted = (folder / "wandb_id").read_text()
    mirror(folder, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    assert (folder / "wandb_id").read_text() == minted
    assert server.only_run().name == minted.strip()
    again = server.only_run().rows[POINTS:]
    assert len(again) == POINTS - 5 - 1  # training is there; an evaluation was made anew
    assert not any("train/tokens" in row for row in again)


@pytest.mark.parametrize("offline", [True, False])
def test_after_a_kill_no_point_of_training_is_missing_or_doubled(
    folder: Path, server: FakeWandb, offline: bool
) -> None:
    """The first start sent up to step 4 of 5 and is lost; its evaluation at step 4 was not sent."""
    mode = "offline" if offline else "online"
    where = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": server.url, "WANDB_MODE": mode}
    spike = {"kind": "spike", "step": 4, "tokens": 4 * 4096, "loss": 2.5}
    short = {**ROWS[5], "step": 4, "tokens": 4 * 4096}
    mirror(folder, (), [*ROWS[:3], spike, ROWS[3]], 1, **where)
    trained_again = [{**ROWS[3], "seconds": 2.5, "loss": ROWS[3]["loss"] + 1e-7}, short, ROWS[4]]
    mirror(folder, (), [*ROWS[:3], spike, *trained_again, ROWS[5]], 0, **where)
    run = sync(folder, server) if offline else server.only_run()
    steps = [row["train/step"] for row in run.rows if "train/step" in row]
    assert steps == [1, 2, 3, 4, 5]
    assert [row["train/tokens"] for row in run.rows if "train/spike" in row] == [4 * 4096]
    evaluated = [row["train/tokens"] for row in run.rows if "train/suffix_loss_L64" in row]
    assert evaluated == [4 * 4096, 5 * 4096]


def test_a_run_that_failed_is_shown_as_failed(folder: Path, server: FakeWandb) -> None:
    mirror(folder, exit_code=4, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    assert server.only_run().exit_code == 4


def test_an_id_whose_writing_was_cut_is_minted_anew(folder: Path, server: FakeWandb) -> None:
    (folder / "wandb_id").write_text("")
    mirror(folder, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    assert len(server.only_run().name) == 8
    assert (folder / "wandb_id").read_text().strip() == server.only_run().name


def test_without_a_key_it_is_offline_says_so_once_and_syncs_later(
    folder: Path, server: FakeWandb
) -> None:
    _, said = mirror(folder)
    assert len(said.splitlines()) == 1
    assert "no key, so offline" in said
    assert "`python -m pipeline sync " in said
    assert [path.name[:8] for path in (folder / "wandb").glob("*run-*")] == ["offline-"]
    run = sync(folder, server)
    assert len(run.rows) == POINTS
    assert run.axes["eval/suffix_loss"] == "eval/length"


def test_a_key_in_netrc_is_found(folder: Path, server: FakeWandb) -> None:
    host = server.url.removeprefix("http://")
    netrc = folder.parent / "netrc"
    netrc.write_text(f"machine {host} login user password {KEY}\n")
    netrc.chmod(0o600)
    mirror(folder, WANDB_BASE_URL=server.url)
    assert len(server.only_run().rows) == POINTS


def test_wandb_mode_of_the_environment_can_keep_it_offline(folder: Path, server: FakeWandb) -> None:
    mirror(folder, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url, WANDB_MODE="offline")
    assert server.runs == {}


def test_off_and_other_ranks_write_nothing_and_import_nothing(folder: Path) -> None:
    code = """
import sys
from pathlib import Path
from typing import Any
from pipeline.config.compose import load
from pipeline.record.wandb_mirror import WandbMirror
folder = Path(sys.argv[1])
for mode, enabled in (("off", True), ("online", False)):
    (config,) = load(folder / "config.yaml", [f"wandb.mode={mode}"])
    mirror = WandbMirror(config, folder, enabled)
    mirror.log({"kind": "train", "tokens": 1})
    mirror.finish()
print("wandb" in sys.modules, sorted(path.name for path in folder.glob("wandb*")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("False []\n", "")


def test_no_secret_is_written_into_the_run_folder(folder: Path, server: FakeWandb) -> None:
    secrets: dict[str, Any] = {
        "WANDB_API_KEY": KEY,
        "HF_TOKEN": "hf_abcdefghijklmnopqrstuv",
        "AWS_SECRET_ACCESS_KEY": "aws-very-secret-value",
        "PIP_INDEX_URL": "https://user:proxy-password@mirror.example/simple",
    }
    # The rows are an argument of the process that mirrors them.
    told = [*ROWS, {"argument": "argument-very-secret"}]
    for url in (server.url, "http://127.0.0.1:9"):
        _, said = mirror(folder, SHORT, told, WANDB_BASE_URL=url, **secrets)
        assert not any(secret in said for secret in secrets.values())
    secrets["an argument"] = "argument-very-secret"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in files)
    for path in files:
        for secret in secrets.values():
            assert secret.encode() not in path.read_bytes(), f"{secret} in {path}"
    assert not any(s.encode() in body for body in server.bodies for s in secrets.values())


def test_points_leave_out_what_is_null() -> None:
    row = {"kind": "train", "tokens": 5, "loss": 1.0, "gradient_norm": None}
    assert points(row) == [("train/tokens", {"train/tokens": 5, "train/loss": 1.0})]
    assert points({"protocol": "suffix", "length": 9, "defined": False, "loss": None}) == []


def task(depth: float | None, **more: Any) -> dict[str, Any]:
    scores = {"exact_match": 0.5, "loss": 2.0, "rank": 1.5, "perplexity": None}
    return {"protocol": "task", "task": "passkey", "length": 64, "depth": depth, **scores, **more}


def test_a_task_has_its_own_curves_and_a_needle_one_for_each_depth() -> None:
    assert points(task(None)) == [
        (
            "eval/length",
            {
                "eval/length": 64,
                "eval/passkey_exact_match": 0.5,
                "eval/passkey_loss": 2.0,
                "eval/passkey_rank": 1.5,
            },
        )
    ]
    for depth, name in ((0.0, "d0"), (0.25, "d25"), (0.125, "d12_5"), (1.0, "d100")):
        ((_, point),) = points(task(depth))
        names = [f"eval/passkey_{key}_{name}" for key in ("exact_match", "loss", "rank")]
        assert list(point) == ["eval/length", *names]
    assert points(task(0.5, exact_match=None, loss=None, rank=None)) == []


def test_a_picture_arrives_with_the_rows(folder: Path, server: FakeWandb) -> None:
    figure = Figure(figsize=(1, 1))
    figure.savefig(folder / "needle.png")
    image = {"image": "eval/passkey_heatmap", "path": str(folder / "needle.png")}
    rows = [task(None), image, task(None, length=128)]
    mirror(folder, rows=rows, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    run = server.only_run()
    assert [row["eval/length"] for row in run.rows if "eval/length" in row] == [64, 128]
    (shown,) = (row["eval/passkey_heatmap"] for row in run.rows if "eval/passkey_heatmap" in row)
    assert shown["_type"] == "image-file"
    (sent,) = (file for path, file in server.uploads.items() if path.endswith(shown["path"]))
    assert sent == (folder / "needle.png").read_bytes()


def test_figures_and_a_table_arrive_with_the_rows(folder: Path, server: FakeWandb) -> None:
    table = {"table": "eval/rows", "columns": ["length", "loss"], "rows": [[64, 2.5], [128, None]]}
    figures = {"figures": {"cost/parameters": 7, "quality/suffix_loss_L64": 2.5}}
    rows: list[dict[str, Any]] = [table, figures, task(None)]
    _, said = mirror(folder, rows=rows, WANDB_API_KEY=KEY, WANDB_BASE_URL=server.url)
    assert "not taken" not in said
    run = server.only_run()
    summary = json.loads(run.files["wandb-summary.json"][-1])
    assert (summary["cost/parameters"], summary["quality/suffix_loss_L64"]) == (7, 2.5)
    (shown,) = (row["eval/rows"] for row in run.rows if "eval/rows" in row)
    (sent,) = (file for path, file in server.uploads.items() if path.endswith(shown["path"]))
    assert json.loads(sent)["columns"] == ["length", "loss"]
    assert json.loads(sent)["data"] == [[64, 2.5], [128, None]]


def test_positions_are_the_middles_of_their_bins() -> None:
    row = {"protocol": "per-position", "length": 8, "bin": 4, "losses": [2.0, 1.0]}
    assert [point["eval/position"] for _, point in points(row)] == [2, 6]
