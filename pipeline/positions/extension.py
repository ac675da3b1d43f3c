"""The extension contract: what may be done to a trained encoding at test time, without training, or
before it is trained on.

An extension is written as a subclass of `Extension` whose hooks override those of the trained
encoding; `super()` is that encoding. `extend` puts the two together and shares the parameters.
"""

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pipeline.positions.base import Facts, Position


@dataclass(frozen=True)
class ExtensionFacts:
    """What an extension declares; `python -m pipeline positions` prints it and tests hold it to it.

    `fits` says in words which encodings it changes. Facts of the extended encoding that are not the
    trained one's are given by name in `changes`, for example {"shift_invariant": False}.
    `same_as_trained` are settings under which it changes nothing. `counts_tokens`: it takes
    position ids for places in the text, which they must then be.
    """

    source: str
    formula: str
    fits: str
    changes: dict[str, Any]
    same_as_trained: dict[str, Any]
    counts_tokens: bool = False


class Extension(Position):
    """Base of all extensions.

    A subclass sets `about`, says in `refusal` which encodings it fits, and takes its settings (the
    keys of its yaml) as keywords of `configure`, which is called on the extended encoding.
    """

    about: ClassVar[ExtensionFacts]

    @classmethod
    def refusal(cls, position: Position) -> str | None:
        """Why a trained encoding cannot be extended so, as the end of a sentence; None if it can.

        The sentence is: "extension=NAME does not fit position=NAME: " + refusal.
        """
        raise NotImplementedError

    @classmethod
    def reaching(cls, times: float) -> dict[str, Any]:
        """The settings that are meant for sequences `times` as long as train_length, beside the
        defaults; none where no setting is about that."""
        return {}

    def configure(self, **settings: Any) -> None:
        """Take the settings, each a keyword with a default; raises ConfigError for a bad value."""


def extend(position: Position, kind: type[Extension], **settings: Any) -> Position:
    """A trained encoding, which must fit, with the hooks of an extension before its own.

    Parameters are shared; the trained one stays as it was.
    """
    trained = type(position)
    facts: Facts = replace(trained.facts, **kind.about.changes)
    extended = copy.copy(position)
    extended.__class__ = type(kind.__name__, (kind, trained), {"facts": facts})
    assert isinstance(extended, kind)
    extended.configure(**settings)
    return extended
