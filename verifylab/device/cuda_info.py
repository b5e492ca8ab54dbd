"""What a GPU measurement ran on: GPU, clocks, driver, CuPy."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import Any

import numpy as np

from verifylab.device.base import DeviceError

__all__ = ["ask_driver", "describe_gpu"]

_QUERY = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.limit")


def ask_driver() -> str:
    """Ask the NVIDIA driver itself, without CuPy, for its version and its GPUs.

    Raises
    ------
    DeviceError
        When there is no driver, it does not start or it sees no GPU; the message says what to do.
    """
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            library = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        raise DeviceError(
            "there is no NVIDIA driver: install it until `nvidia-smi` lists the GPU (a container: "
            "start it with --gpus all), or stay with device='model' or 'host'"
        )
    status = library.cuInit(0)
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    if status == 0:
        library.cuDeviceGetCount(ctypes.byref(count))
        library.cuDriverGetVersion(ctypes.byref(version))
    # 100 is CUDA_ERROR_NO_DEVICE.
    if status == 100 or (status == 0 and count.value < 1):
        raise DeviceError(
            "the driver sees no GPU: check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or stay with "
            "device='model' or 'host'"
        )
    if status:
        raise DeviceError(
            f"the driver does not start (cuInit gives {status}): check that `nvidia-smi` works; "
            "after a driver update, reboot"
        )
    gpus = "GPU" if count.value == 1 else "GPUs"
    return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}, {count.value} {gpus}"


def describe_gpu(cupy: Any, index: int) -> dict[str, Any]:
    """Return the GPU, its clocks, the driver and the libraries, JSON-able.

    Parameters
    ----------
    cupy : module
    index : int
        Which GPU, as CUDA numbers them.
    """
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(index)
    name = properties["name"]
    return {
        "gpu": name.decode() if isinstance(name, bytes) else str(name),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "multiprocessors": properties.get("multiProcessorCount"),
        "l2_bytes": properties.get("l2CacheSize"),
        "memory_bytes": properties.get("totalGlobalMem"),
        "driver_cuda": int(runtime.driverGetVersion()),
        "runtime_cuda": int(runtime.runtimeGetVersion()),
        "cupy": getattr(cupy, "__version__", "unknown"),
        "numpy": np.__version__,
        "nvidia_smi": _nvidia_smi(properties),
    }


def _nvidia_smi(properties: dict[str, Any]) -> dict[str, str] | None:
    """Ask ``nvidia-smi`` for the clocks, which CUDA's properties no longer have; None without."""
    program = shutil.which("nvidia-smi")
    if program is None or "pciBusID" not in properties:
        return None
    # By bus, because CUDA_VISIBLE_DEVICES renumbers CUDA's GPUs and not nvidia-smi's.
    bus = f"{properties['pciDomainID']:08x}:{properties['pciBusID']:02x}:" + (
        f"{properties['pciDeviceID']:02x}.0"
    )
    command = [program, f"--id={bus}", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(zip(_QUERY, (v.strip() for v in done.stdout.strip().split(",")), strict=False))
