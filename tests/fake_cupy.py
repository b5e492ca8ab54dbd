"""Test helper: a CuPy that runs on the CPU, counts every handle, and fails where it is told to.

It keeps the few names and rules of CuPy 14 that `verifylab.device.cuda` relies on: capture records
instead of running, a synchronisation under capture invalidates it (900, then 901 when it is
ended), handles are integers, errors carry ``status``. Kernels run `kernels.cu` through g++.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from kernel_build import CpuKernelDevice, build_for_cpu

from verifylab.verify_shape import VerifyShape


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}: told to fail")
        self.status = status


class OutOfMemoryError(MemoryError):
    pass


class FakeArray(np.ndarray):
    """A NumPy array with the attributes of a CuPy one."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)

    def set(self, values: np.ndarray, stream: Any) -> None:
        assert stream is not None, "the null stream does not wait for a non-blocking one"
        assert self.flags.c_contiguous and values.dtype == self.dtype
        self[...] = values

    def get(self, stream: Stream) -> np.ndarray:
        """Return an array that is filled once the stream is waited for."""
        out = np.full(self.shape, -77, self.dtype)
        stream._fake.pending.append(lambda: np.copyto(out, self))
        return out


class Event:
    def __init__(self) -> None:
        self.time: float | None = None

    def record(self, stream: Any) -> None:
        self.time = 1.0 if self.time is None else self.time

    def synchronize(self) -> None:
        assert self.time is not None


STREAM = 0x5000
#: Bytes that the fake GPU loses to each executable.
EXECUTABLE_BYTES = 4096


class Stream:
    def __init__(self, fake: FakeCupy, non_blocking: bool) -> None:
        assert non_blocking, "capture needs a non-blocking stream"
        self._fake, self.ptr = fake, STREAM

    def __enter__(self) -> Stream:
        self._fake.current.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        self._fake.current.pop()

    def synchronize(self) -> None:
        self._fake.called("streamSynchronize")
        if self._fake.recorded is not None:
            self._fake.invalidated = True
            raise CUDARuntimeError(900)
        for copy in self._fake.pending:
            copy()
        self._fake.pending.clear()


class FakeCupy:
    """The module. `fail` maps the name of a runtime call to the status that it raises."""

    def __init__(self, folder: Path | None = None, driver: int = 13000, gpus: int = 1) -> None:
        self.folder, self.driver, self.gpus = folder, driver, gpus
        self.fail: dict[str, int] = {}
        self.calls: list[str] = []
        self.current: list[Stream] = []
        self.recorded: list[Callable[[], None]] | None = None
        self.invalidated = False
        self.pending: list[Callable[[], None]] = []  # copies to the host that have not ended
        self.live: dict[int, Any] = {}  # graphs and executables by handle
        self.executables = 0
        self._handles = iter(range(1, 1 << 30))
        self.cuda = SimpleNamespace(
            runtime=self._runtime(),
            Device=lambda index: SimpleNamespace(use=lambda: self.called("use")),
            Stream=lambda non_blocking=False: Stream(self, non_blocking),
            Event=Event,
            get_elapsed_time=lambda first, last: last.time - first.time,
        )

    def called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fail:
            raise CUDARuntimeError(self.fail[name])

    # The array side.
    def zeros(self, shape: Any, dtype: Any) -> FakeArray:
        assert self.recorded is None and self.current, "allocate on the stream, outside a capture"
        if "zeros" in self.fail:
            raise OutOfMemoryError("told to fail")
        return np.zeros(shape, dtype).view(FakeArray)

    def asarray(self, values: np.ndarray) -> FakeArray:
        return np.asarray(values).view(FakeArray)

    # The kernel side.
    def RawModule(self, code: str, options: tuple[str, ...], backend: str) -> Any:
        self.called("compile")
        assert "vl_wy" in code and backend == "nvrtc"
        sizes = {o[5:].split("=")[0].lower(): int(o.split("=")[1]) for o in options if "-D" in o}
        library = None
        if self.folder is not None:
            library = build_for_cpu(VerifyShape(f"fake{len(self.calls)}", 1, **sizes), self.folder)
        return SimpleNamespace(get_function=lambda name: self._kernel(library, name))

    def _kernel(self, library: ctypes.CDLL | None, name: str) -> Any:
        fake = self

        class Kernel:
            loaded = False

            @property
            def num_regs(self) -> int:
                self.loaded = True
                return 1

            def __call__(self, grid: Any, block: Any, args: Any) -> None:
                fake.called("launch_kernel")
                assert fake.current, "a launch goes to the current stream"
                if fake.recorded is not None and not self.loaded:
                    # A lazily loading driver loads now, which a capture does not survive.
                    fake.invalidated = True
                    raise CUDARuntimeError(900)
                self.loaded = True
                if library is None:
                    fake.enqueue(lambda: None)
                    return
                values = [ctypes.c_uint(v) for v in (*(*grid, 1)[:2], block[0])]
                values += [CpuKernelDevice._argument(a) for a in args]
                function = getattr(library, f"cpu_{name}")

                def run() -> None:
                    function(*values)

                fake.enqueue(run)

        return Kernel()

    def enqueue(self, run: Callable[[], None]) -> None:
        if self.recorded is None:
            run()
        else:
            self.recorded.append(run)

    # The runtime side.
    def _runtime(self) -> Any:
        names = (
            "streamBeginCapture", "streamEndCapture", "graphInstantiate", "graphLaunch",
            "graphExecDestroy", "graphDestroy", "memcpyAsync", "getDeviceCount", "memGetInfo",
        )  # fmt: skip

        def logged(name: str) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                self.called(name)
                return getattr(self, f"_{name}")(*args)

            return call

        return SimpleNamespace(
            **{name: logged(name) for name in names},
            CUDARuntimeError=CUDARuntimeError,
            memcpyDeviceToDevice=3,
            streamCaptureModeRelaxed=2,
            driverGetVersion=lambda: self.driver,
            runtimeGetVersion=lambda: 13000,
            getDeviceProperties=lambda index: {"name": b"Fake GPU", "major": 9, "minor": 0},
        )

    def _getDeviceCount(self) -> int:
        return self.gpus

    def _memGetInfo(self) -> tuple[int, int]:
        return (1 << 30) - EXECUTABLE_BYTES * self.executables, 1 << 31

    def _streamBeginCapture(self, stream: int, mode: int) -> None:
        assert self.recorded is None, "a stream captures once at a time"
        assert stream == STREAM
        self.recorded, self.invalidated = [], False

    def _streamEndCapture(self, stream: int) -> int:
        assert self.recorded is not None and stream == STREAM, "nothing to end"
        recorded, self.recorded = self.recorded, None
        if self.invalidated:
            self.invalidated = False
            raise CUDARuntimeError(901)
        return self._own(recorded)

    def _own(self, value: Any) -> int:
        handle = next(self._handles)
        self.live[handle] = value
        return handle

    def _graphInstantiate(self, graph: int) -> int:
        self.executables += 1
        return self._own(list(self.live[graph]))

    def _graphLaunch(self, executable: int, stream: int) -> None:
        assert stream == STREAM
        for run in self.live[executable]:
            run()

    def _graphExecDestroy(self, executable: int) -> None:
        self.executables -= 1
        del self.live[executable]

    def _graphDestroy(self, graph: int) -> None:
        del self.live[graph]

    def _memcpyAsync(self, to: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        assert kind == 3 and stream == STREAM
        self.enqueue(lambda: ctypes.memmove(to, source, nbytes) and None)
