import pytest

from pipeline.evaluate.power_law import PowerLaw, fit_power_law

LENGTHS = (64, 128, 256, 512, 1024)


def curve(alpha: float, beta: float, gamma: float) -> dict[int, float]:
    return {c: (alpha / c) ** beta + gamma for c in (*LENGTHS, 2048, 4096)}


@pytest.mark.parametrize(
    ("alpha", "beta", "gamma"), [(20.0, 0.5, 2.0), (3.0, 0.1, 1.5), (50.0, 1.7, 3.2)]
)
def test_planted_parameters_are_found(alpha: float, beta: float, gamma: float) -> None:
    fit = fit_power_law(curve(alpha, beta, gamma), 1024)
    assert isinstance(fit, PowerLaw)
    assert (fit.alpha, fit.beta, fit.gamma) == pytest.approx((alpha, beta, gamma), rel=1e-4)
    assert fit.residual < 1e-9
    assert fit.lengths == 5


def test_only_trained_lengths_are_fitted() -> None:
    losses = curve(20.0, 0.5, 2.0)
    losses |= {2048: 9.0, 4096: 12.0}
    fit = fit_power_law(losses, 1024)
    assert isinstance(fit, PowerLaw)
    assert fit.gamma == pytest.approx(2.0, rel=1e-4)
    assert fit.lengths == 5


def test_fewer_than_four_trained_lengths_are_not_fitted() -> None:
    reason = fit_power_law(curve(20.0, 0.5, 2.0), 256)
    assert isinstance(reason, str)
    assert reason.startswith(
        "not fitted: 3 of the lengths tested lie within the train length of 256"
    )
    assert isinstance(fit_power_law(curve(20.0, 0.5, 2.0), 512), PowerLaw)


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ((2.0, 2.1, 2.2, 2.3), "does not fall"),
        ((3.0, 2.0, 2.0, 2.0), "beta lies outside 0.01 to 10.0"),
        ((2.3, 2.2, 2.1, 1.9), "beta lies outside 0.01 to 10.0"),
    ],
)
def test_what_is_no_power_law_is_said_to_be_none(losses: tuple[float, ...], words: str) -> None:
    found = fit_power_law(dict(zip(LENGTHS, losses, strict=False)), 1024)
    assert isinstance(found, str)
    assert words in found
