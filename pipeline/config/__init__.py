"""Configuration: what a run is, read strictly and checked before anything is written."""

from pipeline.config.compose import load
from pipeline.config.redact import config_hash, public, save
from pipeline.config.schema import (
    Config,
    DataConfig,
    EvaluateConfig,
    ModelConfig,
    OptimizerConfig,
    TrainerConfig,
    WandbConfig,
)
from pipeline.config.validate import validate

__all__ = [
    "Config",
    "DataConfig",
    "EvaluateConfig",
    "ModelConfig",
    "OptimizerConfig",
    "TrainerConfig",
    "WandbConfig",
    "config_hash",
    "load",
    "public",
    "save",
    "validate",
]
