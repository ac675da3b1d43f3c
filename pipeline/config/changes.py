"""What may change between the parts of one run: settings that its numbers do not depend on.

Some of them change the order in which sums are taken, and with it the last digits of fp32 (the
tests hold losses to 1e-5); none changes what is learned, from what, or what is measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipeline.config.dotted import dotted
from pipeline.config.redact import public
from pipeline.config.schema import Config

# where things are kept and shown; how many rows and checkpoints there are
_APART = ("data.prepared", "data.workers", "trainer.log_every", "trainer.save_every",
          "trainer.keep", "trainer.keep_best", "trainer.hang_timeout")  # fmt: skip
# how the work is shared and computed
_SHARED = ("trainer.processes", "trainer.nodes", "trainer.sequence_parallel", "trainer.ring",
           "trainer.zero_stage", "trainer.threads", "trainer.accumulate", "trainer.accelerator",
           "model.activation_checkpointing", "model.tiled_mlp", "model.attention_path")  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A setting whose value in a run folder is not the one asked for."""

    key: str
    there: Any
    here: Any

    @property
    def free(self) -> bool:
        """Whether a run may go on with it."""
        return self.key in (*_APART, *_SHARED) or self.key.startswith("wandb.")

    def __str__(self) -> str:
        return f"{self.key} is {self.there!r} there, {self.here!r} here"


def changes(saved: Config, wanted: Config) -> list[Change]:
    """All settings that differ, in the order of the schema; not `runs`, where the folders lie."""
    there, here = dotted(public(saved)), dotted(public(wanted))
    return [
        Change(key, there.get(key), here.get(key))
        for key in dict.fromkeys([*there, *here])
        if key != "runs" and there.get(key) != here.get(key)
    ]


def words(found: Iterable[Change]) -> str:
    """All of them in one line."""
    return "; ".join(map(str, found))
