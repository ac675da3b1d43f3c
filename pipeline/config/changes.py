"""What differs between the configuration of a run folder and the one asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipeline.config.dotted import dotted
from pipeline.config.free import may_change
from pipeline.config.redact import public
from pipeline.config.schema import Config


@dataclass(frozen=True)
class Change:
    """A setting whose value in a run folder is not the one asked for."""

    key: str
    there: Any
    here: Any

    @property
    def free(self) -> bool:
        """Whether a run may go on with it."""
        return may_change(self.key)

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
