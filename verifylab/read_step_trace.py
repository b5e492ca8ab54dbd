"""Read a step trace: batches are checked at once, and row by row only where one is unsound."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verifylab.step_trace import (
    BATCH,
    FORMAT,
    LISTS,
    META,
    NO_SLOT_WORD,
    OUTCOMES,
    VERSION,
    problem,
    schema,
)
from verifylab.trace_file import Notes, Trace, TraceError, refuse_gzip

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_step_trace"]

_REQUIRED = ("step", "slots", "depths")
#: Steps that are read at most.
MAX_STEPS = 20_000_000


def read_step_trace(path: str | Path) -> Trace:
    """Read a step trace.

    Returns
    -------
    Trace
        ``steps``: the columns of `schema`. Lists are arrays of int64, None where null;
        ``confidences`` and ``time_us`` are Arrow columns. A step that breaks a rule of the schema
        is left out, with a warning. `counts` has steps by outcome.

    Raises
    ------
    TraceError
        When the file is no Parquet file with the required columns, or has 0 readable steps.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, notes = Path(path), Notes()
    refuse_gzip(path, "Parquet file")
    try:
        file = pq.ParquetFile(path, thrift_string_size_limit=1 << 24)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError(
            f"{path.name} is no whole Parquet file ({_first_line(error)}); its index stands at the "
            "end, so that of a file cut off nothing can be read"
        ) from None
    with file:
        frame = _frame(_batches(path.name, file, notes))
    if frame.empty:
        trouble = "; ".join(notes.texts())
        raise TraceError(f"{path.name} has 0 readable steps" + (f" ({trouble})" if trouble else ""))
    outcomes = frame.outcome.value_counts()
    counts = {"steps": len(frame)} | {str(k): int(n) for k, n in outcomes.items() if k}
    counts["sequences"] = int(frame.width.sum())
    return Trace(FORMAT, path.name, {"steps": frame}, counts, len(frame), len(frame), notes.texts())


def _batches(name: str, file: Any, notes: Notes) -> Iterator[Any]:
    """Yield Arrow tables of the columns of `schema` that are there, with sound rows only."""
    import pyarrow as pa

    wanted = schema()
    there = file.schema_arrow
    lacking = [c for c in _REQUIRED if c not in there.names]
    if lacking:
        raise TraceError(
            f"{name} is a Parquet file without the column {lacking[0]!r} of a step trace "
            f"(it has: {', '.join(there.names)[:200]})"
        )
    columns = [f.name for f in wanted if f.name in there.names]
    version = (there.metadata or {}).get(META)
    if version not in (None, VERSION.encode()):
        notes.add("version", f"step trace version {version!r:.20}, this version reads {VERSION}")
    target = pa.schema([wanted.field(c) for c in columns])
    seen, before = 0, None
    try:
        for batch in file.iter_batches(BATCH, columns=columns):
            table = pa.Table.from_batches([batch]).select(columns).cast(target)
            table = table.combine_chunks()
            if not _sound(table):  # rare: find out which rows, and why
                good = []
                for number, row in enumerate(table.to_pylist(), seen + 1):
                    wrong = "step is null" if row["step"] is None else problem(row)
                    if wrong:
                        notes.add("row", f"row {number:,}: {wrong}, left out")
                    else:
                        good.append(row)
                table = pa.Table.from_pylist(good, target).combine_chunks()
            seen += batch.num_rows
            if len(table):
                steps = table["step"].to_numpy()
                steps = steps if before is None else np.append(before, steps)
                for back in np.flatnonzero(np.diff(steps) <= 0).tolist():
                    notes.add("order", f"step {steps[back + 1]} comes after step {steps[back]}")
                before = steps[-1]
                yield table
            if seen >= MAX_STEPS:
                notes.add("rows", f"only the first {seen:,} steps were read")
                break
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        notes.add("damage", f"reading stopped after row {seen:,}: {_first_line(error)}")


def _flat(table: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and values of a list column without nulls."""
    column = table[name].chunk(0)
    offsets = column.offsets.to_numpy()
    return offsets - offsets[0], column.flatten().to_numpy(zero_copy_only=False)


def _sound(table: Any) -> bool:
    """Whether no row of a batch has a problem, all at once: what `problem` says row by row."""
    if not len(table):
        return True
    plain = [n for n in (*LISTS[:3], "verified", "step", "width") if n in table.column_names]
    full = [n for n in plain if table[n].null_count == 0]
    if not {"step", "slots", "depths"} <= set(full):
        return False
    if any(table[n].null_count not in (0, len(table)) for n in plain):
        return False
    lists = {n: _flat(table, n) for n in full if n not in ("step", "width")}
    for name, (offsets, values) in lists.items():
        if not np.array_equal(offsets, lists["slots"][0]) or values.dtype.kind not in "iu":
            return False  # float values have nulls among them
        least = {"slots": 0, "accepted": -1}.get(name, 1)
        if len(values) and (values.min() < least or name != "slots" and values.max() >= 2**31):
            return False
    offsets, slots = lists["slots"]
    if "width" in full and not np.array_equal(table["width"].to_numpy(), np.diff(offsets)):
        return False
    done = lists.get("verified", lists["depths"])[1].astype(np.int64)
    if "accepted" in lists and (lists["accepted"][1] >= done).any():
        return False
    row = np.repeat(np.arange(len(table)), np.diff(offsets))
    order = np.lexsort((slots, row))
    shared = (np.diff(slots[order].astype(np.int64)) == 0) & (np.diff(row[order]) == 0)
    if (shared & (slots[order][1:] != NO_SLOT_WORD)).any():
        return False
    if "outcome" in table.column_names:
        said = set(table["outcome"].unique().to_pylist()) - {None}
        if not said <= set(OUTCOMES):
            return False
    if "confidences" in table.column_names and table["confidences"].null_count < len(table):
        column = table["confidences"].chunk(0)
        lengths = np.diff(column.offsets.to_numpy())
        present = column.is_valid().to_numpy(zero_copy_only=False)
        return bool((lengths == np.diff(offsets))[present].all())
    return True


def _frame(tables: Iterator[Any]) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    parts = []
    for table in tables:
        many = len(table)
        part = pd.DataFrame({"step": table["step"].to_numpy()})
        part["width"] = np.diff(_flat(table, "slots")[0]).astype(np.int64)
        for name in (*LISTS[:3], "verified"):
            rows = np.full(many, None, object)
            if name in table.column_names and table[name].null_count < many:
                if table[name].null_count:
                    rows[:] = [None if r is None else np.array(r) for r in table[name].to_pylist()]
                else:
                    offsets, values = _flat(table, name)
                    values = values.astype(np.int64)
                    for i, (a, b) in enumerate(itertools.pairwise(offsets.tolist())):
                        rows[i] = values[a:b]
            part[name] = rows
        for name in ("confidences", "outcome", "time_us"):
            kind = schema().field(name).type
            column = table[name] if name in table.column_names else pa.nulls(many, kind)
            if name == "outcome":
                part[name] = pd.Series(column.to_pylist(), dtype=object).fillna("").astype(object)
            else:
                part[name] = pd.Series(column, dtype=pd.ArrowDtype(kind))
        parts.append(part)
    columns = ["step", "width", *LISTS[:3], "verified", "confidences", "outcome", "time_us"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
