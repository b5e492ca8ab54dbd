"""Read a step trace: batches are checked at once, and row by row only where one is unsound."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
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

    wanted, there = schema(), file.schema_arrow
    columns = _columns(name, there, notes)
    version = (there.metadata or {}).get(META)
    if version not in (None, VERSION.encode()):
        notes.add("version", f"step trace version {version!r:.20}, this version reads {VERSION}")
    target = pa.schema([wanted.field(c) for c in columns])
    seen, before = 0, None
    try:
        for batch in file.iter_batches(BATCH, columns=columns):
            table = pa.Table.from_batches([batch]).select(columns)
            kept: Sequence[int] = range(batch.num_rows)
            try:
                table = table.cast(target)
            except pa.ArrowException:  # rare: a value that its column cannot hold
                table, kept = _cast(table.combine_chunks(), target, seen + 1, notes)
            table = table.combine_chunks()
            if not _sound(table):  # rare: find out which rows, and why
                good = []
                for number, row in zip(kept, table.to_pylist(), strict=True):
                    number += seen + 1
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


def _columns(name: str, there: Any, notes: Notes) -> list[str]:
    """Return the columns of `schema` that a file has and that can be read."""
    found = []
    for field in schema():
        many, required = there.names.count(field.name), field.name in _REQUIRED
        if not many and required:
            raise TraceError(
                f"{name} is a Parquet file without the column {field.name!r} of a step trace "
                f"(it has: {', '.join(there.names)[:200]})"
            )
        if many > 1:
            wrong = f"there are {many} columns {field.name!r}"
        elif many and not _castable(kind := there.field(field.name).type, field.type):
            wrong = f"column {field.name!r} is {kind!s:.60}, not {field.type}"
        elif many:
            found.append(field.name)
            continue
        else:
            continue
        if required:
            raise TraceError(f"{name} has 0 readable steps: {wrong}")
        notes.add("column", f"{wrong}: left out")
    return found


def _castable(kind: Any, wanted: Any) -> bool:
    """Whether values of a type can be values of the one wanted."""
    import pyarrow as pa

    if wanted == pa.string():  # any number has a text, which is no outcome
        text = kind.value_type if pa.types.is_dictionary(kind) else kind
        return str(text) in ("string", "large_string", "string_view", "null")
    try:
        pa.nulls(0, kind).cast(wanted)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _cast(table: Any, target: Any, first: int, notes: Notes) -> tuple[Any, list[int]]:
    """Cast a batch of which some value does not fit; return it without such rows, and which stay.

    An optional column of which no value fits is left out instead. `first` is the number of the
    batch's first row.
    """
    import pyarrow as pa

    def part(column: Any, kind: Any, at: int, many: int) -> list[Any]:
        try:
            return [column.take(pa.array(range(at, at + many))).cast(kind)]
        except pa.ArrowException as error:
            if many == 1:
                bad[at] = _first_line(error)
                return [pa.nulls(1, kind)]
            half = many // 2
            return part(column, kind, at, half) + part(column, kind, at + half, many - half)

    columns, dropped = [], set[int]()
    for field in target:
        column = table[field.name].combine_chunks()
        bad: dict[int, str] = {}
        columns.append(pa.concat_arrays(part(column, field.type, 0, len(column))))
        if field.name not in _REQUIRED and len(bad) == len(column) - column.null_count > 1:
            wrong = next(iter(bad.values()))
            notes.add(
                "column", f"from row {first:,}: {field.name}: {wrong}: the column is left out"
            )
            continue
        for row, wrong in bad.items():
            notes.add("row", f"row {first + row:,}: {field.name}: {wrong}, left out")
        dropped |= bad.keys()
    kept = [row for row in range(len(table)) if row not in dropped]
    return pa.Table.from_arrays(columns, schema=target).take(pa.array(kept, pa.int64())), kept


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
