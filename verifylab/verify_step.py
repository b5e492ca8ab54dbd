"""The captured body: one batched verify step through every gated-delta-net layer.

`VerifyStep` owns the slot pool (recurrent and convolution state), the step's inputs and outputs
and the rollback snapshots, and turns a dispatched batch into launches. Sequence at position ``p``
of the dispatch order verifies rows ``row0[p] .. row0[p] + depths[p]`` of every row buffer.

State semantics: a step moves each slot's state to the one after *all* its rows; the states after
each row but the last are written to the snapshots on the way. `VerifyStep.accept` then puts a
slot back to the state after the rows that were accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from verifylab.device.base import Body, StepDevice
from verifylab.step_ops import (
    STREAM_THREADS,
    ConvLaunch,
    CopyLaunch,
    Launch,
    StreamLaunch,
    WyLaunch,
)
from verifylab.verify_shape import CONV_TAPS, MAX_ROWS, SHAPES, VerifyShape

__all__ = ["FORMS", "ROW_BUDGET", "Form", "VerifyStep", "consecutive", "depth_runs"]

#: How a batch becomes launches. ``direct``: the fast path where addresses allow it, declined
#: elsewhere; ``declined``: never the fast path; ``indirect``: slots from a device table, so that
#: every run takes the fast path.
Form = Literal["direct", "declined", "indirect"]
FORMS: tuple[Form, ...] = ("direct", "declined", "indirect")

#: Rows of a step at most (`data/published/model_dims.csv`, row ``row_budget``).
ROW_BUDGET = 96
#: Sequences of a step at most (same file, row ``max_verify_width``).
MAX_WIDTH = 32


def depth_runs(depths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ``(start, stop)`` of each maximal stretch of equal depths in dispatch order."""
    start = 0
    for stop in range(1, len(depths) + 1):
        if stop == len(depths) or depths[stop] != depths[start]:
            yield start, stop
            start = stop


def address(array: Any) -> int:
    """Return the address of the first element of a NumPy or CuPy array."""
    pointer = getattr(array.data, "ptr", None)
    return int(array.__array_interface__["data"][0]) if pointer is None else int(pointer)


def consecutive(addresses: Sequence[int], stride: int) -> bool:
    """Tell whether a run takes the fast path: two or more states, each `stride` bytes further."""
    return len(addresses) > 1 and all(
        after - before == stride for before, after in zip(addresses, addresses[1:], strict=False)
    )


class VerifyStep:
    """Buffers and launches of a batched verify step on one device.

    Parameters
    ----------
    device : StepDevice
        ``host`` or ``cuda``.
    shape : VerifyShape or str
        Sizes, or the name of one of `verifylab.verify_shape.SHAPES`.
    pool_slots : int
        Slots of the state pool.
    max_rows : int
        Rows of a step at most; the snapshots take ``max_rows`` states a layer.
    max_width : int
        Sequences of a step at most.
    weight_bytes : int
        Bytes that each layer's dense stand-in streams, a multiple of 16; 0 leaves it out. One
        buffer serves all layers: make it several times the last-level cache.
    seed : int
        Of the convolution weights.

    Raises
    ------
    ValueError
        When a size is out of range or the shape is unknown.
    """

    def __init__(
        self,
        device: StepDevice,
        shape: VerifyShape | str,
        pool_slots: int,
        max_rows: int = ROW_BUDGET,
        max_width: int = MAX_WIDTH,
        weight_bytes: int = 0,
        seed: int = 0,
    ) -> None:
        if isinstance(shape, str):
            if shape not in SHAPES:
                raise ValueError(f"shape must be one of {', '.join(SHAPES)}, got {shape!r}")
            shape = SHAPES[shape]
        for name, value in (
            ("pool_slots", pool_slots), ("max_rows", max_rows), ("max_width", max_width)
        ):  # fmt: skip
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        if weight_bytes < 0 or weight_bytes % 16:
            raise ValueError(f"weight_bytes must be a multiple of 16, got {weight_bytes}")
        device.prepare(shape)
        self.device, self.shape = device, shape
        self.pool_slots, self.max_rows, self.max_width = pool_slots, max_rows, max_width
        self.weight_bytes = weight_bytes
        head = (shape.value_heads, shape.key_dim, shape.value_dim)
        taps = (CONV_TAPS, shape.conv_dim)
        layers, scalars = shape.layers, (shape.layers, max_rows, shape.value_heads)

        def floats(*size: int) -> Any:
            return device.allocate(size, np.float32)

        self.h_state, self.h_snap = (
            floats(layers, pool_slots, *head),
            floats(layers, max_rows, *head),
        )
        self.conv_state = floats(layers, pool_slots, *taps)
        self.conv_snap = floats(layers, max_rows, *taps)
        self.x, self.conv_weight = floats(layers, max_rows, shape.conv_dim), floats(layers, *taps)
        self.g, self.beta = floats(*scalars), floats(*scalars)
        self.qkv = floats(max_rows, shape.conv_dim)
        self.out = floats(layers, max_rows, shape.value_heads, shape.value_dim)
        self.slot_table = device.allocate((max_width,), np.int32)
        self.weights = floats(weight_bytes // 4) if weight_bytes else None
        self.sink = floats(STREAM_THREADS) if weight_bytes else None
        rng = np.random.default_rng(seed)
        device.upload(self.conv_weight, 0.5 * rng.standard_normal((layers, *taps), np.float32))

    def _buffers(self) -> tuple[Any, ...]:
        return (
            self.h_state, self.h_snap, self.conv_state, self.conv_snap, self.x, self.conv_weight,
            self.g, self.beta, self.qkv, self.out, self.slot_table, self.weights, self.sink,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes of every buffer on the device."""
        return sum(buffer.nbytes for buffer in self._buffers() if buffer is not None)

    def body(self, slots: Sequence[int], depths: Sequence[int], form: Form = "direct") -> Body:
        """Return the step of one batch, for `GraphCache.step`.

        Nothing is checked or planned until the body is called, so that a hit pays nothing.

        Parameters
        ----------
        slots, depths : sequence of int, shape (n,)
            In dispatch order; `depths` are row counts.
        form : {"direct", "declined", "indirect"}
            For ``indirect`` call `set_slots` before every launch, hits included.
        """

        def issue(device: Any) -> None:
            for launch in self.plan(slots, depths, form):
                device.issue(launch)

        return issue

    def plan(
        self, slots: Sequence[int], depths: Sequence[int], form: Form = "direct"
    ) -> list[Launch]:
        """Return the launches of a step, all layers, in order.

        Raises
        ------
        ValueError
            When the batch does not fit the buffers or names a slot twice.
        """
        self._check(slots, depths, form)
        row0 = np.concatenate([[0], np.cumsum(depths)]).tolist()
        launches: list[Launch] = []
        for layer in range(self.shape.layers):
            for start, stop in depth_runs(depths):
                if form == "indirect":
                    launches += self._fast(layer, row0[start], depths[start], start, stop, None)
                elif form == "direct" and self._engages(layer, slots[start:stop]):
                    launches += self._fast(
                        layer, row0[start], depths[start], start, stop, slots[start]
                    )
                else:
                    for p in range(start, stop):
                        launches += self._declined(layer, row0[p], depths[p], slots[p])
            if self.weights is not None:
                launches.append(StreamLaunch(self.weights, self.sink))
        return launches

    def _check(self, slots: Sequence[int], depths: Sequence[int], form: str) -> None:
        if form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
        if len(slots) != len(depths):
            raise ValueError(f"slots and depths differ in length: {len(slots)} and {len(depths)}")
        if len(slots) > self.max_width:
            raise ValueError(f"a step takes max_width={self.max_width} sequences, got {len(slots)}")
        for depth in depths:
            if not 1 <= depth <= MAX_ROWS:
                raise ValueError(f"depths must be 1 to {MAX_ROWS} rows, got {depth}")
        if sum(depths) > self.max_rows:
            raise ValueError(f"a step takes max_rows={self.max_rows} rows, got {sum(depths)}")
        for slot in slots:
            if not 0 <= slot < self.pool_slots:
                raise ValueError(f"slots must be 0 to {self.pool_slots - 1}, got {slot}")
        if len(set(slots)) != len(slots):
            raise ValueError(f"two sequences share a slot: {list(slots)}")

    def _engages(self, layer: int, slots: Sequence[int]) -> bool:
        return all(
            consecutive([address(pool[layer, slot]) for slot in slots], stride)
            for pool, stride in (
                (self.h_state, self.shape.h_state_bytes),
                (self.conv_state, self.shape.conv_state_bytes),
            )
        )

    def _fast(
        self, layer: int, row: int, depth: int, start: int, stop: int, first_slot: int | None
    ) -> list[Launch]:
        """Return the two launches of a run, direct from `first_slot` on, or indirect if None."""
        n = stop - start
        rows = slice(row, row + n * depth)
        if first_slot is None:
            pool, table = slice(None), self.slot_table[start:stop]
        else:
            pool, table = slice(first_slot, first_slot + n), None
        qkv = self.qkv[rows]
        return [
            ConvLaunch(
                self.shape, depth, n, self.x[layer, rows], self.conv_weight[layer],
                self.conv_state[layer, pool], table, self.conv_snap[layer, rows], qkv,
            ),
            WyLaunch(
                self.shape, depth, n, qkv, self.g[layer, rows], self.beta[layer, rows],
                self.h_state[layer, pool], table, self.h_snap[layer, rows], self.out[layer, rows],
            ),
        ]  # fmt: skip

    def _declined(self, layer: int, row: int, depth: int, slot: int) -> list[Launch]:
        """Return the `2 * depth` launches of one sequence: conv by token, copies, one WY."""
        launches: list[Launch] = []
        own = slice(slot, slot + 1)
        for r in range(row, row + depth):
            one = slice(r, r + 1)
            launches.append(
                ConvLaunch(
                    self.shape, 1, 1, self.x[layer, one], self.conv_weight[layer],
                    self.conv_state[layer, own], None, self.conv_snap[layer, one], self.qkv[one],
                )
            )  # fmt: skip
            if r < row + depth - 1:
                launches.append(CopyLaunch(self.conv_snap[layer, r], self.conv_state[layer, slot]))
        launches.append(self._fast(layer, row, depth, 0, 1, slot)[1])
        return launches

    def set_slots(self, slots: Sequence[int]) -> None:
        """Refresh the device's slot table (``indirect``), in stream order before the launch."""
        self.device.upload(self.slot_table[: len(slots)], np.asarray(slots, np.int32))

    def load(self, x: Any, g: Any, beta: Any) -> None:
        """Upload the inputs of a step's first rows.

        Parameters
        ----------
        x : (layers, rows, conv_dim) float32 array
        g, beta : (layers, rows, value_heads) float32 array
            Log decay, 0 or less, and write strength, 0 to 1.
        """
        rows = x.shape[1]
        for target, values in ((self.x, x), (self.g, g), (self.beta, beta)):
            self.device.upload(target[:, :rows], np.asarray(values, np.float32))

    def accept(self, slots: Sequence[int], depths: Sequence[int], accepted: Sequence[int]) -> None:
        """Put each slot back to the state after the rows that were accepted.

        Parameters
        ----------
        slots, depths : sequence of int, shape (n,)
            Of the step just run, in its dispatch order.
        accepted : sequence of int, shape (n,)
            Rows accepted, 1 to the sequence's depth: the accepted drafts plus one.

        Raises
        ------
        ValueError
            When a count is outside that range.
        """
        row = 0
        for slot, depth, count in zip(slots, depths, accepted, strict=True):
            if not 1 <= count <= depth:
                raise ValueError(f"accepted must be 1 to {depth} rows for slot {slot}, got {count}")
            if count < depth:
                at = row + count - 1
                self.device.assign(self.h_state[:, slot], self.h_snap[:, at])
                self.device.assign(self.conv_state[:, slot], self.conv_snap[:, at])
            row += depth
