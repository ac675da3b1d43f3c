"""A study's workspace and report on W&B, made by the real client against a stand-in server.

In a process of its own each time: the client keeps the address and key that it saw first.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.ranks import ROOT
from tests.report.synthetic import write_kept
from tests.report.test_tasks import write_tasks
from tests.report.views_server import ViewsServer

KEY = "0123456789abcdef0123456789abcdef01234567"
SETTINGS = {"wandb": {"project": "farsight", "entity": None}}


@pytest.fixture
def server() -> Iterator[ViewsServer]:
    with ViewsServer() as running:
        yield running


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two encodings of two seeds, with curves and tasks."""
    for position in ("rope", "alibi"):
        for seed in (0, 1):
            write_tasks(write_kept(tmp_path, position, seed, config=SETTINGS), position, seed)
    return tmp_path / "compare"


def published(study: Path, address: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "WANDB_BASE_URL": address, "WANDB_API_KEY": KEY, "HOME": str(study.parent),
        "NETRC": str(study.parent / "none"), **changes,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "dashboard", str(study)],
        cwd=ROOT, env={k: v for k, v in environment.items() if v is not None},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def panels(spec: Any) -> list[dict[str, Any]]:
    """Every panel anywhere in a saved view."""
    if isinstance(spec, dict):
        own = [spec] if "viewType" in spec else []
        return own + [panel for value in spec.values() for panel in panels(value)]
    return [panel for item in spec for panel in panels(item)] if isinstance(spec, list) else []


def test_workspace_and_report_show_the_study_and_are_replaced(
    study: Path, server: ViewsServer
) -> None:
    done = published(study, server.url)
    assert done.returncode == 0, done.stderr
    workspace, report = done.stdout.splitlines()
    assert workspace.startswith("workspace: ") and "/lab/farsight?nw=" in workspace
    assert report.startswith("report: ") and "/lab/farsight/reports/" in report
    for kind in ("project-view", "runs"):
        (view,) = server.kind(kind)
        shown = panels(view["spec"])
        curves = {
            panel["config"]["metrics"][0]: panel["config"]
            for panel in shown
            if panel["viewType"] == "Run History Line Plot"
        }
        overlay = curves["eval/suffix_loss"]
        assert (overlay["xAxis"], overlay["xLogScale"]) == ("eval/length", True)
        assert (overlay["groupAgg"], overlay["groupArea"]) == ("mean", "stddev")
        assert overlay["groupBy"].startswith("position")
        assert {"eval/window_control_loss", "eval/passkey_exact_match", "train/loss"} <= set(curves)
        assert curves["eval/per_position_loss"]["xAxis"] == "eval/position"
        (gallery,) = [panel for panel in shown if panel["viewType"] == "Media Browser"]
        assert gallery["config"]["mediaKeys"] == ["eval/passkey_heatmap"]
        scatter = [panel["config"] for panel in shown if panel["viewType"] == "Scatter Plot"]
        assert scatter[0]["xAxis"].endswith("cost/tokens_per_second")
        assert scatter[0]["yAxis"].endswith("quality/suffix_loss_L2048")
        assert '"name": "experiment"' in json.dumps(view["spec"])
    text = json.dumps(server.kind("runs")[0]["spec"])
    assert "| 2048 | alibi | rope | -" in text and "Suffix loss: the last" in text
    assert "None" not in text and KEY not in text
    # again: the same two, not two more
    before = set(server.views)
    again = published(study, server.url)
    assert again.stdout == done.stdout and set(server.views) == before


def test_without_a_key_it_says_what_to_do(study: Path, server: ViewsServer) -> None:
    done = published(study, server.url, WANDB_API_KEY=None)
    assert done.returncode == 2 and "WANDB_API_KEY" in done.stderr
    assert "Traceback" not in done.stderr and not (study / "dashboard.json").exists()


def test_a_server_that_is_not_there_is_one_line(study: Path) -> None:
    done = published(study, "http://127.0.0.1:9")
    assert done.returncode == 1 and "W&B did not take the dashboard" in done.stderr
    assert "Traceback" not in done.stderr and not (study / "dashboard.json").exists()


def test_without_the_extra_it_says_what_to_install(study: Path, server: ViewsServer) -> None:
    hidden = study.parent / "hidden" / "wandb_workspaces"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden')")
    done = published(study, server.url, PYTHONPATH=str(hidden.parent))
    assert done.returncode == 2 and "pip install -e '.[dashboard]'" in done.stderr


def test_runs_of_several_projects_are_refused(study: Path, server: ViewsServer) -> None:
    other = {"wandb": {"project": "other", "entity": None}}
    write_kept(study.parent, "none", config=other)
    done = published(study, server.url)
    assert done.returncode == 2 and "of several projects" in done.stderr and not server.views


def test_a_run_that_does_not_say_where_it_went_is_named(study: Path, server: ViewsServer) -> None:
    folder = write_kept(study.parent, "none", config={"wandb": {"project": "other"}})
    done = published(study, server.url)
    said = f"{folder}/config.yaml: has no `wandb.entity`"
    assert done.returncode == 2 and said in done.stderr and not server.views


def test_values_that_are_not_those_of_their_rows_are_refused_before_anything_is_saved(
    study: Path, server: ViewsServer
) -> None:
    """Nor is the server asked: a workspace without its report would be left there."""
    values = study / "rope-L128-s0" / "evaluation" / "values" / "suffix-64.npz"
    values.write_bytes(values.with_name("suffix-128.npz").read_bytes())
    done = published(study, server.url)
    assert done.returncode == 2 and "suffix-64.npz: its mean is" in done.stderr
    assert not server.views and not server.bodies and not (study / "dashboard.json").exists()


@pytest.mark.parametrize(
    "text", ["[]", '{"workspace": 3}', '{"workspace": ["a"]}', '{"report": null}']
)
def test_a_damaged_note_of_what_was_saved_is_named(
    text: str, study: Path, server: ViewsServer
) -> None:
    (study / "dashboard.json").write_text(text)
    done = published(study, server.url)
    assert done.returncode == 2 and "dashboard.json: cannot be read" in done.stderr
    assert not server.views and (study / "dashboard.json").read_text() == text


def test_a_folder_that_takes_no_file_is_refused_before_anything_is_saved(
    study: Path, server: ViewsServer
) -> None:
    (study / "dashboard.json.partial").mkdir()
    done = published(study, server.url)
    assert done.returncode == 74 and "dashboard.json: cannot be written" in done.stderr
    assert "Traceback" not in done.stderr and not server.views
