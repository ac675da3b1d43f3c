"""torch's fused causal kernels, with the log-sum-exp of each row, so that parts can be merged.

`scaled_dot_product_attention` hides that number. These are the operators it calls itself: the
flash kernel on CPU, the memory-efficient one on CUDA (it takes fp32 and bf16).

Legend: B batch, h heads, S tokens, E width of q and k, d width of v.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.kernel import Gradients, Wanted
from pipeline.positions.scores import Scores

_aten = torch.ops.aten


def flash(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """q, k [B,h,S,E], v [B,h,S,d] -> out [B,h,S,d], lse [B,h,S] fp32, causal; d <= E.

    The kernels are fused only for equal widths, so v is padded to E.
    """
    if v.shape[-1] < q.shape[-1]:
        out, lse = flash(q, k, F.pad(v, (0, q.shape[-1] - v.shape[-1])), scale)
        return out[..., : v.shape[-1]], lse
    if q.device.type == "cuda":
        out, lse, *_ = _aten._scaled_dot_product_efficient_attention(
            q, k, v, None, True, 0.0, True, scale=scale
        )
        return out, lse[..., : q.shape[2]]
    out, lse = _aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True, scale=scale)
    return out, lse


def flash_backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, d_out: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, given the output and the log-sum-exp of whole rows."""
    if (missing := q.shape[-1] - v.shape[-1]) > 0:
        wide_v, wide_out, wide_d_out = (F.pad(x, (0, missing)) for x in (v, out, d_out))
        d_q, d_k, d_v = flash_backward(q, k, wide_v, wide_out, lse, wide_d_out, scale)
        return d_q, d_k, d_v[..., : v.shape[-1]]
    if q.device.type == "cuda":
        # the kernel reads the log-sum-exp in blocks of 32 rows
        padded = F.pad(lse, (0, -lse.shape[-1] % 32)).contiguous()
        seed = torch.zeros((), dtype=torch.int64, device=q.device)
        d_q, d_k, d_v, _ = _aten._scaled_dot_product_efficient_attention_backward(
            d_out, q, k, v, None, out, padded, seed, seed, 0.0, [True, True, True, False], True,
            scale=scale,
        )  # fmt: skip
        return d_q, d_k, d_v
    found: tuple[Tensor, Tensor, Tensor]
    found = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
        d_out, q, k, v, out, lse, 0.0, True, scale=scale
    )
    return found


class FlashKernel:
    """Plain scores; see `pipeline.model.kernel.Kernel`."""

    def forward(self, scores: Scores, v: Tensor) -> tuple[Tensor, Tensor]:
        """v [B,h,S,d] -> out [B,h,S,d], lse [B,h,S] fp32."""
        ((q, k),) = scores.pairs
        return flash(q, k, v, scores.scale)

    def backward(
        self, scores: Scores, v: Tensor, out: Tensor, lse: Tensor, d_out: Tensor, wanted: Wanted
    ) -> tuple[Tensor, Gradients]:
        """Gradients of v and of `scores.tensors()`."""
        ((q, k),) = scores.pairs
        d_q, d_k, d_v = flash_backward(q, k, v, out, lse, d_out, scores.scale)
        return d_v, (d_q, d_k, *(None for _ in scores.vectors))
