"""Stack distances, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def distances(ids):  # pragma: no cover - compiled
    """Distinct ids between each use and the one before it of the same id; -1 at the first."""
    uses = len(ids)
    last = np.full(ids.max() + 1, -1, np.int64)
    tree = np.zeros(uses + 1, np.int64)  # Fenwick: 1 where an id was used last
    out = np.empty(uses, np.int64)
    live = 0
    for t in range(uses):
        before = last[ids[t]]
        if before < 0:
            out[t] = -1
            live += 1
        else:
            older = 0  # ids whose last use is at or before `before`
            i = before + 1
            while i > 0:
                older += tree[i]
                i -= i & -i
            out[t] = live - older
            i = before + 1
            while i <= uses:
                tree[i] -= 1
                i += i & -i
        last[ids[t]] = t
        i = t + 1
        while i <= uses:
            tree[i] += 1
            i += i & -i
    return out
