"""The captured body: one batched verify step through every gated-delta-net layer.

`VerifyStep` turns a dispatched batch into launches on its buffers. The sequence at position ``p``
of the dispatch order verifies rows ``row0[p] .. row0[p] + depths[p]`` of every row buffer.

State semantics: a step moves each slot's state to the one after *all* its rows; the states after
each row but the last are written to the snapshots on the way. `StepBuffers.accept` then puts a
slot back to the state after the rows that were accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from verifylab.device.base import Body
from verifylab.launches import depth_runs
from verifylab.step_buffers import StepBuffers
from verifylab.step_ops import ConvLaunch, CopyLaunch, Launch, StreamLaunch, WyLaunch
from verifylab.verify_shape import MAX_ROWS

__all__ = ["FORMS", "Form", "VerifyStep", "consecutive"]

#: How a batch becomes launches. ``direct``: the fast path where addresses allow it, declined
#: elsewhere; ``declined``: never the fast path; ``indirect``: slots from a device table, so that
#: every run takes the fast path.
Form = Literal["direct", "declined", "indirect"]
Rows = Sequence[int] | np.ndarray
FORMS: tuple[Form, ...] = ("direct", "declined", "indirect")


def address(array: Any) -> int:
    """Return the address of the first element of a NumPy or CuPy array."""
    pointer = getattr(array.data, "ptr", None)
    return int(array.__array_interface__["data"][0]) if pointer is None else int(pointer)


def consecutive(addresses: Sequence[int], stride: int) -> bool:
    """Tell whether a run takes the fast path: two or more states, each `stride` bytes further."""
    return len(addresses) > 1 and all(
        after - before == stride for before, after in zip(addresses, addresses[1:], strict=False)
    )


class VerifyStep(StepBuffers):
    """Buffers and launches of a batched verify step; takes what `StepBuffers` takes."""

    def body(self, slots: Rows, depths: Rows, form: Form = "direct") -> Body:
        """Return the step of one batch, for `GraphCache.step`.

        Nothing is checked or planned until the body is called, so that a hit pays nothing.

        Parameters
        ----------
        slots, depths : sequence or array of int, shape (n,)
            In dispatch order; `depths` are row counts.
        form : {"direct", "declined", "indirect"}
            For ``indirect`` call `set_slots` before every launch, hits included.
        """

        def issue(device: Any) -> None:
            for launch in self.plan(slots, depths, form):
                device.issue(launch)

        return issue

    def plan(self, slots: Rows, depths: Rows, form: Form = "direct") -> list[Launch]:
        """Return the launches of a step, all layers, in order.

        Raises
        ------
        ValueError
            When the batch does not fit the buffers or names a slot twice.
        """
        slots, depths = [int(slot) for slot in slots], [int(depth) for depth in depths]
        self._check(slots, depths, form)
        row0 = np.concatenate([[0], np.cumsum(depths)]).tolist()
        runs = [(run.start, run.start + run.length) for run in depth_runs(slots, depths)]
        launches: list[Launch] = []
        for layer in range(self.shape.layers):
            for start, stop in runs:
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
