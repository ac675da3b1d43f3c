"""What is checked, and said, before a run may write anything."""

import sys
from collections.abc import Sequence
from dataclasses import asdict

import torch

from pipeline.config.continued import origin_path
from pipeline.config.label import label
from pipeline.config.schema import Config, DataConfig
from pipeline.config.tasks import mixed_shares
from pipeline.data.mixture import training_sequences
from pipeline.data.prepare import Prepared, prepare
from pipeline.data.tasks.registry import build_task
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate.documents import documents_for
from pipeline.evaluate.extended import extend_decoder, tested_path
from pipeline.model.decoder import Decoder, parameter_counts
from pipeline.model.plan import PRECISIONS
from pipeline.parallel.device import device_type
from pipeline.positions.base import Facts
from pipeline.positions.position_ids import generator
from pipeline.positions.registry import NO_EXTENSION
from pipeline.record.folder import RunFolder


def say(message: str) -> None:
    """A line for the user, apart from results, which go to standard output."""
    print(message, file=sys.stderr, flush=True)


def check_model(config: Config) -> tuple[int, int]:
    """Build and call the decoder without memory; returns all parameters and the encoding's.

    Raises:
        ConfigError: the encoding refuses its settings, the sizes, the extension or the train
            length, or the attention path does not serve it.
    """
    with torch.device("meta"):
        decoder = Decoder(config).to(PRECISIONS[config.trainer.precision])
        extend_decoder(decoder, config)
        decoder.check_length(config.train_length)
    for length in {config.train_length, *config.eval_lengths}:
        if length <= (decoder.position.max_length or length):
            tested_path(config, device_type(config), length)
    with torch.device("meta"):
        tokens = torch.zeros(1, min(2, config.train_length), dtype=torch.int64)
        decoder(tokens, tokens, torch.arange(tokens.shape[1])[None])
    _check_sharing(config, decoder.position.facts)
    return parameter_counts(decoder)


def _check_sharing(config: Config, facts: Facts) -> None:
    """Refuse ranks that would share what the encoding needs in one place.

    Raises:
        ConfigError: heads or tokens are shared, and must not be.
    """
    trainer, name = config.trainer, repr(config.position["name"])
    if config.extension["name"] != NO_EXTENSION:
        name += f" with extension={config.extension['name']!r}"
    if trainer.sequence_parallel > trainer.ring and not facts.head_shardable:
        raise ConfigError(
            f"position={name} needs all heads on one rank, and trainer.sequence_parallel="
            f"{trainer.sequence_parallel} with trainer.ring={trainer.ring} shares them; set "
            f"trainer.ring={trainer.sequence_parallel}, which shares the tokens only, or "
            "trainer.sequence_parallel=1"
        )
    if trainer.ring > 1 and not facts.ring_shardable:
        raise ConfigError(
            f"position={name} needs all tokens of a sequence on one rank, and trainer.ring="
            f"{trainer.ring} shares them; set trainer.ring=1, which shares the heads"
        )


def check_devices(config: Config) -> None:
    """Refuse a GPU run that this machine cannot hold; one rank takes one GPU.

    Raises:
        ConfigError: there is no GPU, or fewer than trainer.processes.
    """
    wanted, here = config.trainer.accelerator, torch.cuda.is_available()
    held = torch.cuda.device_count()
    if wanted == "cuda" and not here:
        raise ConfigError(
            "trainer.accelerator=cuda: torch sees no GPU here; use auto or cpu, or install a CUDA "
            "build of torch and check the driver"
        )
    if wanted != "cpu" and here and config.trainer.processes > held:
        raise ConfigError(
            f"trainer.processes={config.trainer.processes}: one rank takes one GPU, and there are "
            f"{held} here; use at most {held}, or trainer.accelerator=cpu"
        )


def check_text(folder: RunFolder, prepared: Prepared) -> None:
    """Refuse to go on with a finished run whose corpus has changed since.

    Raises:
        DataError: corpus or tokenizer are not those the run was trained with.
        CheckpointError: what training said of them is missing or damaged.
    """
    summary = folder.trained_facts()
    now = {
        "corpus_sha256": prepared.corpus_sha256,
        "tokenizer_sha256": prepared.tokenizer.sha256,
    }
    for key, value in now.items():
        if summary.get(key) != value:
            raise DataError(
                f"data.source: the text is not what {folder.path} was trained on: {key} was "
                f"{str(summary.get(key))[:12]}..., is {value[:12]}... now. Restore the corpus, or "
                "train again under another experiment"
            )


def describe(config: Config) -> str:
    """What a run will do, in one line."""
    parameters, own = check_model(config)
    trainer = config.trainer
    tokens = trainer.max_steps * trainer.batch_sequences * config.train_length
    # tokens are targets, and the prompts of tasks are none
    mixed = "at most " if mixed_shares(config.data.mix) else ""
    name = config.position["name"]
    if config.init_from is not None:
        under = label(config.extension) if config.extension["name"] != NO_EXTENSION else "as it is"
        name += f" ({under}, from {origin_path(config)})"
    return (
        f"{name}: {parameters:,} parameters ({own:,} of the encoding), "
        f"{trainer.max_steps} steps, {mixed}{tokens:,} tokens, {trainer.world} ranks "
        f"({trainer.data_parallel} data parallel x {trainer.sequence_parallel} sequence parallel"
        f"{f', ring of {trainer.ring}' if trainer.ring > 1 else ''}), "
        f"ZeRO {trainer.zero_stage}, {trainer.precision}, attention by "
        f"{tested_path(config, device_type(config), config.train_length)}"
    )


def prepare_all(runs: Sequence[Config]) -> dict[str, Prepared]:
    """Prepare every corpus the runs name, once each, and check that it is large enough.

    Raises:
        DataError: a corpus cannot be read, or is too small for the lengths asked for.
        ConfigError: position ids depend on text that no token of the vocabulary has, or a task
            is longer than what it is to be trained or tested at.
    """
    prepared: dict[str, Prepared] = {}
    for config in runs:
        key = data_key(config.data)
        if key not in prepared:
            prepared[key] = prepare(config.data)
        data = prepared[key]
        training_sequences(config, data)
        with torch.device("meta"):
            Decoder(config).position_ids.read_vocabulary(data.tokenizer.pieces)
        _check_documents(config, data, config.evaluate.split, config.evaluate.documents)
        if config.trainer.evaluate_every:
            _check_documents(config, data, "validation", config.evaluate.short_documents)
        _check_tested_tasks(config, data)
    return prepared


def _check_documents(config: Config, data: Prepared, split: str, wanted: int) -> None:
    found = len(documents_for(config, data, split, wanted).tokens)
    if found < wanted:
        say(f"note: {wanted} {split} documents were asked for, {found} are long enough: all used")


def _check_tested_tasks(config: Config, data: Prepared) -> None:
    longest = config.eval_lengths[-1]
    for name in config.evaluate.tasks:
        task = build_task(name, data.tokenizer, data.split(config.evaluate.split))
        if task.least > longest:
            raise ConfigError(
                f"`evaluate.tasks`: {name} cannot be tested: with this vocabulary an example has "
                f"at least {task.least} tokens, and the longest of `eval_lengths` is {longest}. "
                f"Add a length of at least {task.least}, or leave the task out."
            )
        task.example(longest, generator(0))  # whether the text is long enough for a haystack


def data_key(data: DataConfig) -> str:
    """Equal for data settings that prepare the same folder."""
    return repr({k: v for k, v in asdict(data).items() if k not in ("workers", "mix")})
