"""The graph cache: what a step does when its key is there, and when it is not.

The same class serves every device. On a step: a hit replays; a miss captures the body, destroys
the least recently used graph when the cache is full, inserts the new graph and launches it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
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
    UPDATE = "update"
    BORROW = "borrow"


@dataclass(slots=True)
class CacheStats:
    """Counts since the cache was made or `GraphCache.reset_stats` was called."""

    hits: int = 0
    captures: int = 0
    evictions: int = 0
    eager: int = 0
    updates: int = 0
    borrowed: int = 0

    @property
    def steps(self) -> int:
        """Steps seen: every one is a hit, a capture, eager, an update or borrowed."""
        return self.hits + self.captures + self.eager + self.updates + self.borrowed

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
    sightings : int
        The sighting of a key at which it is captured; before it the step runs eager. Default: 1.
    update : bool
        Keep one graph a *signature* and update it in place when another key of it comes.

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
        *,
        sightings: int = 1,
        update: bool = False,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be 1 or more graphs, got {capacity}")
        if eviction != "lru":
            raise ValueError(f"eviction must be 'lru', got {eviction!r}")
        if capacity_bytes is not None and capacity_bytes < 1:
            raise ValueError(f"capacity_bytes must be 1 or more, got {capacity_bytes}")
        if sightings < 1:
            raise ValueError(f"sightings must be 1 or more, got {sightings}")
        self.device = device
        self.sightings = sightings
        self.update = update
        self._seen: dict[Hashable, int] = {}
        #: With `update`: the key that each kept graph's arguments are of now.
        self._current: dict[Hashable, Hashable] = {}
        #: The graph that served the last step; None when it ran eager.
        self.last: Graph | None = None
        #: With a borrowed step: the key of the graph that served it.
        self.last_key: Hashable | None = None
        self.capacity = capacity
        self.eviction = eviction
        self.capacity_bytes = capacity_bytes
        self.stats = CacheStats()
        self._graphs: OrderedDict[Hashable, Graph] = OrderedDict()
        self._nbytes = 0

    def step(
        self,
        key: Hashable | None,
        body: Body,
        *,
        signature: Hashable | None = None,
        borrow: Callable[[Hashable], int | None] | None = None,
    ) -> Outcome:
        """Run one verify step under `key`.

        Parameters
        ----------
        key : hashable or None
            What the graph is cached under; ``None`` (a batch without a key) runs eager.
        body : callable
            ``body(device)`` issues the step's work. Called only on a miss, an update or when
            eager.
        signature : hashable, optional
            Node structure, needed with `update`: graphs are then kept by it.
        borrow : callable, optional
            Asked on a miss with every kept key, the latest used first: the cost of serving the
            step with its graph, or None. The cheapest serves; of equals the latest used.

        Returns
        -------
        Outcome

        Raises
        ------
        Exception
            Whatever `body` raises, or `DeviceError`. The cache then holds what it held before.
        """
        self.last, self.last_key = None, key
        place = signature if self.update else key
        if key is None or not self._admit(key, place):
            self.device.run(body)
            self.stats.eager += 1
            return Outcome.EAGER
        graph = self._graphs.get(place)
        if graph is not None:
            outcome = Outcome.HIT
            if self.update and self._current[place] != key:
                self.device.update(graph, body)
                self._current[place] = key
                outcome = Outcome.UPDATE
            self._launch(place, graph)
            self.stats.hits += outcome is Outcome.HIT
            self.stats.updates += outcome is Outcome.UPDATE
            return outcome
        if borrow is not None:
            costs = ((k, borrow(k)) for k in reversed(self._graphs))
            able = [(k, cost) for k, cost in costs if cost is not None]
            if able:
                served = min(able, key=lambda pair: pair[1])[0]
                self.last_key = served
                self._launch(served, self._graphs[served])
                self.stats.borrowed += 1
                return Outcome.BORROW
        graph = self.device.capture(body)
        try:
            self._make_room(graph.nbytes)
        except BaseException:
            # Not kept yet, so nobody else would free it.
            self.device.destroy(graph)
            raise
        self._graphs[place] = graph
        self._current[place] = key
        self._nbytes += graph.nbytes
        self.stats.captures += 1
        self._launch(place, graph)
        return Outcome.CAPTURE

    def _admit(self, key: Hashable, place: Hashable) -> bool:
        """Say whether a key has been sighted often enough, counting this sighting."""
        if self.sightings == 1:
            return True
        self._seen[key] = self._seen.get(key, 0) + 1
        return self._seen[key] >= self.sightings or place in self._graphs

    def _launch(self, place: Hashable, graph: Graph) -> None:
        self._graphs.move_to_end(place)
        self.last = graph
        self.device.launch(graph)

    def _make_room(self, nbytes: int) -> None:
        while self._graphs and (
            len(self._graphs) >= self.capacity
            or (self.capacity_bytes is not None and self._nbytes + nbytes > self.capacity_bytes)
        ):
            place, oldest = self._graphs.popitem(last=False)
            self._current.pop(place, None)
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
