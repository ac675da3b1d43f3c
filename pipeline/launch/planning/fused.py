"""torch's fused attention on the meta device, which would take a quadratic one by itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor


@contextmanager
def fused() -> Iterator[None]:
    """Let the decoder call the fused kernel.

    A mode of torch would not reach blocks that the backward pass computes again.
    """
    usual = F.scaled_dot_product_attention

    def attend(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float) -> Tensor:
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out: Tensor = kernel(q, k, v, 0.0, is_causal, scale=scale)[0]
        return out

    F.scaled_dot_product_attention = attend  # type: ignore[assignment]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = usual
