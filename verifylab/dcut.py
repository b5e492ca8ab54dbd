"""D-Cut: how many drafts of each sequence a verify step keeps, and the step planned from that.

The rule (arXiv 2607.14647, as the seed's engine applies it) spends a share of the prunable rows
on the drafts most likely to be accepted. It decides which multiset of depths a step verifies;
`plan` adds who gets which depth and in which order, `chunk_ranges` splits what is too long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verifylab.checks import fraction, whole
from verifylab.ordering import verify_batch_order

if TYPE_CHECKING:
    from verifylab.gate import Gate

__all__ = [
    "DCUT_WIDTH_CAP",
    "DEFAULT_LADDER",
    "DEFAULT_RATIO",
    "MAX_VERIFY_WIDTH",
    "RATIOS",
    "ROW_BUDGET",
    "DraftLadder",
    "Plan",
    "chunk_ranges",
    "dcut_applies",
    "keep_count",
    "plan",
    "select",
    "select_one",
    "snap_ratio",
]

#: The ratios that the rule knows; any other snaps to the nearest (design note, section 2).
RATIOS = (0.25, 0.5, 0.75, 1.0)
#: Ratio where none is given (design note, section 2; the best of the first sweep in
#: `data/published/dcut_ratio.csv`).
DEFAULT_RATIO = 0.75
#: Widest batch that D-Cut prunes (design note, section 2, ``dcut_width_cap``).
DCUT_WIDTH_CAP = 8
#: Rows that one dispatch verifies at most (`data/published/model_dims.csv`, row ``row_budget``).
ROW_BUDGET = 96
#: Sequences in one dispatch at most (`data/published/model_dims.csv`, ``max_verify_width``).
MAX_VERIFY_WIDTH = 32


def snap_ratio(ratio: float) -> float:
    """Nearest of `RATIOS`, the lower one on a tie.

    Raises
    ------
    ValueError
        When `ratio` is no number from 0 to 1 (NaN included).
    """
    ratio = fraction("ratio", ratio)
    return min(RATIOS, key=lambda known: (abs(known - ratio), known))


def dcut_applies(width: int, drafts: int, width_cap: int = DCUT_WIDTH_CAP) -> bool:
    """Whether D-Cut prunes a batch: `width` up to the cap and two or more `drafts`.

    Where it does not, every sequence verifies all its drafts.

    Raises
    ------
    ValueError
        When `width_cap` is no whole number of 0 or more.
    """
    width_cap = whole("width_cap", width_cap, 0)
    return width <= width_cap and drafts >= 2


def keep_count(width: int, drafts: int, ratio: float, row_budget: int = ROW_BUDGET) -> int:
    """Drafts that D-Cut keeps in a whole batch beyond the mandatory one of each sequence.

    Parameters
    ----------
    width : int
        Sequences, 1 or more.
    drafts : int
        Drafts proposed for each sequence, 1 or more.
    ratio : float
        Share of the prunable drafts to keep, snapped by `snap_ratio`.
    row_budget : int
        Rows that may be verified, 2 or more. Below ``2 * width`` nothing beyond the mandatory
        drafts is kept; those stay, and `chunk_ranges` splits the batch.

    Returns
    -------
    int
        ``min(prunable * ratio rounded half away from zero, row_budget - 2 * width)``, not below
        0, with ``prunable = width * (drafts - 1)``.

    Raises
    ------
    ValueError
        When a value is out of its range.
    """
    width = whole("width", width, 1)
    drafts = whole("drafts", drafts, 1)
    row_budget = whole("row_budget", row_budget, 2)
    prunable = width * (drafts - 1)
    # In quarters the product is exact, and adding a half before the floor rounds halves up.
    quarters = int(4 * snap_ratio(ratio))
    return max(0, min((prunable * quarters + 2) // 4, row_budget - 2 * width))


def select(
    log_confidences: ArrayLike, drafts: int, ratio: float, row_budget: int = ROW_BUDGET
) -> NDArray[np.int64]:
    """Drafts that each sequence keeps, for one batch or many.

    A draft's score is the sum of the log-confidences up to it, added in draft order in float64.
    The `keep_count` best are kept, ties going to the earlier sequence, then the earlier draft.
    Scores never rise along a sequence, so what it keeps is a prefix and one number says it.

    Parameters
    ----------
    log_confidences : array_like of float, shape (..., n, m)
        ``m`` up to `drafts`. Natural logarithms, 0 or less; ``-inf`` is legal. NaN, and the
        positions from ``m`` on, were not measured and count 0.0, that is certain.
    drafts : int
        Drafts proposed for each sequence, 1 or more.
    ratio, row_budget
        As in `keep_count`, which snaps the ratio.

    Returns
    -------
    ndarray of int64, shape (..., n)
        Drafts kept, from 1 to `drafts`. This is the rule itself: whether it applies at this
        width is for `dcut_applies` to say.

    Raises
    ------
    ValueError
        When a value is out of range, there are more positions than drafts, or a log-confidence
        is above 0. The rule forgives no rounding: clip with ``numpy.minimum(x, 0.0)``.
    """
    drafts = whole("drafts", drafts, 1)
    return _select(_measured(log_confidences, drafts), ratio, row_budget)


def _select(steps: NDArray[np.float64], ratio: float, row_budget: int) -> NDArray[np.int64]:
    """`select` on the checked log-confidences that `_measured` returns."""
    width, drafts = steps.shape[-2:]
    if width == 0:
        return np.zeros(steps.shape[:-1], dtype=np.int64)
    keep = keep_count(width, drafts, ratio, row_budget)
    optional = np.cumsum(steps, axis=-1)[..., 1:].reshape(*steps.shape[:-2], width * (drafts - 1))
    # Candidates lie in (sequence, depth) order, so a stable sort settles ties as the rule does.
    best = np.argsort(-optional, axis=-1, kind="stable")[..., :keep]
    kept = np.zeros(optional.shape, dtype=bool)
    np.put_along_axis(kept, best, True, axis=-1)
    return 1 + kept.reshape(*steps.shape[:-1], drafts - 1).sum(axis=-1, dtype=np.int64)


def select_one(
    log_confidences: Sequence[Sequence[float]],
    drafts: int,
    ratio: float,
    row_budget: int = ROW_BUDGET,
) -> list[int]:
    """`select` for one batch, as the rule reads: the oracle of the fast form.

    Takes one row of log-confidences a sequence (rows may be of different lengths) and returns
    the drafts each keeps. It trusts its input: no log-confidence above 0.
    """
    candidates = []
    for sequence, row in enumerate(log_confidences):
        score = 0.0
        for draft in range(1, drafts + 1):
            measured = draft <= len(row) and not math.isnan(row[draft - 1])
            score += row[draft - 1] if measured else 0.0
            if draft > 1:
                candidates.append((-score, sequence, draft))
    retained = [1] * len(log_confidences)
    if retained:
        keep = keep_count(len(retained), drafts, ratio, row_budget)
        for _, sequence, _ in sorted(candidates)[:keep]:
            retained[sequence] += 1
    return retained


def _measured(log_confidences: ArrayLike, drafts: int) -> NDArray[np.float64]:
    """Log-confidences with every unmeasured position at 0.0, shape (..., n, drafts)."""
    given = np.asarray(log_confidences, dtype=np.float64)
    if given.ndim < 2:
        raise ValueError(f"log_confidences must have shape (..., n, drafts), got {given.shape}")
    if given.shape[-1] > drafts:
        raise ValueError(
            f"log_confidences must have at most {drafts} positions a sequence, as many as drafts, "
            f"got {given.shape[-1]}"
        )
    if (given > 0.0).any():
        raise ValueError(f"log_confidences must be 0 or less, got {np.nanmax(given)}")
    steps = np.zeros((*given.shape[:-1], drafts))
    steps[..., : given.shape[-1]] = np.where(np.isnan(given), 0.0, given)
    return steps


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A verify step, or many of the same width, as the scheduler dispatches it.

    Attributes
    ----------
    order : ndarray of int64, shape (..., n)
        ``order[p]`` is the input index dispatched at position ``p``.
    depths : ndarray of int64, shape (..., n)
        Rows verified at position ``p``: the assigned depth, in dispatch order.
    retained : ndarray of int64, shape (..., n)
        Drafts that D-Cut kept for each sequence, in input order, before any re-pairing.
    canonical : bool
        Which arm the gate chose for this width.
    """

    order: NDArray[np.int64]
    depths: NDArray[np.int64]
    retained: NDArray[np.int64]
    canonical: bool


def plan(
    slots: ArrayLike,
    log_confidences: ArrayLike,
    drafts: int,
    gate: Gate,
    ratio: float = DEFAULT_RATIO,
    row_budget: int = ROW_BUDGET,
    width_cap: int = DCUT_WIDTH_CAP,
) -> Plan:
    """Plan one verify step, or many of the same width: the multiset, then who gets which depth.

    Parameters
    ----------
    slots : array_like of int, shape (..., n)
        Pool slot of each sequence.
    log_confidences : array_like of float, shape (..., n, m)
        As in `select`.
    drafts, ratio, row_budget
        As in `select`.
    gate : Gate
        Asked once, with the full width ``n``, never a chunk's.
    width_cap : int
        Widest batch that D-Cut prunes; above it every sequence verifies all its drafts.

    Raises
    ------
    ValueError
        When a value is out of range or the shapes of `slots` and `log_confidences` disagree.
    """
    drafts = whole("drafts", drafts, 1)
    slot = np.asarray(slots)
    steps = _measured(log_confidences, drafts)
    if slot.shape != steps.shape[:-1]:
        raise ValueError(
            f"slots must have one value for each sequence of log_confidences, shape "
            f"{steps.shape[:-1]}, got {slot.shape}"
        )
    width = slot.shape[-1]
    if dcut_applies(width, drafts, width_cap):
        retained = _select(steps, ratio, row_budget)
    else:
        retained = np.full(slot.shape, drafts, dtype=np.int64)
    canonical = gate.canonical(width)
    order, depths = verify_batch_order(slot, retained + 1, canonical)
    return Plan(order, depths, retained, canonical)


def chunk_ranges(
    rows: ArrayLike, row_budget: int = ROW_BUDGET, max_width: int = MAX_VERIFY_WIDTH
) -> list[tuple[int, int]]:
    """Split one planned batch into dispatches that respect the row budget and the width cap.

    A chunk takes ``row_budget // its first row count`` sequences, at most `max_width`.

    Parameters
    ----------
    rows : array_like of int, shape (n,)
        Row counts in dispatch order, descending: the first of a chunk then bounds the rest.
    row_budget, max_width : int
        Rows and sequences of one chunk at most, each 1 or more.

    Returns
    -------
    list of (int, int)
        ``(start, stop)`` of each chunk, in dispatch order; empty for an empty batch.

    Raises
    ------
    ValueError
        When `rows` is not descending or below 1, or a chunk's first row count exceeds the budget.
    """
    counts = [whole("rows", count, 1) for count in np.asarray(rows).tolist()]
    row_budget = whole("row_budget", row_budget, 1)
    max_width = whole("max_width", max_width, 1)
    if any(later > earlier for earlier, later in zip(counts, counts[1:], strict=False)):
        raise ValueError(f"rows must be descending, as a plan dispatches them, got {counts}")
    if counts and counts[0] > row_budget:
        raise ValueError(f"row_budget must hold a sequence of {counts[0]} rows, got {row_budget}")
    ranges = []
    start = 0
    while start < len(counts):
        stop = min(start + min(row_budget // counts[start], max_width), len(counts))
        ranges.append((start, stop))
        start = stop
    return ranges


@dataclass(frozen=True, slots=True)
class DraftLadder:
    """Drafts proposed for each sequence, by batch width.

    Attributes
    ----------
    rungs : tuple of (int, int)
        ``(width up to, drafts)``, widths ascending.

    Raises
    ------
    ValueError
        When there is no rung, a number is below 1 or the widths do not ascend.
    """

    rungs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not isinstance(self.rungs, tuple) or not all(
            isinstance(rung, tuple) and len(rung) == 2 for rung in self.rungs
        ):
            raise ValueError(
                f"a draft ladder's rungs must be a tuple of (width up to, drafts), "
                f"got {self.rungs!r}; DraftLadder.parse reads text"
            )
        widths = [width for width, _ in self.rungs]
        if not widths:
            raise ValueError("a draft ladder must have one rung or more, got none")
        for width, drafts in self.rungs:
            whole("a draft ladder's width", width, 1)
            whole("a draft ladder's drafts", drafts, 1)
        if any(later <= earlier for earlier, later in zip(widths, widths[1:], strict=False)):
            raise ValueError(f"a draft ladder's widths must ascend, got {widths}")

    @classmethod
    def parse(cls, text: str | int) -> DraftLadder:
        """Read ``"4:3,8:3,16:1"`` (width up to : drafts), or one number for every width.

        Raises
        ------
        ValueError
            When `text` is neither.
        """
        clean = str(text).strip()
        if re.fullmatch(r"[0-9]{1,9}", clean):
            return cls(((1, int(clean)),))
        rungs = []
        for part in clean.split(","):
            match = re.fullmatch(r"\s*([0-9]{1,9})\s*:\s*([0-9]{1,9})\s*", part)
            if match is None:
                raise ValueError(
                    f"a draft ladder must read like '4:3,8:3,16:1' (width up to : drafts) or be "
                    f"one number of drafts, got {text!r}"
                )
            rungs.append((int(match[1]), int(match[2])))
        return cls(tuple(rungs))

    def drafts(self, width: int) -> int:
        """Drafts at `width`: of the first rung that reaches it, or of the last rung beyond it."""
        width = whole("width", width, 1)
        return next((d for up_to, d in self.rungs if width <= up_to), self.rungs[-1][1])

    def __str__(self) -> str:
        return ",".join(f"{width}:{drafts}" for width, drafts in self.rungs)

    def in_words(self) -> str:
        """Write it so that two ladders of the same drafts at every width are the same text."""
        rungs = self.rungs
        last = [up_to for (up_to, d), (_, after) in pairwise(rungs) if d != after]
        said = [f"{up_to}:{self.drafts(up_to)}" for up_to in last]
        return ", ".join(
            [*said, f"above:{rungs[-1][1]}" if said else f"{rungs[-1][1]} at every width"]
        )


#: The ladder of the seed's engine (design note, section 2).
DEFAULT_LADDER = DraftLadder(((4, 3), (8, 3), (16, 1), (32, 1)))
