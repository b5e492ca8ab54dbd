"""Slots under churn in plain Python, on `SlotPool` itself: the oracle of the compiled loop."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifylab._fast_churn import COUNTED
from verifylab.churn import Churn
from verifylab.dcut import ROW_BUDGET, select
from verifylab.draws import request_words
from verifylab.launches import depth_runs
from verifylab.ordering import verify_batch_order
from verifylab.slots import SlotPool
from verifylab.workload import Tables

__all__ = ["play"]


def play(
    config: Churn,
    arrivals: NDArray[np.int64],
    lengths: NDArray[np.int64],
    drafts_at: NDArray[np.int64],
    keep_at: NDArray[np.int64],
    tables: Tables,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], int]:
    """Return what `verifylab._fast_churn.churn` returns."""
    pool = SlotPool(config.slots, config.pool, config.compaction)
    counts: list[dict[str, int]] = [dict.fromkeys(COUNTED, 0) for _ in range(config.windows)]
    words: dict[bool, list[list[int]]] = {False: [], True: []}
    queue: list[int] = []
    prefilling: list[tuple[int, int]] = []  # (request, step that it is ready at)
    batch: list[int] = []
    position: dict[int, int] = {}
    arrived = finished = ready = 0
    round_number = -1
    for step in range(config.steps):
        if config.mode == "open":
            new = int(arrivals[step])
        elif config.mode == "closed":
            new = finished + config.clients - arrived
        else:
            new = 0
            if arrived == finished:
                round_number += 1
                new = config.clients
        if round_number == config.windows:
            break
        window = round_number if config.mode == "rounds" else step * config.windows // config.steps
        c = counts[window]
        queue += range(arrived, arrived + new)
        arrived += new
        while queue and pool.acquire(queue[0]) is not None:
            ready = (max(ready, step) if config.serial_prefill else step) + config.prefill_steps
            prefilling.append((queue.pop(0), ready))
        joining = [r for r, at in prefilling if at <= step]
        prefilling = prefilling[len(joining) :]
        batch += joining
        position.update(dict.fromkeys(joining, 0))
        c["waiting"] += len(queue)
        c["in_prefill"] += len(prefilling)
        if not batch:
            continue

        rows, prefix = _plan(config, batch, position, drafts_at, keep_at, tables)
        slots = np.array([pool.held[r] for r in batch])
        by_slot, canonical = verify_batch_order(slots, rows, True)
        by_depth, own = verify_batch_order(slots, rows, False)
        for name, held, depths in (
            ("arrival", slots, rows),
            ("slot", slots[by_slot], canonical),
            ("depth", slots[by_depth], own),
        ):
            runs = depth_runs(held, depths)
            pairs = [run for run in runs if run.length >= 2]
            c[f"{name}_runs"] += len(pairs)
            c[f"{name}_fast_runs"] += sum(run.fast for run in pairs)
            c[f"{name}_declined_steps"] += not all(run.fast for run in pairs)
            c[f"{name}_launches"] += sum(run.launches for run in runs)
        for kind, order, depths in ((True, by_slot, canonical), (False, by_depth, own)):
            words[kind].append((slots[order] << 8 | depths).tolist())
        c["steps"] += 1
        c["sequences"] += len(batch)
        if len(batch) >= 2:
            c["pair_steps"] += 1
            c["contiguous_steps"] += int(slots.max() - slots.min() == len(batch) - 1)

        survivors = []
        for i, r in enumerate(batch):
            asked = int(lengths[r % len(lengths)])
            emitted = min(min(int(prefix[i]), int(rows[i]) - 1) + 1, asked - position[r])
            c["tokens"] += emitted
            c["rows"] += int(rows[i])
            position[r] += emitted
            if position[r] < asked:
                survivors.append(r)
            else:
                pool.release(r)
                del position[r]
                c["finished"] += 1
                finished += 1
        if len(survivors) < len(batch):
            c["moves"] += len(pool.compact(survivors, len(survivors)))
        batch = survivors
    tables_of_words = {kind: _padded(rows, config.slots) for kind, rows in words.items()}
    table = np.array([[c[name] for name in COUNTED] for c in counts], np.int64)
    return table, tables_of_words[False], tables_of_words[True], len(words[True])


def _plan(
    config: Churn,
    batch: list[int],
    position: dict[int, int],
    drafts_at: NDArray[np.int64],
    keep_at: NDArray[np.int64],
    tables: Tables,
) -> tuple[NDArray[np.int64], Any]:
    """Rows that each sequence earned, and how many of its drafts would be accepted."""
    drafts = int(drafts_at[len(batch)])
    texts = np.zeros(len(batch), np.uint64) if config.same_text else np.array(batch, np.uint64)
    draws = request_words(config.seed, texts, np.array([position[r] for r in batch]), drafts)
    bins = (draws[..., 0] >> np.uint64(20)).astype(np.int64)
    depth = np.arange(drafts)
    prefix = np.cumprod(draws[..., 1] < tables.accept_below[depth, bins], axis=1).sum(axis=1)
    if keep_at[len(batch)] < 0:
        return np.full(len(batch), drafts + 1), prefix
    retained = select(tables.log_reported[depth, bins], drafts, config.ratio, ROW_BUDGET)
    return np.asarray(retained) + 1, prefix


def _padded(rows: list[list[int]], width: int) -> NDArray[np.int32]:
    out = np.full((len(rows), width), -1, np.int32)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
