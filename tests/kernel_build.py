"""Test helper: kernels.cu compiled by g++ and run on the CPU behind the host device."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verifylab
from verifylab.device.host import HostDevice
from verifylab.verify_shape import VerifyShape

HERE = Path(__file__).parent
KERNELS = Path(verifylab.__file__).parent / "kernels.cu"


def build_for_cpu(shape: VerifyShape, folder: Path) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++ to run kernels.cu on the CPU; none on PATH")
    library = folder / f"kernels_{shape.name}.so"
    command = [compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    # The pragmas are nvcc's, and a kernel that this file does not wrap is no fault.
    command += ["-Wno-unknown-pragmas", "-Wno-unused-function", *shape.defines]
    command += [f"-I{KERNELS.parent}", str(HERE / "cpu_kernels.cpp"), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


class CpuKernelDevice(HostDevice):
    """The host device, but each launch runs the CUDA source instead of the NumPy twin."""

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__()
        self._library = library

    def issue(self, launch: Any) -> None:
        call = launch.kernel()
        if call is None:
            super().issue(launch)
            return
        grid = (*call.grid, 1)[:2]
        values = [ctypes.c_uint(v) for v in (*grid, call.block[0])]
        values += [self._argument(a) for a in call.args]
        function = getattr(self._library, f"cpu_{call.name}")

        def run() -> None:
            function(*values)

        self._issue_call(run, keep=call.args)

    def _issue_call(self, run: Callable[[], None], keep: tuple[Any, ...]) -> None:
        class Bound:
            kept = keep

            def host(self) -> Callable[[], None]:
                return run

        super().issue(Bound())

    @staticmethod
    def _argument(value: Any) -> Any:
        if isinstance(value, np.int32):
            return ctypes.c_int(int(value))
        if isinstance(value, np.int64):
            return ctypes.c_longlong(int(value))
        assert value.flags.c_contiguous, "a kernel takes the first address only"
        return ctypes.c_void_p(value.ctypes.data)
