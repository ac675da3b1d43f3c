"""Settings that nothing of a run uses: they are refused, so that nobody believes in them."""

from collections.abc import Sequence
from dataclasses import asdict

from pipeline.config.schema import Config, EvaluateConfig, TrainerConfig, WandbConfig
from pipeline.config.tasks import NEEDLE_TASKS
from pipeline.config.values import show
from pipeline.errors import ConfigError


def check_used(config: Config) -> None:
    """Raise ConfigError for a setting that was changed and has no effect.

    Of a run that is trained this does not hold: a test may leave out what its settings are about.
    """
    trainer = config.trainer
    check_tests_used(config, None)
    if not trainer.evaluate_every:
        why = "`trainer.evaluate_every` = 0 evaluates only at the end"
        fix = "Evaluate during training"
        _usual("evaluate", "short_documents", config.evaluate, EvaluateConfig(), why, fix)
    if not trainer.save_every:
        why = "`trainer.save_every` = 0 saves only at the end"
        _usual("trainer", "keep", trainer, TrainerConfig(), why, "Save during training")
    _check_best(config)
    if trainer.world == 1:
        why = "one rank waits for no other"
        _usual("trainer", "hang_timeout", trainer, TrainerConfig(), why, "Use more ranks")
    if config.wandb.mode == "off":
        for key in sorted(asdict(config.wandb).keys() - {"mode"}):
            why, fix = "`wandb.mode` = off sends and writes nothing", "Use another mode"
            _usual("wandb", key, config.wandb, WandbConfig(), why, fix)


def check_tests_used(config: Config, asked: Sequence[str] | None) -> None:
    """Raise ConfigError for a setting of tests that nothing tested uses.

    `asked` are the keys that somebody has just set; None = all that are not as usual.
    """
    tested = config.evaluate
    needles = f"one of {', '.join(NEEDLE_TASKS)}"
    for key, used, users, where in (
        ("task_examples", bool(tested.tasks), "a task", "tasks"),
        ("needle_depths", any(t in NEEDLE_TASKS for t in tested.tasks), needles, "tasks"),
        ("stride_fraction", "sliding" in tested.protocols, "sliding", "protocols"),
        ("sliding_documents", bool(tested.protocols), "a protocol", "protocols"),
    ):
        why = f"`evaluate.{where}` = {show(getattr(tested, where))} does not name {users}"
        if not used and asked is None:
            _usual("evaluate", key, tested, EvaluateConfig(), why, f"Name {users}")
        elif not used and f"evaluate.{key}" in (asked or ()):
            _refuse("evaluate", key, getattr(tested, key), why, f"Name {users}")
    if "evaluate.short_documents" in (asked or ()):
        why = "a test makes no short evaluation"
        _refuse("evaluate", "short_documents", tested.short_documents, why, "Set it for training")


def _check_best(config: Config) -> None:
    """Raise ConfigError if no checkpoint can be the best, or none beside the newest can be kept."""
    trainer, save, judge = config.trainer, config.trainer.save_every, config.trainer.evaluate_every
    for fits, why, fix in (
        (
            judge > 0 and 0 < save < trainer.max_steps and save % judge == 0,
            f"no short evaluation comes with each checkpoint: `trainer.save_every` = {save}, "
            f"`trainer.evaluate_every` = {judge}, `trainer.max_steps` = {trainer.max_steps}",
            "Make `trainer.save_every` a multiple of `trainer.evaluate_every`, below the last step",
        ),
        (
            config.train_length in config.eval_lengths,
            f"it goes by the loss at `train_length` = {config.train_length}, which is none of "
            "`eval_lengths`",
            f"Add {config.train_length} to `eval_lengths`",
        ),
        (
            trainer.keep > 1,
            f"`trainer.keep` = {trainer.keep} keeps the newest alone",
            "Keep 2 or more",
        ),
    ):
        if not fits:
            _usual("trainer", "keep_best", trainer, TrainerConfig(), why, fix)


def _usual(group: str, key: str, given: object, usual: object, why: str, fix: str) -> None:
    """Refuse a value that is not the default."""
    value = getattr(given, key)
    if value != getattr(usual, key):
        _refuse(group, key, value, why, fix)


def _refuse(group: str, key: str, value: object, why: str, fix: str) -> None:
    raise ConfigError(
        f"`{group}.{key}` = {show(value)} is not allowed: it has no effect, because {why}. {fix}, "
        "or leave it out."
    )
