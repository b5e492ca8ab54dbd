"""The graph cache: what a step does when its key is there, and when it is not.

The same class serves every device. On a step: a hit replays; a miss captures the body, destroys
the least recently used graph when the cache is full, inserts the new graph and launches it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum

from verifylab.device.base import Body, Device, Graph

__all__ = ["VERIFY_BATCHED_GRAPH_CAP", "CacheStats", "GraphCache", "Outcome"]

#: Graphs that the published engine keeps for batched verify (`data/published/model_dims.csv`,
#: row ``graph_cap``).
VERIFY_BATCHED_GRAPH_CAP = 32


class Outcome(StrEnum):
    """What a step did with the cache."""

    HIT = "hit"
    CAPTURE = "capture"
    EAGER = "eager"


@dataclass(slots=True)
class CacheStats:
    """Counts since the cache was made or `GraphCache.reset_stats` was called."""

    hits: int = 0
    captures: int = 0
    evictions: int = 0
    eager: int = 0

    @property
    def steps(self) -> int:
        """Steps seen: every one is a hit, a capture or eager."""
        return self.hits + self.captures + self.eager

    @property
    def capture_fraction(self) -> float:
        """Captures over steps; 0.0 before the first step."""
        return self.captures / self.steps if self.steps else 0.0


class GraphCache:
    """Graphs by key, bounded by count and, if asked, by bytes.

    Parameters
    ----------
    device : Device
        Captures, launches and destroys the graphs.
    capacity : int
        Graphs kept at most; 1 or more. Default: `VERIFY_BATCHED_GRAPH_CAP`.
    eviction : {"lru"}
        Which graph goes when the cache is full: the one used longest ago.
    capacity_bytes : int, optional
        Bytes that the kept graphs may hold together (`Graph.nbytes`). A single graph larger than
        that is still kept, alone: a step must be able to run.

    Raises
    ------
    ValueError
        When a capacity is below 1 or the eviction rule is unknown.
    """

    def __init__(
        self,
        device: Device,
        capacity: int = VERIFY_BATCHED_GRAPH_CAP,
        eviction: str = "lru",
        capacity_bytes: int | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be 1 or more graphs, got {capacity}")
        if eviction != "lru":
            raise ValueError(f"eviction must be 'lru', got {eviction!r}")
        if capacity_bytes is not None and capacity_bytes < 1:
            raise ValueError(f"capacity_bytes must be 1 or more, got {capacity_bytes}")
        self.device = device
        self.capacity = capacity
        self.eviction = eviction
        self.capacity_bytes = capacity_bytes
        self.stats = CacheStats()
        self._graphs: OrderedDict[Hashable, Graph] = OrderedDict()
        self._nbytes = 0

    def step(self, key: Hashable | None, body: Body) -> Outcome:
        """Run one verify step under `key`.

        Parameters
        ----------
        key : hashable or None
            What the graph is cached under; ``None`` (a batch without a key) runs eager.
        body : callable
            ``body(device)`` issues the step's work. Called only on a miss or when eager.

        Returns
        -------
        Outcome

        Raises
        ------
        Exception
            Whatever `body` raises, or `DeviceError`. The cache then holds what it held before.
        """
        if key is None:
            self.device.run(body)
            self.stats.eager += 1
            return Outcome.EAGER
        graph = self._graphs.get(key)
        if graph is not None:
            self._graphs.move_to_end(key)
            self.device.launch(graph)
            self.stats.hits += 1
            return Outcome.HIT
        graph = self.device.capture(body)
        try:
            self._make_room(graph.nbytes)
        except BaseException:
            # Not kept yet, so nobody else would free it.
            self.device.destroy(graph)
            raise
        self._graphs[key] = graph
        self._nbytes += graph.nbytes
        self.stats.captures += 1
        self.device.launch(graph)
        return Outcome.CAPTURE

    def _make_room(self, nbytes: int) -> None:
        while self._graphs and (
            len(self._graphs) >= self.capacity
            or (self.capacity_bytes is not None and self._nbytes + nbytes > self.capacity_bytes)
        ):
            _, oldest = self._graphs.popitem(last=False)
            self._nbytes -= oldest.nbytes
            self.device.destroy(oldest)
            self.stats.evictions += 1

    @property
    def nbytes(self) -> int:
        """Bytes that the kept graphs hold together."""
        return self._nbytes

    def keys(self) -> list[Hashable]:
        """Keys from the least to the most recently used."""
        return list(self._graphs)

    def __len__(self) -> int:
        return len(self._graphs)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._graphs

    def reset_stats(self) -> None:
        """Zero the counts; the graphs stay."""
        self.stats = CacheStats()

    def clear(self) -> None:
        """Destroy every graph (not counted as evictions)."""
        while self._graphs:
            _, graph = self._graphs.popitem(last=False)
            self._nbytes -= graph.nbytes
            self.device.destroy(graph)
