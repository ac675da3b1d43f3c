"""Other libraries' decoders of the same shape, through their public modules and best settings.

Each is a decoder with pre-norm RMSNorm, SwiGLU and no biases, as far as its options go; its count
of parameters stands beside its result. All get the loss of torch on their whole logits. They come
with the extra `bench` and are imported here alone.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn

from pipeline.config.schema import Config
from pipeline.errors import ConfigError


def encodings(rival: str | None = None) -> list[str]:
    """The encodings that one rival is measured under; without a name, the rivals."""
    return [*RIVALS] if rival is None else [*RIVALS[rival][1]]


def check_rivals(rivals: Sequence[str]) -> None:
    """Refuse rivals that are not installed.

    Raises:
        ConfigError: naming them and the command that installs them.
    """
    missing = [rival for rival in rivals if find_spec(RIVALS[rival][0]) is None]
    if missing:
        raise ConfigError(
            f"--against={','.join(missing)}: not installed here. Install the extra with "
            "pip install -e '.[bench]', from the top folder, or leave it out"
        )


def build_rival(rival: str, position: str, config: Config, length: int) -> nn.Module:
    """A module from tokens [B,S] to logits [B,S,V], its weights as the library starts them."""
    return RIVALS[rival][2](config, length, position)


class _Hf(nn.Module):
    def __init__(self, config: Config, length: int, position: str) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        super().__init__()
        model = config.model
        shape = LlamaConfig(
            vocab_size=config.data.vocab,
            hidden_size=model.width,
            intermediate_size=model.mlp_width,
            num_hidden_layers=model.layers,
            num_attention_heads=model.heads,
            num_key_value_heads=model.heads,
            max_position_embeddings=length,
            tie_word_embeddings=model.tied_embeddings,
            attn_implementation="sdpa",
            use_cache=False,
        )
        self.decoder = LlamaForCausalLM(shape)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.decoder(tokens).logits
        return logits


def _litgpt(config: Config, length: int, position: str) -> nn.Module:
    from litgpt.model import GPT
    from litgpt.model import Config as Shape

    model = config.model
    shape = Shape(
        name="bench",
        block_size=length,
        vocab_size=config.data.vocab,
        padded_vocab_size=config.data.vocab,
        n_layer=model.layers,
        n_head=model.heads,
        n_embd=model.width,
        intermediate_size=model.mlp_width,
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
    )
    gpt: nn.Module = GPT(shape)
    if model.tied_embeddings:
        # as litgpt's own pretraining does for train.tie_embeddings
        gpt.transformer.wte.weight = gpt.lm_head.weight  # type: ignore[union-attr]
    return gpt


def _x_transformers(config: Config, length: int, position: str) -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    model = config.model
    head = model.head_width
    own: dict[str, dict[str, Any]] = {
        "rope": {"rotary_pos_emb": True, "rotary_emb_dim": head},
        "alibi": {"alibi_pos_bias": True, "alibi_num_heads": model.heads},
        "t5": {"rel_pos_bias": True},
    }
    layers = Decoder(
        dim=model.width,
        depth=model.layers,
        heads=model.heads,
        attn_dim_head=head,
        # it refuses flash attention with T5's bias
        attn_flash=position != "t5",
        ff_mult=model.mlp_width / model.width,
        ff_glu=True,
        ff_swish=True,
        ff_no_bias=True,
        use_rmsnorm=True,
        **own[position],
    )
    wrapper: nn.Module = TransformerWrapper(
        num_tokens=config.data.vocab,
        max_seq_len=length,
        attn_layers=layers,
        use_abs_pos_emb=False,
        tie_embedding=model.tied_embeddings,
    )
    return wrapper


# name: the module that must be importable, the encodings, how it is built
RIVALS: dict[str, tuple[str, tuple[str, ...], Callable[[Config, int, str], nn.Module]]] = {
    "hf": ("transformers", ("rope",), _Hf),
    "litgpt": ("litgpt", ("rope",), _litgpt),
    "x-transformers": ("x_transformers", ("rope", "alibi", "t5"), _x_transformers),
}
