"""Graph caches on a trace of key ids, compiled: what `verifylab.caches` says in readable form.

Every array is as long as the trace or as the key universe; nothing else grows.
"""

from __future__ import annotations

import numpy as np

from verifylab._jit import jit
from verifylab.fastpath import _push, _unlink

__all__ = ["COUNTS", "next_uses", "simulate"]

LRU, LFU, SLRU, MIN, MIN_BYPASS, NONE = range(6)

#: Names of what `simulate` counts, in the order of its array.
COUNTS = (
    "hits",
    "captures",
    "evictions",
    "eager",
    "nodes_launched",
    "nodes_captured",
    "nodes_evicted",
    "nodes_eager",
    "peak_graphs",
    "peak_nodes",
    "node_steps",
)
(
    HITS,
    CAPTURES,
    EVICTIONS,
    EAGER,
    NODES_LAUNCHED,
    NODES_CAPTURED,
    NODES_EVICTED,
    NODES_EAGER,
    PEAK_GRAPHS,
    PEAK_NODES,
    NODE_STEPS,
) = range(len(COUNTS))

_USE = np.int64(1) << np.int64(40)  # uses outrank the time of the last use in an LFU rank


@jit(nogil=True)
def next_uses(keys, universe):
    """When each request's key is asked for again; never: the trace's length plus the key."""
    length = len(keys)
    coming = np.empty(universe, np.int64)
    for key in range(universe):
        coming[key] = length + key
    out = np.empty(length, np.int64)
    for t in range(length - 1, -1, -1):
        out[t] = coming[keys[t]]
        coming[keys[t]] = t
    return out


@jit
def _swap(heap, place, a, b):
    heap[a], heap[b] = heap[b], heap[a]
    place[heap[a]] = a
    place[heap[b]] = b


@jit
def _settle(heap, place, rank, live, at):
    """Move one entry of a min-heap to where its rank belongs."""
    while at > 0 and rank[heap[at]] < rank[heap[(at - 1) // 2]]:
        _swap(heap, place, at, (at - 1) // 2)
        at = (at - 1) // 2
    while True:
        child = 2 * at + 1
        if child >= live:
            return
        if child + 1 < live and rank[heap[child + 1]] < rank[heap[child]]:
            child += 1
        if rank[heap[child]] >= rank[heap[at]]:
            return
        _swap(heap, place, at, child)
        at = child


@jit(nogil=True)
def simulate(
    keys,
    nodes,
    coming,
    eviction,
    capacity,
    capacity_nodes,
    protected_graphs,
    protected_nodes,
    admit_on,
    idle_steps,
    skip,
):
    """Count what a cache does; see `verifylab.caches.simulate`.

    `coming` is `next_uses` for the MIN rules (else empty); `idle_steps` 0 means never.
    """
    universe = len(nodes)
    counts = np.zeros(len(COUNTS), np.int64)
    held = np.zeros(universe, np.bool_)
    seen = np.zeros(universe, np.int64)
    used = np.zeros(universe, np.int64)
    last = np.zeros(universe, np.int64)
    # Recency of all that is held.
    newer = np.full(universe, -1, np.int64)
    older = np.full(universe, -1, np.int64)
    ends = np.full(2, -1, np.int64)
    ranked = eviction == LFU or eviction == MIN or eviction == MIN_BYPASS
    size = universe if ranked else 0
    heap = np.zeros(size, np.int64)
    place = np.zeros(size, np.int64)
    rank = np.zeros(size, np.int64)
    segments = universe if eviction == SLRU else 0
    in_protected = np.zeros(segments, np.bool_)
    s_newer = np.full(segments, -1, np.int64)
    s_older = np.full(segments, -1, np.int64)
    probation = np.full(2, -1, np.int64)
    protected = np.full(2, -1, np.int64)
    safe_graphs = 0
    safe_nodes = 0
    live = 0
    live_nodes = 0

    for t in range(len(keys)):
        if t == skip:
            counts[:] = 0
            counts[PEAK_GRAPHS] = live
            counts[PEAK_NODES] = live_nodes
        key = keys[t]
        size_now = nodes[key]
        seen[key] += 1
        eager = False
        made_room = False
        # Who has to go: first those that timed out, then for room. -1 ends it.
        while True:
            victim = -1
            if idle_steps > 0 and ends[1] >= 0 and t - last[ends[1]] > idle_steps:
                victim = ends[1]
            elif held[key]:
                break
            elif seen[key] < admit_on or (eviction == MIN_BYPASS and coming[t] >= len(keys)):
                eager = True
                break
            elif live and (live >= capacity or live_nodes + size_now > capacity_nodes):
                if eviction == NONE:
                    eager = True
                    break
                if ranked:
                    victim = heap[0]
                    if eviction == MIN_BYPASS and not made_room and -rank[victim] < coming[t]:
                        eager = True
                        break
                    made_room = True
                elif eviction == LRU:
                    victim = ends[1]
                else:
                    victim = probation[1] if probation[1] >= 0 else protected[1]
            if victim < 0:
                break
            held[victim] = False
            live -= 1
            live_nodes -= nodes[victim]
            counts[EVICTIONS] += 1
            counts[NODES_EVICTED] += nodes[victim]
            _unlink(newer, older, ends, victim)
            if ranked:
                at = place[victim]
                if at != live:
                    _swap(heap, place, at, live)
                    _settle(heap, place, rank, live, at)
            elif eviction == SLRU:
                if in_protected[victim]:
                    _unlink(s_newer, s_older, protected, victim)
                    safe_graphs -= 1
                    safe_nodes -= nodes[victim]
                else:
                    _unlink(s_newer, s_older, probation, victim)

        if eager:
            counts[EAGER] += 1
            counts[NODES_EAGER] += size_now
        else:
            counts[NODES_LAUNCHED] += size_now
            hit = held[key]
            if hit:
                counts[HITS] += 1
                used[key] += 1
                _unlink(newer, older, ends, key)
            else:
                counts[CAPTURES] += 1
                counts[NODES_CAPTURED] += size_now
                held[key] = True
                used[key] = 1
                live += 1
                live_nodes += size_now
                counts[PEAK_GRAPHS] = max(counts[PEAK_GRAPHS], live)
                counts[PEAK_NODES] = max(counts[PEAK_NODES], live_nodes)
            last[key] = t
            _push(newer, older, ends, key)
            if ranked:
                rank[key] = used[key] * _USE + t if eviction == LFU else -coming[t]
                if not hit:
                    heap[live - 1] = key
                    place[key] = live - 1
                _settle(heap, place, rank, live, place[key])
            elif eviction == SLRU:
                if not hit:
                    in_protected[key] = False
                    _push(s_newer, s_older, probation, key)
                else:
                    if in_protected[key]:
                        _unlink(s_newer, s_older, protected, key)
                    else:
                        _unlink(s_newer, s_older, probation, key)
                        in_protected[key] = True
                        safe_graphs += 1
                        safe_nodes += size_now
                    _push(s_newer, s_older, protected, key)
                    while safe_graphs > protected_graphs or safe_nodes > protected_nodes:
                        demoted = protected[1]
                        _unlink(s_newer, s_older, protected, demoted)
                        in_protected[demoted] = False
                        safe_graphs -= 1
                        safe_nodes -= nodes[demoted]
                        _push(s_newer, s_older, probation, demoted)
        counts[NODE_STEPS] += live_nodes
    if skip == len(keys):
        counts[:] = 0
        counts[PEAK_GRAPHS] = live
        counts[PEAK_NODES] = live_nodes
    return counts
