"""Rotations of queries and keys, from the papers, in loops and fp64; nothing of the
project is used."""

import cmath
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tests.oracles.attention import Score, Value
from tests.oracles.encoding import Encoding


def turned_score(
    q: Tensor, k: Tensor, distance: int, speeds: Sequence[float], fading: Sequence[float] = ()
) -> Tensor:
    """Re sum_t f_t (q_t k_t*) e^{i distance w_t} / sqrt(d), over complex pairs (2t, 2t+1); pairs
    without a speed do not turn."""
    total = torch.zeros((), dtype=torch.float64)
    for t in range(len(q) // 2):
        turn = cmath.exp(1j * distance * speeds[t]) if t < len(speeds) else 1.0 + 0.0j
        real = q[2 * t] * k[2 * t] + q[2 * t + 1] * k[2 * t + 1]
        imaginary = q[2 * t + 1] * k[2 * t] - q[2 * t] * k[2 * t + 1]
        part = real * turn.real - imaginary * turn.imag
        total = total + (part * fading[t] if fading else part)
    return total / math.sqrt(len(q))


def partial_rope_speeds(own: Encoding, width: int) -> list[float]:
    """Barbero et al. 2024: the fastest floor(p d/2) of all; rotary_pct: so many of their own."""
    base, kept = own.settings["base"], int(own.settings["share"] * width / 2)
    if own.settings["form"] == "partial":
        return [base ** (-2.0 * t / (2 * kept)) for t in range(kept)]
    return [base ** (-2.0 * t / width) for t in range(kept)]


def partial_rope_score(own: Encoding) -> Score:
    """RoPE of some pairs."""
    return lambda q, k, head, i, j: turned_score(q, k, i - j, partial_rope_speeds(own, len(q)))


def xpos_score(own: Encoding) -> Score:
    """Sun et al. 2023: RoPE times ((2t/d + gamma)/(1 + gamma))^((i - j)/scale_base)."""
    base, gamma, tokens = (own.settings[key] for key in ("base", "gamma", "scale_base"))

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        shares = [2 * t / len(q) for t in range(len(q) // 2)]
        fading = [((share + gamma) / (1 + gamma)) ** ((i - j) / tokens) for share in shares]
        return turned_score(q, k, i - j, [base**-share for share in shares], fading)

    return score


def giraffe_speed(own: Encoding, share: float) -> float:
    """Pal et al. 2023, of the pair t = share d/2; a, b and rho in turns over the training."""
    speed: float = own.settings["base"] ** -share
    if own.settings["basis"] == "power":
        return float(speed * (1.0 - share) ** own.settings["exponent"])
    turns = speed * own.train_length / (2.0 * math.pi)
    if turns >= own.settings["cutoff_high"]:
        return speed
    if turns <= own.settings["cutoff_low"]:
        return 0.0
    return float(own.settings["between"] * 2.0 * math.pi / own.train_length)


def giraffe_score(own: Encoding) -> Score:
    """RoPE with these speeds."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        speeds = [giraffe_speed(own, 2 * t / len(q)) for t in range(len(q) // 2)]
        return turned_score(q, k, i - j, speeds)

    return score


def pope_score(own: Encoding) -> Score:
    """Gopalakrishnan et al. 2025: sum_c m(q_c) m(k_c) cos((j - i) w_c + p_c) / sqrt(d)."""

    def score(q: Tensor, k: Tensor, head: int, i: int, j: int) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for c in range(len(q)):
            phase = own.parameters["phase"][own.layer, head, c]
            if not -2.0 * math.pi <= phase.item() <= 0.0:
                nearest = 0.0 if phase.item() > 0.0 else -2.0 * math.pi
                phase = torch.tensor(nearest, dtype=torch.float64)
            angle = (j - i) * own.settings["base"] ** (-c / len(q)) + phase
            sizes = torch.log(1.0 + torch.exp(q[c])) * torch.log(1.0 + torch.exp(k[c]))
            total = total + sizes * torch.cos(angle)
        return total / math.sqrt(len(q))

    return score


def rope_speeds(width: int, base: float) -> list[float]:
    """Su et al. 2021."""
    return [base ** (-2.0 * t / width) for t in range(width // 2)]


def ntk_speeds(width: int, base: float, scale: float) -> list[float]:
    """bloc97 2023: the base b s^(d/(d-2))."""
    return rope_speeds(width, base * scale ** (width / (width - 2)))


def by_parts_speeds(
    width: int, base: float, trained: int, scale: float, low: float, high: float
) -> list[float]:
    """Peng et al. 2023, section 3.2, with r = L / wavelength: divided below `low` turns, kept above
    `high`."""
    found = []
    for speed in rope_speeds(width, base):
        r = trained / (2.0 * math.pi / speed)
        kept = 0.0 if r < low else 1.0 if r > high else (r - low) / (high - low)
        found.append((1.0 - kept) * speed / scale + kept * speed)
    return found


def yarn_speeds(width: int, base: float, trained: int, scale: float) -> list[float]:
    """The ramp of the authors' code, over the pairs between those of 32 turns and of 1 turn."""

    def place(turns: float) -> float:
        return width * math.log(trained / (turns * 2.0 * math.pi)) / (2.0 * math.log(base))

    low, high = max(math.floor(place(32)), 0), min(math.ceil(place(1)), width - 1)
    found = []
    for t, speed in enumerate(rope_speeds(width, base)):
        divided = min(1.0, max(0.0, (t - low) / (high - low if high != low else 0.001)))
        found.append(speed / scale * divided + speed * (1.0 - divided))
    return found


SCORES: dict[str, Callable[[Encoding], Score]] = {
    "partial_rope": partial_rope_score,
    "xpos": xpos_score,
    "giraffe": giraffe_score,
    "pope": pope_score,
}
VALUES: dict[str, Callable[[Encoding], Value]] = {}
INPUTS: dict[str, Callable[[Tensor, Encoding, Tensor], Tensor]] = {}
