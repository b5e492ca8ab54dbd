"""How many keys D-Cut can produce, counted exactly.

Beyond its mandatory draft each of `n` sequences keeps ``e`` drafts, ``e`` from 0 to
``drafts - 1``, and the ``e`` of a batch add up to `keep_count`. An arrangement is one such tuple
by slot, a multiset the same without regard to order. Both counts have closed forms, in Python
integers: nothing overflows and nothing is enumerated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

from verifylab.checks import whole
from verifylab.dcut import (
    DCUT_WIDTH_CAP,
    DEFAULT_RATIO,
    ROW_BUDGET,
    DraftLadder,
    dcut_applies,
    keep_count,
)

if TYPE_CHECKING:
    import pandas as pd

    from verifylab.gate import Gate

__all__ = [
    "LIST_LIMIT",
    "TABLE_COLUMNS",
    "KeySpace",
    "bound_arrangements",
    "bound_multisets",
    "count_arrangements",
    "count_multisets",
    "gate_key_space",
    "key_space",
    "key_space_table",
    "reachable_multisets",
    "slot_sets",
]

#: Multisets that `reachable_multisets` lists at most: a choice of this module.
LIST_LIMIT = 1_000_000
#: Columns of `key_space_table`.
TABLE_COLUMNS = ("width", "keep", "rows", "multisets", "arrangement_keys", "canonical_keys")


def count_arrangements(
    width: int, drafts: int, ratio: float = DEFAULT_RATIO, row_budget: int = ROW_BUDGET
) -> int:
    """Ways to give each slot its depth: the arrangement keys of one slot set.

    The coefficient of ``x**keep`` in ``(1 + x + ... + x**(drafts - 1))**width``, by inclusion
    and exclusion over the sequences that would exceed their drafts.

    Parameters
    ----------
    width, drafts, ratio, row_budget
        As in `verifylab.dcut.keep_count`. D-Cut is taken to apply: `key_space` minds its cap.

    Raises
    ------
    ValueError
        When a value is out of its range.
    """
    keep = keep_count(width, drafts, ratio, row_budget)
    n, d = int(width), int(drafts)
    return sum(
        (-1) ** over * comb(n, over) * comb(keep - over * d + n - 1, n - 1)
        for over in range(min(n, keep // d) + 1)
    )


def count_multisets(
    width: int, drafts: int, ratio: float = DEFAULT_RATIO, row_budget: int = ROW_BUDGET
) -> int:
    """Multisets of depths that D-Cut can choose: the canonical keys of one slot set.

    The partitions of ``keep`` into at most `width` parts of at most ``drafts - 1``: the
    coefficient of ``q**keep`` in the Gaussian binomial of ``width + drafts - 1`` over `width`.

    Parameters
    ----------
    width, drafts, ratio, row_budget
        As in `verifylab.dcut.keep_count`. D-Cut is taken to apply: `key_space` minds its cap.

    Raises
    ------
    ValueError
        When a value is out of its range.
    """
    keep = keep_count(width, drafts, ratio, row_budget)
    series = [1] + [0] * keep
    for part in range(1, int(drafts)):
        # Times (1 - q**(width + part)), downwards so that each coefficient is used once ...
        shift = int(width) + part
        for power in range(keep, shift - 1, -1):
            series[power] -= series[power - shift]
        # ... over (1 - q**part), upwards so that each quotient feeds the next.
        for power in range(part, keep + 1):
            series[power] += series[power - part]
    return series[keep]


def reachable_multisets(
    width: int,
    drafts: int,
    ratio: float = DEFAULT_RATIO,
    row_budget: int = ROW_BUDGET,
    limit: int = LIST_LIMIT,
) -> list[tuple[int, ...]]:
    """List the multisets that D-Cut can choose.

    Parameters
    ----------
    width, drafts, ratio, row_budget
        As in `verifylab.dcut.keep_count`. D-Cut is taken to apply: `key_space` minds its cap.
    limit : int
        Longest list to build.

    Returns
    -------
    list of tuple of int, each of length `drafts`
        Sequences at each row count, from ``drafts + 1`` rows down to 2; the list ascends.

    Raises
    ------
    ValueError
        When a value is out of its range or the list would be longer than `limit`.
    """
    count = count_multisets(width, drafts, ratio, row_budget)
    if count > limit:
        raise ValueError(
            f"reachable_multisets lists at most {limit} multisets and width {width} with {drafts} "
            f"drafts has {count}: count them with count_multisets"
        )
    keep = keep_count(width, drafts, ratio, row_budget)
    # Kept extras by level, deepest first. A partial tuple stays only while the levels below can
    # still use up what is left, so no branch is dead and the work follows the length of the list.
    partial: list[tuple[tuple[int, ...], int, int]] = [((), int(width), keep)]
    for extra in range(int(drafts) - 1, 0, -1):
        partial = [
            ((*counts, here), sequences - here, left - extra * here)
            for counts, sequences, left in partial
            for here in range(
                max(0, left - sequences * (extra - 1)), min(sequences, left // extra) + 1
            )
        ]
    return [(*counts, sequences) for counts, sequences, _ in partial]


def bound_multisets(width: int, depth_values: int) -> int:
    """Multisets of `width` depths out of `depth_values` distinct ones, reachable or not."""
    width = whole("width", width, 1)
    return comb(width + whole("depth_values", depth_values, 1) - 1, width)


def bound_arrangements(width: int, depth_values: int) -> int:
    """Tuples of `width` depths out of `depth_values` distinct ones, reachable or not."""
    return whole("depth_values", depth_values, 1) ** whole("width", width, 1)


def slot_sets(pool: int, width: int) -> int:
    """Count the sets of `width` slots in a pool of `pool`; 0 when the pool is too small."""
    return comb(whole("pool", pool, 1), whole("width", width, 1))


@dataclass(frozen=True, slots=True)
class KeySpace:
    """The key space of one batch width.

    Attributes
    ----------
    width, drafts : int
        Sequences, and drafts proposed for each.
    ratio : float
        As given, before it snaps.
    keep, rows : int
        Drafts kept beyond the mandatory ones, and rows verified, in the whole batch.
    multisets : int
        Multisets of depths, whatever the slots.
    arrangement_keys, canonical_keys : int
        Keys of the two arms, over all slot sets. Of whole batches: a batch that
        `verifylab.dcut.chunk_ranges` splits has a key for each chunk.
    """

    width: int
    drafts: int
    ratio: float
    keep: int
    rows: int
    multisets: int
    arrangement_keys: int
    canonical_keys: int


def key_space(
    width: int,
    drafts: int,
    ratio: float = DEFAULT_RATIO,
    row_budget: int = ROW_BUDGET,
    width_cap: int = DCUT_WIDTH_CAP,
    slot_sets: int = 1,
) -> KeySpace:
    """Count the keys of one batch width.

    Parameters
    ----------
    width, drafts, ratio, row_budget
        As in `verifylab.dcut.keep_count`.
    width_cap : int
        Widest batch that D-Cut prunes. Where it does not (`verifylab.dcut.dcut_applies`) every
        sequence verifies all its drafts: one multiset, one arrangement, no row budget.
    slot_sets : int
        Slot sets that the batch may occupy: each has keys of its own. See `slot_sets`.

    Raises
    ------
    ValueError
        When a value is out of its range.
    """
    keep = keep_count(width, drafts, ratio, row_budget)
    width, drafts = int(width), int(drafts)
    sets = whole("slot_sets", slot_sets, 0)
    multisets = arrangements = 1
    if dcut_applies(width, drafts, width_cap):
        multisets = count_multisets(width, drafts, ratio, row_budget)
        arrangements = count_arrangements(width, drafts, ratio, row_budget)
    else:
        keep = width * (drafts - 1)
    return KeySpace(
        width=width,
        drafts=drafts,
        ratio=ratio,
        keep=keep,
        rows=2 * width + keep,
        multisets=multisets,
        arrangement_keys=arrangements * sets,
        canonical_keys=multisets * sets,
    )


def _spaces(
    widths: Iterable[int],
    drafts: int | DraftLadder,
    ratio: float,
    row_budget: int,
    width_cap: int,
    pool: int | None,
) -> list[KeySpace]:
    """One `KeySpace` a width; a pool multiplies each by its slot sets."""
    return [
        key_space(
            width,
            drafts.drafts(width) if isinstance(drafts, DraftLadder) else drafts,
            ratio,
            row_budget,
            width_cap,
            1 if pool is None else slot_sets(pool, width),
        )
        for width in widths
    ]


def gate_key_space(
    gate: Gate,
    widths: Iterable[int],
    drafts: int | DraftLadder,
    ratio: float = DEFAULT_RATIO,
    row_budget: int = ROW_BUDGET,
    width_cap: int = DCUT_WIDTH_CAP,
    pool: int | None = None,
) -> int:
    """Keys that a workload of several widths can produce under a gate.

    Parameters
    ----------
    gate : Gate
        Which arm each width takes.
    widths : iterable of int
        Batch widths; one named twice counts once, as its keys are the same.
    drafts : int or DraftLadder
        Drafts for each sequence, at every width or by width.
    ratio, row_budget, width_cap
        As in `key_space`.
    pool : int, optional
        Slots in the pool, every set of which may occur. Without it, one slot set a width.

    Raises
    ------
    ValueError
        When a value is out of its range.
    """
    spaces = _spaces(sorted(set(widths)), drafts, ratio, row_budget, width_cap, pool)
    return sum(
        space.canonical_keys if gate.canonical(space.width) else space.arrangement_keys
        for space in spaces
    )


def key_space_table(
    widths: Iterable[int],
    drafts: int | DraftLadder = 3,
    ratio: float = DEFAULT_RATIO,
    row_budget: int = ROW_BUDGET,
    width_cap: int = DCUT_WIDTH_CAP,
    pool: int | None = None,
) -> pd.DataFrame:
    """`key_space` of each width, as a table.

    Parameters
    ----------
    widths, drafts, ratio, row_budget, width_cap, pool
        As in `gate_key_space`; here `widths` keep their order and may repeat.

    Returns
    -------
    pandas.DataFrame
        Columns `TABLE_COLUMNS`, one row a width. int64, or object holding Python integers where
        a count of that column needs more.

    Raises
    ------
    ValueError
        When a value is out of its range.
    """
    # Imported here so that counting needs no pandas and stays quick to import.
    import pandas as pd

    spaces = _spaces(widths, drafts, ratio, row_budget, width_cap, pool)
    columns = {}
    for name in TABLE_COLUMNS:
        values = [getattr(space, name) for space in spaces]
        fits = max(values, default=0) < 2**63
        columns[name] = pd.Series(values, dtype="int64" if fits else "object")
    return pd.DataFrame(columns)
