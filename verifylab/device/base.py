"""The one contract between the graph cache and whatever runs the verify step.

Three devices keep it: ``model`` (a virtual clock), ``host`` (NumPy, really computes) and
``cuda`` (a GPU through CuPy). A *body* is any callable ``body(device)`` that issues the step's
work on the device it is handed; the same body runs eagerly or under capture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

__all__ = ["OPERATIONS", "Body", "Device", "DeviceError", "Graph", "Timings"]

#: The operations a device times, in the order a step meets them. ``record`` is the body running
#: under capture; ``eager`` the body running without one.
OPERATIONS = ("record", "instantiate", "update", "launch", "exec_destroy", "graph_destroy", "eager")


class DeviceError(RuntimeError):
    """A device could not do what was asked; the message says what to do about it."""


@runtime_checkable
class Graph(Protocol):
    """A captured, instantiated step. It owns every buffer whose address it baked."""

    @property
    def nodes(self) -> int:
        """Number of graph nodes."""

    @property
    def nbytes(self) -> int:
        """Bytes that the graph itself holds on the device (not the buffers that it points at)."""


Body = Callable[[Any], None]


@dataclass(slots=True)
class Timings:
    """Count and total time of each operation.

    Attributes
    ----------
    count : dict[str, int]
        Calls by operation name (see `OPERATIONS`).
    total_ms : dict[str, float]
        Milliseconds by operation name: host clock on ``host`` and ``cuda``, virtual on ``model``.
    """

    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPERATIONS, 0))
    total_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(OPERATIONS, 0.0))

    def add(self, operation: str, ms: float) -> None:
        """Book one call of `operation` that took `ms` milliseconds."""
        self.count[operation] += 1
        self.total_ms[operation] += ms

    def reset(self) -> None:
        """Forget everything booked so far."""
        for operation in OPERATIONS:
            self.count[operation] = 0
            self.total_ms[operation] = 0.0


@runtime_checkable
class Device(Protocol):
    """What the graph cache and the experiment ask of a device."""

    #: ``"model"``, ``"host"`` or ``"cuda"``.
    name: str
    #: True when `clock` reads a real clock; False when it reads a machine profile.
    measured: bool
    timings: Timings

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a zeroed buffer that lives until the device and every graph let go of it."""

    def run(self, body: Body) -> None:
        """Run `body` eagerly (booked as ``eager``)."""

    def capture(self, body: Body) -> Graph:
        """Run `body` under capture and instantiate it (``record``, then ``instantiate``).

        If `body` raises, the capture is ended, the device stays usable and the exception is
        raised unchanged. A failure of the device itself raises `DeviceError`.
        """

    def update(self, graph: Any, body: Body) -> None:
        """Record `body` and put its arguments into `graph` in place (``record``, ``update``).

        `body` must launch the same kernels on the same grids. A device that cannot raises
        `DeviceError`; the graph then stays as it was.
        """

    def launch(self, graph: Any) -> None:
        """Replay `graph` (booked as ``launch``); does not wait for it."""

    def destroy(self, graph: Any) -> None:
        """Free `graph` (``exec_destroy``, then ``graph_destroy``); later launches are errors."""

    def synchronise(self) -> None:
        """Wait until everything issued so far is done."""

    def clock(self) -> float:
        """Milliseconds since an arbitrary start; virtual on ``model``."""
