"""Is the GPU ready? Checks in the order in which they depend on each other, each with its fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from verifylab.device.base import DeviceError
from verifylab.device.cuda import CudaDevice
from verifylab.device.cuda_errors import import_cupy
from verifylab.device.cuda_info import ask_driver
from verifylab.device.host import HostDevice
from verifylab.verify_shape import SHAPES
from verifylab.verify_step import VerifyStep

__all__ = ["Check", "diagnose"]

#: Largest difference of the kernels from their NumPy twin, relative to the largest number.
_TOLERANCE = 1e-5
_SLOTS, _DEPTHS = (0, 1, 3), (4, 4, 2)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    name : str
        ``driver``, ``cupy``, ``gpu``, ``nvrtc``, ``capture`` or ``kernels``.
    ok : bool
    detail : str
        What was found, or what is wrong and how to put it right.
    """

    name: str
    ok: bool
    detail: str


def diagnose(cupy: Any = None, driver: Callable[[], str] = ask_driver) -> Iterator[Check]:
    """Yield each check as it is made; stop after the first that fails.

    Parameters
    ----------
    cupy : module, optional
        Stands in for CuPy in tests.
    driver : callable
        Asks the driver without CuPy, so that a missing driver is not blamed on CuPy.

    Yields
    ------
    Check
    """
    found: dict[str, Any] = {"cupy": cupy}
    for name, look in (
        ("driver", lambda _: driver()), ("cupy", _cupy), ("gpu", _gpu), ("nvrtc", _nvrtc),
        ("capture", _capture), ("kernels", _kernels),
    ):  # fmt: skip
        check = _checked(name, look, found)
        yield check
        if not check.ok:
            return


def _checked(name: str, look: Callable[[dict[str, Any]], str], found: dict[str, Any]) -> Check:
    try:
        return Check(name, True, look(found))
    except DeviceError as error:
        return Check(name, False, str(error))
    except Exception as error:
        # A report, not a traceback: whatever is broken is what the user wants to read.
        return Check(name, False, f"{type(error).__name__}: {error}")


def _cupy(found: dict[str, Any]) -> str:
    if found["cupy"] is None:
        found["cupy"] = import_cupy()
    return f"CuPy {getattr(found['cupy'], '__version__', 'unknown')}"


def _gpu(found: dict[str, Any]) -> str:
    device = found["device"] = CudaDevice(cupy=found["cupy"])
    about = device.describe()
    return f"{about['gpu']}, compute capability {about['compute_capability']}"


def _nvrtc(found: dict[str, Any]) -> str:
    found["device"].prepare(SHAPES["tiny"])
    return "NVRTC compiled the kernels"


def _capture(found: dict[str, Any]) -> str:
    found["eager"] = _step(found["device"])
    replayed = _step(found["device"], captured=True)
    if not np.array_equal(replayed, found["eager"], equal_nan=True):
        raise DeviceError(
            "a replayed graph computes something else than the same launches: please report this "
            "with the GPU and the driver"
        )
    return "a captured step replays to the bit"


def _kernels(found: dict[str, Any]) -> str:
    twin = _step(HostDevice())
    error = float(np.abs(found["eager"] - twin).max() / np.abs(twin).max())
    if not error < _TOLERANCE:
        raise DeviceError(
            f"the kernels differ from their NumPy twin by {error:.1e} of the largest number "
            f"(under {_TOLERANCE:.0e} is right): please report this with the GPU and the driver"
        )
    return f"the kernels agree with NumPy to {error:.1e}"


def _step(device: Any, captured: bool = False) -> np.ndarray:
    """Run one small batch from fixed inputs; return its outputs and states, flat."""
    step = VerifyStep(device, "tiny", pool_slots=4, max_rows=sum(_DEPTHS))
    rng = np.random.default_rng(1)
    shape, rows = step.shape, sum(_DEPTHS)
    scalars = (shape.layers, rows, shape.value_heads)
    x = rng.standard_normal((shape.layers, rows, shape.conv_dim))
    step.load(x, -rng.random(scalars), rng.random(scalars))
    device.upload(step.h_state, rng.standard_normal(step.h_state.shape))
    body = step.body(_SLOTS, _DEPTHS)
    if captured:
        graph = device.capture(body)
        device.launch(graph)
        device.destroy(graph)
    else:
        device.run(body)
    return np.concatenate(
        [device.download(buffer).ravel() for buffer in (step.out, step.h_state, step.conv_state)]
    )
