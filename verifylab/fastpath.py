"""The simulated verify step as one compiled loop: draws, D-Cut, order, key, LRU, acceptance.

`verifylab.experiment` holds the same step in readable form; a test keeps the two equal step by
step. Nothing here grows with the number of steps. Integer counts come out, never times.
"""

from __future__ import annotations

import time
from concurrent.futures import CancelledError
from threading import Event
from typing import Any

import numpy as np

from verifylab._fast_drafts import draw_trace
from verifylab._fast_philox import philox as _philox
from verifylab._jit import jit
from verifylab.counters import SCALARS
from verifylab.policy import INDIRECT_NODES, Baked, Launches, Rows

__all__ = ["SEEN_LIMIT", "simulate"]

#: Different keys counted exactly; beyond it `keys_seen` is a lower bound and says so.
SEEN_LIMIT = 1 << 16
_SEEN_SIZE = 1 << 17
_QUANTILE_SHIFT = 20  # 32-bit word -> one of 4096 bins

(
    STEPS, CAPTURE_STEPS, DISPATCHES, TOKENS, SEQUENCES, ROWS, HITS, CAPTURES, EVICTIONS, EAGER,
    UPDATES, BORROWED, GRAPH_LAUNCHES, FILLER_ROWS, GHOSTS, LAYER_LAUNCHES, NODES_LAUNCHED,
    NODES_CAPTURED, NODES_EVICTED, NODES_EAGER, NODES_UPDATED, KEYS_SEEN, KEYS_OVERFLOW, MOVES,
    FINISHED,
) = range(len(SCALARS))  # fmt: skip

# the enumerations of `policy`, as plain numbers for the compiler
_PAIRS, _RUNS, _UNIFORM, _TIER, _PADDED = (
    int(b) for b in (Baked.PAIRS, Baked.RUNS, Baked.UNIFORM, Baked.TIER, Baked.PADDED)
)
_DIRECT, _INDIRECT = int(Launches.DIRECT), int(Launches.INDIRECT)
_DEEPEST, _FILL = int(Rows.DEEPEST), int(Rows.TIER)

_UPDATING = 4  # place in `rules`

_U32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
#: Digits of pi. From a small start a small word could bring the hash to 0, where lengths collide.
_HASH_START = np.uint64(0x243F6A8885A308D3)


@jit
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


@jit
def _select(scores, width, drafts, keep, rows):
    """Rows of each sequence after D-Cut keeps the `keep` best of width * (drafts - 1).

    A negative `keep` keeps all: D-Cut does not apply.
    """
    if keep < 0:
        for i in range(width):
            rows[i] = drafts + 1
        return
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


@jit
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


@jit
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


@jit(inline="always")
def _mix(h, word):
    h = (h ^ word) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    return h ^ (h >> _S32)


@jit
def _note_key(seen, sightings, h, counts):
    """Count a sighting of a key and return how many there were, this one included."""
    h |= np.uint64(1)  # 0 marks an empty place
    at = np.int64(h >> np.uint64(20)) & (_SEEN_SIZE - 1)
    while seen[at] != 0:
        if seen[at] == h:
            sightings[at] += 1
            return sightings[at]
        at = (at + 1) & (_SEEN_SIZE - 1)
    if counts[KEYS_SEEN] >= SEEN_LIMIT:
        counts[KEYS_OVERFLOW] = 1
        return 1
    seen[at] = h
    sightings[at] = 1
    counts[KEYS_SEEN] += 1
    return 1


@jit
def _tier(rows, drafts, piecewise):
    """Return `policy.token_tier`."""
    span = drafts + 1
    if piecewise:
        size = 1
        while size < rows and size < 4:
            size *= 2
        if size < rows:
            size = -(-rows // 8) * 8
        return -(-size // span) * span
    sequences = -(-rows // span)
    step = 1 if sequences <= 8 else (2 if sequences <= 32 else 4)
    return -(-sequences // step) * step * span


@jit
def _write_signature(slots, order, assigned, start, stop, out):
    """Write the node structure of a direct dispatch to `out`; return its length."""
    n = 0
    run = start
    while run < stop:
        end = run + 1
        fast = True
        while end < stop and assigned[end] == assigned[run]:
            if slots[order[end]] != slots[order[end - 1]] + 1:
                fast = False
            end += 1
        fast = fast and end - run >= 2
        out[n] = (assigned[run] << 32) | ((end - run) << 1) | np.int64(fast)
        n += 1
        run = end
    return n


@jit
def _borrow(words, lengths, older, ends, key, length, slots, width):
    """Return the wider cached graph with the fewest further rows that may serve `key`, or -1.

    Its pairs begin with the key's, its further slots are free, its width is at most twice the
    next power of two; of equals the one used last.
    """
    bound = 1
    while bound < length:
        bound *= 2
    bound *= 2
    best = -1
    fewest = 0
    at = ends[0]
    while at >= 0:
        if length < lengths[at] <= bound:
            fits = True
            for p in range(length):
                if words[at, p] != key[p]:
                    fits = False
                    break
            extra = 0
            if fits:
                for p in range(length, lengths[at]):
                    slot = words[at, p] >> 8
                    extra += words[at, p] & 255
                    for i in range(width):
                        if slots[i] == slot:
                            fits = False
            if fits and (best < 0 or extra < fewest):
                best = at
                fewest = extra
        at = older[at]
    return best


@jit
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


@jit
def _unchain(heads, chain, hashes, victim):
    bucket = np.int64(hashes[victim] & np.uint64(len(heads) - 1))
    at = heads[bucket]
    if at == victim:
        heads[bucket] = chain[victim]
        return
    while chain[at] != victim:
        at = chain[at]
    chain[at] = chain[victim]


@jit
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


@jit
def _push(newer, older, ends, at):
    newer[at] = -1
    older[at] = ends[0]
    if ends[0] >= 0:
        newer[ends[0]] = at
    else:
        ends[1] = at
    ends[0] = at


@jit
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


@jit(nogil=True)
def _advance(
    run,
    rates,
    rules,
    batch,
    known,
    cache,
    trace,
    recorded,
    counts,
    reached,
    accepted,
    progress,
    until,
):
    """Run the steps up to `until`; `progress` holds the next step, the width and the live graphs.

    What goes in together comes as one tuple: see `simulate` for what each holds.
    """
    seed, n0, warmup, steady, output_tokens, row_budget, max_width, gdn_layers, other_nodes = run
    drafts_at, keep_at, canonical_at, log_reported, accept_below = rates
    slots, request, position = batch
    seen, sightings = known
    heads, chain, hashes, words, lengths, graph_nodes, newer, older, ends, current = cache
    trace_order, trace_depths, trace_outcome, trace_tokens = trace
    trace_logs, trace_accepted, trace_sequence, trace_offsets, trace_stretch = recorded
    baked, launching, row_rule, sighting, updating, borrowing, piecewise = rules
    indirect_nodes = INDIRECT_NODES if baked in (_RUNS, _UNIFORM, _TIER) else 0
    pieces = gdn_layers + 1 if piecewise else 1
    buckets = len(heads)
    capacity = len(chain)
    # What no step hands to the next is made here: the compiler then knows that nothing overlaps.
    scores = np.zeros((n0, log_reported.shape[0]))
    prefix = np.zeros(n0, np.int64)
    rows = np.zeros(n0, np.int64)
    order = np.zeros(n0, np.int64)
    assigned = np.zeros(n0, np.int64)
    packed = np.zeros(n0, np.int64)
    held = np.zeros(n0, np.bool_)
    key = np.zeros(max_width, np.int64)
    own = np.zeros(max_width, np.int64)

    first, width, live = progress
    step = first
    while step < until and width > 0:
        if step == warmup and warmup > 0:
            keys, overflow = counts[KEYS_SEEN], counts[KEYS_OVERFLOW]
            counts[:] = 0
            counts[KEYS_SEEN], counts[KEYS_OVERFLOW] = keys, overflow
            reached[:] = 0
            accepted[:] = 0
        drafts = drafts_at[width]
        for i in range(width):
            if len(trace_accepted):
                prefix[i] = draw_trace(
                    seed,
                    request[i],
                    np.uint64(position[i]),
                    drafts,
                    trace_logs,
                    trace_accepted,
                    trace_sequence,
                    trace_offsets,
                    trace_stretch,
                    scores[i],
                )
            else:
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

        if row_rule == _DEEPEST:
            for i in range(width):
                rows[i] = assigned[0]
            _order(slots, rows, width, False, order, assigned, packed)

        captured = 0
        replayed = 0
        eager = 0
        updated = 0
        borrowed = 0
        start = 0
        while start < width:
            cap = min(max_width, max(1, row_budget // assigned[start]))
            stop = min(width, start + cap)
            length = stop - start
            verified = 0
            runs = 0
            for p in range(start, stop):
                verified += assigned[p]
                runs += p == start or assigned[p] != assigned[p - 1]
            computed = _tier(verified, drafts, piecewise) if row_rule == _FILL else verified
            if launching == _DIRECT:
                launches = _launches(slots, order, assigned, start, stop)
            elif launching == _INDIRECT:
                launches = 2 * runs
            else:
                launches = 2
            nodes = other_nodes + indirect_nodes
            loose = gdn_layers * launches
            if not piecewise:
                nodes += loose
                loose = 0
            # what the key holds
            if baked == _PAIRS or baked == _PADDED:
                size = length
                for p in range(length):
                    key[p] = (slots[order[start + p]] << 8) | assigned[start + p]
            elif baked == _RUNS:
                size = length
                for p in range(length):
                    key[p] = assigned[start + p]
            elif baked == _UNIFORM:
                size = min(2, max_width)
                key[0] = (length << 8) | assigned[start]
                if size == 2:
                    key[1] = 0
            else:
                size = 1
                key[0] = computed
            h = _mix(_HASH_START, np.uint64(size))
            for p in range(size):
                h = _mix(h, np.uint64(key[p]))
            times_seen = 0
            if sighting > 0:
                times_seen = _note_key(seen, sightings, h, counts)
            at = -1
            stale = False
            if updating:
                for p in range(size):
                    own[p] = key[p]
                size = _write_signature(slots, order, assigned, start, stop, key)
                h = _mix(_HASH_START, np.uint64(size))
                for p in range(size):
                    h = _mix(h, np.uint64(key[p]))
            if sighting > 0:
                at = _find(heads, chain, words, lengths, hashes, h, key, size)
            if updating and at >= 0:
                for p in range(length):
                    if current[at, p] != own[p]:
                        stale = True
            filler = computed - verified
            if at >= 0:
                if ends[0] != at:
                    _unlink(newer, older, ends, at)
                    _push(newer, older, ends, at)
                if stale:
                    updated += 1
                    counts[NODES_UPDATED] += graph_nodes[at]
                    for p in range(length):
                        current[at, p] = own[p]
                else:
                    replayed += 1
            elif sighting == 0 or times_seen < sighting:
                eager += 1
                counts[NODES_EAGER] += nodes + loose
            else:
                if borrowing:
                    at = _borrow(words, lengths, older, ends, key, size, slots, width)
                if at >= 0:
                    borrowed += 1
                    counts[GHOSTS] += lengths[at] - length
                    for p in range(length, lengths[at]):
                        filler += words[at, p] & 255
                    if ends[0] != at:
                        _unlink(newer, older, ends, at)
                        _push(newer, older, ends, at)
                else:
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
                    graph_nodes[at] = nodes
                    counts[NODES_CAPTURED] += nodes
                    hashes[at] = h
                    lengths[at] = size
                    for p in range(size):
                        words[at, p] = key[p]
                    if updating:
                        for p in range(length):
                            current[at, p] = own[p]
                    bucket = np.int64(h & np.uint64(buckets - 1))
                    chain[at] = heads[bucket]
                    heads[bucket] = at
                    _push(newer, older, ends, at)
            counts[DISPATCHES] += 1
            counts[LAYER_LAUNCHES] += launches
            counts[ROWS] += verified + filler
            counts[FILLER_ROWS] += filler
            if at >= 0:
                counts[NODES_LAUNCHED] += graph_nodes[at]
                counts[NODES_EAGER] += loose
                counts[GRAPH_LAUNCHES] += pieces
            start = stop
        counts[HITS] += replayed
        counts[CAPTURES] += captured
        counts[EAGER] += eager
        counts[UPDATES] += updated
        counts[BORROWED] += borrowed
        counts[CAPTURE_STEPS] += captured > 0
        counts[STEPS] += 1
        counts[SEQUENCES] += width

        emitted = 0
        for p in range(width):
            i = order[p]
            verified = assigned[p] - 1
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
            trace_outcome[step] = (
                replayed + 1000 * captured + 10**6 * eager + 10**9 * updated + 10**12 * borrowed
            )
            for p in range(width):
                trace_order[step, p] = order[p]
                trace_depths[step, p] = assigned[p]
        width = _retire(width, slots, request, position, output_tokens, n0, steady, held, counts)
        step += 1
    progress[0], progress[1], progress[2] = step, width, live


#: Seconds that a slice of a run takes: an interrupt has effect after the slice that it came in.
_SLICE_S = 0.2


def simulate(
    seed: np.uint64,
    n0: int,
    steps: int,
    warmup: int,
    steady: bool,
    output_tokens: int,
    drafts_at: np.ndarray,
    keep_at: np.ndarray,
    canonical_at: np.ndarray,
    row_budget: int,
    max_width: int,
    capacity: int,
    gdn_layers: int,
    other_nodes: int,
    rules: np.ndarray,
    log_reported: np.ndarray,
    accept_below: np.ndarray,
    recorded: tuple[Any, ...],
    trace: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None = None,
    halt: Event | None = None,
    slice_steps: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate one run; see `verifylab.experiment.run` for what the parameters mean.

    Parameters
    ----------
    drafts_at, keep_at, canonical_at : ndarray of int64, int64 and bool, shape (n0 + 1,)
        By width; `keep_at` is the drafts kept beyond the mandatory one, -1: all.
    rules : ndarray of int64
        The policy: baked, launches, rows, sightings, update, borrow, piecewise.
    log_reported, accept_below : ndarray
        Tables of the draws (`workload.Tables`); used where `recorded` is empty.
    recorded : tuple
        Drafts of a trace, `TraceWorkload.arrays`; of length 0 without one.
    trace : tuple of ndarray of int64, optional
        Filled with what each step did: order and depths (steps, n0), -1 beyond the width; outcome
        (hits + 1000 captures + 10**6 eager + 10**9 updates + 10**12 borrowed) and tokens (steps,).
    halt : Event, optional
        Another thread sets it to end the run.
    slice_steps : int, optional
        Steps between two looks at `halt` and at Ctrl-C, which the compiled loop cannot see;
        default: about `_SLICE_S` seconds. The counts do not depend on it.

    Returns
    -------
    counts : ndarray of int64, shape (len(SCALARS),)
    reached, accepted : ndarray of int64, shape (MAX_DRAFTS,)

    Raises
    ------
    concurrent.futures.CancelledError
        When `halt` was set.
    """
    none2, none1 = np.zeros((0, 0), np.int64), np.zeros(0, np.int64)
    counts = np.zeros(len(SCALARS), np.int64)
    depths = log_reported.shape[0]
    reached, accepted = np.zeros(depths, np.int64), np.zeros(depths, np.int64)
    run = (
        seed, n0, warmup, steady, output_tokens, row_budget, max_width, gdn_layers, other_nodes,
    )  # fmt: skip
    rates = (drafts_at, keep_at, canonical_at, log_reported, accept_below)
    batch = (
        np.arange(n0, dtype=np.int64), np.arange(n0, dtype=np.uint64), np.zeros(n0, np.int64),
    )  # fmt: skip
    known = (np.zeros(_SEEN_SIZE, np.uint64), np.zeros(_SEEN_SIZE, np.int32))
    buckets = 1 << (2 * capacity - 1).bit_length()
    cache = (
        np.full(buckets, -1, np.int64), np.full(capacity, -1, np.int64),
        np.zeros(capacity, np.uint64), np.zeros((capacity, max(2, min(max_width, n0))), np.int64),
        np.zeros(capacity, np.int64), np.zeros(capacity, np.int64),
        np.full(capacity, -1, np.int64), np.full(capacity, -1, np.int64),
        np.full(2, -1, np.int64),
        np.zeros((capacity if rules[_UPDATING] else 1, max_width), np.int64),
    )  # fmt: skip
    traced = (none2, none2, none1, none1) if trace is None else trace

    total = steps + warmup
    progress = np.array([0, n0, 0], np.int64)
    each = slice_steps or max(64, (1 << 15) // n0)
    while progress[0] < total and progress[1] > 0:
        if halt is not None and halt.is_set():
            raise CancelledError("the run was ended before its last step")
        began = time.perf_counter()
        until = min(total, int(progress[0]) + each)
        _advance(
            run, rates, rules, batch, known, cache, traced, recorded, counts, reached, accepted,
            progress, until,
        )  # fmt: skip
        if slice_steps is None:
            taken = max(time.perf_counter() - began, 1e-6)
            each = max(1, int(each * min(2.0, _SLICE_S / taken)))
    return counts, reached, accepted
