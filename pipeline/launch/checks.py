"""What is checked, and said, before a run may write anything."""

import sys
from collections.abc import Sequence
from dataclasses import asdict

import torch

from pipeline.config.schema import Config, DataConfig
from pipeline.data.prepare import Prepared, prepare
from pipeline.data.sequences import Sequences
from pipeline.errors import ConfigError
from pipeline.evaluate.documents import documents_for
from pipeline.model.decoder import Decoder, parameter_counts


def say(message: str) -> None:
    """A line for the user, apart from results, which go to standard output."""
    print(message, file=sys.stderr, flush=True)


def check_model(config: Config) -> tuple[int, int]:
    """Build and call the decoder without memory; returns all parameters and the encoding's.

    Raises:
        ConfigError: the encoding refuses its settings, the sizes, or the train length.
    """
    with torch.device("meta"):
        decoder = Decoder(config)
        decoder.position.check_length(config.train_length)
        tokens = torch.zeros(1, min(2, config.train_length), dtype=torch.int64)
        decoder(tokens, tokens, torch.arange(tokens.shape[1])[None])
    if config.trainer.sequence_parallel > 1 and not decoder.position.facts.head_shardable:
        raise ConfigError(
            f"position={config.position['name']!r} needs all heads on one rank; set "
            "trainer.sequence_parallel=1"
        )
    return parameter_counts(decoder)


def describe(config: Config) -> str:
    """What a run will do, in one line."""
    parameters, own = check_model(config)
    trainer = config.trainer
    tokens = trainer.max_steps * trainer.batch_sequences * config.train_length
    return (
        f"{config.position['name']}: {parameters:,} parameters ({own:,} of the encoding), "
        f"{trainer.max_steps} steps, {tokens:,} tokens, {trainer.world} ranks "
        f"({trainer.data_parallel} data parallel x {trainer.sequence_parallel} sequence parallel), "
        f"ZeRO {trainer.zero_stage}, {trainer.precision}"
    )


def prepare_all(runs: Sequence[Config]) -> dict[str, Prepared]:
    """Prepare every corpus the runs name, once each, and check that it is large enough.

    Raises:
        DataError: a corpus cannot be read, or is too small for the lengths asked for.
    """
    prepared: dict[str, Prepared] = {}
    for config in runs:
        key = data_key(config.data)
        if key not in prepared:
            prepared[key] = prepare(config.data)
        data = prepared[key]
        Sequences(data.split("train"), config.train_length)
        _check_documents(config, data, config.evaluate.split, config.evaluate.documents)
        if config.trainer.evaluate_every:
            _check_documents(config, data, "validation", config.evaluate.short_documents)
    return prepared


def _check_documents(config: Config, data: Prepared, split: str, wanted: int) -> None:
    found = len(documents_for(config, data, split, wanted).tokens)
    if found < wanted:
        say(f"note: {wanted} {split} documents were asked for, {found} are long enough: all used")


def data_key(data: DataConfig) -> str:
    """Equal for data settings that prepare the same folder."""
    return repr({k: v for k, v in asdict(data).items() if k != "workers"})
