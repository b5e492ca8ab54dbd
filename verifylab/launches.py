"""Kernel launches that a verify step costs in each GDN layer, by its depth runs.

A depth run is a maximal stretch of equal depths in dispatch order. Two or more sequences on
consecutive ascending slots take the batched fast path, which costs `FAST_LAUNCHES`. Any other
run is declined: each of its sequences costs two launches for each of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verifylab.ordering import NO_SLOT, as_batches, check_values
from verifylab.ordering import first as first_of

__all__ = ["FAST_LAUNCHES", "DepthRun", "depth_runs", "launches_per_layer"]

#: Launches of a run on the fast path: conv and WY (design note, section 1).
FAST_LAUNCHES = 2
#: Up to here a single batch is counted faster in Python than by NumPy's dozen calls.
_FEW = 64
#: A key holds rows in 32 bits; with them no sum here leaves 64.
_MOST_ROWS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class DepthRun:
    """A maximal run of equal depths in one batch.

    Attributes
    ----------
    start, length : int
        First position in dispatch order, and sequences.
    depth : int
        Rows of each sequence.
    fast : bool
        Whether the run takes the fast path.
    """

    start: int
    length: int
    depth: int
    fast: bool

    @property
    def launches(self) -> int:
        """Launches in each GDN layer.

        A declined sequence of k rows costs k conv launches, k - 1 state copies and one WY
        launch, so ``2 * k``.
        """
        return FAST_LAUNCHES if self.fast else self.length * 2 * self.depth


def depth_runs(slots: ArrayLike, depths: ArrayLike) -> list[DepthRun]:
    """Depth runs of one batch: the readable form, and the oracle of `launches_per_layer`.

    Parameters
    ----------
    slots, depths : array_like of int, shape (n,)
        Slot and rows of each sequence, in dispatch order.

    Raises
    ------
    TypeError, ValueError
        As `verifylab.ordering.verify_batch_order`; also when there is more than one batch.
    """
    slot_array, depth_array = _checked(slots, depths)
    if slot_array.ndim != 1:
        raise ValueError(f"depth_runs takes one batch of shape (n,), got {slot_array.shape}")
    slot, depth = slot_array.tolist(), depth_array.tolist()
    runs = []
    start = 0
    for stop in range(1, len(depth) + 1):
        if stop < len(depth) and depth[stop] == depth[start]:
            continue
        held = slot[start:stop]
        consecutive = all(b == a + 1 for a, b in zip(held, held[1:], strict=False))
        fast = len(held) >= 2 and consecutive and NO_SLOT not in held
        runs.append(DepthRun(start, stop - start, depth[start], fast))
        start = stop
    return runs


def launches_per_layer(slots: ArrayLike, depths: ArrayLike) -> NDArray[np.int64]:
    """Count the launches in each GDN layer, for one batch or many.

    Parameters
    ----------
    slots, depths : array_like of int, shape (..., n)
        Slot and rows of each sequence, in dispatch order, as NumPy takes them; leading axes
        broadcast. `NO_SLOT` never takes the fast path.

    Returns
    -------
    ndarray of int64, shape (...)
        Times the model's GDN layers: the launches of a step.

    Raises
    ------
    TypeError, ValueError
        As `verifylab.ordering.verify_batch_order`.
    """
    slot, depth = _checked(slots, depths)
    *batches, width = slot.shape
    if slot.size == 0:
        return np.zeros(batches, dtype=np.int64)
    if not batches and width <= _FEW:
        return np.array(_one_batch(slot.tolist(), depth.tolist()), dtype=np.int64)
    slot, depth = slot.reshape(-1, width), depth.reshape(-1, width)
    joined = depth[:, 1:] == depth[:, :-1]
    # Slots are 0 or more, so their difference cannot overflow, where NO_SLOT + 1 would.
    consecutive = (slot[:, 1:] - slot[:, :-1] == 1) & (slot[:, 1:] != NO_SLOT)
    opens = np.ones(slot.shape, dtype=bool)
    opens[:, 1:] = ~joined
    gap = np.zeros(slot.shape, dtype=bool)
    gap[:, 1:] = joined & ~consecutive
    # All runs of all batches in one line: every batch opens a run at its first position.
    first = np.flatnonzero(opens)
    gaps = np.add.reduceat(gap.ravel(), first, dtype=np.int64)
    length = np.diff(first, append=opens.size)
    fast = (length >= 2) & (gaps == 0)
    cost = np.where(fast, FAST_LAUNCHES, length * 2 * depth.ravel()[first])
    return np.add.reduceat(cost, np.flatnonzero(first % width == 0)).reshape(batches)


def _one_batch(slot: list[int], depth: list[int]) -> int:
    """Count one batch that is checked: what a step's own planning pays for."""
    total, length, fast = 0, 1, True
    for p in range(1, len(slot) + 1):
        if p < len(slot) and depth[p] == depth[p - 1]:
            length += 1
            fast = fast and slot[p] == slot[p - 1] + 1 and slot[p] != NO_SLOT
            continue
        total += FAST_LAUNCHES if fast and length > 1 else length * 2 * depth[p - 1]
        length, fast = 1, True
    return total


def _checked(slots: ArrayLike, depths: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both as int64 arrays of one shape, with slots of 0 or more and depths of 1 or more."""
    _, slot, depth = as_batches(slots, depths)
    check_values(slot, depth)
    if depth.size and int(depth.max()) > _MOST_ROWS:
        raise ValueError(
            f"depths must be at most {_MOST_ROWS} rows, as a key holds them, "
            f"got {first_of('depths', depth, depth > _MOST_ROWS)}"
        )
    return slot, depth
