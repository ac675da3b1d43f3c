"""Gates, contexts and mixtures of heads, from the papers, in loops and fp64; nothing of the
project is used."""

from collections.abc import Callable

from torch import Tensor

from tests.oracles.attention import Score, Value
from tests.oracles.encoding import Encoding

SCORES: dict[str, Callable[[Encoding], Score]] = {}
VALUES: dict[str, Callable[[Encoding], Value]] = {}
INPUTS: dict[str, Callable[[Tensor, Encoding, Tensor], Tensor]] = {}
