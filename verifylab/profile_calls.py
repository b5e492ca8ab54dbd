"""What profiles have in common: CUDA calls by kind, and the tables that both readers fill.

A profiler records a runtime call and the driver call that it makes; the inner one is marked
`nested` and left out of every sum, so that nothing is counted twice.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from verifylab.trace_file import Notes

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "GRAPH_KINDS",
    "KINDS",
    "Columns",
    "ProfileTables",
    "call_kind",
    "device_number",
    "runs",
    "within",
]

_KIND_PATTERNS = {
    "graph_launch": r"GraphLaunch",
    "graph_instantiate": r"GraphInstantiate",
    "graph_exec_destroy": r"GraphExecDestroy",
    "graph_destroy": r"GraphDestroy",
    "graph_exec_update": r"GraphExec\w*Update|GraphExec\w*SetParams",
    "graph_upload": r"GraphUpload",
    "capture_begin": r"Stream(Begin)Capture",
    "capture_end": r"StreamEndCapture",
    "kernel_launch": r"Launch(Cooperative)?Kernel",
    "copy": r"Mem(cpy|set)",
    "synchronize": r"Synchronize",
}
_PATTERNS = {
    kind: re.compile(rf"(?:cuda|cu)\w{{0,8}}?(?:{p})") for kind, p in _KIND_PATTERNS.items()
}
#: Kinds of CUDA calls, in the order in which a name is tried.
KINDS = (*_PATTERNS, "other_call")
#: Kinds that make, change or end a graph (a launch is not one).
GRAPH_KINDS = (
    "graph_instantiate",
    "graph_exec_destroy",
    "graph_destroy",
    "graph_exec_update",
    "graph_upload",
    "capture_begin",
    "capture_end",
)


@cache
def call_kind(name: str) -> str:
    """Kind of a CUDA call by its name, whatever its suffix (``cudaGraphLaunch_v10000``)."""
    for kind, pattern in _PATTERNS.items():
        if pattern.match(name[:128]):
            return kind
    return "other_call"


def device_number(value: object) -> int:
    """Return the number of a device, given as a number or as text with one; -1: not said."""
    if type(value) is str and (found := re.search(r"[0-9]{1,9}\Z", value)):
        return int(found.group())
    return value if type(value) is int and -(2**62) < value < 2**62 else -1


@dataclass(slots=True)
class Columns:
    """Growing columns: intervals with a name, a thread, a correlation id and one more number."""

    start: array = field(default_factory=lambda: array("d"))
    length: array = field(default_factory=lambda: array("d"))
    name: array = field(default_factory=lambda: array("q"))
    lane: array = field(default_factory=lambda: array("q"))
    correlation: array = field(default_factory=lambda: array("d"))
    extra: array = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.start)


class ProfileTables:
    """Collects calls, kernels, ranges and runs of whole graphs, then makes the tables.

    All times are in microseconds.
    """

    #: Different names kept; further ones share the last.
    MAX_NAMES = 200_000

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.calls, self.kernels, self.ranges = Columns(), Columns(), Columns()
        self.graph_runs = Columns()
        self.names: dict[str, int] = {}
        self.lanes: dict[Hashable, int] = {}

    def name(self, text: object) -> int:
        """Return the number of a name."""
        short = text[:512] if isinstance(text, str) else str(text)[:512]
        known = self.names.get(short)
        if known is None:
            if len(self.names) >= self.MAX_NAMES:
                return self.MAX_NAMES - 1
            known = self.names[short] = len(self.names)
        return known

    def lane(self, *thread: object) -> int:
        """Return the number of a thread, by whatever a file calls it and its process."""
        try:
            return self.lanes.setdefault(thread, len(self.lanes))
        except TypeError:  # a list or the like
            return self.lanes.setdefault(repr(thread)[:128], len(self.lanes))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return ``calls, kernels, ranges``, each by start; starts count from the first event.

        And ``graph_runs``, where there are any.
        """
        import pandas as pd

        parts = {"calls": self.calls, "kernels": self.kernels, "ranges": self.ranges}
        if len(self.graph_runs):
            parts["graph_runs"] = self.graph_runs
        first = min((min(c.start) for c in parts.values() if len(c)), default=0.0)
        names = np.array([*self.names, ""], object)
        out = {}
        for key, columns in parts.items():
            start = np.array(columns.start) - first
            order = np.argsort(start, kind="stable")
            codes = np.array(columns.name, np.int64)[order]
            used, codes = np.unique(codes, return_inverse=True)
            frame = {
                "start_us": start[order],
                "dur_us": np.array(columns.length)[order],
                "name": pd.Categorical.from_codes(codes, names[used]),
            }
            lane = np.array(columns.lane, np.int64)[order]
            correlation = np.array(columns.correlation)[order]
            extra = np.array(columns.extra)[order]
            if key == "graph_runs":
                del frame["name"]
                frame |= {"device": lane, "graph_id": extra}
            elif key == "kernels":
                frame |= {"device": lane, "correlation": correlation, "graph_node": extra}
            else:
                frame["thread"] = lane
            if key == "calls":
                kinds = np.array([call_kind(names[u]) for u in used], object)
                frame["kind"] = pd.Categorical(kinds[codes], KINDS)
                frame["correlation"] = correlation
                driver = np.array([not names[u].startswith("cuda") for u in used], bool)[codes]
                what = (driver, frame["kind"].codes, correlation)
                frame["nested"] = _nested(
                    frame["start_us"], frame["dur_us"], lane, what, _tick(columns)
                )
            out[key] = pd.DataFrame(frame)
        return out


def runs(lane: np.ndarray) -> Iterator[np.ndarray]:
    """Yield, for each lane, where it stands in `lane`."""
    order = np.argsort(lane, kind="stable")
    return iter(np.split(order, np.flatnonzero(np.diff(lane[order])) + 1) if len(lane) else [])


def within(start: np.ndarray, length: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """Which intervals lie wholly within another one of their lane."""
    unlike = np.zeros((3, len(start)))
    return _nested(start, length, lane, tuple(unlike), 0.0)


def _tick(columns: Columns) -> float:
    """How far two times of a file may be apart, in microseconds, and mean the same."""
    start, length = np.array(columns.start), np.array(columns.length)
    whole = bool((start % 1 == 0).all() and (length % 1 == 0).all())
    return 1.0 if whole else 1e-3 + 2 * float(np.spacing(np.abs(start).max(initial=0.0)))


def _nested(
    start: np.ndarray, length: np.ndarray, lane: np.ndarray, what: tuple, tick: float
) -> np.ndarray:
    """Which calls lie within an earlier one of their thread.

    A driver call may reach out of the runtime call that makes it by a `tick`, to which times are
    rounded. `what` has for each call: whether it is the driver's, its kind and its correlation id.
    """
    driver, kind, correlation = what
    out = np.zeros(len(start), bool)
    for mine in runs(lane):
        # Of two that start together the longer one is the outer one, then the runtime's.
        mine = mine[np.lexsort((driver[mine], -length[mine], start[mine]))]
        begin, end = start[mine], start[mine] + length[mine]
        reached = np.maximum.accumulate(end)
        leads = np.append(True, end[1:] > reached[:-1])  # who reached furthest up to each
        before = np.maximum.accumulate(np.where(leads, np.arange(len(mine)), 0))[:-1]
        inner, outer, reached = mine[1:], mine[before], reached[:-1]
        inside = (end[1:] <= reached) & (begin[1:] < reached)
        twins = (driver[inner] > driver[outer]) & (kind[inner] == kind[outer])
        twins &= ~(np.abs(correlation[inner] - correlation[outer]) > 0)  # NaN: not said
        out[inner] = inside | twins & (end[1:] <= reached + tick) & (begin[1:] <= reached + tick)
    return out
