"""What goes wrong between Python and a GPU, in sentences that say what to do."""

from __future__ import annotations

from typing import Any

from verifylab.device.base import DeviceError

__all__ = ["explain", "import_cupy"]

#: By `cudaError_t` (CUDA runtime API reference, section "Data types used by CUDA Runtime").
ADVICE: dict[int, str] = {
    2: "the GPU is out of memory: lower the graph cache's capacity (each graph holds memory), "
    "use fewer pool slots or a smaller shape, or free the GPU of other programs",
    3: "CUDA could not start: check that `nvidia-smi` works, then try again",
    46: "the GPU is busy or in exclusive mode: end the other program that holds it",
    100: "there is no GPU that CUDA can see: check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use "
    "device='model' or device='host'",
    101: "there is no GPU of that number: check `nvidia-smi` and CUDA_VISIBLE_DEVICES",
    209: "the kernels were compiled for another GPU: clear CuPy's kernel cache",
    222: "the driver is older than the compiler: update the NVIDIA driver, or install the CuPy "
    "wheel of the CUDA version that `nvidia-smi` shows (cupy-cuda12x or cupy-cuda13x)",
    700: "a kernel read or wrote outside its buffers and the CUDA context is lost: restart the "
    "process",
    900: "this call is not allowed while a capture runs: inside a captured body issue launches "
    "only",
    901: "the capture was invalidated by a call that is not allowed inside it (an allocation, a "
    "synchronisation, a copy to or from the host): issue launches only",
}  # fmt: skip
_TOO_OLD = 35


def import_cupy() -> Any:
    """Import CuPy.

    Raises
    ------
    DeviceError
        When it is not installed or does not load.
    """
    try:
        import cupy
    except ModuleNotFoundError as error:
        raise DeviceError(
            "CuPy is not installed: pip install 'verifylab[cuda13]' (or 'verifylab[cuda12]'; "
            "`nvidia-smi` shows the driver's CUDA version), or use device='model' or 'host'"
        ) from error
    except ImportError as error:
        raise DeviceError(
            f"CuPy is installed but does not load ({error}): reinstall the wheel of the driver's "
            "CUDA version, and only that one"
        ) from error
    return cupy


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def explain(cupy: Any, error: Exception, doing: str) -> str | None:
    """Say what `error`, raised while `doing` something, means and what to do.

    Parameters
    ----------
    cupy : module
    error : Exception
        What CuPy raised.
    doing : str
        A phrase such as ``"instantiating a graph of 96 nodes"``.

    Returns
    -------
    str or None
        None when the error is not one of CUDA's, CuPy's or the compiler's.
    """
    status = getattr(error, "status", None)
    kind = type(error).__name__
    if status == _TOO_OLD:
        runtime = cupy.cuda.runtime
        driver = int(runtime.driverGetVersion())
        needs = _version(int(runtime.runtimeGetVersion()))
        if driver == 0:
            return (
                f"{doing} failed: there is no NVIDIA driver; install one for CUDA {needs} or "
                "newer, or use device='model' or device='host'"
            )
        return (
            f"{doing} failed: the NVIDIA driver supports CUDA {_version(driver)} and this CuPy "
            f"needs {needs}: update the driver, or install the cupy-cuda{driver // 1000}x wheel"
        )
    if kind == "OutOfMemoryError":
        status = 2
    if isinstance(status, int):
        advice = ADVICE.get(status, "see the CUDA runtime's error list for that name")
        return f"{doing} failed ({error}): {advice}"
    if kind == "CompileException":
        return (
            f"{doing} failed: NVRTC refused the source ({error}); `verifylab doctor` checks that "
            "CuPy and NVRTC are of one CUDA version"
        )
    if isinstance(error, (ImportError, OSError)) or "nvrtc" in str(error).lower():
        return (
            f"{doing} failed ({error}): a CUDA library does not load; install it with "
            "pip install 'cupy-cuda13x[ctk]' (or 12x), or put the CUDA toolkit on the library path"
        )
    return None
