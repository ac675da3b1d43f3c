"""How much arithmetic one training step of the decoder is, counted from the formula of the model.

Model FLOPs of one sequence, a multiplication and an addition being two:

    weights    6 P S, with P = layers (4 D^2 + 3 D M) + V D     forward 2, backward 4
    attention  3 layers 2 (2 H d S^2 / 2) = 6 layers D S^2      q k^T and p v, causal half
               with a window of w < S tokens, S w - w^2 / 2 in place of S^2 / 2

Backward counts twice the forward, without anything that is computed again (tiles, checkpoints), so
that a method which recomputes is not credited for it. The head multiplies whether its weight is
tied or not; the look-up of embeddings, norms, softmax and what an encoding adds are not counted.
Legend: S tokens, D width, H heads of width d = D / H, M feed-forward width, V vocabulary.
"""

from pipeline.config.schema import ModelConfig


def matmul_parameters(model: ModelConfig, vocab: int) -> int:
    """P: the weights that every token is multiplied by."""
    block = 4 * model.width**2 + 3 * model.width * model.mlp_width
    return model.layers * block + vocab * model.width


def attention_flops(model: ModelConfig, length: int) -> int:
    """Forward and backward of one layer's causal attention over `length` tokens, no projections."""
    seen = min(model.attention_window or length, length)
    return 6 * model.width * (2 * length * seen - seen**2)


def step_flops(model: ModelConfig, vocab: int, length: int) -> int:
    """Forward and backward of the whole decoder over one sequence of `length` tokens."""
    attention = model.layers * attention_flops(model, length)
    return 6 * matmul_parameters(model, vocab) * length + attention
