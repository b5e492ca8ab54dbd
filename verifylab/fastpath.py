"""The simulated verify step as one compiled loop: draws, D-Cut, order, key, LRU, acceptance.

`verifylab.experiment` holds the same step in readable form; a test keeps the two equal step by
step. Nothing here grows with the number of steps. Integer counts come out, never times.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from verifylab.counters import SCALARS

__all__ = ["SEEN_LIMIT", "simulate"]

#: Different keys counted exactly; beyond it `keys_seen` is a lower bound and says so.
SEEN_LIMIT = 1 << 16
_SEEN_SIZE = 1 << 17
_QUANTILE_SHIFT = 20  # 32-bit word -> one of 4096 bins

(
    STEPS,
    CAPTURE_STEPS,
    DISPATCHES,
    TOKENS,
    SEQUENCES,
    ROWS,
    HITS,
    CAPTURES,
    EVICTIONS,
    EAGER,
    LAYER_LAUNCHES,
    NODES_LAUNCHED,
    NODES_CAPTURED,
    NODES_EVICTED,
    NODES_EAGER,
    KEYS_SEEN,
    KEYS_OVERFLOW,
    MOVES,
    FINISHED,
) = range(len(SCALARS))

_U32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
#: Digits of pi. From a small start a small word could bring the hash to 0, where lengths collide.
_HASH_START = np.uint64(0x243F6A8885A308D3)


@njit(cache=True, inline="always")
def _philox(c0, c1, c2, c3, k0, k1):  # pragma: no cover - compiled
    for r in range(10):
        if r:
            k0 = (k0 + _W0) & _U32
            k1 = (k1 + _W1) & _U32
        p0 = _M0 * c0
        p1 = _M1 * c2
        n0 = (p1 >> _S32) ^ c1 ^ k0
        n2 = (p0 >> _S32) ^ c3 ^ k1
        c0, c1, c2, c3 = n0, p1 & _U32, n2, p0 & _U32
    return c0, c1, c2, c3


@njit(cache=True)
def _draw(seed, request, position, drafts, log_reported, accept_below, scores):
    """Fill `scores` with prefix sums of log-confidence; return the accepted prefix length."""
    k0 = seed & _U32
    k1 = seed >> _S32
    low = request & _U32
    high = request >> _S32
    total = 0.0
    alive = True
    length = 0
    for block in range((drafts + 1) // 2):
        w0, w1, w2, w3 = _philox(position, low, high, np.uint64(block), k0, k1)
        for half in range(2):
            d = 2 * block + half
            if d < drafts:
                if half:
                    confidence, acceptance = w2, w3
                else:
                    confidence, acceptance = w0, w1
                q = np.int64(confidence >> np.uint64(_QUANTILE_SHIFT))
                total += log_reported[d, q]
                scores[d] = total
                if alive and acceptance < accept_below[d, q]:
                    length += 1
                else:
                    alive = False
    return length


@njit(cache=True)
def _select(scores, width, drafts, keep, rows):
    """Rows of each sequence after D-Cut keeps the `keep` best of width * (drafts - 1)."""
    prunable = width * (drafts - 1)
    drop = prunable - keep
    if drop <= keep:
        # take the worst off the tails: lowest score, on a tie the highest sequence
        for i in range(width):
            rows[i] = drafts + 1
        for _ in range(drop):
            worst = -1
            low = 0.0
            for i in range(width):
                last = rows[i] - 2
                if last >= 1 and (worst < 0 or scores[i, last] <= low):
                    low = scores[i, last]
                    worst = i
            rows[worst] -= 1
    else:
        # grow the prefixes: highest score, on a tie the lowest sequence
        for i in range(width):
            rows[i] = 2
        for _ in range(keep):
            best = -1
            high = 0.0
            for i in range(width):
                following = rows[i] - 1
                if following < drafts and (best < 0 or scores[i, following] > high):
                    high = scores[i, following]
                    best = i
            rows[best] += 1


@njit(cache=True)
def _order(slots, rows, width, canonical, order, assigned, packed):
    """Dispatch order and the rows verified at each position (the rule of `ordering.py`)."""
    for i in range(width):
        key = slots[i]
        if not canonical:
            key += np.int64(255 - rows[i]) << np.int64(40)
        j = i
        while j > 0 and packed[j - 1] > key:
            packed[j] = packed[j - 1]
            order[j] = order[j - 1]
            j -= 1
        packed[j] = key
        order[j] = i
    if canonical:
        for i in range(width):
            value = rows[i]
            j = i
            while j > 0 and assigned[j - 1] < value:
                assigned[j] = assigned[j - 1]
                j -= 1
            assigned[j] = value
    else:
        for p in range(width):
            assigned[p] = rows[order[p]]


@njit(cache=True)
def _launches(slots, order, assigned, start, stop):
    """Count launches in one GDN layer of the dispatch [start, stop)."""
    total = 0
    run = start
    while run < stop:
        end = run + 1
        consecutive = True
        while end < stop and assigned[end] == assigned[run]:
            if slots[order[end]] != slots[order[end - 1]] + 1:
                consecutive = False
            end += 1
        if end - run >= 2 and consecutive:
            total += 2
        else:
            total += 2 * assigned[run] * (end - run)
        run = end
    return total


@njit(cache=True, inline="always")
def _mix(h, word):
    h = (h ^ word) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    return h ^ (h >> _S32)


@njit(cache=True)
def _note_key(seen, h, counts):
    """Count a key the first time that it is met."""
    if counts[KEYS_OVERFLOW]:
        return
    h |= np.uint64(1)  # 0 marks an empty place
    at = np.int64(h >> np.uint64(20)) & (_SEEN_SIZE - 1)
    while seen[at] != 0:
        if seen[at] == h:
            return
        at = (at + 1) & (_SEEN_SIZE - 1)
    if counts[KEYS_SEEN] >= SEEN_LIMIT:
        counts[KEYS_OVERFLOW] = 1
        return
    seen[at] = h
    counts[KEYS_SEEN] += 1


@njit(cache=True)
def _find(heads, chain, words, lengths, hashes, h, key, length):
    """Index of the cached key, or -1: compared word by word, never by hash alone."""
    at = heads[np.int64(h & np.uint64(len(heads) - 1))]
    while at >= 0:
        if hashes[at] == h and lengths[at] == length:
            same = True
            for p in range(length):
                if words[at, p] != key[p]:
                    same = False
                    break
            if same:
                return at
        at = chain[at]
    return -1


@njit(cache=True)
def _unchain(heads, chain, hashes, victim):
    bucket = np.int64(hashes[victim] & np.uint64(len(heads) - 1))
    at = heads[bucket]
    if at == victim:
        heads[bucket] = chain[victim]
        return
    while chain[at] != victim:
        at = chain[at]
    chain[at] = chain[victim]


@njit(cache=True)
def _unlink(newer, older, ends, at):
    """Take a place out of the recency list; ends = [newest, oldest]."""
    if newer[at] >= 0:
        older[newer[at]] = older[at]
    else:
        ends[0] = older[at]
    if older[at] >= 0:
        newer[older[at]] = newer[at]
    else:
        ends[1] = newer[at]


@njit(cache=True)
def _push(newer, older, ends, at):
    newer[at] = -1
    older[at] = ends[0]
    if ends[0] >= 0:
        newer[ends[0]] = at
    else:
        ends[1] = at
    ends[0] = at


@njit(cache=True)
def _retire(width, slots, request, position, output_tokens, n0, steady, held, counts):
    """Replace or remove finished requests, compact the slots; return the new width."""
    if steady:
        for i in range(width):
            if position[i] >= output_tokens:
                counts[FINISHED] += 1
                request[i] += np.uint64(n0)
                position[i] = 0
        return width
    kept = 0
    for i in range(width):
        if position[i] >= output_tokens:
            counts[FINISHED] += 1
        else:
            slots[kept] = slots[i]
            request[kept] = request[i]
            position[kept] = position[i]
            kept += 1
    if kept == width:
        return width
    held[:] = False
    for i in range(kept):
        held[slots[i]] = True
    target = kept - 1
    for i in range(kept):
        if slots[i] >= kept:
            while held[target]:
                target -= 1
            slots[i] = target
            held[target] = True
            counts[MOVES] += 1
    return kept


@njit(cache=True, nogil=True)
def simulate(
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
    capacity,
    gdn_layers,
    other_nodes,
    log_reported,
    accept_below,
    trace_order,
    trace_depths,
    trace_outcome,
    trace_tokens,
):
    """Simulate one run; see `verifylab.experiment.run` for what the parameters mean.

    `drafts_at`, `keep_at` (drafts kept beyond the mandatory one, -1: all) and `canonical_at` are
    int64 and bool arrays of shape (n0 + 1,) by width. Trace arrays of length 0 record nothing;
    otherwise they have one row a step: order and depths (steps, n0) filled with -1 beyond the
    width, outcome (hits + 1000 * captures) and tokens (steps,).

    Returns
    -------
    counts : int64 (len(SCALARS),)
    reached, accepted : int64 (MAX_DRAFTS,)
    """
    counts = np.zeros(len(SCALARS), np.int64)
    depths = log_reported.shape[0]
    reached = np.zeros(depths, np.int64)
    accepted = np.zeros(depths, np.int64)
    slots = np.arange(n0)
    request = np.arange(n0).astype(np.uint64)
    position = np.zeros(n0, np.int64)
    scores = np.zeros((n0, depths))
    prefix = np.zeros(n0, np.int64)
    rows = np.zeros(n0, np.int64)
    order = np.zeros(n0, np.int64)
    assigned = np.zeros(n0, np.int64)
    packed = np.zeros(n0, np.int64)
    held = np.zeros(n0, np.bool_)
    key = np.zeros(max_width, np.int64)

    seen = np.zeros(_SEEN_SIZE, np.uint64)
    buckets = 1
    while buckets < 2 * capacity:
        buckets *= 2
    heads = np.full(buckets, -1, np.int64)
    chain = np.full(capacity, -1, np.int64)
    hashes = np.zeros(capacity, np.uint64)
    words = np.zeros((capacity, min(max_width, n0)), np.int64)
    lengths = np.zeros(capacity, np.int64)
    graph_nodes = np.zeros(capacity, np.int64)
    newer = np.full(capacity, -1, np.int64)
    older = np.full(capacity, -1, np.int64)
    ends = np.full(2, -1, np.int64)
    live = 0

    width = n0
    for step in range(steps + warmup):
        if width == 0:
            break
        if step == warmup and warmup > 0:
            keys, overflow = counts[KEYS_SEEN], counts[KEYS_OVERFLOW]
            counts[:] = 0
            counts[KEYS_SEEN], counts[KEYS_OVERFLOW] = keys, overflow
            reached[:] = 0
            accepted[:] = 0
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
        if keep_at[width] >= 0:
            _select(scores, width, drafts, keep_at[width], rows)
        else:
            for i in range(width):
                rows[i] = drafts + 1
        _order(slots, rows, width, canonical_at[width], order, assigned, packed)

        captured = 0
        replayed = 0
        start = 0
        while start < width:
            cap = min(max_width, max(1, row_budget // assigned[start]))
            stop = min(width, start + cap)
            length = stop - start
            h = _mix(_HASH_START, np.uint64(length))
            for p in range(length):
                word = (slots[order[start + p]] << 8) | assigned[start + p]
                key[p] = word
                h = _mix(h, np.uint64(word))
            _note_key(seen, h, counts)
            at = _find(heads, chain, words, lengths, hashes, h, key, length)
            if at >= 0:
                replayed += 1
                if ends[0] != at:
                    _unlink(newer, older, ends, at)
                    _push(newer, older, ends, at)
                launches = (graph_nodes[at] - other_nodes) // gdn_layers
            else:
                launches = _launches(slots, order, assigned, start, stop)
                captured += 1
                if live < capacity:
                    at = live
                    live += 1
                else:
                    at = ends[1]
                    _unlink(newer, older, ends, at)
                    _unchain(heads, chain, hashes, at)
                    counts[EVICTIONS] += 1
                    counts[NODES_EVICTED] += graph_nodes[at]
                graph_nodes[at] = gdn_layers * launches + other_nodes
                counts[NODES_CAPTURED] += graph_nodes[at]
                hashes[at] = h
                lengths[at] = length
                for p in range(length):
                    words[at, p] = key[p]
                bucket = np.int64(h & np.uint64(buckets - 1))
                chain[at] = heads[bucket]
                heads[bucket] = at
                _push(newer, older, ends, at)
            counts[DISPATCHES] += 1
            counts[LAYER_LAUNCHES] += launches
            counts[NODES_LAUNCHED] += graph_nodes[at]
            start = stop
        counts[HITS] += replayed
        counts[CAPTURES] += captured
        counts[CAPTURE_STEPS] += captured > 0
        counts[STEPS] += 1
        counts[SEQUENCES] += width

        emitted = 0
        for p in range(width):
            i = order[p]
            verified = assigned[p] - 1
            counts[ROWS] += assigned[p]
            good = min(prefix[i], verified)
            for d in range(good):
                reached[d] += 1
                accepted[d] += 1
            if good < verified:
                reached[good] += 1
            new = min(good + 1, output_tokens - position[i])
            position[i] += new
            emitted += new
        counts[TOKENS] += emitted
        if len(trace_tokens):
            trace_tokens[step] = emitted
            trace_outcome[step] = replayed + 1000 * captured
            for p in range(width):
                trace_order[step, p] = order[p]
                trace_depths[step, p] = assigned[p]
        width = _retire(width, slots, request, position, output_tokens, n0, steady, held, counts)
    return counts, reached, accepted
