"""The rule of `verifylab.ordering` and the words of `verifylab.key`, compiled for many batches.

Importing this imports numba, so `verifylab.ordering.compiled_rule` does it only when it pays.
Three ideas make it fast. A sequence packs into one integer whose order is the rule's order, so a
sort moves nothing else and everything is unpacked from it. A sorting network compares the same
positions whatever the data, so it runs on `LANES` batches at once, in vector registers. Threads
share out the batches; the compiled function holds no lock and starts no thread pool of numba's,
whose default one ends the process when two Python threads enter it.
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import numpy.typing as npt

from verifylab._jit import jit
from verifylab.ordering import NO_SLOT

__all__ = ["MAX_DEPTH", "MAX_WIDTH", "order_batches"]

# A packed sequence, high bits to low: MAX_DEPTH - depth (only if not canonical), slot, index.
_INDEX_BITS = 7
_SLOT_BITS = 33  # a slot of 32 bits, as a key holds, and one value above them for NO_SLOT
_DEPTH_SHIFT = _INDEX_BITS + _SLOT_BITS
_INDEX_MASK = (1 << _INDEX_BITS) - 1
_PACKED_NO_SLOT = 1 << 32

#: Widest batch and deepest depth that pack; `order_batches` declines the rest.
MAX_WIDTH = 1 << _INDEX_BITS
MAX_DEPTH = int(np.iinfo(np.int16).max)

#: Batches sorted at once: 32 int64 are four 512-bit registers or eight of 256. 16 took up to three
#: times as long at width 32; 64 were no faster, and outgrow the first-level cache sooner.
LANES = 32

# Elements that each thread must get: starting two took 0.2 ms, as long as one needs for 2**16 to
# 2**17 elements, and paid off from about 2**20 (measured on two cores). Past a few threads the
# memory is the limit.
_ELEMENTS_PER_THREAD = 1 << 19
_MAX_THREADS = 8

Int64Array = npt.NDArray[np.int64]
Batches = tuple[Int64Array, Int64Array, npt.NDArray[np.uint32]]


def order_batches(
    slots: Int64Array, depths: Int64Array, canonical: bool, sentinel: int | None = None
) -> Batches | None:
    """Order, assign and, if a sentinel is given, spell the keys of many batches.

    Parameters
    ----------
    slots, depths : (..., n) array of int64
        As from `verifylab.ordering.as_batches`; the values need not be checked yet.
    canonical : bool
        Which arm.
    sentinel : int, optional
        Last word of every key. Without it the words come back empty.

    Returns
    -------
    order, assigned : (..., n) array of int64
    words : (..., 2 n + 1) array of uint32
    or None
        When something does not pack: n above `MAX_WIDTH`, a depth outside 1 to `MAX_DEPTH`, a slot
        that is neither 32 bits nor `NO_SLOT`, or a `NO_SLOT` where keys are asked for. The caller
        then takes the general way, which has the error messages.
    """
    *lead, n = slots.shape
    if not 1 <= n <= MAX_WIDTH:
        return None
    flat_slots = np.require(slots, np.int64, ["C", "A"]).reshape(-1, n)
    flat_depths = np.require(depths, np.int64, ["C", "A"]).reshape(-1, n)
    batches = len(flat_slots)
    order = np.empty((batches, n), np.int64)
    assigned = np.empty((batches, n), np.int64)
    words = np.empty((batches if sentinel is not None else 0, 2 * n + 1), np.uint32)

    def run(start: int, stop: int) -> bool:
        return _order_rows(
            flat_slots, flat_depths, canonical, _network(n), np.uint32(sentinel or 0),
            order, assigned, words, start, stop,
        )  # fmt: skip

    threads = max(1, min(_cpus(), _MAX_THREADS, flat_slots.size // _ELEMENTS_PER_THREAD))
    cuts = [batches * i // threads for i in range(threads + 1)]
    if threads == 1:
        packed = run(0, batches)
    else:
        # A pool for each call: nothing is left behind for a fork to inherit.
        with ThreadPoolExecutor(threads) as pool:
            packed = all(list(pool.map(run, cuts[:-1], cuts[1:])))
    if not packed:
        return None
    words = words.reshape(*lead, 0 if sentinel is None else 2 * n + 1)
    return order.reshape(slots.shape), assigned.reshape(slots.shape), words


@functools.cache
def _cpus() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _network(n: int) -> Int64Array:
    """Give the comparators that sort n values: Batcher's merge exchange, as Knuth's 5.2.2M.

    Each row holds two positions, the lower first; it works for every n, not only powers of two.
    """
    comparators = []
    top = 1 << max(0, (n - 1).bit_length() - 1)
    p = top if n > 1 else 0
    while p:
        q, r, distance = top, 0, p
        while True:
            comparators += [(i, i + distance) for i in range(n - distance) if i & p == r]
            if q == p:
                break
            distance, q, r = q - p, q >> 1, p
        p >>= 1
    return np.array(comparators, dtype=np.int64).reshape(-1, 2)


_in = numba.types.Array(numba.int64, 2, "C", readonly=True)
_out = numba.int64[:, ::1]
_words = numba.uint32[:, ::1]

# Given, so that the import compiles (or loads from the cache) once, under the import lock, and no
# call ever does.
_SIGNATURE = numba.boolean(
    _in, _in, numba.boolean, _in, numba.uint32, _out, _out, _words, numba.int64, numba.int64
)


@jit(signature=_SIGNATURE, nogil=True)
def _order_rows(slots, depths, canonical, network, sentinel, order, assigned, words, start, stop):
    """Handle the batches from `start` to `stop`; False if one of them does not pack."""
    n = slots.shape[1]
    with_words = words.shape[0] > 0
    packed = np.zeros((n, LANES), np.int64)
    multiset = np.zeros((n, LANES), np.int16)  # depths on their own, for the canonical arm
    misfit = np.int64(0)  # gathers bits that must all stay 0: cheaper than a branch for each

    for base in range(start, stop, LANES):
        lanes = min(LANES, stop - base)

        for lane in range(lanes):
            for i in range(n):
                slot, depth = slots[base + lane, i], depths[base + lane, i]
                if slot == NO_SLOT:
                    misfit |= np.int64(with_words)
                    slot = np.int64(_PACKED_NO_SLOT)
                else:
                    misfit |= slot >> 32
                misfit |= ((depth - 1) | (MAX_DEPTH - depth)) >> 63
                if canonical:
                    packed[i, lane] = slot << _INDEX_BITS | i
                    multiset[i, lane] = depth
                else:
                    packed[i, lane] = (MAX_DEPTH - depth) << _DEPTH_SHIFT | slot << _INDEX_BITS | i

        # Lanes past the last batch hold old values: they are sorted too, and nobody reads them.
        for c in range(len(network)):
            low, high = packed[network[c, 0]], packed[network[c, 1]]
            for lane in range(LANES):
                a, b = low[lane], high[lane]
                low[lane], high[lane] = min(a, b), max(a, b)
        if canonical:
            for c in range(len(network)):
                deep, shallow = multiset[network[c, 0]], multiset[network[c, 1]]
                for lane in range(LANES):
                    a, b = deep[lane], shallow[lane]
                    deep[lane], shallow[lane] = max(a, b), min(a, b)

        for lane in range(lanes):
            for p in range(n):
                value = packed[p, lane]
                if canonical:
                    depth = np.int64(multiset[p, lane])
                else:
                    depth = MAX_DEPTH - (value >> _DEPTH_SHIFT)
                order[base + lane, p] = value & _INDEX_MASK
                assigned[base + lane, p] = depth
                if with_words:
                    words[base + lane, 2 * p] = np.uint32(value >> _INDEX_BITS)
                    words[base + lane, 2 * p + 1] = np.uint32(depth)
            if with_words:
                words[base + lane, 2 * n] = sentinel
    return misfit == 0
