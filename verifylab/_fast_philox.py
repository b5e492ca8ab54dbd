"""The scalar twin of `verifylab.draws.philox4x32`, for the compiled loops."""

from __future__ import annotations

import numpy as np

from verifylab._jit import jit

__all__ = ["philox"]

_U32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)


@jit(inline="always")
def philox(c0, c1, c2, c3, k0, k1):  # pragma: no cover - compiled
    """Return four words for one counter and key, each a uint64 below 2**32."""
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
