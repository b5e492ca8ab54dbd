"""Slots under churn as one compiled loop; `verifylab._readable_churn` says the same readably."""

from __future__ import annotations

import numpy as np

from verifylab._jit import jit
from verifylab.fastpath import _draw, _order, _select

__all__ = ["COUNTED", "churn"]

OPEN, CLOSED, ROUNDS = range(3)

#: Columns of the table of counts, one row a window. A *pair step* has two or more sequences.
COUNTED = (
    "steps",
    "pair_steps",
    "sequences",
    "tokens",
    "rows",
    "contiguous_steps",
    "waiting",
    "in_prefill",
    "moves",
    "finished",
    "arrival_runs",
    "arrival_fast_runs",
    "arrival_declined_steps",
    "arrival_launches",
    "slot_runs",
    "slot_fast_runs",
    "slot_declined_steps",
    "slot_launches",
    "depth_runs",
    "depth_fast_runs",
    "depth_declined_steps",
    "depth_launches",
)
(
    STEPS, PAIR_STEPS, SEQUENCES, TOKENS, ROWS, CONTIGUOUS, WAITING, IN_PREFILL, MOVES, FINISHED,
) = range(10)  # fmt: skip
ARRIVAL, SLOT, DEPTH = 10, 14, 18
RUNS, FAST_RUNS, DECLINED_STEPS, LAUNCHES = range(4)


@jit
def _count_runs(slots, order, assigned, width, counts, first):
    """Add the depth runs of two or more sequences, and the launches in a layer, of one order."""
    declined = False
    start = 0
    while start < width:
        stop = start + 1
        fast = True
        while stop < width and assigned[stop] == assigned[start]:
            if slots[order[stop]] != slots[order[stop - 1]] + 1:
                fast = False
            stop += 1
        if stop - start >= 2:
            counts[first + RUNS] += 1
            if fast:
                counts[first + FAST_RUNS] += 1
                counts[first + LAUNCHES] += 2
            else:
                declined = True
        if stop - start < 2 or not fast:
            counts[first + LAUNCHES] += 2 * assigned[start] * (stop - start)
        start = stop
    if declined:
        counts[first + DECLINED_STEPS] += 1


@jit
def _take(free, count, slot):
    """Take one slot off the free list, its order kept; return how many are left."""
    at = 0
    while free[at] != slot:
        at += 1
    for i in range(at, count - 1):
        free[i] = free[i + 1]
    return count - 1


@jit
def _compact(slots, kept, free, count):
    """Move survivors with a slot beyond their number to the highest free one below; count moves."""
    moves = 0
    below = kept  # targets are those free when it began, highest first
    for i in range(kept):
        if slots[i] < kept:
            continue
        target = -1
        for j in range(count):
            if free[j] < below and free[j] > target:
                target = free[j]
        if target < 0:
            break
        count = _take(free, count, target)
        free[count] = slots[i]
        count += 1
        slots[i] = target
        below = target
        moves += 1
    return moves


@jit(nogil=True)
def churn(
    seed,
    pool,
    mode,
    clients,
    arrivals,
    lengths,
    steps,
    windows,
    prefill_steps,
    serial_prefill,
    same_text,
    lowest,
    compaction,
    drafts_at,
    keep_at,
    log_reported,
    accept_below,
):
    """Run requests through the slot pool; parameters as `verifylab.churn.Churn`.

    Returns
    -------
    counts : int64 (windows, len(COUNTED))
    arrangement, canonical : int32 (steps, pool)
        ``slot << 8 | rows`` of each step with a batch, in dispatch order; -1 beyond its width.
    played : int
        Rows of those that are filled.
    """
    counts = np.zeros((windows, len(COUNTED)), np.int64)
    arrangement = np.full((steps, pool), -1, np.int32)
    canonical = np.full((steps, pool), -1, np.int32)
    free = np.arange(pool - 1, -1, -1)
    free_count = pool
    waiting_slots = np.zeros(pool, np.int64)  # in prefill: slot, request, step it is ready at
    waiting_request = np.zeros(pool, np.int64)
    waiting_ready = np.zeros(pool, np.int64)
    in_prefill = 0
    slots = np.zeros(pool, np.int64)
    request = np.zeros(pool, np.int64)
    position = np.zeros(pool, np.int64)
    width = 0
    arrived = 0
    admitted = 0
    finished = 0
    ready = 0
    round_number = -1
    played = 0

    scores = np.zeros((pool, log_reported.shape[0]))
    prefix = np.zeros(pool, np.int64)
    rows = np.zeros(pool, np.int64)
    order = np.zeros(pool, np.int64)
    assigned = np.zeros(pool, np.int64)
    packed = np.zeros(pool, np.int64)
    as_they_are = np.arange(pool)

    for step in range(steps):
        if mode == OPEN:
            arrived += arrivals[step]
        elif mode == CLOSED:
            arrived = finished + clients
        elif arrived == finished:
            round_number += 1
            if round_number == windows:
                break
            arrived += clients
        window = round_number if mode == ROUNDS else step * windows // steps
        c = counts[window]
        while admitted < arrived and free_count > 0:
            slot = free[free_count - 1]
            if lowest:
                slot = free[:free_count].min()
            free_count = _take(free, free_count, slot)
            ready = (max(ready, step) if serial_prefill else step) + prefill_steps
            waiting_slots[in_prefill] = slot
            waiting_request[in_prefill] = admitted
            waiting_ready[in_prefill] = ready
            in_prefill += 1
            admitted += 1
        joined = 0
        while joined < in_prefill and waiting_ready[joined] <= step:
            slots[width] = waiting_slots[joined]
            request[width] = waiting_request[joined]
            position[width] = 0
            width += 1
            joined += 1
        for i in range(joined, in_prefill):
            waiting_slots[i - joined] = waiting_slots[i]
            waiting_request[i - joined] = waiting_request[i]
            waiting_ready[i - joined] = waiting_ready[i]
        in_prefill -= joined
        c[WAITING] += arrived - admitted
        c[IN_PREFILL] += in_prefill
        if width == 0:
            continue

        drafts = drafts_at[width]
        for i in range(width):
            text = np.uint64(0 if same_text else request[i])
            at = np.uint64(position[i])
            prefix[i] = _draw(seed, text, at, drafts, log_reported, accept_below, scores[i])
        _select(scores, width, drafts, keep_at[width], rows)
        _count_runs(slots, as_they_are, rows, width, c, ARRIVAL)
        _order(slots, rows, width, True, order, assigned, packed)
        _count_runs(slots, order, assigned, width, c, SLOT)
        for p in range(width):
            canonical[played, p] = (slots[order[p]] << 8) | assigned[p]
        if width >= 2:
            c[PAIR_STEPS] += 1
            if slots[order[width - 1]] - slots[order[0]] == width - 1:
                c[CONTIGUOUS] += 1
        _order(slots, rows, width, False, order, assigned, packed)
        _count_runs(slots, order, assigned, width, c, DEPTH)
        for p in range(width):
            arrangement[played, p] = (slots[order[p]] << 8) | assigned[p]
        played += 1
        c[STEPS] += 1
        c[SEQUENCES] += width

        kept = 0
        for i in range(width):
            asked = lengths[request[i] % len(lengths)]
            # Everyone keeps the depth it earned, so that all orders see the same requests.
            new = min(min(prefix[i], rows[i] - 1) + 1, asked - position[i])
            c[TOKENS] += new
            c[ROWS] += rows[i]
            position[i] += new
            if position[i] >= asked:
                free[free_count] = slots[i]
                free_count += 1
                finished += 1
                c[FINISHED] += 1
            else:
                slots[kept] = slots[i]
                request[kept] = request[i]
                position[kept] = position[i]
                kept += 1
        if kept < width and compaction:
            c[MOVES] += _compact(slots, kept, free, free_count)
        width = kept
    return counts, arrangement, canonical, played
