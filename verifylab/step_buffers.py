"""What a verify step works on: the slot pool, inputs, outputs and snapshots on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verifylab.device.base import StepDevice
from verifylab.step_ops import STREAM_THREADS
from verifylab.verify_shape import CONV_TAPS, SHAPES, VerifyShape

__all__ = ["MAX_WIDTH", "ROW_BUDGET", "StepBuffers"]

#: Rows of a step at most (`data/published/model_dims.csv`, row ``row_budget``).
ROW_BUDGET = 96
#: Sequences of a step at most (same file, row ``max_verify_width``).
MAX_WIDTH = 32


class StepBuffers:
    """Buffers of a batched verify step on one device.

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
