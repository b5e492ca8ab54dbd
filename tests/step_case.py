"""Test helper: one batch on one device, from random inputs, and what the reference says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from verifylab.gdn_reference import conv_update, recurrence, split_qkv
from verifylab.verify_step import VerifyStep

NAMES = ("h_state", "conv_state", "h_snap", "conv_snap", "out")


@dataclass
class Case:
    """A step with random inputs and states, which `run` starts from each time."""

    step: VerifyStep
    rows: int
    seed: int = 0

    def __post_init__(self) -> None:
        shape, rng = self.step.shape, np.random.default_rng(self.seed)
        rows, scalars = self.rows, (shape.layers, self.rows, shape.value_heads)
        self.x = rng.standard_normal((shape.layers, rows, shape.conv_dim)).astype(np.float32)
        self.g = (-2.0 * rng.random(scalars)).astype(np.float32)
        self.beta = rng.random(scalars).astype(np.float32)
        self.h0 = rng.standard_normal(self.step.h_state.shape).astype(np.float32)
        self.conv0 = rng.standard_normal(self.step.conv_state.shape).astype(np.float32)
        self.step.load(self.x, self.g, self.beta)
        self.weight = self.step.device.download(self.step.conv_weight)

    def reset(self) -> None:
        """Put the start states back and poison everything that a step writes."""
        device, step = self.step.device, self.step
        device.upload(step.h_state, self.h0)
        device.upload(step.conv_state, self.conv0)
        for name in ("h_snap", "conv_snap", "out", "qkv"):
            buffer = getattr(step, name)
            device.upload(buffer, np.full(buffer.shape, np.nan, np.float32))

    def results(self) -> dict[str, np.ndarray]:
        return {name: self.step.device.download(getattr(self.step, name)) for name in NAMES}

    def run(self, slots: Any, depths: Any, form: Any = "direct") -> dict[str, np.ndarray]:
        self.reset()
        if form == "indirect":
            self.step.set_slots(slots)
        self.step.device.run(self.step.body(slots, depths, form))
        return self.results()

    def expected(self, slots: Any, depths: Any) -> dict[str, np.ndarray]:
        """Return the float64 reference; NaN where a step writes nothing."""
        shape = self.step.shape
        want = {
            "h_state": self.h0.astype(np.float64),
            "conv_state": self.conv0.astype(np.float64),
        }
        for name in ("h_snap", "conv_snap", "out"):
            want[name] = np.full(getattr(self.step, name).shape, np.nan)
        row = 0
        for slot, depth in zip(slots, depths, strict=True):
            rows = slice(row, row + depth)
            for layer in range(shape.layers):
                qkv, taps = conv_update(
                    shape, self.x[layer, rows], self.weight[layer], self.conv0[layer, slot]
                )
                q, k, v = split_qkv(shape, qkv)
                g, beta = self.g[layer, rows], self.beta[layer, rows]
                out, states = recurrence(q, k, v, g, beta, self.h0[layer, slot])
                want["out"][layer, rows] = out
                want["h_snap"][layer, row : row + depth - 1] = states[:-1]
                want["conv_snap"][layer, row : row + depth - 1] = taps[:-1]
                want["h_state"][layer, slot] = states[-1]
                want["conv_state"][layer, slot] = taps[-1]
            row += depth
        return want


def assert_close(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    """Compare by relative norm (float32 lands far under 1e-5) and by what was left unwritten."""
    for name in NAMES:
        a, b = got[name], want[name]
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=f"{name}: unwritten")
        error, size = (np.linalg.norm(np.nan_to_num(x)) for x in (a - b, b))
        assert error <= 3e-6 * size, f"{name}: error {error:.1e} of {size:.1e}"


def assert_same(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    """Compare to the bit."""
    for name in NAMES:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
