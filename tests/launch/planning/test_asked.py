"""The ranks that `--gpus` asks for, and the groups that have to fit them."""

from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.launch.planning.asked import Asked
from tests.distributed.ranks import ROOT

SMOKE = ROOT / "configs" / "smoke.yaml"


@pytest.mark.parametrize(
    ("said", "ranks"),
    [
        ([], (8, 1)),
        (["trainer.sequence_parallel=4"], (4, 1)),
        (["trainer.sequence_parallel=8", "trainer.ring=2"], (8, 1)),
        (["trainer.sequence_parallel=1", "trainer.batch_sequences=14"], (7, 1)),
        (["trainer.sequence_parallel=1", "trainer.batch_sequences=514"], (257, 2)),
    ],
)
def test_groups_have_to_fit_the_gpus_and_not_the_ranks_of_the_file(
    said: list[str], ranks: tuple[int, int]
) -> None:
    """Which are two; also in each run of a sweep, and with more than a node may have."""
    runs = Asked(gpus=ranks[0] * ranks[1]).configs(SMOKE, said)
    assert [run.position["name"] for run in runs] == ["rope", "alibi"]
    for run in runs:
        assert run.trainer.world == ranks[0] * ranks[1]
        assert run.trainer.processes <= 256


def test_without_gpus_the_ranks_are_those_of_the_file() -> None:
    (run,) = Asked().configs(SMOKE, ["position=rope"])
    assert (run.trainer.processes, run.trainer.nodes) == (2, 1)


def test_a_sweep_over_groups_is_planned_for_the_same_gpus() -> None:
    sweep = "sweep={trainer.sequence_parallel: [1, 2, 4]}"
    runs = Asked(gpus=4).configs(SMOKE, [sweep])
    assert [(run.trainer.sequence_parallel, run.trainer.world) for run in runs] == [
        (1, 4), (2, 4), (4, 4),
    ]  # fmt: skip


def test_groups_that_do_not_fit_are_refused_with_what_fits() -> None:
    with pytest.raises(ConfigError) as refused:
        Asked(gpus=7).configs(SMOKE, ["position=rope"])
    said = str(refused.value)
    assert said.startswith("with --gpus=7 (trainer.nodes=1, trainer.processes=7): ")
    assert "Use `trainer.sequence_parallel=1`, or a multiple of 2 ranks" in said


def test_ranks_that_are_swept_as_well_are_not_dropped_in_silence() -> None:
    with pytest.raises(ConfigError, match=r"--gpus=8.*processes.* has no effect.*leave it out"):
        Asked(gpus=8).configs(SMOKE, ["sweep={trainer.processes: [2, 4]}"])


def test_the_options_are_checked_before_the_file_is_read() -> None:
    with pytest.raises(ConfigError, match="--flops=inf"):
        Asked(flops=float("inf")).configs(Path("missing.yaml"), [])
