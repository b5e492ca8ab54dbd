"""A trace's drafts for the compiled loop: the twin of `verifylab.trace_workload.TraceWorkload`."""

from __future__ import annotations

import numpy as np

from verifylab._fast_philox import philox
from verifylab._jit import jit

__all__ = ["draw_trace"]

_U32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)


@jit
def draw_trace(
    seed,
    request,
    position,
    drafts,
    log_confidences,
    accepted,
    sequence_of,
    offsets,
    stretch,
    scores,
):  # pragma: no cover - compiled
    """Fill `scores` with prefix sums of log-confidence; return the accepted prefix length.

    The contract of `fastpath._draw`: `seed, request, position` are uint64 and `drafts` at most
    `TRACE_DRAFTS`, which nobody checks here. The arrays are `TraceWorkload.arrays`.
    """
    block = position // stretch
    within = np.int64(position - block * stretch)
    word, _, _, _ = philox(
        block, request & _U32, request >> _S32, np.uint64(0), seed & _U32, seed >> _S32
    )
    drawn = np.int64((word * np.uint64(len(accepted))) >> _S32)
    first = offsets[sequence_of[drawn]]
    size = offsets[sequence_of[drawn] + 1] - first
    row = first + (drawn - first + within) % size
    total = 0.0
    for d in range(drafts):
        total += log_confidences[row, d]
        scores[d] = total
    return min(accepted[row], drafts)
