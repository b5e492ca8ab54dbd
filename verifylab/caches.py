"""Graph caches on a trace of key ids: which graphs a cache would have kept, and what that cost.

A trace is an array of key ids (`densify`, `verifylab.key_trace`), one a dispatch. `simulate` plays
one cache on it; `verifylab.miss_curves` gives every capacity in one pass for LRU and MIN. Counts
are integers, so `verifylab.counters.times` prices them. The compiled loop and its readable twin
(`verifylab._readable_caches`) count the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verifylab.checks import whole

__all__ = ["EVICTIONS", "CacheCounts", "CacheRule", "checked_trace", "densify", "simulate"]

#: What each eviction rule lets go when the cache is full.
EVICTIONS = {
    "lru": "the graph used longest ago",
    "lfu": "the graph with the fewest uses since its capture; of those the one used longest ago",
    "slru": "segmented LRU: the oldest graph on probation (not replayed since it came there), "
    "then the oldest protected one",
    "min": "the graph needed furthest in the future (Belady's MIN, offline): with a capacity in "
    "graphs no rule that captures on every miss hits more",
    "min_bypass": "as min, but a key needed further in the future than all that is held runs "
    "eager: with a capacity in graphs no rule at all hits more",
    "none": "nothing: when the cache is full a miss runs eager",
}
UNBOUNDED = 2**62  # a capacity that is never reached


@dataclass(frozen=True, slots=True)
class CacheRule:
    """One cache.

    Parameters
    ----------
    eviction : str
        See `EVICTIONS`. The two offline rules take neither admission nor a time-out.
    capacity : int or None
        Graphs held at most, 1 or more; None: unbounded.
    capacity_nodes : int or None
        Graph nodes held at most (bytes over `device.model.GRAPH_BYTES_PER_NODE`). As in
        `GraphCache`, a single larger graph is still kept, alone. With graphs of different sizes
        the offline rules are no bound any more: the optimum is NP-hard.
    admit_on : int
        A key is captured from this sighting on, and runs eager before it. Sightings are counted
        over the whole trace and never forgotten. 1: capture at once.
    idle_steps : int or None
        A graph not used for more than this many dispatches is destroyed; None: never.
    protected_percent : int
        SLRU: share of the capacity that the protected segment may hold, 0 to 100, rounded down.
        The graph that no longer fits there goes back to the young end of probation.
    """

    eviction: str = "lru"
    capacity: int | None = 32
    capacity_nodes: int | None = None
    admit_on: int = 1
    idle_steps: int | None = None
    protected_percent: int = 80

    def __post_init__(self) -> None:
        if self.eviction not in EVICTIONS:
            raise ValueError(
                f"eviction must be one of {', '.join(EVICTIONS)}, got {self.eviction!r}"
            )
        for name, low, high in (
            ("capacity", 1, UNBOUNDED),
            ("capacity_nodes", 1, UNBOUNDED),
            ("admit_on", 1, UNBOUNDED),
            ("idle_steps", 1, UNBOUNDED),
            ("protected_percent", 0, 100),
        ):
            value = getattr(self, name)
            if value is None and name not in ("admit_on", "protected_percent"):
                continue
            whole(name, value, low, high)
        if self.offline and (self.admit_on > 1 or self.idle_steps is not None):
            raise ValueError(
                f"eviction {self.eviction!r} is the offline bound: admit_on must be 1 and "
                f"idle_steps None, got {self.admit_on} and {self.idle_steps}"
            )

    @property
    def offline(self) -> bool:
        """Whether the rule looks into the future."""
        return self.eviction.startswith("min")

    @property
    def limits(self) -> tuple[int, int, int, int]:
        """Graphs and nodes held at most, and of those in the protected segment."""
        graphs = UNBOUNDED if self.capacity is None else int(self.capacity)
        nodes = UNBOUNDED if self.capacity_nodes is None else int(self.capacity_nodes)
        share = int(self.protected_percent)
        return graphs, nodes, graphs * share // 100, nodes * share // 100


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What a cache did; the names are those of `verifylab.counters.Counters`.

    `nodes_*` sum the sizes of the graphs launched, captured, evicted, and of the eager bodies.
    `peak_graphs`, `peak_nodes` are the most held at once, `node_steps` the nodes held, summed
    over the counted dispatches; None where a one-pass curve does not know them.
    """

    hits: int
    captures: int
    evictions: int
    eager: int
    nodes_launched: int
    nodes_captured: int
    nodes_evicted: int
    nodes_eager: int
    peak_graphs: int | None = None
    peak_nodes: int | None = None
    node_steps: int | None = None

    @property
    def requests(self) -> int:
        """Dispatches counted."""
        return self.hits + self.captures + self.eager

    @property
    def miss_ratio(self) -> float:
        """Share of dispatches that did not replay a kept graph; 0.0 for an empty trace."""
        return 1 - self.hits / self.requests if self.requests else 0.0


def checked_trace(
    keys: ArrayLike, nodes: ArrayLike | None, skip: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return keys (N,) and nodes by key (U,) as contiguous int64 arrays.

    Raises
    ------
    TypeError, ValueError
        When keys are no one-dimensional array of whole numbers of 0 or more, are sparse (see
        `densify`), have no size, or when a size is below 0 or `skip` out of range.
    """
    ids = np.asarray(keys)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise TypeError(
            f"keys must be ids in one dimension, got {ids.dtype} of shape {ids.shape}; "
            "densify turns keys into ids"
        )
    ids = np.ascontiguousarray(ids, np.int64)
    if ids.size and ids.min() < 0:
        raise ValueError(f"keys must be 0 or more, got {ids.min()}")
    universe = int(ids.max()) + 1 if ids.size else 0
    if not 0 <= skip <= ids.size:
        raise ValueError(f"skip must be from 0 to the trace's {ids.size} keys, got {skip}")
    if nodes is None:
        if universe > max(4 * ids.size, 1 << 20):
            raise ValueError(
                f"keys must be dense ids, got {ids.size} keys up to {universe - 1}; densify them"
            )
        return ids, np.ones(universe, np.int64)
    sizes = np.asarray(nodes)
    if sizes.ndim != 1 or (sizes.size and sizes.dtype.kind not in "iu"):
        raise TypeError(f"nodes must be one whole number a key, got {sizes.dtype} {sizes.shape}")
    if len(sizes) < universe:
        raise ValueError(f"nodes must have a size for every key up to {universe - 1}, has "
                         f"{len(sizes)}")  # fmt: skip
    sizes = np.ascontiguousarray(sizes, np.int64)
    if sizes.size and sizes.min() < 0:
        raise ValueError(f"nodes must be 0 or more, got {sizes.min()}")
    return ids, sizes


def simulate(
    keys: ArrayLike,
    rule: CacheRule,
    nodes: ArrayLike | None = None,
    *,
    skip: int = 0,
    path: str = "fast",
) -> CacheCounts:
    """Play one cache on a trace.

    Parameters
    ----------
    keys : array_like of int, shape (N,)
        Key ids, dense from 0, in the order of the dispatches.
    rule : CacheRule
    nodes : array_like of int, shape (U,), optional
        Size of each key's graph in nodes (or any one unit); default: 1 each.
    skip : int
        Dispatches played but not counted: the warm-up.
    path : {"fast", "readable"}

    Raises
    ------
    TypeError, ValueError
        As `checked_trace`; when `path` is unknown.
    """
    ids, sizes = checked_trace(keys, nodes, skip)
    if path == "readable":
        from verifylab._readable_caches import play

        return CacheCounts(**play(ids.tolist(), sizes.tolist(), rule, skip))
    if path != "fast":
        raise ValueError(f"path must be 'fast' or 'readable', got {path!r}")
    from verifylab import _fast_caches as fast

    coming = fast.next_uses(ids, len(sizes)) if rule.offline else np.zeros(0, np.int64)
    graphs, held_nodes, safe_graphs, safe_nodes = rule.limits
    counts = fast.simulate(
        ids, sizes, coming, tuple(EVICTIONS).index(rule.eviction), graphs, held_nodes,
        safe_graphs, safe_nodes, int(rule.admit_on), int(rule.idle_steps or 0), int(skip),
    )  # fmt: skip
    return CacheCounts(**dict(zip(fast.COUNTS, counts.tolist(), strict=True)))


def densify(keys: Iterable[Hashable] | NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give each key a number, in the order in which they first appear.

    Parameters
    ----------
    keys : iterable of hashable, or ndarray of whole numbers, shape (N, words)
        Graph keys as bytes, or their words (`verifylab.key.verify_graph_keys`).

    Returns
    -------
    ids : ndarray of int64, shape (N,)
    first : ndarray of int64, shape (U,)
        Where each id appeared first: ``keys[first[i]]`` is key i.

    Raises
    ------
    TypeError
        When an array has not two dimensions or no whole numbers.
    """
    if isinstance(keys, np.ndarray):
        if keys.ndim != 2 or keys.dtype.kind not in "iu":
            raise TypeError(
                f"an array of keys must be whole numbers of shape (N, words), got {keys.dtype} "
                f"of shape {keys.shape}"
            )
        from verifylab._fast_trace import densify_words

        return densify_words(np.ascontiguousarray(keys))
    known: dict[Hashable, int] = {}
    first: list[int] = []
    ids: list[int] = []
    for t, key in enumerate(keys):
        number = known.setdefault(key, len(known))
        if number == len(first):
            first.append(t)
        ids.append(number)
    return np.array(ids, np.int64), np.array(first, np.int64)
