"""Key policies: from a planned batch to (dispatch order, assigned depths, key, launches).

The two arms of the study are `arrangement` (every sequence keeps the depth it earned) and
`canonical` (depths descending on slots ascending); `gated` is the engine's rule, one or the other
by the full batch width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from verifylab.dcut import MAX_VERIFY_WIDTH, ROW_BUDGET, chunk_ranges
from verifylab.gate import Gate
from verifylab.key import verify_graph_key
from verifylab.launches import launches_per_layer
from verifylab.ordering import verify_batch_order

__all__ = ["POLICIES", "Dispatch", "GatedPolicy", "KeyPolicy", "StepPlan", "policy"]


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """One chunk of a step: what a single graph launch does.

    Attributes
    ----------
    start, stop : int
        Positions in dispatch order.
    slots, depths : ndarray of int64, shape (stop - start,)
        In dispatch order; `depths` are row counts.
    key : bytes or None
        What its graph is cached under; ``None`` runs eager.
    launches_per_layer : int
        Launches in each GDN layer.
    """

    start: int
    stop: int
    slots: NDArray[np.int64]
    depths: NDArray[np.int64]
    key: bytes | None
    launches_per_layer: int

    @property
    def width(self) -> int:
        """Sequences."""
        return self.stop - self.start

    @property
    def rows(self) -> int:
        """Rows verified."""
        return int(self.depths.sum())


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """A whole step: ``order[p]`` is the input index at position p, ``depths[p]`` its rows."""

    order: NDArray[np.int64]
    depths: NDArray[np.int64]
    dispatches: tuple[Dispatch, ...]


class KeyPolicy(Protocol):
    """What the experiment asks of a policy."""

    name: str

    def step(self, slots: NDArray[np.int64], rows: NDArray[np.int64]) -> StepPlan:
        """Turn one batch into dispatches.

        Parameters
        ----------
        slots, rows : ndarray of int64, shape (n,)
            Slot of each sequence and the rows that the planner chose for it, in input order.
        """


@dataclass(frozen=True, slots=True)
class GatedPolicy:
    """The seed's rule: canonical from a width up, arrangement below.

    Parameters
    ----------
    gate : Gate
        Asked with the full width; a chunk never decides for itself.
    row_budget, max_width : int
        Rows and sequences of one dispatch at most.
    wy_tables_null : bool
        Goes into the key's sentinel.
    name : str
    """

    gate: Gate
    row_budget: int = ROW_BUDGET
    max_width: int = MAX_VERIFY_WIDTH
    wy_tables_null: bool = False
    name: str = "gated"

    def step(self, slots: NDArray[np.int64], rows: NDArray[np.int64]) -> StepPlan:
        """Order the batch, assign its depths, split it, key each chunk."""
        order, depths = verify_batch_order(slots, rows, self.gate.canonical(len(slots)))
        dispatched = np.asarray(slots)[order]
        chunks = []
        for start, stop in chunk_ranges(depths, self.row_budget, self.max_width):
            s, d = dispatched[start:stop], depths[start:stop]
            pairs = list(zip(s.tolist(), d.tolist(), strict=True))
            key = verify_graph_key(pairs, self.wy_tables_null)
            chunks.append(Dispatch(start, stop, s, d, key, int(launches_per_layer(s, d))))
        return StepPlan(order, depths, tuple(chunks))


#: Gate of each policy that is a gate: never, always, or as told.
POLICIES = {
    "arrangement": "every sequence keeps its own depth; key = (slot, rows) pairs",
    "canonical": "depths descending on slots ascending at every width; key = (slot, rows) pairs",
    "gated": "canonical from min_width up, arrangement below; key = (slot, rows) pairs",
}


def policy(
    name: str,
    gate: Gate | None = None,
    *,
    row_budget: int = ROW_BUDGET,
    max_width: int = MAX_VERIFY_WIDTH,
) -> GatedPolicy:
    """Return a policy by name; `gate` matters to ``gated`` only (default: ``Gate()``).

    Raises
    ------
    ValueError
        When the name is unknown.
    """
    if name == "arrangement":
        chosen = Gate(enabled=False)
    elif name == "canonical":
        chosen = Gate(min_width=0)
    elif name == "gated":
        chosen = gate if gate is not None else Gate()
    else:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {name!r}")
    return GatedPolicy(chosen, row_budget, max_width, name=name)
