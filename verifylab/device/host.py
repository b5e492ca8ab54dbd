"""The host device: NumPy does the step's arithmetic, on a real clock.

Capture records each launch with the array views that it baked; replay runs them, on those views,
whatever the caller meant by then. So it shows the hazards of a wrong key that a GPU would hide
(or crash on), and it is the reference that the kernels are compared with. Its times are measured
but say nothing about a GPU: every row that carries them names the device ``host``.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from verifylab.device.base import Body, DeviceError, RecordedGraph, Timings

__all__ = ["HostDevice", "HostGraph"]


class HostGraph(RecordedGraph):
    """Launches bound to the array views that they baked; keeps those arrays alive."""

    __slots__ = ()

    def __init__(self, calls: tuple[Callable[[], None], ...]) -> None:
        super().__init__(calls, len(calls))


class HostDevice:
    """A CPU that keeps the contract of `verifylab.device.base.StepDevice`.

    Attributes
    ----------
    name : str
        ``"host"``.
    measured : bool
        True: a real clock.
    timings : Timings
        Milliseconds of the host clock.
    launches : int
        Launches issued so far, eagerly or under capture.
    live_graphs : int
        Graphs captured and not yet destroyed.
    """

    name = "host"
    measured = True

    def __init__(self) -> None:
        self.timings = Timings()
        self.launches = 0
        self.live_graphs = 0
        self._recording: list[Callable[[], None]] | None = None

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return a zeroed array.

        Raises
        ------
        DeviceError
            When the machine has not that much memory.
        """
        try:
            return np.zeros(shape, dtype)
        except MemoryError:
            gib = np.dtype(dtype).itemsize * math.prod(shape) / 2**30
            raise DeviceError(
                f"allocating {gib:,.2f} GiB: the host has not that much memory; use a smaller "
                "shape, or fewer weight_bytes, widths or rows"
            ) from None

    def describe(self) -> dict[str, Any]:
        """Name the machine's architecture, Python and NumPy, for provenance."""
        return {
            "device": self.name,
            "gpu": None,
            "machine": platform.machine(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        }

    def prepare(self, shape: Any) -> None:
        """Do nothing: NumPy needs no compiling."""

    def issue(self, launch: Any) -> None:
        """Bind `launch` to its views; run it now, or record it under capture."""
        call = launch.host()
        self.launches += 1
        if self._recording is None:
            call()
        else:
            self._recording.append(call)

    def upload(self, target: np.ndarray, values: Any) -> None:
        """Copy `values` into `target`. An error under capture, as it is on a GPU."""
        self._not_capturing("upload")
        target[...] = values

    def download(self, source: np.ndarray) -> np.ndarray:
        """Return a copy of `source`. An error under capture, as it is on a GPU."""
        self._not_capturing("download")
        return source.copy()

    def assign(self, target: np.ndarray, source: np.ndarray) -> None:
        """Copy `source` onto `target`."""
        self._not_capturing("assign")
        np.copyto(target, source)

    def run(self, body: Body) -> None:
        """Run `body` eagerly."""
        self._not_capturing("run")
        start = self.clock()
        body(self)
        self.timings.add("eager", self.clock() - start)

    def capture(self, body: Body) -> HostGraph:
        """Record `body` without computing anything, and make it a graph.

        Raises
        ------
        DeviceError
            When a capture is already running.
        """
        calls, recorded = self._record("capture", body)
        graph = HostGraph(calls)
        self.timings.add("instantiate", self.clock() - recorded)
        self.live_graphs += 1
        return graph

    def update(self, graph: HostGraph, body: Body) -> None:
        """Record `body` and put its launches in the place of those of `graph`.

        Raises
        ------
        DeviceError
            When `graph` has been destroyed, or `body` has another number of launches.
        """
        if graph.destroyed:
            raise DeviceError("update of a graph that was destroyed: capture it again")
        calls, recorded = self._record("update", body)
        if len(calls) != graph.nodes:
            raise DeviceError(
                f"an update needs the graph's {graph.nodes} launches, got {len(calls)}: capture a "
                "graph of its own instead"
            )
        graph._keep = calls
        self.timings.add("update", self.clock() - recorded)

    def _record(self, verb: str, body: Body) -> tuple[tuple[Callable[[], None], ...], float]:
        """Return what `body` issues, bound but not run, and the time when it was all recorded."""
        self._not_capturing(verb)
        start = self.clock()
        calls: list[Callable[[], None]] = []
        self._recording = calls
        try:
            body(self)
        finally:
            self._recording = None
        recorded = self.clock()
        self.timings.add("record", recorded - start)
        return tuple(calls), recorded

    def launch(self, graph: HostGraph) -> None:
        """Run every recorded launch of `graph`, in order.

        Raises
        ------
        DeviceError
            When `graph` has been destroyed.
        """
        calls = graph._keep
        if calls is None:
            raise DeviceError(
                "launch of a graph that was destroyed: capture it again (a cache does on a miss)"
            )
        self._not_capturing("launch")
        start = time.perf_counter()
        for call in calls:
            call()
        self.timings.add("launch", 1e3 * (time.perf_counter() - start))

    def destroy(self, graph: HostGraph) -> None:
        """Let go of the launches of `graph` and of the arrays that they baked.

        Raises
        ------
        DeviceError
            When `graph` has been destroyed already.
        """
        if graph.destroyed:
            raise DeviceError("destroy of a graph that was destroyed already")
        start = self.clock()
        graph._keep = None
        done = self.clock()
        self.live_graphs -= 1
        self.timings.add("exec_destroy", done - start)
        self.timings.add("graph_destroy", self.clock() - done)

    def synchronise(self) -> None:
        """Do nothing: every call has ended when it returns."""

    def clock(self) -> float:
        """Milliseconds of the monotonic host clock."""
        return 1e3 * time.perf_counter()

    def mark(self) -> float:
        """Return the time: on the host the work issued so far is done."""
        return self.clock()

    def elapsed_ms(self, first: float, last: float) -> float:
        """Milliseconds between two marks."""
        return last - first

    def _not_capturing(self, verb: str) -> None:
        if self._recording is not None:
            raise DeviceError(
                f"{verb} while a capture is running: issue launches only, inside a captured body"
            )
