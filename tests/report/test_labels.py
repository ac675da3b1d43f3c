"""What an encoding is called in a table of several."""

from pathlib import Path
from typing import Any

from pipeline.report.collect import collect
from tests.report.synthetic import write_run


def settings(ids: dict[str, Any], **model: Any) -> dict[str, Any]:
    return {"position_ids": ids, "model": {"qk_norm": "none", "tied_embeddings": True, **model}}


def test_what_changes_an_encoding_stands_in_its_label_beside_other_encodings(
    tmp_path: Path,
) -> None:
    """Ids and modifiers that not all runs have; what all share, or is the default, does not."""
    plain = settings({"name": "consecutive"})
    pose = settings({"name": "pose", "target_length": 512}, qk_norm="key", tied_embeddings=False)
    runs = [write_run(tmp_path, "rope", config=plain), write_run(tmp_path, "alibi", config=pose)]
    assert list(collect(runs).encodings) == ["rope", "alibi (qk_norm key, position_ids pose)"]


def test_what_all_runs_share_is_in_no_label(tmp_path: Path) -> None:
    shared = settings({"name": "pose"}, qk_norm="key")
    runs = [write_run(tmp_path, name, config=shared) for name in ("rope", "alibi")]
    assert list(collect(runs).encodings) == ["rope", "alibi"]
