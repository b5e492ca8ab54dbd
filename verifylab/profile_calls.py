"""What profiles have in common: CUDA calls by kind, and the tables that both readers fill.

A profiler records a runtime call and the driver call that it makes; the inner one is marked
`nested` and left out of every sum, so that nothing is counted twice.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from verifylab.trace_file import Notes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GRAPH_KINDS", "KINDS", "Columns", "ProfileTables", "call_kind"]

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
    """Collects calls, kernels and ranges (all times in microseconds), then makes the tables."""

    #: Different names kept; further ones share the last.
    MAX_NAMES = 200_000

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.calls, self.kernels, self.ranges = Columns(), Columns(), Columns()
        self.names: dict[str, int] = {}

    def name(self, text: object) -> int:
        """Return the number of a name."""
        short = text[:512] if isinstance(text, str) else str(text)[:512]
        known = self.names.get(short)
        if known is None:
            if len(self.names) >= self.MAX_NAMES:
                return self.MAX_NAMES - 1
            known = self.names[short] = len(self.names)
        return known

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return ``calls, kernels, ranges``, each by start; starts count from the first event."""
        import pandas as pd

        parts = (self.calls, self.kernels, self.ranges)
        first = min((min(c.start) for c in parts if len(c)), default=0.0)
        names = np.array([*self.names, ""], object)
        out = {}
        for key, columns in zip(("calls", "kernels", "ranges"), parts, strict=True):
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
            if key == "kernels":
                frame |= {"device": lane, "correlation": correlation}
                frame["graph_node"] = np.array(columns.extra)[order]
            else:
                frame["thread"] = lane
            if key == "calls":
                kinds = np.array([call_kind(names[u]) for u in used], object)
                frame["kind"] = pd.Categorical(kinds[codes], KINDS)
                frame["correlation"] = correlation
                frame["nested"] = _nested(frame["start_us"], frame["dur_us"], lane)
            out[key] = pd.DataFrame(frame)
        return out


def _nested(start: np.ndarray, length: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """Which calls lie wholly within an earlier one of their thread."""
    out = np.zeros(len(start), bool)
    for thread in np.unique(lane):
        mine = np.flatnonzero(lane == thread)
        # Of two that start together the longer one is the outer one.
        mine = mine[np.lexsort((-length[mine], start[mine]))]
        ends = start[mine] + length[mine]
        before = np.maximum.accumulate(ends)[:-1]
        out[mine[1:]] = (ends[1:] <= before) & (start[mine[1:]] < before)
    return out
