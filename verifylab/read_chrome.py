"""Read a Chrome or Kineto trace (PyTorch profiler): CUDA calls, kernels, annotations.

Streamed: one event at a time, so a trace of any size takes the memory of the rows that are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from verifylab.json_stream import objects
from verifylab.profile_calls import Columns, ProfileTables, call_kind, device_number
from verifylab.step_spans import step_spans
from verifylab.trace_file import Limits, Notes, Trace, TraceError, blocks, plain

__all__ = ["FORMAT", "OPENING", "read_chrome"]

FORMAT = "chrome_trace"
#: Where the events begin: the array named so, or a file that is an array of objects.
OPENING = re.compile(r'\A\ufeff?\s*\[(?=\s*\{)|(?<!\\)"traceEvents"\s*:\s*\[')

#: Events that are read at most: ten gigabytes of ordinary ones.
MAX_EVENTS = 50_000_000
_NAN = float("nan")


def read_chrome(path: str | Path, *, limits: Limits | None = None) -> Trace:
    """Read a Chrome-format trace, ``.json`` or gzip.

    Parameters
    ----------
    path : path
    limits : Limits, optional
        How far gzip data may grow.

    Returns
    -------
    Trace
        Times in microseconds; ``start_us`` counts from the first event kept.

        - ``calls``: CUDA runtime and driver calls: ``start_us, dur_us, name, thread`` (numbered
          over all processes), ``kind`` (see `profile_calls.KINDS`), ``correlation`` (NaN: none),
          ``nested`` (within another call: not to be added up)
        - ``kernels``: ``start_us, dur_us, name, device, correlation, graph_node`` (NaN: not said)
        - ``ranges``: annotations on the host: ``start_us, dur_us, name, thread``

        `events` counts every event of the file, of whatever kind. `counts` has CUDA calls by
        kind, nested ones left out.

    Raises
    ------
    TraceError
        When the file cannot be opened or holds no events.
    """
    path = Path(path)
    notes = Notes()
    out = ProfileTables(notes)
    stream = objects(blocks(path, notes, limits=limits), OPENING, notes)
    before = next(stream, None)
    if before is None:
        trouble = "; ".join(notes.texts())
        raise TraceError(
            f"{path.name} has no array of trace events" + (f" ({trouble})" if trouble else "")
        )
    events = _events(stream, out)
    if not events:
        trouble = "; ".join(notes.texts())
        raise TraceError(f"{path.name} has 0 trace events" + (f" ({trouble})" if trouble else ""))
    tables = out.tables()
    calls = tables["calls"]
    by_kind = calls.kind[~calls.nested].value_counts(sort=False)
    counts = {str(kind): int(n) for kind, n in by_kind.items() if n}
    counts |= {name: len(tables[name]) for name in ("kernels", "ranges") if len(tables[name])}
    return Trace(
        FORMAT,
        path.name,
        tables,
        counts,
        len(step_spans(calls, tables["ranges"])[0]),
        events,
        notes.texts(),
        _about(before),
    )


def _events(stream: Iterator[Any], out: ProfileTables) -> int:
    """Sort the events into `out`; return how many there were."""
    columns_of = {
        "kernel": out.kernels,
        "cuda_runtime": out.calls,
        "cuda_driver": out.calls,
        "user_annotation": out.ranges,
        None: out.calls,  # other writers leave the category out; then the name decides
    }
    begun: dict[int, list[dict]] = {}
    before = 0
    for several in stream:
        for number, event in enumerate(several, before + 1):
            try:
                columns, phase = columns_of.get(event.get("cat")), event.get("ph")
                if phase == "B" or phase == "E":  # any category: an end often names none
                    lane = out.lane(event.get("pid"), event.get("tid"))
                    event = _pair(event, begun.setdefault(lane, []), phase)
                    columns = columns_of.get(event.get("cat")) if event else None
                elif phase != "X":
                    continue
            except (AttributeError, TypeError):
                out.notes.add("event", f"event {number:,} is no event, left out")
                continue
            if columns is not None:
                _keep(event, columns, number, out)
        before += len(several)
        if before >= MAX_EVENTS:
            out.notes.add("events", f"only the first {before:,} events were read")
            break
    left = sum(map(len, begun.values()))
    if left:
        out.notes.add("open", f"{left:,} begun events have no end, left out")
    return before


def _keep(event: dict, columns: Columns, number: int, out: ProfileTables) -> None:
    """Store an event of a category that is kept."""
    name, start, length = event.get("name", ""), event.get("ts"), event.get("dur", _NAN)
    if event.get("cat") is None and not (type(name) is str and _is_call(name)):
        return
    if not (_is_number(start) and _is_number(length) and length >= 0):
        what = f"event {number:,}: ts {_short(start)}, dur {_short(length)}, left out"
        out.notes.add("time", what)
        return
    arguments = event.get("args")
    arguments = arguments if type(arguments) is dict else {}
    columns.start.append(start)
    columns.length.append(length)
    columns.name.append(out.name(name))
    if columns is out.kernels:
        columns.lane.append(device_number(arguments.get("device")))
    else:
        columns.lane.append(out.lane(event.get("pid"), event.get("tid")))
    columns.correlation.append(_or_nan(arguments.get("correlation")))
    columns.extra.append(_or_nan(arguments.get("graph node id")))


def _pair(event: dict, stack: list[dict], phase: str) -> dict | None:
    """Match a begin with its end (``ph`` B and E): a whole event, or None until there is one."""
    if phase == "B":
        if len(stack) < 10_000:
            stack.append(event)
        return None
    if not stack:
        return None
    first = stack.pop()
    start, end = first.get("ts"), event.get("ts")
    if start is None or end is None or not (_is_number(start) and _is_number(end)):
        return None
    return {**first, "dur": end - start}


def _is_call(name: str) -> bool:
    return name.startswith("cu") and call_kind(name) != "other_call"


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) < value < 2**63
    return type(value) is float and isfinite(value) and abs(value) < 2**63


def _or_nan(value: Any) -> float:
    return float(value) if _is_number(value) else _NAN


def _short(value: Any) -> str:
    if type(value) is int and abs(value) > 2**63:
        return "beyond 64 bits"
    return repr(value)[:40]


def _about(before: str) -> dict[str, str]:
    """GPU and world size, from what stands before the events."""
    body, _, _ = before.rpartition('"traceEvents"')
    try:
        facts = json.loads(body.strip().rstrip(",") + "}")
        devices = facts.get("deviceProperties") or [{}]
        out = {"gpu": plain(devices[0].get("name", ""), 80), "gpus": str(len(devices))}
        return out if out["gpu"] else {}
    except (ValueError, RecursionError, TypeError, AttributeError, LookupError):
        return {}
