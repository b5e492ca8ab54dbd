"""One verify batch, both arms: order, assigned depths, depth runs, launches and key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from verifylab.checks import whole
from verifylab.dcut import MAX_VERIFY_WIDTH, ROW_BUDGET
from verifylab.gate import Gate
from verifylab.launches import DepthRun, depth_runs
from verifylab.policy import Dispatch, policy
from verifylab.workload import MAX_DRAFTS

__all__ = ["ArmExplained", "explain"]

ARMS = ("arrangement", "canonical")


@dataclass(frozen=True, slots=True, eq=False)
class ArmExplained:
    """What one arm makes of a batch.

    Attributes
    ----------
    arm : str
    gate : bool
        Whether the gate takes this arm at this width.
    order : tuple of int
        Input index at each dispatch position.
    depths : tuple of int
        Rows verified at each position.
    runs : tuple of DepthRun
        ``start`` counts in the whole batch. None crosses from one dispatch into the next.
    launches_per_layer : int
        In each GDN layer, over all dispatches.
    dispatches : tuple of Dispatch
        One, unless the batch has more than `MAX_VERIFY_WIDTH` sequences or `ROW_BUDGET` rows.
    """

    arm: str
    gate: bool
    order: tuple[int, ...]
    depths: tuple[int, ...]
    runs: tuple[DepthRun, ...]
    launches_per_layer: int
    dispatches: tuple[Dispatch, ...]

    @property
    def key(self) -> bytes | None:
        """The batch's key; None when it takes several dispatches, which have a key each."""
        return self.dispatches[0].key if len(self.dispatches) == 1 else None


def explain(
    slots: Sequence[int],
    depths: Sequence[int],
    gate: Gate,
    *,
    row_budget: int = ROW_BUDGET,
    max_width: int = MAX_VERIFY_WIDTH,
) -> list[ArmExplained]:
    """Work out both arms for one batch.

    Parameters
    ----------
    slots, depths : sequence of int, shape (n,)
        Slot of each sequence, no two alike, and its rows: 1 to ``MAX_DRAFTS + 1``.
    gate : Gate
    row_budget, max_width : int
        Rows and sequences of one dispatch at most.

    Returns
    -------
    list of ArmExplained
        ``arrangement``, then ``canonical``.

    Raises
    ------
    ValueError
        When the lengths differ, the batch is empty, a value is out of range or a slot is given
        twice.
    """
    for name, values in (("slots", slots), ("depths", depths)):
        if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
            raise ValueError(f"{name} must be a list of whole numbers, got {values!r}")
    slots = [whole("slots", slot, 0, 2**32 - 1) for slot in slots]
    depths = [whole("depths", depth, -(2**63)) for depth in depths]
    if len(slots) != len(depths):
        raise ValueError(
            f"slots and depths must have the same length, got {len(slots)} slots and "
            f"{len(depths)} depths"
        )
    if not slots:
        raise ValueError("slots must name one sequence's slot or more, got none")
    if repeated := sorted({s for s in slots if slots.count(s) > 1}):
        raise ValueError(
            f"slots must differ, as no two sequences share one, got {repeated[0]} more than once"
        )
    if wrong := [d for d in depths if not 1 <= d <= MAX_DRAFTS + 1]:
        raise ValueError(
            f"depths must be from 1 to {MAX_DRAFTS + 1} rows (drafts + 1), got {wrong[0]}"
        )
    taken = gate.canonical(len(slots))
    arms = []
    for arm in ARMS:
        step = policy(arm, row_budget=row_budget, max_width=max_width).step(
            np.array(slots), np.array(depths)
        )
        runs = [
            DepthRun(part.start + run.start, run.length, run.depth, run.fast)
            for part in step.dispatches
            for run in depth_runs(part.slots, part.depths)
        ]
        arms.append(
            ArmExplained(
                arm=arm,
                gate=taken == (arm == "canonical"),
                order=tuple(step.order.tolist()),
                depths=tuple(step.depths.tolist()),
                runs=tuple(runs),
                launches_per_layer=sum(part.launches_per_layer for part in step.dispatches),
                dispatches=step.dispatches,
            )
        )
    return arms
