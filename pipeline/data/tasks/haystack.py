"""Text that needles are hidden in."""

import numpy as np
import numpy.typing as npt

from pipeline.data.pack import Pack
from pipeline.data.tokenizer import BOS
from pipeline.errors import DataError

Ids = npt.NDArray[np.int64]


class Haystack:
    """Running text of a pack. The bos between its documents is left out: in an example bos marks
    the beginning and nothing else."""

    def __init__(self, pack: Pack) -> None:
        self.pack = pack

    def text(self, count: int, draw: np.random.Generator) -> Ids:
        """int64 [count]: successive tokens of text, from a place drawn at random.

        At the end of the pack it goes on at its beginning. Raises DataError if the pack has fewer
        than `count` tokens of text, some of which would have to stand twice.
        """
        pack = self.pack
        held = pack.n_tokens - pack.n_documents
        if count > held:
            raise DataError(
                f"the {pack.split} split has {held} tokens of text, but needles are to be hidden "
                f"among {count}: add text, or test and train shorter"
            )
        if not count:
            return np.empty(0, dtype=np.int64)
        place = int(draw.integers(pack.n_tokens))
        parts, missing = [], count
        while missing:
            stop = min(place + missing, pack.n_tokens)
            part = pack.tokens[place:stop].astype(np.int64)
            parts.append(part[part != BOS])
            missing -= len(parts[-1])
            place = stop % pack.n_tokens
        return np.concatenate(parts)
