"""FLOATER: h0_i = sqrt(D) E[x_i] + p(i `interval`), where p(t) = p(0) + int_0^t h(s, p(s)) ds and
h(s, p) = W2 tanh(W1 p + w s + b1) + b2.

Liu, Yu, Dhillon, Hsieh 2020, arXiv 2003.09229: positions as the flow of a learned dynamical system.
The paper's best form adds another p to the queries, keys and values of every block, which share h;
this is its input form, one p for the model, the place where absolute encodings enter. The authors'
0.01 of time is one token's; they take 5 steps of it and relu, here it is one step of the classical
Runge-Kutta method of order 4, which has that order only where h is smooth. Their h has the width D
inside and reads the time in both layers. It starts as Xavier normal weights and zero biases, as
theirs does, and p(0) ~ N(0, 0.02).

The solution is sequential in the position, a dozen small operations for each, and twice as many
backwards. Every rank computes it up to its own last
position, from 0.
"""

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError
from pipeline.positions.base import Facts, Position, Shape


class FloaterPosition(Position):
    """The trajectory of a learned differential equation, added to the input."""

    facts = Facts(
        source="Liu et al. 2020, arXiv 2003.09229",
        formula="h0_i = sqrt(D)E[x_i] + p(i c), p' = W2 tanh(W1 p + w t + b1) + b2, p(0) learned",
        family="input embedding",
        shift_invariant=False,
        attention_paths=("sdpa", "tile", "flex"),
        extra_parameters="2 * width * hidden + 2 * hidden + 2 * width",
    )

    def __init__(self, shape: Shape, *, hidden: int = 64, interval: float = 0.01) -> None:
        super().__init__(shape)
        if not 1 <= hidden <= 2**16:
            raise ConfigError(
                f"position.hidden={hidden}: must be 1 to {2**16} (about the model's width is ample)"
            )
        if not 0.0 < interval <= 10.0:
            raise ConfigError(
                f"position.interval={interval}: must be above 0 and at most 10, or the solver of "
                "the differential equation is not accurate (the authors: 0.01)"
            )
        self.interval, width = interval, shape.width
        spread_in, spread_out = (2.0 / (n + width) for n in (hidden + 1, hidden))
        self.start = nn.Parameter(torch.empty(width).normal_(0.0, 0.02))
        self.w1 = nn.Parameter(torch.empty(hidden, width).normal_(0.0, spread_in**0.5))
        self.w_time = nn.Parameter(torch.empty(hidden).normal_(0.0, spread_in**0.5))
        self.b1 = nn.Parameter(torch.zeros(hidden))
        self.w2 = nn.Parameter(torch.empty(width, hidden).normal_(0.0, spread_out**0.5))
        self.b2 = nn.Parameter(torch.zeros(width))

    def embed(self, x: Tensor, ids: Tensor, tokens: Tensor) -> Tensor:
        """x [B,T,D], ids [B,T] or [1,T] -> x + p(ids c)."""
        # on the meta device there are no values to look at
        count = ids.shape[1] if ids.is_meta else 1 + int(ids.max() if len(ids[0]) else 0)
        return x + self.trajectory(count)[ids].to(x.dtype)

    def trajectory(self, count: int) -> Tensor:
        """p at the first `count` positions, [count,D] fp32.

        h reads of p only W1 p, so that the steps are taken in the hidden units alone: with
        y = W1 (p - b2 t), y' = W1 W2 tanh(y + (w + W1 b2) t + b1), and the p of all positions are
        one product at the end. Runge-Kutta steps are the same in either.
        """
        w1, w2, start = self.w1.float(), self.w2.float(), self.start.float()
        step, times = self.interval, torch.arange(2 * count, device=w1.device).double()
        times *= 0.5 * self.interval
        drift = self.w_time.double() + (w1 @ self.b2.float()).double()
        shifts = (times[:, None] * drift + self.b1.double()).float().unbind(0)
        turn, y = w1 @ w2, w1 @ start
        half, full = turn * (0.5 * step), turn * step
        shares = torch.tensor([1.0, 2.0, 2.0, 1.0], device=y.device, dtype=y.dtype) * (step / 6.0)
        moves = [torch.zeros_like(y)]
        for n in range(count - 1):
            halfway = y + shifts[2 * n + 1]
            k1 = (y + shifts[2 * n]).tanh()
            k2 = torch.addmv(halfway, half, k1).tanh()
            k3 = torch.addmv(halfway, half, k2).tanh()
            k4 = torch.addmv(y + shifts[2 * n + 2], full, k3).tanh()
            moves.append(torch.stack((k1, k2, k3, k4), dim=1) @ shares)
            y = torch.addmv(y, turn, moves[-1])
        moved = torch.stack(moves).double().cumsum(0).float() @ w2.T
        return start + times[::2, None].float() * self.b2.float() + moved
