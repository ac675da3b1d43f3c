"""Faults of attention: tiles, tables by distance, far and near, the ring, the ready gradients."""

from tests.mutations.mutation import Mutation

ATTENTION = "tests/model/test_attention.py"
RING = "tests/parallel/test_ring.py"
MATRIX = "tests/distributed/test_matrix.py"

FAULTS = (
    Mutation(
        "a window one token too wide",
        "pipeline/model/distance.py",
        "table[:, window:] = -math.inf",
        "table[:, window + 1 :] = -math.inf",
        ATTENTION,
    ),
    Mutation(
        "vectors by distance read one token late",
        "pipeline/model/distance.py",
        "self.first - (tile.i1 - 1 - tile.j0)",
        "self.first - (tile.i1 - tile.j0)",
        ATTENTION,
    ),
    Mutation(
        "the last entry of a table read too early",
        "pipeline/model/distance.py",
        "return tile.i0 - (tile.j1 - 1) >= self.last",
        "return tile.i0 - (tile.j1 - 1) >= self.last - 40",
        ATTENTION,
    ),
    Mutation(
        "the tail of a table gets no gradient",
        "pipeline/model/distance.py",
        "folded[..., -1] += gradient[..., entries:].sum(-1)",
        "folded[..., -1] += 0.0",
        ATTENTION,
    ),
    Mutation(
        "keys' gradient in base 2",
        "pipeline/model/tile_scores.py",
        "alpha=1 / LOG2E",
        "alpha=1.0",
        ATTENTION,
    ),
    Mutation(
        "relative values left out of the gradient of the weights",
        "pipeline/model/tile.py",
        "d_score.add_(self.added.product(slope[:, here], tile))",
        "self.added.product(slope[:, here], tile)",
        ATTENTION,
    ),
    Mutation(
        "one branch gets the gradient of all",
        "pipeline/model/tile_scores.py",
        "own = d_score if where is None else d_score * where",
        "own = d_score",
        ATTENTION,
    ),
    Mutation(
        "far constants get the near part's gradient",
        "pipeline/model/far_near.py",
        "rest = -near.row_sums[..., start:]",
        "rest = near.row_sums[..., start:]",
        ATTENTION,
    ),
    Mutation(
        "far values forgotten in the far gradient",
        "pipeline/model/far_near.py",
        "whole = whole - scores.values[:, -1:].to(whole.dtype)",
        "whole = whole - 0.0 * scores.values[:, -1:].to(whole.dtype)",
        ATTENTION,
    ),
    Mutation(
        "tiles left out that weigh something",
        "pipeline/model/reach.py",
        "NOTHING = 64.0",
        "NOTHING = 2.0",
        "tests/model/test_reach.py",
    ),
    Mutation(
        "ring tables by local distance",
        "pipeline/parallel/ring.py",
        "* stations + offset).clamp(max=last)",
        "+ offset).clamp(max=last)",
        RING,
    ),
    Mutation(
        "far and near on parts of rows",
        "pipeline/model/attention.py",
        "return FlashKernel() if scores.plain",
        "return FarNearKernel() if serves_far_near(scores) else FlashKernel() if scores.plain",
        RING,
    ),
    Mutation(
        "a station sees its own future",
        "pipeline/parallel/ring.py",
        "lead = 1 if other > station else 0",
        "lead = 0",
        RING,
    ),
    Mutation(
        "gradients stay where they were made",
        "pipeline/parallel/ring.py",
        "travelling = self._pass_on(travelling)()",
        "self._pass_on(travelling)()",
        MATRIX,
        "t5-zero1-sp2-accumulate1-ring",
    ),
    Mutation(
        "parts of a row not merged",
        "pipeline/model/kernel.py",
        "both = torch.logaddexp(lse, more_lse)",
        "both = torch.maximum(lse, more_lse)",
        MATRIX,
        "rope-zero1-sp2-accumulate1-ring",
    ),
    Mutation(
        "a ring rank trains on neighbours",
        "pipeline/data/module.py",
        "[inputs[::every] for inputs, _ in rows]",
        "[inputs[: len(inputs[::every])] for inputs, _ in rows]",
        MATRIX,
        "rope-zero1-sp2-accumulate1-ring",
    ),
    Mutation(
        "the loss's ready gradient used for any gradient",
        "pipeline/model/loss.py",
        "if len(grad) and grad.stride(0) == 0:",
        "if len(grad):",
        "tests/model/test_loss.py",
    ),
    Mutation(
        "norm's gradient without its radial part",
        "pipeline/model/projection.py",
        "d_x = pull.addcmul_(unit, along).mul_(scale)",
        "d_x = pull.mul_(scale)",
        "tests/model/test_projection.py",
    ),
    Mutation(
        "the last tile of the feed-forward part counted twice",
        "pipeline/model/mlp.py",
        "total += share",
        "total.mul_(2).add_(share)",
        "tests/model/test_mlp.py",
    ),
)
