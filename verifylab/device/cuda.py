"""The CUDA device: one GPU through CuPy, graphs through the runtime API so that each call is timed.

Everything runs on one non-blocking stream (capture needs one). Launch times in `Timings` are host
times: what a call costs the thread that makes it. Device time comes from events on that stream
(`CudaDevice.mark`). CuPy's own ``Graph`` would hide instantiate and both destroys, and does not
keep the buffers alive whose addresses it baked: `CudaGraph` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from verifylab.device.base import Body, DeviceError, Timings
from verifylab.device.cuda_errors import explain, import_cupy
from verifylab.device.cuda_graph import CudaGraph, KernelTable
from verifylab.device.cuda_info import describe_gpu
from verifylab.verify_shape import VerifyShape

__all__ = ["CudaDevice", "CudaGraph"]


class CudaDevice:
    """A GPU that keeps the contract of `verifylab.device.base.StepDevice`.

    Parameters
    ----------
    index : int
        Which GPU.
    measure_memory : bool
        Read free GPU memory around each instantiate (outside its timing) for
        `CudaGraph.measured_bytes`.
    cupy : module, optional
        Stands in for CuPy in tests.

    Raises
    ------
    DeviceError
        When CuPy is missing, the driver is missing or too old, or there is no such GPU; the
        message says what to install or update.

    Attributes
    ----------
    timings : Timings
        Host milliseconds of each call; nothing waits for the GPU.
    launches : int
        Launches issued so far, eagerly or under capture.
    stream : cupy.cuda.Stream
        The one stream of all work.
    """

    name = "cuda"
    measured = True

    def __init__(self, index: int = 0, measure_memory: bool = False, cupy: Any = None) -> None:
        self._cupy = import_cupy() if cupy is None else cupy
        self._runtime = self._cupy.cuda.runtime
        self._measure_memory = measure_memory
        self.timings = Timings()
        self.launches = 0
        self._kernels = KernelTable(self._cupy)
        self._recording: list[Any] | None = None
        self._nodes = 0
        self._inside = False
        self._graphs: dict[int, CudaGraph] = {}
        self._serial = self._finished = 0
        with self._explained("opening the GPU"):
            count = self._runtime.getDeviceCount()
            if not 0 <= index < count:
                raise DeviceError(f"index must name one of {count} GPUs, 0 first; got {index}")
            self._cupy.cuda.Device(index).use()
            self.stream = self._cupy.cuda.Stream(non_blocking=True)
        self.index = index

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn what CuPy raises into a `DeviceError` that says what to do."""
        try:
            yield
        except DeviceError:
            raise
        except Exception as error:
            message = explain(self._cupy, error, doing)
            if message is None:
                raise
            raise DeviceError(message) from error

    def describe(self) -> dict[str, Any]:
        """Name the GPU, its clocks, the driver and CuPy, for provenance."""
        with self._explained("reading the GPU's properties"):
            return {"device": self.name, **describe_gpu(self._cupy, self.index)}

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make the stream CuPy's current one while a body runs."""
        self._inside = True
        try:
            with self.stream:
                yield
        finally:
            self._inside = False

    def prepare(self, shape: VerifyShape | None) -> None:
        """Compile and load every kernel for `shape`, so that no capture has to."""
        self._not_capturing("prepare")
        size = "any" if shape is None else repr(shape.name)
        with self._explained(f"compiling the kernels for shape {size}"):
            self._kernels.load(shape)

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a zeroed buffer on the GPU."""
        self._not_capturing("allocate")
        gib = np.dtype(dtype).itemsize * float(np.prod(shape, dtype=np.float64)) / 2**30
        with self._explained(f"allocating {gib:.2f} GiB"), self.stream:
            return self._cupy.zeros(shape, dtype)

    def issue(self, launch: Any) -> None:
        """Launch `launch` on the stream; under capture it becomes a node.

        Raises
        ------
        DeviceError
            Outside a body, when the kernel was not prepared before the capture, or when the
            launch fails.
        """
        if not self._inside:
            raise DeviceError("issue outside a body: hand the body to run or capture")
        call = launch.kernel()
        try:
            if call is None:
                kept = self._copy(launch.target, launch.source)
            else:
                self._function(call.shape, call.name)(call.grid, call.block, call.args)
                kept = call.args
        except Exception as error:
            with self._explained(f"launching {'a copy' if call is None else call.name}"):
                raise error
        self.launches += 1
        if self._recording is not None:
            self._recording.extend(kept)
            self._nodes += 1

    def _copy(self, target: Any, source: Any) -> tuple[Any, Any]:
        kind = self._runtime.memcpyDeviceToDevice
        self._runtime.memcpyAsync(
            target.data.ptr, source.data.ptr, source.nbytes, kind, self.stream.ptr
        )
        return target, source

    def _function(self, shape: VerifyShape | None, name: str) -> Any:
        function = self._kernels.find(shape, name)
        if function is None:
            if self._recording is not None:
                raise DeviceError(
                    f"kernel {name} is not loaded for {shape}: call prepare(shape) before the "
                    "capture"
                )
            self.prepare(shape)
            function = self._kernels.find(shape, name)
        return function

    def upload(self, target: Any, values: Any) -> None:
        """Copy host `values` into `target`, in stream order."""
        self._not_capturing("upload")
        values = np.ascontiguousarray(np.broadcast_to(values, target.shape), target.dtype)
        with self._explained("uploading"), self.stream:
            if target.flags.c_contiguous:
                target.set(values, stream=self.stream)
            else:
                target[...] = self._cupy.asarray(values)

    def download(self, source: Any) -> np.ndarray:
        """Return `source` as a NumPy array, once the stream is done."""
        self._not_capturing("download")
        with self._explained("downloading"), self.stream:
            values = source.get(stream=self.stream)
        # A copy on a named stream need not have ended.
        self.synchronise()
        return values

    def assign(self, target: Any, source: Any) -> None:
        """Copy `source` onto `target`, in stream order."""
        self._not_capturing("assign")
        with self._explained("copying a state"), self.stream:
            target[...] = source

    def run(self, body: Body) -> None:
        """Run `body` eagerly; its host time is booked, nothing waits for the GPU."""
        self._not_capturing("run")
        start = self.clock()
        self._serial += 1
        with self._current():
            body(self)
        self.timings.add("eager", self.clock() - start)

    def capture(self, body: Body) -> CudaGraph:
        """Record `body` and instantiate it.

        Raises
        ------
        Exception
            What `body` raised, once the capture is ended and its partial graph destroyed.
        DeviceError
            When the capture was invalidated or the driver could not instantiate the graph.
        """
        self._not_capturing("capture")
        keep: list[Any] = []
        start = self.clock()
        with self._explained("starting a capture"):
            # Relaxed: what other threads and Python's collector call meanwhile is no fault.
            self._runtime.streamBeginCapture(
                self.stream.ptr, self._runtime.streamCaptureModeRelaxed
            )
        self._recording, self._nodes = keep, 0
        try:
            with self._current():
                body(self)
        except BaseException:
            self._abandon_capture()
            raise
        finally:
            self._recording = None
        with self._explained("ending a capture"):
            handle = self._runtime.streamEndCapture(self.stream.ptr)
            if not handle:
                raise DeviceError(
                    "the capture was invalidated: inside a captured body issue launches only "
                    "(no allocation, synchronisation, upload or download)"
                )
        self.timings.add("record", self.clock() - start)
        return self._instantiate(handle, tuple(keep))

    def update(self, graph: CudaGraph, body: Body) -> None:
        """Refuse: CuPy's runtime has no ``cudaGraphExecUpdate`` (14.2 as of 2026).

        Raises
        ------
        DeviceError
            Always; `graph` stays as it was.
        """
        raise DeviceError(
            "the exec_update policy needs cudaGraphExecUpdate, which CuPy does not offer: measure "
            "another policy, or model this one"
        )

    def _abandon_capture(self) -> None:
        """End a capture whose body raised; never raises, so that the body's error is the one."""
        try:
            handle = self._runtime.streamEndCapture(self.stream.ptr)
            if handle:
                self._runtime.graphDestroy(handle)
        except Exception:
            # Invalidated: ending it said so, and there is no graph to destroy.
            return

    def _instantiate(self, handle: int, keep: tuple[Any, ...]) -> CudaGraph:
        free = self._free_bytes()
        start = self.clock()
        try:
            with self._explained(f"instantiating a graph of {self._nodes} nodes"):
                executable = self._runtime.graphInstantiate(handle)
        except BaseException:
            self._runtime.graphDestroy(handle)
            raise
        self.timings.add("instantiate", self.clock() - start)
        measured = None if free is None else max(0, free - (self._free_bytes() or 0))
        graph = CudaGraph(handle, executable, keep, self._nodes, measured)
        self._graphs[id(graph)] = graph
        return graph

    def _free_bytes(self) -> int | None:
        return int(self._runtime.memGetInfo()[0]) if self._measure_memory else None

    def launch(self, graph: CudaGraph) -> None:
        """Enqueue a replay of `graph`; books the host time of the call.

        Raises
        ------
        DeviceError
            When `graph` has been destroyed, or the launch fails.
        """
        if graph._keep is None:
            raise DeviceError(
                "launch of a graph that was destroyed: capture it again (a cache does on a miss)"
            )
        self._not_capturing("launch")
        start = time.perf_counter()
        try:
            self._runtime.graphLaunch(graph._exec, self.stream.ptr)
        except Exception as error:
            with self._explained("launching a graph"):
                raise error
        self.timings.add("launch", 1e3 * (time.perf_counter() - start))
        self._serial += 1
        graph._launched = self._serial

    def destroy(self, graph: CudaGraph) -> None:
        """Free `graph` and let go of the arrays that it baked.

        Waits first, untimed, if a replay of it may still be running.

        Raises
        ------
        DeviceError
            When `graph` has been destroyed already.
        """
        if graph.destroyed:
            raise DeviceError("destroy of a graph that was destroyed already")
        self._not_capturing("destroy")
        if graph._launched > self._finished:
            self.synchronise()
        # Forgotten first: whatever the driver answers, no one may use or free it again.
        graph._keep = None
        del self._graphs[id(graph)]
        try:
            self._timed("exec_destroy", self._runtime.graphExecDestroy, graph._exec)
        finally:
            self._timed("graph_destroy", self._runtime.graphDestroy, graph._handle)

    def _timed(self, operation: str, call: Callable[[int], None], handle: int) -> None:
        start = self.clock()
        with self._explained(operation.replace("_", " ")):
            call(handle)
        self.timings.add(operation, self.clock() - start)

    @property
    def live_graphs(self) -> int:
        """Graphs captured and not yet destroyed."""
        return len(self._graphs)

    def close(self) -> None:
        """Destroy every graph that is left."""
        for graph in list(self._graphs.values()):
            self.destroy(graph)

    def synchronise(self) -> None:
        """Wait until the stream is done; an error of an earlier kernel shows here."""
        self._not_capturing("synchronise")
        with self._explained("waiting for the GPU"):
            self.stream.synchronize()
        self._finished = self._serial

    def clock(self) -> float:
        """Milliseconds of the monotonic host clock."""
        return 1e3 * time.perf_counter()

    def mark(self) -> Any:
        """Record an event on the stream."""
        self._not_capturing("mark")
        with self._explained("recording an event"):
            event = self._cupy.cuda.Event()
            event.record(self.stream)
        return event

    def elapsed_ms(self, first: Any, last: Any) -> float:
        """Milliseconds of device time between two marks; waits for the last."""
        with self._explained("reading an event"):
            last.synchronize()
            return float(self._cupy.cuda.get_elapsed_time(first, last))

    def _not_capturing(self, verb: str) -> None:
        if self._recording is not None:
            raise DeviceError(
                f"{verb} while a capture is running: issue launches only, inside a captured body"
            )
