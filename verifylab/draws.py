"""Counter-based random words: Philox 4x32 with 10 rounds (Salmon et al., SC 2011).

A draw depends on (seed, request, token position, word) and on nothing else, so two arms that meet
the same token of the same request see the same confidences and acceptances whatever their order.
The constants are those of the Random123 library's ``philox4x32-10``; its known answers are the
test. `philox4x32` serves NumPy arrays; `verifylab.fastpath` holds the scalar twin.
"""

from __future__ import annotations

import numpy as np

__all__ = ["MULTIPLIERS", "ROUNDS", "WEYL", "philox4x32", "request_words"]

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

_LOW32 = np.uint64(0xFFFFFFFF)
_SHIFT32 = np.uint64(32)


def philox4x32(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Return four random words for each counter.

    Parameters
    ----------
    counter : ndarray of shape (..., 4), any integer dtype, values below 2**32
    key : two ints below 2**32

    Returns
    -------
    ndarray of uint64, shape (..., 4), values below 2**32
    """
    c = counter.astype(np.uint64)
    c0, c1, c2, c3 = c[..., 0], c[..., 1], c[..., 2], c[..., 3]
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    m0, m1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
    for r in range(ROUNDS):
        if r:
            k0 = (k0 + np.uint64(WEYL[0])) & _LOW32
            k1 = (k1 + np.uint64(WEYL[1])) & _LOW32
        p0, p1 = m0 * c0, m1 * c2
        c0, c1, c2, c3 = (
            (p1 >> _SHIFT32) ^ c1 ^ k0,
            p1 & _LOW32,
            (p0 >> _SHIFT32) ^ c3 ^ k1,
            p0 & _LOW32,
        )
    return np.stack([c0, c1, c2, c3], axis=-1)


def request_words(seed: int, request: np.ndarray, position: np.ndarray, drafts: int) -> np.ndarray:
    """Return the random words of one step: two a draft.

    Parameters
    ----------
    seed : int
        0 to 2**64 - 1; the Philox key.
    request, position : ndarray of int, shape (n,)
        Request numbers (below 2**64) and token positions (below 2**32).
    drafts : int

    Returns
    -------
    ndarray of uint64, shape (n, drafts, 2)
        Word 0 sets a draft's confidence, word 1 its acceptance; each below 2**32. Draft d takes
        words 2d and 2d + 1 of the stream with counter (position, request low, request high, d//2).
    """
    blocks = (drafts + 1) // 2
    n = len(request)
    counter = np.empty((n, blocks, 4), np.uint64)
    counter[..., 0] = np.asarray(position, np.uint64)[:, None]
    wide = np.asarray(request, np.uint64)[:, None]
    counter[..., 1] = wide & _LOW32
    counter[..., 2] = wide >> _SHIFT32
    counter[..., 3] = np.arange(blocks, dtype=np.uint64)
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return words.reshape(n, blocks * 2, 2)[:, :drafts]
