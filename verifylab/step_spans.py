"""Which ranges of a profile are its steps; where none are, graph launches end them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from verifylab.profile_calls import runs, within
from verifylab.trace_file import TraceError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["STEP_PATTERNS", "step_spans"]

#: Names of ranges that are steps, the first that two or more steps of a profile match counts.
STEP_PATTERNS = (r"^ProfilerStep#", r"(?i)verify", r"(?i)decode", r"(?i)\b(step|iteration)\b")


def step_spans(
    calls: pd.DataFrame, ranges: pd.DataFrame, pattern: str | None = None
) -> tuple[np.ndarray, np.ndarray, str]:
    """Find the steps of a profile.

    Parameters
    ----------
    calls, ranges : DataFrame
        Tables of a profile (`read_chrome`, `read_nsys`).
    pattern : str, optional
        Regular expression that names the ranges which are steps; default: `STEP_PATTERNS`.

    Returns
    -------
    ndarray, ndarray, str
        Starts and ends in microseconds, by start, and ``ranges`` or ``launches``. Of matching
        ranges within one another the outermost is the step; of threads that step side by side,
        one is counted. Without two such ranges a step ends with a graph launch, a capture before
        it included, and begins where the one before ended.

    Raises
    ------
    TraceError
        When `pattern` is no regular expression.
    """
    ranges = ranges.assign(name=ranges.name.astype("category"))
    codes, names = ranges.name.cat.codes.to_numpy(), ranges.name.cat.categories
    for text in (pattern,) if pattern is not None else STEP_PATTERNS:
        try:
            wanted = re.compile(text)
        except re.error as error:
            raise TraceError(f"pattern {text!r} is no regular expression: {error}") from None
        matching = np.array([bool(wanted.search(str(name))) for name in names], bool)
        chosen = ranges[matching[codes]] if len(names) else ranges
        start, end = _in_turn(chosen)
        if len(start) >= (1 if pattern is not None else 2):
            return start, end, "ranges"
    launches = calls[(calls.kind == "graph_launch") & ~calls.nested]
    end = np.sort((launches.start_us + launches.dur_us).to_numpy(float))
    first = calls.start_us.min() if len(calls) else 0.0
    return np.concatenate([[first], end[:-1]]) if len(end) else end, end, "launches"


def _in_turn(ranges: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Outermost ranges of the thread with most of them, and of threads that take turns with it."""
    starts, ends = np.empty(0), np.empty(0)
    seen: set[int] = set()
    for start, end, name in sorted(_outermost(ranges), key=lambda lane: -len(lane[0])):
        beside = np.searchsorted(np.sort(starts), end) > np.searchsorted(
            np.sort(ends), start, "right"
        )
        numbered = len(set(name)) == len(name) > 1  # as ProfilerStep#7: a name is one step
        if 2 * beside.sum() >= len(start) or numbered and seen.issuperset(name):
            continue
        starts, ends = np.append(starts, start[~beside]), np.append(ends, end[~beside])
        seen.update(name)
    order = np.argsort(starts, kind="stable")
    return starts[order], ends[order]


def _outermost(ranges: pd.DataFrame) -> Iterator[tuple[np.ndarray, np.ndarray, list[int]]]:
    """Of each thread: starts, ends and names of the ranges that are within no other."""
    length, lane = ranges.dur_us.to_numpy(float), ranges.thread.to_numpy()
    start = ranges.start_us.to_numpy(float)
    outer = ~within(start, length, lane)
    name = ranges.name.cat.codes.to_numpy()
    for mine in runs(lane):
        mine = mine[outer[mine]]
        yield start[mine], start[mine] + length[mine], name[mine].tolist()
