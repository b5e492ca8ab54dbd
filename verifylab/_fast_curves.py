"""Stack distances of a whole trace in one pass, compiled; see `verifylab.miss_curves`."""

from __future__ import annotations

import numpy as np

from verifylab._jit import jit

__all__ = ["lru_distances", "min_distances"]

_ONE = np.uint64(1)


@jit(inline="always")
def _ones(x):  # pragma: no cover - compiled
    """Bits set in a 64-bit word."""
    x -= (x >> _ONE) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def _squeeze(bits, tree, owner, place, cursor):
    """Move the live places to the front, in order; return how many there are."""
    live = 0
    for at in range(cursor):
        if bits[at >> 6] >> np.uint64(at & 63) & _ONE:
            key = owner[at]
            owner[live] = key
            place[key] = live
            live += 1
    bits[:] = 0
    tree[:] = 0
    for at in range(live):
        bits[at >> 6] |= _ONE << np.uint64(at & 63)
    for word in range(len(bits)):
        tree[word + 1] += _ones(bits[word])
        above = (word + 1) + ((word + 1) & -(word + 1))
        if above < len(tree):
            tree[above] += tree[word + 1]
    return live


@jit(nogil=True)
def lru_distances(keys, nodes, skip):
    """Count requests by LRU stack distance.

    Keys stand in a line in the order of their last use, one bit each; a Fenwick tree over its
    64-bit words counts the keys used since. When the line is full the gaps are squeezed out, so
    memory goes with the keys, not with the trace.

    Returns
    -------
    by_distance, nodes_by_distance : int64 (U + 1,)
        Requests, and their nodes, by distance from 1; index 0 counts first uses.
    before, after : int64 (<= U,)
        Keys from the most to the least recently used, after `skip` requests and at the end.
    """
    universe = len(nodes)
    words = (2 * universe + 1023) // 64
    bits = np.zeros(words, np.uint64)
    tree = np.zeros(words + 1, np.int64)
    owner = np.zeros(words * 64, np.int64)
    place = np.full(universe, -1, np.int64)
    by_distance = np.zeros(universe + 1, np.int64)
    nodes_by_distance = np.zeros(universe + 1, np.int64)
    before = np.zeros(0, np.int64)
    cursor = 0
    live = 0
    for t in range(len(keys)):
        if t == skip:
            before = _newest_first(bits, owner, cursor, live)
        key = keys[t]
        at = place[key]
        distance = 0
        if at == cursor - 1 and cursor:
            distance = 1
        else:
            if at >= 0:
                word = at >> 6
                mark = _ONE << np.uint64(at & 63)
                up_to = _ones(bits[word] & (mark | (mark - _ONE)))
                node = word
                while node > 0:
                    up_to += tree[node]
                    node &= node - 1
                distance = live - up_to + 1
                bits[word] ^= mark
                node = word + 1
                while node <= words:
                    tree[node] -= 1
                    node += node & -node
            else:
                live += 1
            if cursor == words * 64:
                cursor = _squeeze(bits, tree, owner, place, cursor)
            owner[cursor] = key
            place[key] = cursor
            bits[cursor >> 6] |= _ONE << np.uint64(cursor & 63)
            node = (cursor >> 6) + 1
            while node <= words:
                tree[node] += 1
                node += node & -node
            cursor += 1
        if t >= skip:
            by_distance[distance] += 1
            nodes_by_distance[distance] += nodes[key]
    after = _newest_first(bits, owner, cursor, live)
    if skip >= len(keys):
        before = after
    return by_distance, nodes_by_distance, before, after


@jit
def _newest_first(bits, owner, cursor, live):
    out = np.empty(live, np.int64)
    found = 0
    for at in range(cursor - 1, -1, -1):
        if bits[at >> 6] >> np.uint64(at & 63) & _ONE:
            out[found] = owner[at]
            found += 1
    return out


@jit
def _raise(tree, leaves, at, value):
    """Set one leaf of a maximum tree."""
    node = leaves + at
    tree[node] = value
    node >>= 1
    while node:
        best = max(tree[2 * node], tree[2 * node + 1])
        if tree[node] == best:
            return
        tree[node] = best
        node >>= 1


@jit
def _first_above(tree, leaves, start, value):
    """First leaf from `start` on that holds more than `value`; `leaves` when there is none."""
    node = leaves + start
    while tree[node] <= value:
        while node & 1:  # a right child: what follows hangs off an ancestor
            node >>= 1
        if node == 0:
            return leaves
        node += 1
    while node < leaves:
        node *= 2
        if tree[node] <= value:
            node += 1
    return node - leaves


@jit(nogil=True)
def min_distances(keys, nodes, coming, skip):
    """Count requests by their stack distance under MIN.

    The stack after each request is Mattson's: the key asked for goes on top, and what it pushes
    down sinks past every key needed sooner, changing places with each one needed later, as far as
    the place that the key asked for left. A maximum tree over the next uses finds the places
    where it changes.

    Returns
    -------
    As `lru_distances`; `before` and `after` are the stack from its top.
    """
    universe = len(nodes)
    leaves = 2
    while leaves < universe + 1:
        leaves *= 2
    tree = np.full(2 * leaves, np.int64(-1), np.int64)
    stack = np.zeros(universe + 1, np.int64)
    place = np.full(universe, -1, np.int64)
    by_distance = np.zeros(universe + 1, np.int64)
    nodes_by_distance = np.zeros(universe + 1, np.int64)
    before = np.zeros(0, np.int64)
    height = 0
    for t in range(len(keys)):
        if t == skip:
            before = stack[:height].copy()
        key = keys[t]
        at = place[key]
        if t >= skip:
            by_distance[at + 1] += 1
            nodes_by_distance[at + 1] += nodes[key]
        hole = at
        if at < 0:
            hole = height
            height += 1
        if hole > 0:
            sinking = stack[0]
            needed = tree[leaves]
            spot = 1
            while True:
                spot = _first_above(tree, leaves, spot, needed) if spot < hole else hole
                if spot >= hole:
                    break
                stack[spot], sinking = sinking, stack[spot]
                place[stack[spot]] = spot
                later = tree[leaves + spot]
                _raise(tree, leaves, spot, needed)
                needed = later
                spot += 1
            stack[hole] = sinking
            place[sinking] = hole
            _raise(tree, leaves, hole, needed)
        stack[0] = key
        place[key] = 0
        _raise(tree, leaves, 0, coming[t])
    after = stack[:height].copy()
    if skip >= len(keys):
        before = after
    return by_distance, nodes_by_distance, before, after
