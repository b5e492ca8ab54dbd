"""The one contract between the graph cache and whatever runs the verify step.

Three devices keep it: ``model`` (a virtual clock), ``host`` (NumPy, really computes) and
``cuda`` (a GPU through CuPy). A *body* is any callable ``body(device)`` that issues the step's
work on the device it is handed; the same body runs eagerly or under capture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

__all__ = [
    "GRAPH_BYTES_PER_NODE",
    "OPERATIONS",
    "Body",
    "Device",
    "DeviceError",
    "Graph",
    "RecordedGraph",
    "StepDevice",
    "Timings",
]

#: The operations a device times, in the order a step meets them. ``record`` is the body running
#: under capture; ``eager`` the body running without one.
OPERATIONS = ("record", "instantiate", "update", "launch", "exec_destroy", "graph_destroy", "eager")

#: Bytes that one node of an instantiated graph holds on a GPU: 10 KB
#: (`data/published/api_costs.csv`, row ``graph_memory_per_node``). `Graph.nbytes` is this times
#: the nodes on every device, so that a capacity in bytes evicts the same graphs everywhere.
GRAPH_BYTES_PER_NODE = 10_000


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


class RecordedGraph:
    """What `Graph` asks, of one that keeps in `_keep` what it baked until it is destroyed."""

    __slots__ = ("_keep", "_nodes")

    def __init__(self, keep: tuple[Any, ...], nodes: int) -> None:
        self._keep: tuple[Any, ...] | None = keep
        self._nodes = nodes

    @property
    def nodes(self) -> int:
        """Launches recorded; a straight line, so one node each."""
        return self._nodes

    @property
    def nbytes(self) -> int:
        """Bytes that it holds by the published rule, `GRAPH_BYTES_PER_NODE` a node."""
        return self._nodes * GRAPH_BYTES_PER_NODE

    @property
    def destroyed(self) -> bool:
        """True once the device has destroyed it."""
        return self._keep is None


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


@runtime_checkable
class StepDevice(Device, Protocol):
    """A device that computes: what `verifylab.verify_step` asks beyond `Device`.

    Attributes
    ----------
    launches : int
        Launches issued so far, eagerly or under capture (replays add nothing).
    """

    launches: int

    def describe(self) -> dict[str, Any]:
        """Name what this runs on, for provenance: JSON-able, nothing about the user."""

    def prepare(self, shape: Any) -> None:
        """Compile and load the kernels for a `verifylab.verify_shape.VerifyShape`.

        Must come before a capture that uses them: compiling and loading are not capturable.
        """

    def issue(self, launch: Any) -> None:
        """Issue one `verifylab.step_ops.Launch`: run it, or record it under capture."""

    def upload(self, target: Any, values: Any) -> None:
        """Copy host `values` into the device buffer or view `target`, in stream order."""

    def download(self, source: Any) -> Any:
        """Return the buffer or view `source` as a new NumPy array, once all work is done."""

    def assign(self, target: Any, source: Any) -> None:
        """Copy one device view onto another of the same shape, in stream order."""

    def mark(self) -> Any:
        """Return a mark at the end of the work issued so far (an event; a time on ``host``)."""

    def elapsed_ms(self, first: Any, last: Any) -> float:
        """Milliseconds of device time between two marks; waits for the last."""
