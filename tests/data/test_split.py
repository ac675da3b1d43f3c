"""The split by content."""

from pipeline.data.split import SPLITS, split_of


def test_the_split_depends_on_nothing_but_the_text() -> None:
    splits = [split_of(f"text {i}", 0.2, 0.2)[:2] for i in range(14)]
    assert " ".join(splits) == "tr tr tr va tr tr te va tr tr va va te te"


def test_the_fractions_are_kept() -> None:
    splits = [split_of("x" * 10_000 + f"{i}", 0.1, 0.05) for i in range(20_000)]
    shares = {split: splits.count(split) / len(splits) for split in SPLITS}
    assert abs(shares["validation"] - 0.1) < 0.01
    assert abs(shares["test"] - 0.05) < 0.01
    assert {split_of(f"{i}", 0.0, 0.0) for i in range(1000)} == {"train"}


def test_the_test_split_does_not_depend_on_the_validation_fraction() -> None:
    for i in range(2000):
        assert (split_of(f"{i}", 0.3, 0.1) == "test") == (split_of(f"{i}", 0.0, 0.1) == "test")
