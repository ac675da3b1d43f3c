import math

import numpy as np
import pytest

from pipeline.evaluate.usable import usable_lengths

LENGTHS = (64, 128, 256, 512)
GONE = math.inf


@pytest.mark.parametrize(
    ("losses", "usable"),
    [
        ((2.3, 2.0, 2.04, 2.039), 512),
        ((2.3, 2.0, 2.04, 2.05), 256),
        ((2.3, 2.0, 2.05, 2.0), 128),
        ((2.0, 2.03, 2.041, 2.0), 128),
        ((2.0, 2.05, 2.05, 2.05), 64),
        ((2.0, 2.05, 2.04, 2.05), 64),
        ((3.0, 3.5, 3.01, 3.01), 64),
        ((3.0, 2.0, GONE, 2.0), 128),
        ((GONE, GONE, 2.0, 2.0), 0),
    ],
)
def test_a_length_is_usable_until_the_loss_is_worse(losses: tuple[float, ...], usable: int) -> None:
    assert usable_lengths(LENGTHS, np.array([losses]), 128).tolist() == [usable]


def test_the_longest_length_within_takes_the_place_of_the_train_length() -> None:
    losses = np.array([[2.0, 2.03, 2.02, 2.1], [2.0, 2.05, 2.02, 2.02]])
    assert usable_lengths(LENGTHS, losses, 200).tolist() == [256, 64]


def test_many_models_at_once_are_each_of_them_alone() -> None:
    losses = np.random.default_rng(0).uniform(2.0, 2.1, (200, 4))
    alone = [int(usable_lengths(LENGTHS, row[None], 128)[0]) for row in losses]
    assert usable_lengths(LENGTHS, losses, 128).tolist() == alone
    assert set(alone) == set(LENGTHS)


def test_nothing_is_usable_without_a_length_within() -> None:
    assert usable_lengths((256, 512), np.full((2, 2), 2.0), 128).tolist() == [0, 0]
