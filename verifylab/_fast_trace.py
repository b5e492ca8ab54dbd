"""The keys of a run as one compiled loop: draws, D-Cut, order, chunks, and a number for each key.

The step is that of `verifylab.fastpath.simulate` without the cache, so that one trace serves every
cache. A test holds the two equal.
"""

from __future__ import annotations

import numpy as np

from verifylab._jit import jit
from verifylab.counters import SCALARS
from verifylab.fastpath import FINISHED as _FINISHED
from verifylab.fastpath import MOVES as _MOVES
from verifylab.fastpath import _draw, _launches, _mix, _order, _retire, _select

__all__ = ["densify_words", "number_key", "trace"]

#: Scalars that `trace` counts, by their names in `verifylab.counters.Counters`.
COUNTED = (
    "steps",
    "dispatches",
    "tokens",
    "sequences",
    "rows",
    "layer_launches",
    "moves",
    "finished_requests",
)
STEPS, DISPATCHES, TOKENS, SEQUENCES, ROWS, LAYER_LAUNCHES, MOVES, FINISHED = range(len(COUNTED))


@jit
def _grown(array):
    """Copy a table into one twice as long."""
    out = np.zeros((2 * array.shape[0], array.shape[1]), array.dtype)
    out[: array.shape[0]] = array
    return out


@jit
def _rehash(words, lengths, found, size):
    table = np.full(size, -1, np.int64)
    for number in range(found):
        h = np.uint64(lengths[number])
        for p in range(lengths[number]):
            h = _mix(h, np.uint64(words[number, p]))
        at = np.int64(h & np.uint64(size - 1))
        while table[at] >= 0:
            at = (at + 1) & (size - 1)
        table[at] = number
    return table


@jit
def number_key(table, words, lengths, found, key, length):
    """Return the number of a key, compared word by word; a new one is entered as `found`."""
    h = np.uint64(length)
    for p in range(length):
        h = _mix(h, np.uint64(key[p]))
    at = np.int64(h & np.uint64(len(table) - 1))
    while table[at] >= 0:
        known = table[at]
        if lengths[known] == length:
            same = True
            for p in range(length):
                if words[known, p] != key[p]:
                    same = False
                    break
            if same:
                return known
        at = (at + 1) & (len(table) - 1)
    table[at] = found
    lengths[found] = length
    for p in range(length):
        words[found, p] = key[p]
    return found


@jit(nogil=True)
def densify_words(rows):
    """Ids of equal rows in order of first appearance, and where each id appeared first."""
    size = 16
    while size < 2 * len(rows):
        size *= 2
    width = rows.shape[1]
    ids = np.empty(len(rows), np.int64)
    first = np.empty(len(rows), np.int64)
    table = np.full(size, -1, np.int64)
    found = 0
    for t in range(len(rows)):
        h = np.uint64(width)
        for p in range(width):
            h = _mix(h, np.uint64(rows[t, p]))
        at = np.int64(h & np.uint64(size - 1))
        ids[t] = -1
        while table[at] >= 0:
            same = True
            for p in range(width):
                if rows[first[table[at]], p] != rows[t, p]:
                    same = False
                    break
            if same:
                ids[t] = table[at]
                break
            at = (at + 1) & (size - 1)
        if ids[t] < 0:
            table[at] = found
            first[found] = t
            ids[t] = found
            found += 1
    return ids, first[:found].copy()


@jit(nogil=True)
def trace(
    seed,
    n0,
    steps,
    warmup,
    steady,
    output_tokens,
    drafts_at,
    keep_at,
    canonical_at,
    row_budget,
    max_width,
    log_reported,
    accept_below,
):
    """Give every dispatch the number of its key; parameters as `verifylab.fastpath.simulate`.

    Returns
    -------
    ids : int32 (dispatches,)
        Warm-up included.
    words : int32 (keys, max_width)
        ``slot << 8 | rows`` in dispatch order, for each key.
    lengths, launches : int64 (keys,)
        Sequences of each key, and launches in each GDN layer.
    skip : int
        Dispatches of the warm-up.
    counts : int64 (len(COUNTED),)
        Over the counted steps.
    """
    counts = np.zeros(len(COUNTED), np.int64)
    retired = np.zeros(len(SCALARS), np.int64)  # `_retire` counts in the places of `simulate`
    slots = np.arange(n0)
    request = np.arange(n0).astype(np.uint64)
    position = np.zeros(n0, np.int64)
    scores = np.zeros((n0, log_reported.shape[0]))
    prefix = np.zeros(n0, np.int64)
    rows = np.zeros(n0, np.int64)
    order = np.zeros(n0, np.int64)
    assigned = np.zeros(n0, np.int64)
    packed = np.zeros(n0, np.int64)
    held = np.zeros(n0, np.bool_)
    key = np.zeros(max_width, np.int64)

    ids = np.zeros(1024, np.int32)
    words = np.zeros((64, max_width), np.int32)
    lengths = np.zeros((64, 1), np.int64)
    launches = np.zeros((64, 1), np.int64)
    table = np.full(256, -1, np.int64)
    found = 0
    total = 0
    skip = 0
    width = n0
    for step in range(steps + warmup):
        if width == 0:
            break
        if step == warmup:
            counts[:] = 0
            retired[:] = 0
            skip = total
        drafts = drafts_at[width]
        for i in range(width):
            prefix[i] = _draw(
                seed,
                request[i],
                np.uint64(position[i]),
                drafts,
                log_reported,
                accept_below,
                scores[i],
            )
        _select(scores, width, drafts, keep_at[width], rows)
        _order(slots, rows, width, canonical_at[width], order, assigned, packed)
        start = 0
        while start < width:
            cap = min(max_width, max(1, row_budget // assigned[start]))
            stop = min(width, start + cap)
            for p in range(stop - start):
                key[p] = (slots[order[start + p]] << 8) | assigned[start + p]
            if found == len(words):
                words = _grown(words)
                lengths = _grown(lengths)
                launches = _grown(launches)
                table = _rehash(words, lengths[:, 0], found, 2 * len(table))
            number = number_key(table, words, lengths[:, 0], found, key, stop - start)
            if number == found:
                launches[found, 0] = _launches(slots, order, assigned, start, stop)
                found += 1
            if total == len(ids):
                longer = np.zeros(2 * len(ids), np.int32)
                longer[:total] = ids
                ids = longer
            ids[total] = number
            total += 1
            counts[DISPATCHES] += 1
            counts[LAYER_LAUNCHES] += launches[number, 0]
            start = stop
        counts[STEPS] += 1
        counts[SEQUENCES] += width
        for p in range(width):
            i = order[p]
            counts[ROWS] += assigned[p]
            new = min(min(prefix[i], assigned[p] - 1) + 1, output_tokens - position[i])
            position[i] += new
            counts[TOKENS] += new
        width = _retire(width, slots, request, position, output_tokens, n0, steady, held, retired)
    counts[MOVES] = retired[_MOVES]
    counts[FINISHED] = retired[_FINISHED]
    return (
        ids[:total].copy(),
        words[:found].copy(),
        lengths[:found, 0].copy(),
        launches[:found, 0].copy(),
        skip,
        counts,
    )
