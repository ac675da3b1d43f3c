"""Checks of the settings of `model` that change attention under any position encoding.

Which encodings they do not fit is known where encodings are: in `pipeline.model.modifiers`.
"""

from pipeline.config.schema import Config
from pipeline.config.values import show
from pipeline.errors import ConfigError


def check_modifiers(config: Config) -> None:
    """Refuse modifiers that contradict the model, or have no effect in it.

    Raises:
        ConfigError: naming the setting, what is allowed and how to fix it.
    """
    model, steps = config.model, config.trainer.max_steps
    _mask(config)
    _require(
        model.qk_norm != "cosine" or config.scale_length >= 4,
        "model.qk_norm",
        model.qk_norm,
        f"its factor 4 ln(`train_length` / 2) vanishes or is tiny at {config.scale_length} tokens",
        "Use a train_length of at least 4, or key",
    )
    _require(
        model.no_position_every is None or model.no_position_every <= model.layers,
        "model.no_position_every",
        model.no_position_every,
        f"there is no such layer among `model.layers` = {model.layers}, so that it would have no "
        "effect",
        f"Use 2 to {model.layers}, or null" if model.layers > 1 else "Use null, or more layers",
    )
    _require(
        (model.drop_position_after or 0) < steps,
        "model.drop_position_after",
        model.drop_position_after,
        f"training ends after `trainer.max_steps` = {steps}, and must go on without the encoding",
        f"Use 1 to {steps - 1}, or null" if steps > 1 else "Use null, or train longer",
    )


def check_reach(config: Config) -> None:
    """Refuse a mask that hides nothing from any token.

    Raises:
        ConfigError: `model.mask_tokens` is too large.
    """
    model, own = config.model, config.train_length
    if model.mask_tokens is None:
        return
    if model.attention_mask == "shifted_groups":
        _require(
            model.mask_tokens < own,
            "model.mask_tokens",
            model.mask_tokens,
            f"a group would hold the whole training sequence, `train_length` = {own}",
            f"Use at most {(own - 1) // 2 * 2}",
        )
        return
    longest = max(own, *config.eval_lengths)
    _require(
        2 * model.mask_tokens < longest,
        "model.mask_tokens",
        model.mask_tokens,
        f"no sequence is longer than {longest} tokens, two blocks, so that the mask would have no "
        "effect",
        f"Use at most {(longest - 1) // 2}, or no mask",
    )


def _mask(config: Config) -> None:
    model, tokens = config.model, config.model.mask_tokens
    _require(
        (model.attention_mask == "none") == (tokens is None),
        "model.mask_tokens",
        tokens,
        f"`model.attention_mask` = {model.attention_mask} "
        + ("has no blocks, so that it would have no effect" if tokens else "needs a size"),
        "Use null, or choose a mask" if tokens else "Give the tokens of a block or group",
    )
    if tokens is None:
        return
    ids = config.position_ids["name"]
    _require(
        ids == "consecutive",
        "model.attention_mask",
        model.attention_mask,
        f"blocks are of tokens, and `position_ids` = {ids} does not count these",
        "Use none, or position_ids=consecutive",
    )
    if model.attention_mask == "shifted_groups":
        _require(
            tokens % 2 == 0,
            "model.mask_tokens",
            tokens,
            "groups are shifted by half their size",
            f"Use {tokens + 1}",
        )
        _require(
            model.heads % 2 == 0,
            "model.heads",
            model.heads,
            "`model.attention_mask` = shifted_groups shifts half of them",
            f"Use {model.heads + 1}, or another mask",
        )
        return
    window = model.attention_window
    _require(
        window is None or window > tokens + 1,
        "model.attention_window",
        window,
        f"every token sees `model.mask_tokens` = {tokens} tokens back, so that the mask would have "
        "no effect",
        f"Use at least {tokens + 2}, or no mask",
    )


def _require(fits: bool, key: str, value: object, allowed: str, fix: str) -> None:
    """Raise ConfigError in the common form unless the value fits."""
    if not fits:
        raise ConfigError(f"`{key}` = {show(value)} is not allowed: {allowed}. {fix}.")
