"""The rate of plain matrix products, which is what arithmetic could cost at best on this machine.

A large square, and the products that the model consists of, in fp32 and bf16: a reader sees which
precision pays. The peak in a precision is the best of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from pipeline.config.schema import Config

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Side of the square, also the tokens of the model's products; least arithmetic of one sample, so
# that it takes milliseconds.
SIDE = {"cpu": 2048, "cuda": 8192}
LEAST_FLOPS = {"cpu": 1e10, "cuda": 1e13}


@dataclass(frozen=True)
class Product:
    """[rows,inner] @ [inner,columns] in a precision."""

    precision: str
    rows: int
    inner: int
    columns: int

    @property
    def name(self) -> str:
        """How it is called in the table."""
        return f"{self.rows} x {self.inner} x {self.columns}"

    def times(self, device: torch.device) -> int:
        """How often it is done in one sample."""
        return max(1, round(LEAST_FLOPS[device.type] / (2 * self.rows * self.inner * self.columns)))

    def flops(self, device: torch.device) -> float:
        """Arithmetic of one sample."""
        return 2.0 * self.rows * self.inner * self.columns * self.times(device)

    def runner(self, device: torch.device) -> Callable[[], None]:
        """Does one sample; nothing is allocated in it."""
        kind = PRECISIONS[self.precision]
        left = torch.randn(self.rows, self.inner, dtype=kind, device=device)
        right = torch.randn(self.inner, self.columns, dtype=kind, device=device)
        out = torch.empty(self.rows, self.columns, dtype=kind, device=device)

        def run() -> None:
            for _ in range(self.times(device)):
                torch.mm(left, right, out=out)

        return run


def products(config: Config, device: torch.device) -> list[Product]:
    """The square, and q-k-v, feed-forward in and out, and head of the model."""
    model, side = config.model, SIDE[device.type]
    shapes = [
        (side, side),
        (model.width, 3 * model.width),
        (model.width, 2 * model.mlp_width),
        (model.mlp_width, model.width),
        (model.width, config.data.vocab),
    ]
    return [Product(p, side, inner, columns) for p in PRECISIONS for inner, columns in shapes]


def rates(samples: Mapping[Product, Sequence[float]], device: torch.device) -> dict[Product, float]:
    """Median FLOP per second of each product, from its seconds."""
    return {product: product.flops(device) / median(took) for product, took in samples.items()}


def peak(found: Mapping[Product, float], precision: str) -> float:
    """The best rate in a precision, in FLOP per second."""
    return max(rate for product, rate in found.items() if product.precision == precision)
