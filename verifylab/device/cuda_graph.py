"""A graph on the GPU, and the kernels that it is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verifylab.device.base import RecordedGraph
from verifylab.verify_shape import SHAPES, VerifyShape

__all__ = ["KERNELS", "SHAPELESS", "CudaGraph", "KernelTable"]

#: The kernels' source, beside this package.
SOURCE = Path(__file__).parents[1] / "kernels.cu"
#: Kernels in it, and those of them that do not depend on the shape.
KERNELS = ("vl_conv", "vl_wy", "vl_stream", "vl_tick")
SHAPELESS = ("vl_stream", "vl_tick")


class CudaGraph(RecordedGraph):
    """A captured and instantiated step; owns the arrays whose addresses it baked.

    Attributes
    ----------
    measured_bytes : int or None
        Free GPU memory that instantiation took, where the device measures that. The driver
        takes memory in chunks: one graph may show 0 and the next one megabytes.
    """

    __slots__ = ("_exec", "_handle", "_launched", "measured_bytes")

    def __init__(
        self, handle: int, executable: int, keep: tuple[Any, ...], nodes: int, measured: int | None
    ) -> None:
        super().__init__(keep, nodes)
        self._handle, self._exec = handle, executable
        self._launched = 0
        self.measured_bytes = measured


class KernelTable:
    """Compiled kernels by shape and name.

    Parameters
    ----------
    cupy : module
    """

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._functions: dict[tuple[VerifyShape | None, str], Any] = {}

    def find(self, shape: VerifyShape | None, name: str) -> Any | None:
        """Return a loaded kernel, or None; `shape` None for one that does not depend on it."""
        return self._functions.get((shape, name))

    def load(self, shape: VerifyShape | None) -> None:
        """Compile and load every kernel for `shape` (None: the shapeless ones)."""
        if (shape, SHAPELESS[0]) in self._functions:
            return
        size = SHAPES["tiny"] if shape is None else shape
        module = self._cupy.RawModule(
            code=SOURCE.read_text(encoding="utf-8"),
            options=("-std=c++17", *size.defines),
            backend="nvrtc",
        )
        loaded = {}
        for name in KERNELS:
            function = module.get_function(name)
            # Asking for an attribute makes a lazily loading driver load the code now.
            _ = function.num_regs
            loaded[name] = function
        for name, function in loaded.items():
            self._functions[size, name] = function
            if name in SHAPELESS:
                self._functions.setdefault((None, name), function)
