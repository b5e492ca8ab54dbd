"""Test helper: one device of each kind, for tests that must hold on all of them."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCupy

from verifylab.device.base import DeviceError, Timings
from verifylab.device.cuda import CudaDevice
from verifylab.device.host import HostDevice


class CountingGraph:
    def __init__(self, nodes: int) -> None:
        self.nodes, self.nbytes, self.live = nodes, 100 * nodes, True


class CountingDevice:
    """Computes nothing, as the model device: counts nodes, keeps the contract."""

    name, measured = "model", False

    def __init__(self) -> None:
        self.timings, self.launches, self.live_graphs = Timings(), 0, 0
        self._nodes: int | None = None

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.zeros(shape, dtype)

    def issue(self, launch: Any) -> None:
        self.launches += 1
        if self._nodes is not None:
            self._nodes += 1

    def run(self, body: Any) -> None:
        body(self)
        self.timings.add("eager", 0.0)

    def capture(self, body: Any) -> CountingGraph:
        self._nodes = 0
        try:
            body(self)
            graph = CountingGraph(self._nodes)
        finally:
            self._nodes = None
        self.timings.add("record", 0.0)
        self.timings.add("instantiate", 0.0)
        self.live_graphs += 1
        return graph

    def launch(self, graph: CountingGraph) -> None:
        if not graph.live:
            raise DeviceError("launch of a graph that was destroyed")
        self.timings.add("launch", 0.0)

    def destroy(self, graph: CountingGraph) -> None:
        if not graph.live:
            raise DeviceError("destroy of a graph that was destroyed already")
        graph.live = False
        self.live_graphs -= 1
        self.timings.add("exec_destroy", 0.0)
        self.timings.add("graph_destroy", 0.0)

    def synchronise(self) -> None:
        pass

    def clock(self) -> float:
        return 1e3 * time.perf_counter()


def gpu_or_skip() -> CudaDevice:
    """Return the GPU; VERIFYLAB_GPU=required fails without one, =rehearse takes the stand-in."""
    if os.environ.get("VERIFYLAB_GPU") == "rehearse":
        return CudaDevice(cupy=FakeCupy(Path(tempfile.mkdtemp())))
    try:
        return CudaDevice()
    except DeviceError as error:
        # A GPU check that skips all it should check has failed.
        if os.environ.get("VERIFYLAB_GPU") == "required":
            raise
        pytest.skip(f"needs a GPU: {error}")


def make_device(kind: str) -> Any:
    if kind == "model":
        return CountingDevice()
    if kind == "host":
        return HostDevice()
    if kind == "fake-cuda":
        return CudaDevice(cupy=FakeCupy())
    return gpu_or_skip()


KINDS = ["model", "host", "fake-cuda", pytest.param("cuda", marks=pytest.mark.gpu)]
