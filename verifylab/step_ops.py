"""The launches a verify step is made of, each in two forms: a CUDA kernel and its NumPy twin.

A *launch* is one node of a captured graph. A device asks it for the form it runs: `Launch.host`
binds the array views now and returns a callable that computes with them later, as a captured
kernel keeps the addresses it was given; `Launch.kernel` returns the kernel's name, grid and
arguments. The arithmetic follows `kernels.cu` line for line, in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from verifylab.gdn_reference import NORM_EPS
from verifylab.verify_shape import VerifyShape

__all__ = [
    "ConvLaunch",
    "CopyLaunch",
    "KernelCall",
    "Launch",
    "StreamLaunch",
    "TickLaunch",
    "WyLaunch",
]

#: Threads of a `vl_conv` block, four channels each (``VL_CONV_THREADS`` in `kernels.cu`).
CONV_THREADS = 128
#: Threads of a `vl_stream` block and of its whole grid: enough to fill a large GPU.
STREAM_BLOCK, STREAM_THREADS = 256, 256 * 1024
# Eight zero bytes: not every CuPy takes None for a null pointer.
_NULL = np.int64(0)


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel of `kernels.cu` and what it is called with.

    Attributes
    ----------
    name : str
    grid, block : tuple of int
    args : tuple
        Device arrays (their first address is passed) and NumPy scalars of the parameter's exact
        size; a null pointer is ``np.int64(0)``.
    shape : VerifyShape, optional
        Sizes that the kernel is compiled for; None: any will do.
    """

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Any, ...]
    shape: VerifyShape | None = None


class Launch(Protocol):
    """One node of a step."""

    def host(self) -> Callable[[], None]:
        """Bind the NumPy views; the callable computes with them."""

    def kernel(self) -> KernelCall | None:
        """Return the kernel call, or None for a plain copy (`CopyLaunch`)."""


def _pointer(array: Any) -> Any:
    return _NULL if array is None else array


def _gather(state: np.ndarray, table: np.ndarray | None, sequences: int) -> np.ndarray:
    return state[:sequences] if table is None else state[table]


def _scatter(state: np.ndarray, table: np.ndarray | None, values: np.ndarray) -> None:
    if table is None:
        state[: len(values)] = values
    else:
        state[table] = values


@dataclass(frozen=True, slots=True)
class ConvLaunch:
    """Convolution, SiLU and L2 norm for a run of sequences of equal rows (``vl_conv``).

    Attributes
    ----------
    shape : VerifyShape
    rows : int
        Rows of each sequence.
    sequences : int
    x, qkv : (sequences * rows, conv_dim) float32 array
        Inputs; unit queries, unit keys and values out.
    weight : (4, conv_dim) float32 array
    state : (slots, 4, conv_dim) float32 array
        From the first sequence's slot on (direct), or the layer's whole pool (indirect).
    table : (sequences,) int32 array, optional
        Slot of each sequence, read when the launch runs (indirect).
    snap : (sequences * rows, 4, conv_dim) float32 array
        State after each token but the last of each sequence.
    """

    shape: VerifyShape
    rows: int
    sequences: int
    x: Any
    weight: Any
    state: Any
    table: Any
    snap: Any
    qkv: Any

    def host(self) -> Callable[[], None]:
        """Bind the NumPy views; the callable computes with them."""
        n, rows, shape = self.sequences, self.rows, self.shape
        x = self.x.reshape(n, rows, shape.conv_dim)
        snap = self.snap.reshape(n, rows, *self.snap.shape[1:])
        qkv = self.qkv.reshape(n, rows, shape.conv_dim)
        weight, state, table = self.weight, self.state, self.table
        q_and_k = 2 * shape.key_heads * shape.key_dim
        one = np.float32(1.0)

        def run() -> None:
            window = _gather(state, table, n)
            h0, h1, h2 = window[:, 1].copy(), window[:, 2].copy(), window[:, 3].copy()
            for t in range(rows):
                new = x[:, t]
                y = weight[0] * h0 + weight[1] * h1 + weight[2] * h2 + weight[3] * new
                with np.errstate(over="ignore"):
                    y = y / (one + np.exp(-y))
                heads = y[:, :q_and_k].reshape(n, 2 * shape.key_heads, shape.key_dim)
                norm2 = (heads * heads).sum(axis=2, keepdims=True)
                y[:, :q_and_k] = (heads / np.sqrt(norm2 + np.float32(NORM_EPS))).reshape(n, -1)
                qkv[:, t] = y
                taps = np.stack([h0, h1, h2, new], axis=1)
                if t < rows - 1:
                    snap[:, t] = taps
                else:
                    _scatter(state, table, taps)
                h0, h1, h2 = h1, h2, new

        return run

    def kernel(self) -> KernelCall:
        """Return the call of ``vl_conv``."""
        blocks = -(-(self.shape.conv_dim // 4) // CONV_THREADS)
        args = (np.int32(self.rows), self.x, self.weight, self.state, _pointer(self.table))
        return KernelCall(
            "vl_conv",
            (blocks, self.sequences),
            (CONV_THREADS,),
            (*args, self.snap, self.qkv),
            self.shape,
        )


@dataclass(frozen=True, slots=True)
class WyLaunch:
    """The gated delta rule over the rows of a run, in WY form (``vl_wy``).

    Attributes
    ----------
    shape : VerifyShape
    rows, sequences : int
    qkv : (sequences * rows, conv_dim) float32 array
        What `ConvLaunch` wrote.
    g, beta : (sequences * rows, value_heads) float32 array
        Log decay and write strength.
    state : (slots, value_heads, key_dim, value_dim) float32 array
        As in `ConvLaunch`.
    table : (sequences,) int32 array, optional
    snap : (sequences * rows, value_heads, key_dim, value_dim) float32 array
        State after each token but the last of each sequence.
    out : (sequences * rows, value_heads, value_dim) float32 array
    """

    shape: VerifyShape
    rows: int
    sequences: int
    qkv: Any
    g: Any
    beta: Any
    state: Any
    table: Any
    snap: Any
    out: Any

    def host(self) -> Callable[[], None]:
        """Bind the NumPy views; the callable computes with them."""
        n, rows, shape = self.sequences, self.rows, self.shape
        width, group = shape.key_heads * shape.key_dim, shape.value_heads // shape.key_heads
        qkv = self.qkv.reshape(n, rows, shape.conv_dim)
        g, beta = (a.reshape(n, rows, shape.value_heads) for a in (self.g, self.beta))
        snap = self.snap.reshape(n, rows, *self.snap.shape[1:])
        out = self.out.reshape(n, rows, shape.value_heads, shape.value_dim)
        state, table = self.state, self.table

        def head(part: np.ndarray) -> np.ndarray:
            split = part.reshape(n, rows, shape.key_heads, shape.key_dim)
            return split.repeat(group, axis=2)[..., None]

        def run() -> None:
            s = _gather(state, table, n).copy()
            q, k = head(qkv[:, :, :width]), head(qkv[:, :, width : 2 * width])
            v = qkv[:, :, 2 * width :].reshape(n, rows, shape.value_heads, shape.value_dim)
            alpha = np.exp(g)[..., None]
            gamma = np.ones_like(alpha[:, 0])
            pseudo: list[np.ndarray] = []
            for t in range(rows):
                gamma = gamma * alpha[:, t]
                seen = gamma * (k[:, t] * s).sum(axis=2)
                decay = alpha[:, t]
                for i in range(t - 1, -1, -1):
                    gram = (k[:, t] * k[:, i]).sum(axis=2)
                    seen = seen + decay * gram * pseudo[i]
                    decay = decay * alpha[:, i]
                pseudo.append(beta[:, t, :, None] * (v[:, t] - seen))
            for t in range(rows):
                s = k[:, t] * pseudo[t][:, :, None] + alpha[:, t, :, None] * s
                out[:, t] = (q[:, t] * s).sum(axis=2)
                if t < rows - 1:
                    snap[:, t] = s
            _scatter(state, table, s)

        return run

    def kernel(self) -> KernelCall:
        """Return the call of ``vl_wy``."""
        args = (np.int32(self.rows), self.qkv, self.g, self.beta, self.state, _pointer(self.table))
        return KernelCall(
            "vl_wy",
            (self.shape.value_heads, self.sequences),
            (self.shape.value_dim,),
            (*args, self.snap, self.out),
            self.shape,
        )


@dataclass(frozen=True, slots=True)
class CopyLaunch:
    """One contiguous device-to-device copy: the declined path's conv snapshots.

    Attributes
    ----------
    target, source : arrays of equal shape and type, both contiguous
    """

    target: Any
    source: Any

    def host(self) -> Callable[[], None]:
        """Bind the NumPy views; the callable copies."""
        target, source = self.target, self.source

        def run() -> None:
            np.copyto(target, source)

        return run

    def kernel(self) -> None:
        """Return None: the device copies without a kernel."""
        return None


@dataclass(frozen=True, slots=True)
class StreamLaunch:
    """Stand-in for a layer's dense weights: reads every byte of `weights` (``vl_stream``).

    Attributes
    ----------
    weights : (4 * vectors,) float32 array
    sink : (STREAM_THREADS,) float32 array
        A sum for each thread, so that the reads count.
    """

    weights: Any
    sink: Any

    def host(self) -> Callable[[], None]:
        """Bind the NumPy views; the callable sums what each thread would read."""
        threads = self.sink.shape[0]
        weights, sink = self.weights.reshape(-1, 4), self.sink

        def run() -> None:
            sink[:] = 0.0
            for start in range(0, len(weights), threads):
                part = weights[start : start + threads].sum(axis=1)
                sink[: len(part)] += part

        return run

    def kernel(self) -> KernelCall:
        """Return the call of ``vl_stream``."""
        blocks = self.sink.shape[0] // STREAM_BLOCK
        vectors = np.int64(self.weights.shape[0] // 4)
        return KernelCall(
            "vl_stream", (blocks,), (STREAM_BLOCK,), (self.weights, vectors, self.sink)
        )


@dataclass(frozen=True, slots=True)
class TickLaunch:
    """A node that does next to nothing: adds one to a counter (``vl_tick``).

    Attributes
    ----------
    counter : (1,) int32 array
    """

    counter: Any

    def host(self) -> Callable[[], None]:
        """Bind the counter; the callable adds one to it."""
        counter = self.counter

        def run() -> None:
            counter[0] += 1

        return run

    def kernel(self) -> KernelCall:
        """Return the call of ``vl_tick``."""
        return KernelCall("vl_tick", (1,), (32,), (self.counter,))
