"""A study on Weights & Biases: a saved workspace and a report that lay its encodings side by side.

The curves are those that the runs have sent; grouped by encoding, mean and spread are over seeds.
The tables and texts are those of the local report. Needs wandb-workspaces, the extra `dashboard`.
"""

import importlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config.durable import write_file
from pipeline.errors import ConfigError, FarsightError, StorageError
from pipeline.record.wandb_mirror import has_key, server_address
from pipeline.report.appendix import protocol_lines
from pipeline.report.collect import Study, collect
from pipeline.report.needed import PLACE, need
from pipeline.report.pairs import Pair, find_pairs
from pipeline.report.values import read_values

STATE = "dashboard.json"
POSITION = "position"
SECONDS = 10.0  # until a server that gives no answer is taken for dead


@dataclass(frozen=True)
class Place:
    """Where the runs of a study lie: the group `experiment` of a project."""

    entity: str
    project: str
    experiment: str

    @property
    def runs(self) -> str:
        """The filter that finds them."""
        return f"Config('experiment') = '{self.experiment}'"


def publish(folders: Sequence[Path], home: Path) -> tuple[str, str]:
    """Make, or make anew, workspace and report of these runs; returns the address of each.

    Args:
        folders: run folders that the local report would compare.
        home: the folder of the study; `dashboard.json` in it keeps which two are its own, so that
            the next call replaces what they show.

    Raises:
        ConfigError: wandb-workspaces or a key is missing, the runs lie in several places, or
            `dashboard.json` is damaged.
        DataError: the runs cannot be compared, or their values are not those of their rows.
        StorageError: the folder of the study takes no file.
        FarsightError: W&B does not answer, or refuses.
    """
    study = collect(folders)
    place, state = _place(study), home / STATE
    kept = _kept(state)
    pairs = find_pairs(study, read_values(study))
    with _errors_said():
        wandb, workspaces, reports = _libraries()
        if not has_key(wandb):
            raise ConfigError(
                "W&B has no key for this machine, and a dashboard is made on its server: set "
                "WANDB_API_KEY or run `wandb login`"
            )
        # the client itself would try again for minutes
        _reach(server_address(wandb))
        if place.entity == "":
            place = Place(wandb.Api().default_entity, place.project, place.experiment)
        workspace = build_workspace(workspaces, reports, study, place)
        workspace._internal_name, workspace._internal_id = kept.get("workspace", ("", ""))
        report = build_report(reports, study, place, pairs)
        report.id = kept.get("report", "")
        # a folder that takes no file would leave what is saved next without an owner
        _keep(state, kept)
        workspace.save()
        kept["workspace"] = (workspace._internal_name, workspace._internal_id)
        # at once: a report that fails must not make the next call save a second workspace
        _keep(state, kept)
        report.save()
        _keep(state, {**kept, "report": report.id})
        return workspace.url, report.url


def build_workspace(ws: Any, wr: Any, study: Study, place: Place) -> Any:
    """The saved view of the project: sections of panels over the runs of the study."""
    sections = [
        ws.Section(name, panels=panels, is_open=True)
        for name, panels in _panels(wr, study).items()
        if panels
    ]
    return ws.Workspace(
        entity=place.entity,
        project=place.project,
        name=place.experiment,
        sections=sections,
        runset_settings=ws.RunsetSettings(filters=place.runs, groupby=[ws.Config(POSITION)]),
    )


def build_report(wr: Any, study: Study, place: Place, pairs: Sequence[Pair]) -> Any:
    """The page to read: each section of panels with the words that go with it."""
    blocks: list[Any] = [wr.TableOfContents()]
    for name, panels in _panels(wr, study).items():
        if panels:
            runset = wr.Runset(
                place.entity,
                place.project,
                filters=place.runs,
                groupby=[f"config.{POSITION}"],
            )
            blocks += [wr.H2(name), wr.PanelGrid(runsets=[runset], panels=panels)]
    blocks += [wr.H2("Differences"), wr.MarkdownBlock(pairs_table(study, pairs))]
    lines = "\n".join(f"- {line}" for line in protocol_lines(study))
    blocks += [wr.H2("Protocol"), wr.MarkdownBlock(lines)]
    return wr.Report(
        entity=place.entity,
        project=place.project,
        title=f"{place.experiment}: how far each position encoding reads",
        blocks=blocks,
        width="fluid",
    )


def pairs_table(study: Study, pairs: Sequence[Pair]) -> str:
    """Differences at the train length and at the longest, as Markdown."""
    lengths = study.lengths("suffix")
    shown = sorted({min(lengths, key=lambda n: abs(n - study.train_length)), lengths[-1]})
    lines = [
        "Difference in suffix loss, nats per token; negative: the first reads better. p: paired "
        "t-test over seeds, Holm-corrected over the pairs of a length. All lengths, with intervals "
        "over documents: `pairs.csv` of the local report.",
        "",
        "| length | encoding | against | difference | 95 % over seeds | p | seeds | documents |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for pair in pairs:
        if pair.length in shown and pair.difference is not None:
            seeds = pair.over_seeds
            interval = f"{seeds.low:+.3f} to {seeds.high:+.3f}" if seeds else "not known"
            p = "not known" if pair.p_holm is None else f"{pair.p_holm:.3g}"
            cells = (pair.length, pair.a, pair.b, f"{pair.difference:+.4f}", interval, p)
            row = [str(cell) for cell in (*cells, pair.seeds, pair.documents)]
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _panels(wr: Any, study: Study) -> dict[str, list[Any]]:
    """The panels by section, of what was measured."""
    rows = [row for run in study.trained_runs for row in run.rows]
    tasks = sorted({row["task"] for row in rows if row["protocol"] == "task"})
    needles = sorted({row["task"] for row in rows if row.get("depth") is not None})
    longest = study.lengths("suffix")[-1]
    known = [name for name in ("sliding", "non-overlapping") if study.lengths(name)]

    def over(x: str, y: str, title: str, **more: Any) -> Any:
        return wr.LinePlot(
            title=title,
            x=x,
            y=[y],
            title_x=x.partition("/")[2],
            groupby=wr.Config(POSITION),
            groupby_aggfunc="mean",
            groupby_rangefunc="stddev",
            smoothing_factor=0,
            **more,
        )

    lengths: dict[str, Any] = {"x": "eval/length", "log_x": True}
    suffix = over(y="eval/suffix_loss", title="Suffix loss by context", **lengths)
    control = over(y="eval/window_control_loss", title="Window control", **lengths)
    others = [
        over(y=f"eval/{name.replace('-', '_')}_loss", title=name, **lengths) for name in known
    ]
    place = over("eval/position", "eval/per_position_loss", "Loss at each position")
    costs = [
        wr.ScatterPlot(
            title=f"{words} and suffix loss at {longest}",
            x=wr.SummaryMetric(f"cost/{key}"),
            y=wr.SummaryMetric(f"quality/suffix_loss_L{longest}"),
            running_ymin=False,
        )
        for key, words in (
            ("tokens_per_second", "Tokens per second"),
            ("peak_memory_bytes", "Peak memory"),
            ("position_parameters", "Parameters of the encoding"),
        )
    ]
    return {
        "Extrapolation": [suffix, control, *others],
        "By position": [place] if study.lengths("per-position") else [],
        "Tasks": [over(y=f"eval/{task}_exact_match", title=task, **lengths) for task in tasks],
        "Needles": [
            wr.MediaBrowser(title=task, media_keys=[f"eval/{task}_heatmap"], num_columns=3)
            for task in needles
        ],
        "Cost and quality": costs,
        "Training": [over("train/tokens", "train/loss", "Training loss")],
    }


def _place(study: Study) -> Place:
    """Raises ConfigError if the runs went to several places, DataError if one says none."""
    for run in study.trained_runs:
        need(run.config, PLACE, f"{run.path / 'config.yaml'}")
    found = {
        (run.config["wandb"]["entity"] or "", run.config["wandb"]["project"],
         run.config["experiment"])
        for run in study.trained_runs
    }  # fmt: skip
    if len(found) > 1:
        words = "; ".join(f"{p} / {x}" for _, p, x in sorted(found))
        raise ConfigError(
            f"these runs are of several projects or experiments of W&B ({words}), and a dashboard "
            "shows one: name the folder of one experiment"
        )
    return Place(*found.pop())


def _libraries() -> tuple[Any, Any, Any]:
    """wandb, and the workspaces and reports of wandb-workspaces."""
    try:
        wandb = importlib.import_module("wandb")
        wandb.setup(settings=wandb.Settings(silent=True))
        workspaces = importlib.import_module("wandb_workspaces.workspaces")
        reports = importlib.import_module("wandb_workspaces.reports.v2")
    except ImportError as error:
        raise ConfigError(
            f"a dashboard needs wandb-workspaces, which is not installed ({error}): "
            "pip install -e '.[dashboard]'"
        ) from error
    return wandb, workspaces, reports


def _reach(address: str) -> None:
    """Raise OSError if nobody answers there; any answer will do."""
    with suppress(urllib.error.HTTPError):
        urllib.request.urlopen(address, timeout=SECONDS).close()


@contextmanager
def _errors_said() -> Iterator[None]:
    """What the client raises, of many kinds, becomes one line."""
    try:
        yield
    except FarsightError:
        raise
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0][:200]
        raise FarsightError(
            f"W&B did not take the dashboard ({type(error).__name__}: {line}). No run was "
            "changed: look at the address and the key, and give the same command again. If its "
            f"workspace or report was deleted there, delete {STATE} in the folder of the study "
            "first"
        ) from error


def _kept(state: Path) -> dict[str, Any]:
    try:
        kept = json.loads(state.read_text())
        if not isinstance(kept, dict):
            raise ValueError("it is no table")
        workspace, report = kept.get("workspace", ["", ""]), kept.get("report", "")
        names = [*workspace, report] if isinstance(workspace, list) else []
        if len(names) != 3 or not all(isinstance(name, str) for name in names):
            raise ValueError("it does not name a workspace and a report")
        return kept
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{state}: cannot be read: {error}. Delete it, and the next dashboard is a new one"
        ) from error


def _keep(state: Path, kept: dict[str, Any]) -> None:
    try:
        write_file(state, (json.dumps(kept, indent=1) + "\n").encode())
    except OSError as error:
        raise StorageError(
            f"{state}: cannot be written: {error.strerror}. It keeps which dashboard is that of "
            "the study: make the folder writable, or make room, and give the same command again"
        ) from error
