"""Settings that nothing of a run uses: they are refused, so that nobody believes in them."""

from dataclasses import asdict

from pipeline.config.schema import Config, EvaluateConfig, TrainerConfig, WandbConfig
from pipeline.config.tasks import NEEDLE_TASKS
from pipeline.config.values import show
from pipeline.errors import ConfigError


def check_used(config: Config) -> None:
    """Raise ConfigError for a setting that was changed and has no effect.

    Of a run that is trained this does not hold: a test may leave out what its settings are about.
    """
    tested, trainer = config.evaluate, config.trainer
    needles = f"one of {', '.join(NEEDLE_TASKS)}"
    for key, used, users, where in (
        ("task_examples", bool(tested.tasks), "a task", "tasks"),
        ("needle_depths", any(t in NEEDLE_TASKS for t in tested.tasks), needles, "tasks"),
        ("stride_fraction", "sliding" in tested.protocols, "sliding", "protocols"),
        ("sliding_documents", bool(tested.protocols), "a protocol", "protocols"),
    ):
        why = f"`evaluate.{where}` = {show(getattr(tested, where))} does not name {users}"
        if not used:
            _usual("evaluate", key, tested, EvaluateConfig(), why, f"Name {users}")
    if not trainer.evaluate_every:
        why = "`trainer.evaluate_every` = 0 evaluates only at the end"
        fix = "Evaluate during training"
        _usual("evaluate", "short_documents", tested, EvaluateConfig(), why, fix)
    if not trainer.save_every:
        why = "`trainer.save_every` = 0 saves only at the end"
        _usual("trainer", "keep", trainer, TrainerConfig(), why, "Save during training")
    if trainer.world == 1:
        why = "one rank waits for no other"
        _usual("trainer", "hang_timeout", trainer, TrainerConfig(), why, "Use more ranks")
    if config.wandb.mode == "off":
        for key in sorted(asdict(config.wandb).keys() - {"mode"}):
            why, fix = "`wandb.mode` = off sends and writes nothing", "Use another mode"
            _usual("wandb", key, config.wandb, WandbConfig(), why, fix)


def _usual(group: str, key: str, given: object, usual: object, why: str, fix: str) -> None:
    """Refuse a value that is not the default."""
    value = getattr(given, key)
    if value != getattr(usual, key):
        raise ConfigError(
            f"`{group}.{key}` = {show(value)} is not allowed: it has no effect, because {why}. "
            f"{fix}, or leave it out."
        )
