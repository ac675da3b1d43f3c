"""Which kind of device a run uses."""

import torch

from pipeline.config.schema import Config


def on_gpu(config: Config) -> bool:
    """Whether this run uses CUDA: asked for, or `auto` where there is a device."""
    accelerator = config.trainer.accelerator
    return accelerator == "cuda" or (accelerator == "auto" and torch.cuda.is_available())


def device_type(config: Config) -> str:
    """`cuda` or `cpu`, whichever this run uses."""
    return "cuda" if on_gpu(config) else "cpu"
