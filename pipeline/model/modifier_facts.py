"""What changes attention under any encoding, as `python -m pipeline positions` lists it.

`pipeline.model.modifiers` says how; n is the number of tokens that query i may see.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModifierFacts:
    """A modifier and the setting that turns it on."""

    name: str
    setting: str
    source: str
    formula: str
    extra_parameters: str = "0"


MODIFIERS = (
    ModifierFacts(
        "log_n",
        "model.score_scale=log_n",
        "Su 2021, kexue.fm/archives/8823",
        "q_i -> q_i ln n / ln train_length",
    ),
    ModifierFacts(
        "ssmax",
        "model.score_scale=ssmax",
        "Nakanishi 2025, arXiv 2501.19399",
        "q_i -> q_i s_h ln n, s learned per layer and head",
        "layers * heads",
    ),
    ModifierFacts(
        "key_norm", "model.qk_norm=key", "Su 2023, kexue.fm/archives/9859", "S_ij = q_i.k_j/|k_j|"
    ),
    ModifierFacts(
        "cosine",
        "model.qk_norm=cosine",
        "Su 2023, kexue.fm/archives/9859",
        "S_ij = 4 ln(train_length/2) cos(q_i, k_j)",
    ),
    ModifierFacts(
        "qk_bias",
        "model.qk_bias=true",
        "Su 2023, kexue.fm/archives/9577",
        "q_i + a_h, k_j + b_h before the encoding, a and b learned per layer",
        "2 * layers * width",
    ),
    ModifierFacts(
        "sliding_window",
        "model.attention_window=W",
        "Beltagy et al. 2020, arXiv 2004.05150",
        "seen where i-j < W",
    ),
    ModifierFacts(
        "blockwise",
        "model.attention_mask=blockwise model.mask_tokens=B",
        "Sun et al. 2023, arXiv 2212.10554",
        "seen where floor(i/B) - floor(j/B) <= 1",
    ),
    ModifierFacts(
        "shifted_groups",
        "model.attention_mask=shifted_groups model.mask_tokens=G",
        "Chen et al. 2024 (LongLoRA), arXiv 2309.12307",
        "in training, seen within groups of G tokens, shifted by G/2 for half of the heads",
    ),
    ModifierFacts(
        "no_position_every",
        "model.no_position_every=N",
        "Yang et al. 2025, arXiv 2501.18795",
        "every N-th layer attends without the encoding",
    ),
    ModifierFacts(
        "drop_position",
        "model.drop_position_after=STEPS",
        "Gelberg et al. 2025 (DroPE), arXiv 2512.12167",
        "from a step of training on no layer has the encoding",
    ),
)
