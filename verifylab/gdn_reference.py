"""The gated delta rule in float64, written twice: the plain recurrence and its WY form.

Both are references for the kernels and for their NumPy twin (`verifylab.step_ops`), and for each
other. Per value head, with state ``S`` (key_dim x value_dim), decay ``alpha_t = exp(g_t)`` and
unit ``k_t``, ``q_t``::

    S_t = alpha_t S_{t-1} + beta_t k_t (v_t - alpha_t S_{t-1}^T k_t)^T
    o_t = S_t^T q_t
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verifylab.verify_shape import CONV_TAPS, VerifyShape

__all__ = ["NORM_EPS", "conv_update", "recurrence", "split_qkv", "wy_form"]

#: Added under the square root of the L2 norm (as `kernels.cu` has it).
NORM_EPS = 1e-6

Array = NDArray[np.float64]


def conv_update(shape: VerifyShape, x: Array, weight: Array, state: Array) -> tuple[Array, Array]:
    """Causal convolution, SiLU, and the L2 norm of each query and key head, token by token.

    Parameters
    ----------
    shape : VerifyShape
    x : (rows, conv_dim) array
        Inputs.
    weight : (4, conv_dim) array
        Tap weights, oldest first.
    state : (4, conv_dim) array
        The last four inputs before this step, oldest first.

    Returns
    -------
    qkv : (rows, conv_dim) float64 array
        Unit queries, unit keys, values.
    states : (rows, 4, conv_dim) float64 array
        The state after each token.
    """
    rows = x.shape[0]
    window = np.asarray(state, np.float64)
    qkv = np.empty((rows, shape.conv_dim))
    states = np.empty((rows, CONV_TAPS, shape.conv_dim))
    q_and_k = 2 * shape.key_heads * shape.key_dim
    for t in range(rows):
        window = np.concatenate([window[1:], np.asarray(x[t : t + 1], np.float64)])
        y = (np.asarray(weight, np.float64) * window).sum(axis=0)
        y = y / (1.0 + np.exp(-y))
        heads = y[:q_and_k].reshape(2 * shape.key_heads, shape.key_dim)
        heads /= np.sqrt((heads**2).sum(axis=1, keepdims=True) + NORM_EPS)
        qkv[t], states[t] = y, window
    return qkv, states


def split_qkv(shape: VerifyShape, qkv: Array) -> tuple[Array, Array, Array]:
    """Split into queries, keys ``(rows, value_heads, key_dim)`` and values (``value_dim`` instead).

    Each key head is repeated for the value heads that share it.
    """
    rows, width = qkv.shape[0], shape.key_heads * shape.key_dim
    group = shape.value_heads // shape.key_heads
    q, k = (
        part.reshape(rows, shape.key_heads, shape.key_dim).repeat(group, axis=1)
        for part in (qkv[:, :width], qkv[:, width : 2 * width])
    )
    return q, k, qkv[:, 2 * width :].reshape(rows, shape.value_heads, shape.value_dim)


def recurrence(
    q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array
) -> tuple[Array, Array]:
    """Apply the rule as it stands, one token after the other.

    Parameters
    ----------
    q, k : (rows, heads, key_dim) array
    v : (rows, heads, value_dim) array
    g, beta : (rows, heads) array
        Log decay (0 or less) and write strength.
    state : (heads, key_dim, value_dim) array

    Returns
    -------
    out : (rows, heads, value_dim) float64 array
    states : (rows, heads, key_dim, value_dim) float64 array
        The state after each token.
    """
    s = np.asarray(state, np.float64)
    out, states = [], []
    for t in range(q.shape[0]):
        s = np.exp(np.float64(g[t]))[:, None, None] * s
        seen = np.einsum("hkv,hk->hv", s, k[t])
        s = s + np.einsum("hk,hv->hkv", k[t], beta[t][:, None] * (v[t] - seen))
        out.append(np.einsum("hkv,hk->hv", s, q[t]))
        states.append(s)
    return np.stack(out), np.stack(states)


def wy_form(
    q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array
) -> tuple[Array, Array]:
    """Do the same by one triangular solve for the chunk; arguments and returns as `recurrence`.

    With ``G`` the running sum of ``g``, the pseudo-values ``u`` solve
    ``(I + L) u = beta (v - exp(G) S_0^T k)``, where ``L[t, i] = beta_t exp(G_t - G_i) k_t . k_i``
    below the diagonal; then ``S_t = exp(G_t) S_0 + sum_{i <= t} exp(G_t - G_i) k_i u_i^T``.
    """
    rows = q.shape[0]
    s0 = np.asarray(state, np.float64)
    total = np.cumsum(np.asarray(g, np.float64), axis=0)
    below = np.tri(rows, k=-1)[:, :, None]
    decay = np.exp(np.where(np.tri(rows)[:, :, None] > 0, total[:, None] - total[None], -np.inf))
    lower = below * beta[:, None] * decay * np.einsum("thk,ihk->tih", k, k)
    right = beta[:, :, None] * (v - np.exp(total)[:, :, None] * np.einsum("hkv,thk->thv", s0, k))
    system = np.eye(rows)[None] + lower.transpose(2, 0, 1)
    u = np.linalg.solve(system, right.transpose(1, 0, 2)).transpose(1, 0, 2)
    states = np.exp(total)[:, :, None, None] * s0 + np.einsum(
        "tih,ihk,ihv->thkv", decay, k, u, optimize=True
    )
    return np.einsum("thkv,thk->thv", states, q), states
