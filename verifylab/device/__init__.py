"""Devices: where a verify step runs. See `verifylab.device.base` for the contract."""

from __future__ import annotations

from dataclasses import dataclass

from verifylab.device.base import (
    GRAPH_BYTES_PER_NODE,
    OPERATIONS,
    Body,
    Device,
    DeviceError,
    Graph,
    StepDevice,
    Timings,
)

__all__ = [
    "DEVICES",
    "GRAPH_BYTES_PER_NODE",
    "OPERATIONS",
    "Body",
    "Choice",
    "Device",
    "DeviceError",
    "Graph",
    "StepDevice",
    "Timings",
    "choose",
    "gpu_answers",
    "open_device",
]

#: Names that a user may ask for.
DEVICES = ("auto", "model", "host", "cuda")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which device a run uses, and why in one sentence."""

    name: str
    why: str


def gpu_answers() -> tuple[bool, str]:
    """Say whether a GPU answers through CuPy, and what it or the failure is called."""
    try:
        import cupy
    except ImportError:
        return False, "CuPy is not installed (a GPU machine: make sweep EXTRAS=cuda13)"
    except Exception as error:  # a broken CUDA install raises what it likes on import
        return False, f"CuPy does not import: {type(error).__name__}: {error}"
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
        if count < 1:
            return False, "CuPy finds no GPU"
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"]
    except Exception as error:  # CUDARuntimeError, or a driver library that is missing
        return False, f"CuPy is installed but no GPU answers: {error}"
    return True, name.decode() if isinstance(name, bytes) else str(name)


def choose(device: str = "auto") -> Choice:
    """Resolve a device name.

    Parameters
    ----------
    device : {"auto", "model", "host", "cuda"}
        ``auto`` takes ``cuda`` where a GPU answers, else ``model``.

    Raises
    ------
    ValueError
        When the name is unknown.
    DeviceError
        When ``cuda`` is asked for and no GPU answers.
    """
    if device not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    if device in ("model", "host"):
        return Choice(device, "asked for")
    answers, what = gpu_answers()
    if answers:
        return Choice("cuda", f"a GPU answers: {what}")
    if device == "cuda":
        raise DeviceError(f"device 'cuda' was asked for, but no GPU can be used: {what}")
    return Choice("model", f"no GPU: {what}")


def open_device(name: str) -> StepDevice:
    """Open a device that computes.

    Parameters
    ----------
    name : {"host", "cuda"}
        As `choose` resolved it. The model device needs a machine profile: see
        `verifylab.device.model`.

    Raises
    ------
    ValueError
        When the name is another.
    DeviceError
        When the GPU does not open; the message says what to do.
    """
    if name == "host":
        from verifylab.device.host import HostDevice

        return HostDevice()
    if name == "cuda":
        from verifylab.device.cuda import CudaDevice

        return CudaDevice()
    raise ValueError(f"a device that computes is host or cuda, got {name!r}")
