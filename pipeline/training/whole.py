"""Whole fp32 tensors out of DeepSpeed's partitions, and back into those of any other world.

ZeRO keeps masters and moments in flat partitions, one per rank and group of parameters. Under ZeRO
1 and 2 a partition holds a stretch of all parameters one after another, under ZeRO 3 a stretch of
each.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.checkpoint.state import MOMENTS, TrainingState


def whole_weights(decoder: nn.Module, keep: bool) -> dict[str, Tensor]:
    """The fp32 master weights of the decoder, gathered from all ranks, on CPU.

    Every rank takes part; only those with `keep` get them.
    """
    from deepspeed.utils import safe_get_full_fp32_param

    return _gathered(decoder, safe_get_full_fp32_param, keep)


def whole_moments(engine: Any, decoder: nn.Module, step: int, keep: bool) -> dict[str, Any]:
    """The moments of Adam after `step` optimizer steps, by `MOMENTS` and parameter name; as
    `whole_weights`."""
    from deepspeed.utils import safe_get_full_optimizer_state

    for partition in _partitions(engine):
        counted = int(engine.optimizer.optimizer.state[partition]["step"])
        if counted != step:
            raise AssertionError(f"Adam counted {counted} steps, training {step}")
    _link(engine, decoder)

    def read(moment: str) -> Callable[[nn.Parameter], Tensor | None]:
        return lambda parameter: safe_get_full_optimizer_state(parameter, moment)

    return {moment: _gathered(decoder, read(moment), keep) for moment in MOMENTS}


def restore(engine: Any, decoder: nn.Module, state: TrainingState) -> None:
    """Put masters, moments and the step count of Adam into this rank's partitions.

    The decoder must have had the weights of `state` before DeepSpeed wrapped it: low-precision
    weights are made from the masters there.
    """
    adam = engine.optimizer.optimizer
    # torch makes these at the first step only
    for flat in _partitions(engine):
        adam.state[flat] = {
            "step": torch.tensor(float(state.step), device=flat.device),
            **{moment: torch.zeros_like(flat) for moment in MOMENTS},
        }
    _link(engine, decoder)
    put = _put_stretch if _shards_parameters(engine) else _put_whole
    for name, parameter in decoder.named_parameters():
        put(parameter, state.weights[name], None)
        for moment in MOMENTS:
            put(parameter, state.moments[moment][name], moment)


def _gathered(
    decoder: nn.Module, read: Callable[[nn.Parameter], Tensor | None], keep: bool
) -> dict[str, Tensor]:
    found = {}
    for name, parameter in decoder.named_parameters():
        whole = read(parameter)
        if whole is None:
            raise AssertionError(f"{name}: DeepSpeed keeps nothing of this parameter")
        if keep:
            found[name] = whole.detach().float().cpu().clone().view(whole.shape)
    return found


def _shards_parameters(engine: Any) -> bool:
    return bool(engine.zero_optimization_stage() == 3)


def _partitions(engine: Any) -> list[Tensor]:
    """The flat fp32 tensors that torch's Adam steps on this rank."""
    zero = engine.optimizer
    if _shards_parameters(engine):
        return list(zero.fp32_partitioned_groups_flat)
    return [flat for group in zero.optimizer.param_groups for flat in group["params"]]


def _link(engine: Any, decoder: nn.Module) -> None:
    """Tell each parameter where its moments are; DeepSpeed itself does so after the step of the
    first group of parameters, when the others have none yet."""
    if _shards_parameters(engine):
        return
    partitions = _partitions(engine)
    for parameter in decoder.parameters():
        place = parameter._hp_mapping  # type: ignore[attr-defined]
        if place is not None:
            flat = partitions[place.param_group_index]
            place.set_optim_state_fragment(flat, engine.optimizer.optimizer.state[flat])


def _put_whole(parameter: nn.Parameter, value: Tensor, moment: str | None) -> None:
    from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

    if moment is None:
        safe_set_full_fp32_param(parameter, value)
    else:
        safe_set_full_optimizer_state(parameter, value, moment)


def _put_stretch(parameter: Any, value: Tensor, moment: str | None) -> None:
    """ZeRO 3 cuts each parameter into equal stretches, the last one padded with zeros."""
    from deepspeed.utils import safe_set_local_fp32_param, safe_set_local_optimizer_state

    size, rank = parameter.ds_tensor.numel(), dist.get_rank()
    padded = F.pad(value.flatten(), (0, size * dist.get_world_size() - value.numel()))
    own = padded[size * rank : size * (rank + 1)]
    if moment is None:
        safe_set_local_fp32_param(parameter, own)
    else:
        safe_set_local_optimizer_state(parameter, own, moment)


def state_of(
    engine: Any, decoder: nn.Module, progress: Mapping[str, Any], keep: bool
) -> TrainingState:
    """All that training goes on from; `progress` holds step, tokens, seconds,
    losses and validation loss. Every rank takes part; only those with `keep` get the tensors."""
    return TrainingState(
        **progress,
        weights=whole_weights(decoder, keep),
        moments=whole_moments(engine, decoder, progress["step"], keep),
    )
