"""Checks of a whole configuration: every value alone, then those that must fit together."""

import re
from collections.abc import Callable
from typing import Any

from pipeline.config.continued import check_continued
from pipeline.config.modifiers import check_modifiers, check_reach
from pipeline.config.schema import NAME, NAMED_GROUPS, Config
from pipeline.config.tasks import check_tasks
from pipeline.config.unused import check_used
from pipeline.config.values import like, problem, settings, show
from pipeline.errors import ConfigError


def validate(config: Config, trains: bool = True) -> None:
    """Check a resolved configuration; without `trains`, one that tests what was trained before.

    Raises ConfigError, naming key, value, what is allowed and the fix, for a value of the wrong
    type or out of range, for values that do not fit together, and for a setting without effect.
    """
    for key, setting in settings().items():
        wrong = problem(setting, _value(config, key))
        if wrong:
            raise ConfigError(wrong)
    for check in (*_CHECKS, *(_TRAINING_CHECKS if trains else ())):
        check(config)


def _value(config: Config, key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part)
    return found


def _require(fits: bool, config: Config, key: str, allowed: str, fix: str) -> None:
    """Raise ConfigError in the common form unless the value fits."""
    if not fits:
        value = show(_value(config, key))
        raise ConfigError(f"`{key}` = {value} is not allowed: {allowed}. {fix}.")


def _named(config: Config) -> None:
    for group in NAMED_GROUPS:
        name = getattr(config, group).get("name")
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            example = getattr(Config(), group)["name"]
            raise ConfigError(
                f"`{group}.name` = {show(name)} is not allowed: it takes the name of a file in "
                f"configs/{group}/. Write {group}={example}, for example."
            )
        for key, value in getattr(config, group).items():
            if value is None or isinstance(value, dict):
                raise ConfigError(
                    f"`{group}.{key}` = {show(value)} is not allowed: it takes a number, text, "
                    "true, false or a list. Leave it out to have its default."
                )
            wrong = problem(like(f"{group}.{key}", value), value)
            if wrong:
                raise ConfigError(wrong)


def _not_extended(config: Config) -> None:
    name = config.extension["name"]
    if name != Config().extension["name"] and config.init_from is None:
        raise ConfigError(
            f"`extension` = {show(name)} is not allowed here: an extension changes a trained "
            "encoding when it is tested. Train without, then "
            f"`python -m pipeline evaluate RUN extension={name}`, or train on under it with "
            "init_from=RUN."
        )


def _resolved(config: Config) -> None:
    if config.sweep:
        raise ConfigError(
            f"`sweep` = {show(config.sweep)} is not allowed in a single run: it takes {{}}. "
            "Expand the sweep first, with load()."
        )


def _lengths(config: Config) -> None:
    lengths = config.eval_lengths
    _require(
        lengths == sorted(set(lengths)),
        config,
        "eval_lengths",
        "lengths must ascend and stand once each",
        f"Write {sorted(set(lengths))}",
    )
    group = config.trainer.sequence_parallel
    _require(
        config.train_length >= group,
        config,
        "train_length",
        f"each of the {group} ranks that share a sequence (`trainer.sequence_parallel`) needs a "
        "token",
        f"Use at least {group}, or fewer ranks",
    )
    most = min(lengths[0], config.train_length)
    _require(
        config.evaluate.suffix_tokens <= most,
        config,
        "evaluate.suffix_tokens",
        f"the scored suffix must fit into the shortest of `eval_lengths` ({lengths[0]}) and into "
        f"`train_length` ({config.train_length})",
        f"Use at most {most}, or longer lengths",
    )


def _heads(config: Config) -> None:
    model, group = config.model, config.trainer.sequence_parallel
    unit = 2 * model.heads
    below = max(unit, model.width // unit * unit)
    fix = f"Use {below}, or {below + unit}" if below < model.width else f"Use {below}"
    _require(
        model.width % unit == 0,
        config,
        "model.width",
        f"it must be a multiple of 2 * `model.heads` = {unit}, so that every head has the same, "
        "even width",
        fix,
    )
    ring = config.trainer.ring
    _require(
        group % ring == 0,
        config,
        "trainer.ring",
        f"`trainer.sequence_parallel` = {group} ranks cannot be parted into {ring} stations",
        f"Use one of {', '.join(map(str, _divisors(group)))}",
    )
    most = model.heads * ring
    rings = [n for n in _divisors(group) if model.heads % (group // n) == 0]
    _require(
        model.heads % (group // ring) == 0,
        config,
        "trainer.sequence_parallel",
        f"`model.heads` = {model.heads} cannot be shared evenly by {group // ring} ranks "
        "(`trainer.sequence_parallel` / `trainer.ring`)",
        f"Use {_sharings(config, most)}, `trainer.ring` = "
        f"{' or '.join(map(str, rings))}, or a multiple of {group // ring} heads",
    )


def _sharings(config: Config, ranks: int) -> str:
    """The sizes of a sequence group that part so many ranks and the heads evenly, in words; empty
    if there is none."""
    ring, heads = config.trainer.ring, config.model.heads
    fit = [n for n in _divisors(ranks) if n % ring == 0 and heads % (n // ring) == 0]
    if len(fit) == 1:
        return f"`trainer.sequence_parallel={fit[0]}`"
    return f"one of {', '.join(map(str, fit))}" if fit else ""


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _window(config: Config) -> None:
    window = config.model.attention_window
    longest = max(config.train_length, *config.eval_lengths)
    _require(
        window is None or window < longest,
        config,
        "model.attention_window",
        f"no sequence is longer than {longest} tokens, so that it would have no effect",
        f"Use at most {longest - 1}, or null for no window",
    )


def _ranks(config: Config) -> None:
    trainer = config.trainer
    group, world = trainer.sequence_parallel, trainer.world
    sharings = _sharings(config, world)
    _require(
        world % group == 0,
        config,
        "trainer.sequence_parallel",
        f"`trainer.processes` * `trainer.nodes` = {world} ranks cannot be parted into groups of "
        f"{group}",
        f"Use {sharings}{', or ' * bool(sharings)}a multiple of {group} ranks (under SLURM: "
        "--nodes x --ntasks-per-node)",
    )


def _batch(config: Config) -> None:
    trainer = config.trainer
    unit = trainer.data_parallel * trainer.accumulate
    below = max(unit, trainer.batch_sequences // unit * unit)
    _require(
        trainer.batch_sequences % unit == 0,
        config,
        "trainer.batch_sequences",
        f"it must be a multiple of {trainer.data_parallel} sequence groups * `trainer.accumulate` "
        f"= {unit}",
        f"Use {below} or {below + unit}",
    )


def _schedule(config: Config) -> None:
    optimizer, steps = config.optimizer, config.trainer.max_steps
    _require(
        optimizer.min_learning_rate <= optimizer.learning_rate,
        config,
        "optimizer.min_learning_rate",
        f"the last learning rate cannot exceed the highest one, `optimizer.learning_rate` = "
        f"{optimizer.learning_rate}",
        f"Use at most {optimizer.learning_rate}",
    )
    for key, least in (
        ("optimizer.warmup_steps", 0),
        ("trainer.log_every", 1),
        ("trainer.evaluate_every", 0),
    ):
        _require(
            _value(config, key) <= steps,
            config,
            key,
            f"training ends before that, after `trainer.max_steps` = {steps}",
            f"Use {least} to {steps}, or train longer",
        )


def _data(config: Config) -> None:
    data, evaluate = config.data, config.evaluate
    share = data.validation_fraction + data.test_fraction
    _require(
        share < 1.0,
        config,
        "data.validation_fraction",
        f"with `data.test_fraction` = {data.test_fraction} nothing is left to train on",
        "Let the two add up to less than 1",
    )
    _require(
        _value(config, f"data.{evaluate.split}_fraction") > 0.0,
        config,
        "evaluate.split",
        f"`data.{evaluate.split}_fraction` is 0, so that there is nothing to score",
        f"Use the other split, or give `data.{evaluate.split}_fraction` a share",
    )
    _require(
        not config.trainer.evaluate_every or data.validation_fraction > 0.0,
        config,
        "trainer.evaluate_every",
        "`data.validation_fraction` is 0, so that there is nothing to score during training",
        "Use 0, for never, or give `data.validation_fraction` a share",
    )
    plain = data.source == "stdlib" or data.source.endswith(".txt")
    _require(
        not plain or data.text_key == "text",
        config,
        "data.text_key",
        f"it has no effect, because `data.source` = '{data.source}' has no fields",
        "Leave it out",
    )
    _require(
        (evaluate.sliding_documents or 1) <= evaluate.documents,
        config,
        "evaluate.sliding_documents",
        f"they are the first of `evaluate.documents` = {evaluate.documents}",
        f"Use at most {evaluate.documents}, or null for all",
    )


def _short(config: Config) -> None:
    evaluate = config.evaluate
    _require(
        not config.trainer.evaluate_every or evaluate.short_documents <= evaluate.documents,
        config,
        "evaluate.short_documents",
        f"the short evaluation cannot score more than `evaluate.documents` = {evaluate.documents}",
        f"Use at most {evaluate.documents}",
    )


_CHECKS: tuple[Callable[[Config], None], ...] = (
    _resolved,
    _named,
    _lengths,
    _heads,
    _ranks,
    _schedule,
    _data,
    check_continued,
    check_tasks,
    check_modifiers,
)
_TRAINING_CHECKS: tuple[Callable[[Config], None], ...] = (
    _not_extended,
    _batch,
    _short,
    _window,
    check_reach,
    check_used,
)
