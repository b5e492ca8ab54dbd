"""Test helper: one device of each kind, for tests that must hold on all of them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from fake_cupy import FakeCupy

from verifylab.device.base import DeviceError
from verifylab.device.cuda import CudaDevice
from verifylab.device.host import HostDevice
from verifylab.device.model import ModelDevice
from verifylab.machine import StepWork, load_profile


class TickingModel(ModelDevice):
    """The model device, charging one node for each launch that a real device would be issued."""

    def __init__(self) -> None:
        super().__init__(load_profile("gb10-published"))
        self.launches = 0

    def issue(self, launch: Any) -> None:
        self.launches += 1
        self.charge(StepWork(width=0, rows=0, nodes=1))

    @property
    def live_graphs(self) -> int:
        count = self.timings.count
        return count["instantiate"] - count["graph_destroy"]


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
        return TickingModel()
    if kind == "host":
        return HostDevice()
    if kind == "fake-cuda":
        return CudaDevice(cupy=FakeCupy())
    return gpu_or_skip()


KINDS = ["model", "host", "fake-cuda", pytest.param("cuda", marks=pytest.mark.gpu)]
