"""Miss-ratio curves: what a cache of every capacity does, from one pass over a trace.

LRU and MIN are stack algorithms (Mattson, Gecsei, Slutz and Traiger 1970): what a cache of C
graphs holds is the top C of one stack, whatever C. A request hits in every cache at least as large
as its key's distance from the top, so one histogram of distances gives all capacities at once,
and its sums weighted by graph size give the nodes captured and evicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verifylab.caches import CacheCounts, checked_trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MissCurve", "miss_ratio_curve", "stack_distances"]

#: Stack algorithms that have a curve.
EVICTIONS = ("lru", "min")


@dataclass(frozen=True, slots=True, eq=False)
class MissCurve:
    """What a cache of 1, 2, ..., U graphs does on one trace of U different keys.

    Attributes
    ----------
    eviction : str
    requests : int
        Dispatches counted.
    hits, captures, evictions, nodes_captured, nodes_evicted : ndarray of int64, shape (U,)
        At a capacity of ``index + 1`` graphs. More than U graphs change nothing.
    nodes_launched : int
        At every capacity: each dispatch launches its graph.
    """

    eviction: str
    requests: int
    hits: NDArray[np.int64]
    captures: NDArray[np.int64]
    evictions: NDArray[np.int64]
    nodes_captured: NDArray[np.int64]
    nodes_evicted: NDArray[np.int64]
    nodes_launched: int

    @property
    def capacities(self) -> NDArray[np.int64]:
        """Graphs held at most: 1 to U."""
        return np.arange(1, len(self.hits) + 1)

    @property
    def miss_ratio(self) -> NDArray[np.float64]:
        """Share of dispatches that capture, by capacity."""
        return self.captures / max(self.requests, 1)

    def at(self, capacity: int) -> CacheCounts:
        """Return the counts at one capacity, 1 or more graphs.

        Raises
        ------
        ValueError
            When the capacity is below 1.
        """
        if capacity < 1:
            raise ValueError(f"capacity must be 1 or more graphs, got {capacity}")
        if not len(self.hits):
            return CacheCounts(0, 0, 0, 0, 0, 0, 0, 0)
        i = min(int(capacity), len(self.hits)) - 1
        return CacheCounts(
            int(self.hits[i]), int(self.captures[i]), int(self.evictions[i]), 0,
            self.nodes_launched, int(self.nodes_captured[i]), int(self.nodes_evicted[i]), 0,
        )  # fmt: skip

    def frame(self) -> pd.DataFrame:
        """Return one row a capacity, with the count names of `verifylab.counters.Counters`."""
        import pandas as pd

        return pd.DataFrame(
            {
                "eviction": self.eviction,
                "capacity": self.capacities,
                "hits": self.hits,
                "captures": self.captures,
                "evictions": self.evictions,
                "eager": 0,
                "nodes_launched": self.nodes_launched,
                "nodes_captured": self.nodes_captured,
                "nodes_evicted": self.nodes_evicted,
                "nodes_eager": 0,
                "miss_ratio": self.miss_ratio,
            }
        )


def miss_ratio_curve(
    keys: ArrayLike, nodes: ArrayLike | None = None, *, eviction: str = "lru", skip: int = 0
) -> MissCurve:
    """Return what a cache of every capacity in graphs does, exactly.

    Parameters
    ----------
    keys, nodes, skip
        As `verifylab.caches.simulate`.
    eviction : {"lru", "min"}

    Raises
    ------
    TypeError, ValueError
        As `caches.checked_trace`; when `eviction` has no curve.

    Notes
    -----
    LRU takes N log U steps. MIN takes N R log U, where R is how often what sinks in the stack
    changes places: a handful on most traces, U at the worst. Memory is a few arrays of N (MIN)
    and U words.
    """
    ids, sizes = checked_trace(keys, nodes, skip)
    counts, weights, before, after = _distances(ids, sizes, eviction, skip)
    universe = len(after)  # keys that the trace uses; ids of others never come
    counts, weights = counts[: universe + 1], weights[: universe + 1]
    hits = np.cumsum(counts[1:])
    hit_nodes = np.cumsum(weights[1:])
    requests, launched = int(counts.sum()), int(weights.sum())
    captures, nodes_captured = requests - hits, launched - hit_nodes
    # What a cache holds is the top of the stack: it evicted what it took in and holds no more.
    grown = np.arange(1, universe + 1) - np.minimum(np.arange(1, universe + 1), len(before))
    held_before = np.zeros(universe, np.int64)
    held_before[: len(before)] = np.cumsum(sizes[before])
    held_before[len(before) :] = sizes[before].sum()
    nodes_grown = np.cumsum(sizes[after]) - held_before
    return MissCurve(
        eviction, requests, hits, captures, captures - grown, nodes_captured,
        nodes_captured - nodes_grown, launched,
    )  # fmt: skip


def _distances(
    ids: NDArray[np.int64], sizes: NDArray[np.int64], eviction: str, skip: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    from verifylab import _fast_curves as fast

    if eviction == "lru":
        return fast.lru_distances(ids, sizes, int(skip))
    if eviction == "min":
        from verifylab._fast_caches import next_uses

        return fast.min_distances(ids, sizes, next_uses(ids, len(sizes)), int(skip))
    raise ValueError(f"a curve needs a stack algorithm, one of {EVICTIONS}, got {eviction!r}")


def stack_distances(keys: list[int], eviction: str = "lru") -> list[int | None]:
    """Distance of every request from the top of the stack, in plain Python: the oracle.

    Returns
    -------
    list of int or None
        From 1; None for a first use.
    """
    uses: dict[int, list[int]] = {}
    for t, key in enumerate(keys):
        uses.setdefault(key, []).append(t)
    for times in uses.values():
        times.reverse()

    def needed(key: int) -> int:
        return uses[key][-1] if uses[key] else len(keys) + key

    stack: list[int] = []
    distances: list[int | None] = []
    for key in keys:
        uses[key].pop()
        hole = stack.index(key) if key in stack else len(stack)
        distances.append(hole + 1 if hole < len(stack) else None)
        old = stack[:hole]
        rest = stack[hole + 1 :]
        if eviction == "min" and old:
            settled = []
            sinking = old[0]
            for other in old[1:]:
                sooner, sinking = sorted((sinking, other), key=needed)
                settled.append(sooner)
            old = [*settled, sinking]
        stack = [key, *old, *rest]
    return distances
