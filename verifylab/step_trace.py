"""The step trace: what any engine can write of its verify steps, and this library can replay.

A Parquet file with one row a step. The lists of a row run in parallel: entry i is one sequence.
`docs/step_trace.md` has the ten lines that an engine adds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from verifylab.trace_file import Notes, Trace, TraceError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FORMAT", "MAGIC", "OUTCOMES", "StepTraceWriter", "read_step_trace", "schema"]

FORMAT = "step_trace"
MAGIC = b"PAR1"
VERSION = "1"
#: What a step did with the graph cache; empty where the engine does not say.
OUTCOMES = ("hit", "capture", "borrow", "eager", "")
_META = b"verifylab.step_trace"
_REQUIRED = ("step", "slots", "depths")
_LISTS = ("slots", "depths", "accepted", "confidences")
_WORD_MAX = 0xFFFFFFFF
Ints = Sequence[int] | np.ndarray
#: Steps that are read at most, and steps held while writing or reading.
MAX_STEPS, _BATCH = 20_000_000, 8192


def schema() -> Any:
    """Return the Arrow schema.

    ============  =======================  =====================================================
    column        type                     meaning
    ============  =======================  =====================================================
    step          int64                    number of the step, rising
    width         int32                    sequences in the batch (the lists' length)
    slots         list<uint32>             slot of each sequence; 0xFFFFFFFF: it has none
    depths        list<uint32>             rows the planner chose for it (drafts + 1), before any
                                           re-pairing
    confidences   list<list<float32>>      natural logarithm of the drafter's top-1 probability of
                                           each draft; null where not measured
    accepted      list<int32>              drafts of it that were accepted; -1: not known
    verified      list<uint32>             rows really verified for it; null: as `depths`
    outcome       string                   hit, capture, borrow, eager; empty or null: not said
    time_us       int64                    clock at the step's start, microseconds; null: not said
    ============  =======================  =====================================================

    Only `step`, `slots` and `depths` must be there. Further columns are ignored.
    """
    import pyarrow as pa

    return pa.schema(
        [
            ("step", pa.int64()),
            ("width", pa.int32()),
            ("slots", pa.list_(pa.uint32())),
            ("depths", pa.list_(pa.uint32())),
            ("confidences", pa.list_(pa.list_(pa.float32()))),
            ("accepted", pa.list_(pa.int32())),
            ("verified", pa.list_(pa.uint32())),
            ("outcome", pa.string()),
            ("time_us", pa.int64()),
        ],
        metadata={_META: VERSION.encode()},
    )


class StepTraceWriter:
    """Writes a step trace; use it as a context manager.

    Parameters
    ----------
    path : path
        Written aside and renamed when closed, so that what bears the name is whole.
    """

    def __init__(self, path: str | Path) -> None:
        import pyarrow.parquet as pq

        self.path = Path(path)
        self._aside = self.path.with_name(self.path.name + ".part")
        self._schema = schema()
        self._writer = pq.ParquetWriter(self._aside, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._steps = 0

    def step(
        self,
        slots: Ints,
        depths: Ints,
        *,
        accepted: Ints | None = None,
        confidences: Sequence[Sequence[float]] | np.ndarray | None = None,
        verified: Ints | None = None,
        outcome: str = "",
        time_us: int | None = None,
    ) -> None:
        """Add a step; see `schema` for what the values mean.

        Raises
        ------
        ValueError
            When the lists differ in length, a value is out of range or the outcome unknown.
        """
        row: dict[str, Any] = {"step": self._steps, "width": len(slots)}
        row |= {"slots": [int(s) for s in slots], "depths": [int(d) for d in depths]}
        row["accepted"] = None if accepted is None else [int(a) for a in accepted]
        row["verified"] = None if verified is None else [int(v) for v in verified]
        row["confidences"] = (
            None if confidences is None else [[float(c) for c in row] for row in confidences]
        )
        row |= {"outcome": str(outcome), "time_us": time_us}
        problem = _problem(row)
        if problem:
            raise ValueError(f"step {self._steps}: {problem}")
        self._rows.append(row)
        self._steps += 1
        if len(self._rows) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
            self._rows.clear()

    def close(self) -> None:
        """Write what is held, and give the file its name."""
        self._flush()
        self._writer.close()
        self._aside.replace(self.path)

    def __enter__(self) -> StepTraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _problem(row: dict[str, Any]) -> str:
    """Say what is wrong with a step; empty when nothing is."""
    slots, depths = row["slots"], row["depths"]
    if slots is None or depths is None:
        return "slots or depths are null"
    for name in (*_LISTS[1:], "verified"):
        values = row.get(name)
        if values is not None and len(values) != len(slots):
            return f"{name} must have one entry a sequence ({len(slots)}), got {len(values)}"
    if row.get("width") is not None and row["width"] != len(slots):
        return f"width says {row['width']}, slots are {len(slots)}"
    # A null entry compares with nothing: it is refused here, where lists of Python's are given.
    for name, least, most in (
        ("slots", 0, _WORD_MAX), ("depths", 1, 2**31 - 1), ("verified", 1, 2**31 - 1),
        ("accepted", -1, 2**31 - 1),
    ):  # fmt: skip
        for value in row[name] if row.get(name) is not None else ():
            if value is None or not least <= value <= most:
                return f"{name} must be {least} to {most}, got {value}"
    done = row["verified"] if row.get("verified") is not None else depths
    if row.get("accepted") is not None:
        for accepted, rows in zip(row["accepted"], done, strict=True):
            if accepted >= rows:
                return f"{accepted} drafts accepted of {rows} rows verified (at most rows - 1)"
    held = [s for s in slots if s != _WORD_MAX]
    if len(set(held)) != len(held):
        return f"two sequences share a slot in {list(slots)}"
    if (row.get("outcome") or "") not in OUTCOMES:
        return f"outcome must be {', '.join(OUTCOMES[:-1])} or empty, got {row['outcome']!r:.40}"
    return ""


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
    if not path.is_file():
        raise TraceError(f"{path.name}: no such file")
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
    version = (there.metadata or {}).get(_META)
    if version not in (None, VERSION.encode()):
        notes.add("version", f"step trace version {version!r:.20}, this version reads {VERSION}")
    target = pa.schema([wanted.field(c) for c in columns])
    seen, before = 0, None
    try:
        for batch in file.iter_batches(_BATCH, columns=columns):
            table = pa.Table.from_batches([batch]).select(columns).cast(target)
            table = table.combine_chunks()
            if not _sound(table):  # rare: find out which rows, and why
                good = []
                for number, row in enumerate(table.to_pylist(), seen + 1):
                    problem = "step is null" if row["step"] is None else _problem(row)
                    if problem:
                        notes.add("row", f"row {number:,}: {problem}, left out")
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
    """Whether no row of a batch has a problem, all at once: what `_problem` says row by row."""
    if not len(table):
        return True
    plain = [n for n in (*_LISTS[:3], "verified", "step", "width") if n in table.column_names]
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
    if (shared & (slots[order][1:] != _WORD_MAX)).any():
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
        for name in (*_LISTS[:3], "verified"):
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
    columns = ["step", "width", *_LISTS[:3], "verified", "confidences", "outcome", "time_us"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
