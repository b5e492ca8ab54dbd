"""The model device: computes nothing, counts nodes, advances a virtual clock by a profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from verifylab.device.base import GRAPH_BYTES_PER_NODE, Body, DeviceError, Timings
from verifylab.machine import MachineProfile, StepWork

__all__ = ["ModelDevice", "ModelGraph"]


@dataclass(slots=True)
class ModelGraph:
    """What a capture recorded: the work of each dispatch in it."""

    work: tuple[StepWork, ...]
    alive: bool = True

    @property
    def nodes(self) -> int:
        """Number of graph nodes."""
        return sum(w.nodes for w in self.work)

    @property
    def nbytes(self) -> int:
        """Bytes that the graph holds, by the published figure per node."""
        return self.nodes * GRAPH_BYTES_PER_NODE


class ModelDevice:
    """Virtual time from a machine profile.

    Parameters
    ----------
    profile : MachineProfile

    Notes
    -----
    A body calls `charge` once for each dispatch. Device time is charged when work runs (eager or
    replayed); host time of the graph operations adds to it, as it does where each step ends in a
    blocking copy.
    """

    name = "model"
    measured = False

    def __init__(self, profile: MachineProfile) -> None:
        self.profile = profile
        self.timings = Timings()
        self._now_ms = 0.0
        self._recording: list[StepWork] | None = None

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return zeros; the model reads no buffer."""
        return np.zeros(shape, dtype)

    def charge(self, work: StepWork) -> None:
        """Issue one dispatch: recorded under capture, paid at once when eager."""
        if self._recording is not None:
            self._recording.append(work)
        else:
            self._now_ms += self.profile.body_ms(work)
            self._now_ms += self.profile.eager_ms(work.nodes + work.eager_nodes)

    def body(self, work: StepWork) -> Callable[[ModelDevice], None]:
        """Return the body that charges `work`."""
        return lambda device: device.charge(work)

    def _spend(self, operation: str, ms: float) -> None:
        self._now_ms += ms
        self.timings.add(operation, ms)

    def run(self, body: Body) -> None:
        """Run `body` eagerly."""
        before = self._now_ms
        body(self)
        self.timings.add("eager", self._now_ms - before)

    def capture(self, body: Body) -> ModelGraph:
        """Record what `body` charges, then pay for recording and instantiating it."""
        graph = ModelGraph(self._record(body))
        for operation in ("record", "instantiate"):
            self._spend(operation, self.profile.operation_ms(operation, graph.nodes))
        return graph

    def _record(self, body: Body) -> tuple[StepWork, ...]:
        if self._recording is not None:
            raise DeviceError("a capture is already under way on this device")
        self._recording = []
        try:
            body(self)
            return tuple(self._recording)
        finally:
            self._recording = None

    def update(self, graph: ModelGraph, body: Body) -> None:
        """Record what `body` charges and put it in the graph's place."""
        self._check_alive(graph)
        work = self._record(body)
        if [w.nodes for w in work] != [w.nodes for w in graph.work]:
            raise DeviceError("an update needs the same nodes: capture a graph of its own instead")
        graph.work = work
        for operation in ("record", "update"):
            self._spend(operation, self.profile.operation_ms(operation, graph.nodes))

    @staticmethod
    def _check_alive(graph: ModelGraph) -> None:
        if not graph.alive:
            raise DeviceError("this graph was destroyed: capture it again before using it")

    def launch(self, graph: ModelGraph) -> None:
        """Replay: the launch on the host, then each dispatch's device time."""
        self._check_alive(graph)
        # A piecewise dispatch adds a launch a further piece; its other kernels go one by one.
        further = sum(work.pieces - 1 for work in graph.work)
        further_ms = self.profile["launch_base_us"] * further / 1e3
        self._spend("launch", self.profile.launch_ms(graph.nodes) + further_ms)
        for work in graph.work:
            self._now_ms += self.profile.body_ms(work) + self.profile.eager_ms(work.eager_nodes)

    def destroy(self, graph: ModelGraph) -> None:
        """Pay for both destroys."""
        if not graph.alive:
            raise DeviceError("this graph was destroyed already")
        graph.alive = False
        for operation in ("exec_destroy", "graph_destroy"):
            self._spend(operation, self.profile.operation_ms(operation, graph.nodes))

    def synchronise(self) -> None:
        """Nothing is ever pending."""

    def clock(self) -> float:
        """Virtual milliseconds."""
        return self._now_ms
