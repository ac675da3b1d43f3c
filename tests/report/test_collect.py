import json
import math
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import DataError
from pipeline.record.metrics import read_rows
from pipeline.report.collect import collect
from tests.report.synthetic import LENGTHS, loss_at, write_extended, write_rows, write_run


def edit_rows(folder: Path, **changes: Any) -> None:
    """Change fields of every evaluation row of a run."""
    path = folder / "evaluation" / "rows.jsonl"
    write_rows(path, [{**row, **changes} for row in read_rows(path)])


def test_one_seed_has_its_own_loss_and_an_interval_over_documents(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, "rope")])
    cell = study.cell("rope", "suffix", 256)
    assert cell
    assert cell.loss is not None
    assert cell.loss == loss_at("rope", 256, 0)
    # Student's t of 31 degrees of freedom: 2.0395
    assert cell.spread == pytest.approx(2.0395 * 0.02, rel=1e-4)
    assert cell.perplexity == pytest.approx(math.exp(cell.loss))
    assert (cell.seeds, cell.documents, cell.scored_tokens) == (1, 32, 2048)


def test_several_seeds_have_their_mean_and_an_interval_over_seeds(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, "rope", seed) for seed in (0, 1, 2)])
    losses = [loss_at("rope", 256, seed) or 0 for seed in (0, 1, 2)]
    mean = sum(losses) / 3
    cell = study.cell("rope", "suffix", 256)
    assert cell
    assert cell.loss == pytest.approx(mean)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in losses) / 2)
    # Student's t of 2 degrees of freedom: 4.3027
    assert cell.spread == pytest.approx(4.3027 * deviation / math.sqrt(3), rel=1e-4)
    assert cell.perplexity == pytest.approx(math.exp(mean))
    assert cell.seeds == 3


def test_where_an_encoding_is_not_defined_the_cell_says_why(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, "learned"), write_run(tmp_path, "rope")])
    cell = study.cell("learned", "suffix", 512)
    assert cell
    assert (cell.loss, cell.spread, cell.perplexity) == (None, None, None)
    assert cell.reason == "this position encoding is not defined beyond 128 tokens"
    assert study.limit("learned") == 128
    assert study.limit("rope") is None


def test_the_limit_is_the_stated_one_even_between_two_tested_lengths(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "learned")
    path = folder / "evaluation" / "rows.jsonl"
    text = path.read_text()
    path.write_text(text.replace("beyond 128 tokens", "beyond 200 tokens"))
    assert collect([folder]).limit("learned") == 200
    path.write_text(text.replace("not defined beyond 128 tokens", "out of rows"))
    assert collect([folder]).limit("learned") == 128


@pytest.mark.parametrize(
    ("losses", "usable"),
    [
        ((2.3, 2.0, 2.04, 2.05, 2.0, 1.9), 256),
        ((3.0, 2.0, None, None, None, None), 128),
    ],
)
def test_usable_is_how_far_the_loss_stays_within_two_percent_of_the_best_inside(
    tmp_path: Path, losses: tuple[float | None, ...], usable: int
) -> None:
    folder = write_run(tmp_path, "rope")
    path = folder / "evaluation" / "rows.jsonl"
    found = dict(zip(LENGTHS, losses, strict=True))
    rows = [row for row in read_rows(path) if row["protocol"] == "suffix"]
    for row in rows:
        row["loss"] = found[row["length"]]
        row["defined"] = row["loss"] is not None
    write_rows(path, rows)
    assert collect([folder]).usable_length("rope") == usable


def test_nothing_is_usable_where_nothing_was_measured_inside(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "rope")
    path = folder / "evaluation" / "rows.jsonl"
    write_rows(path, [row for row in read_rows(path) if row["length"] > 128])
    assert collect([folder]).usable_length("rope") is None


def test_the_window_control_counts_for_every_longer_length(tmp_path: Path) -> None:
    study = collect([write_run(tmp_path, "learned")])
    assert study.control("learned", 64) is None
    for length in (128, 256, 2048):
        cell = study.control("learned", length)
        assert cell
        assert cell.loss == loss_at("learned", 128, 0)


def test_encodings_keep_the_order_given(tmp_path: Path) -> None:
    folders = [write_run(tmp_path, name) for name in ("t5", "alibi", "rope")]
    assert list(collect(folders).encodings) == ["t5", "alibi", "rope"]
    assert list(collect(folders[::-1]).encodings) == ["rope", "alibi", "t5"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text_sha256", "cd" * 32),
        ("suffix_tokens", 32),
        ("train_length", 256),
        ("split", "validation"),
    ],
)
def test_rows_that_differ_are_not_put_side_by_side(
    tmp_path: Path, field: str, value: object
) -> None:
    changed: Any = {"config" if field == "train_length" else "row": {field: value}}
    one, two = write_run(tmp_path, "rope"), write_run(tmp_path, "alibi", **changed)
    with pytest.raises(DataError) as caught:
        collect([one, two])
    message = str(caught.value)
    assert f"{field} differs" in message
    assert all(part in message for part in (str(value)[:12], str(one), str(two)))


@pytest.mark.parametrize("field", ["corpus_sha256", "tokenizer_sha256"])
def test_runs_trained_on_different_text_are_refused(tmp_path: Path, field: str) -> None:
    one = write_run(tmp_path, "rope", config={"data": {"source": "here", "prepared": "a"}})
    two = write_run(tmp_path, "alibi", config={"data": {"source": "there", "prepared": "b"}})
    path = two / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: "ef" * 32}))
    with pytest.raises(DataError) as caught:
        collect([one, two])
    message = str(caught.value)
    assert "trained on different text" in message
    assert f"data.source is here in {one} and there in {two}; {field} differs" in message
    assert f"efefefefefef in {two}" in message
    assert "efefefefefefe" not in message
    assert "data.prepared" not in message


def test_settings_behind_other_text_are_named_first(tmp_path: Path) -> None:
    evaluate = {"documents": 32, "batch_tokens": 64}
    one = write_run(tmp_path, "rope", config={"evaluate": evaluate})
    two = write_run(
        tmp_path,
        "alibi",
        config={
            "eval_lengths": [64],
            "evaluate": {"documents": 16, "batch_tokens": 128},
            "data": {"mix": {"copy": 0.5}},
        },
        row={"text_sha256": "cd" * 32},
    )
    with pytest.raises(DataError) as caught:
        collect([one, two])
    message = str(caught.value)
    assert f"eval_lengths is {list(LENGTHS)} in {one} and [64] in {two}; " in message
    assert f"evaluate.documents is 32 in {one} and 16 in {two}; text_sha256 differs" in message
    assert "batch_tokens" not in message and "data.mix" not in message
    assert "cdcdcdcdcdcd in" in message
    assert "cdcdcdcdcdcdc" not in message
    assert "`python -m pipeline evaluate RUN` without settings restores a run's own" in message


def test_rows_scored_with_other_settings_than_the_runs_own_say_so(tmp_path: Path) -> None:
    """`evaluate` leaves config.yaml as it is."""
    one, two = write_run(tmp_path, "rope"), write_run(tmp_path, "alibi")
    edit_rows(two, text_sha256="cd" * 32, documents=8)
    with pytest.raises(DataError) as caught:
        collect([one, two])
    assert f"documents in rows of suffix is 32 in {one} and 8 in {two}; " in str(caught.value)
    assert "length in rows" not in str(caught.value)


def test_another_stride_at_the_same_length_is_refused(tmp_path: Path) -> None:
    one, two = write_run(tmp_path, "rope"), write_run(tmp_path, "alibi")
    edit_rows(two, stride=7)
    with pytest.raises(DataError, match="stride differs"):
        collect([one, two])


def test_protocols_may_score_different_text(tmp_path: Path) -> None:
    """Those that score whole spans can use fewer documents; every run must use the same ones."""
    runs = [write_run(tmp_path, name) for name in ("rope", "alibi")]
    for run in runs:
        path = run / "evaluation" / "rows.jsonl"
        rows = [
            {**row, "text_sha256": "cd" * 32} if row["protocol"] == "sliding" else row
            for row in read_rows(path)
        ]
        write_rows(path, rows)
    assert any(row["protocol"] == "sliding" for row in read_rows(runs[0] / "evaluation/rows.jsonl"))
    collect(runs)


def test_the_window_control_is_of_the_text_of_the_suffix(tmp_path: Path) -> None:
    run = write_run(tmp_path, "rope")
    path = run / "evaluation" / "rows.jsonl"
    rows = read_rows(path)
    for row in rows:
        if row["protocol"] == "window control":
            row["text_sha256"] = "cd" * 32
    write_rows(path, rows)
    with pytest.raises(DataError, match="text_sha256 differs"):
        collect([run])


def test_short_evaluations_on_other_text_are_refused(tmp_path: Path) -> None:
    one, two = write_run(tmp_path, "rope"), write_run(tmp_path, "alibi")
    for folder, digest in ((one, "aa"), (two, "bb")):
        path = folder / "metrics.jsonl"
        rows = read_rows(path)
        write_rows(path, [{**row, "text_sha256": digest} for row in rows])
    with pytest.raises(DataError, match="text_sha256 differs .* made during training"):
        collect([one, two])


def test_the_same_run_twice_is_not_two_seeds(tmp_path: Path) -> None:
    one, copy = write_run(tmp_path / "a", "rope"), write_run(tmp_path / "b", "rope")
    with pytest.raises(DataError, match="same configuration and seed"):
        collect([one, copy])


def test_runs_of_one_encoding_with_other_settings_are_other_rows(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / str(base), "rope", config={"position": {"name": "rope", "base": base}})
        for base in (10000, 500000)
    ]
    study = collect([*folders, write_run(tmp_path, "alibi")])
    assert list(study.encodings) == ["rope (base 10000)", "rope (base 500000)", "alibi"]
    assert study.varied == {}


def test_runs_of_other_position_ids_or_without_a_window_are_told_apart(tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [
        {"position_ids": {"name": "consecutive"}, "model": {"attention_window": None}},
        {"position_ids": {"name": "shifted"}, "model": {"attention_window": 64}},
    ]
    runs = [write_run(tmp_path / str(n), "rope", config=one) for n, one in enumerate(settings)]
    assert list(collect(runs).encodings) == [
        "rope (attention_window null, position_ids consecutive)",
        "rope (attention_window 64, position_ids shifted)",
    ]


def test_an_extension_is_a_series_of_its_own_after_its_encoding(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, name, seed) for name in ("rope", "alibi") for seed in (0, 1)]
    for scale in (16, 4):
        for run in runs[:2]:
            write_extended(run, "yarn", f"scale={scale}", change=scale)
    write_extended(runs[0], "ntk", "", change=0.5)
    study = collect(runs)
    assert [(label, len(found)) for label, found in study.encodings.items()] == [
        ("rope", 2), ("rope + ntk", 1), ("rope + yarn scale=4", 2), ("rope + yarn scale=16", 2),
        ("alibi", 2),
    ]  # fmt: skip
    assert all(not run.train_rows and not run.short_rows for run in study.encodings["rope + ntk"])
    assert list(study.trained) == ["rope", "alibi"]
    assert [run.path for run in study.trained_runs] == runs
    mean = sum(loss_at("rope", 256, seed) or 0 for seed in (0, 1)) / 2
    for label, change in (("rope", 0), ("rope + yarn scale=4", 4), ("rope + yarn scale=16", 16)):
        cell = study.cell(label, "suffix", 256)
        assert cell and cell.loss == pytest.approx(mean + change)
    assert study.varied == {}


@pytest.mark.parametrize(("field", "value"), [("text_sha256", "cd" * 32), ("suffix_tokens", 32)])
def test_an_extension_tested_on_other_text_is_refused_by_name(
    tmp_path: Path, field: str, value: object
) -> None:
    run = write_run(tmp_path, "rope")
    path = write_extended(run, "yarn", "scale=4")
    write_rows(path, [{**row, field: value} for row in read_rows(path)])
    with pytest.raises(DataError, match=f"{field} differs .*{run} [+] yarn scale=4"):
        collect([run])


def test_what_else_differs_is_told(tmp_path: Path) -> None:
    model = {"width": 256, "layers": 4, "heads": 4}
    trainer = {"threads": 1, "log_every": 5}
    apart = {"experiment": "x", "runs": "elsewhere", "wandb": {"mode": "off"}, "trainer": trainer}
    one = write_run(tmp_path, "rope", config=apart)
    two = write_run(
        tmp_path,
        "alibi",
        1,
        config={
            "model": model,
            "wandb": {"mode": "auto"},
            "trainer": {"threads": 2, "log_every": 1},
        },
    )
    assert collect([one, two]).varied == {"model.width": [128, 256]}
