"""Consecutive ids: token t of a sequence has position t, from 0."""

from pipeline.positions.base import Position
from pipeline.positions.position_ids import IdsFacts, PositionIds


class ConsecutiveIds(PositionIds):
    """0, 1, 2, ..., in training and test."""

    facts = IdsFacts(
        source="every encoding's own paper, unless it says otherwise",
        formula="id(t) = t",
        tested="id(t) = t",
        consecutive=True,
    )

    def refusal(self, position: Position) -> str | None:
        """Fits every encoding."""
        return None
