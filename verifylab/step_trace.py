"""The step trace: what any engine can write of its verify steps, and this library can replay.

A Parquet file with one row a step. The lists of a row run in parallel: entry i is one sequence.
`docs/step_trace.md` has the ten lines that an engine adds.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        ``steps``: the columns of `schema`; lists as Python lists, None where null. A step that
        breaks a rule of the schema is left out, with a warning. `counts` has steps by outcome.

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
        rows = _rows(path.name, file, notes)
    if not rows:
        trouble = "; ".join(notes.texts())
        raise TraceError(f"{path.name} has 0 readable steps" + (f" ({trouble})" if trouble else ""))
    frame = _frame(rows)
    outcomes = frame.outcome.value_counts()
    counts = {"steps": len(frame)} | {str(k): int(n) for k, n in outcomes.items() if k}
    counts["sequences"] = int(frame.width.sum())
    return Trace(FORMAT, path.name, {"steps": frame}, counts, len(frame), len(frame), notes.texts())


def _rows(name: str, file: Any, notes: Notes) -> list[dict[str, Any]]:
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
    rows: list[dict[str, Any]] = []
    before, seen = None, 0
    try:
        for batch in file.iter_batches(_BATCH, columns=columns):
            table = pa.Table.from_batches([batch]).select(columns).cast(target)
            for row in table.to_pylist():
                seen += 1
                problem = _problem(row)
                if not problem and row["step"] is None:
                    problem = "step is null"
                if problem:
                    notes.add("row", f"row {seen:,}: {problem}, left out")
                    continue
                if before is not None and row["step"] <= before:
                    notes.add("order", f"row {seen:,}: step {row['step']} after step {before}")
                before = row["step"]
                rows.append(row)
            if seen >= MAX_STEPS:
                notes.add("rows", f"only the first {seen:,} steps were read")
                break
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        notes.add("damage", f"reading stopped after row {seen:,}: {_first_line(error)}")
    return rows


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    frame = {"step": np.array([r["step"] for r in rows], np.int64)}
    frame["width"] = np.array([len(r["slots"]) for r in rows], np.int64)
    out = pd.DataFrame(frame)
    for name in (*_LISTS, "verified"):
        out[name] = pd.Series([r.get(name) for r in rows], dtype=object)
    out["outcome"] = pd.Series([r.get("outcome") or "" for r in rows], dtype=object)
    out["time_us"] = pd.array([r.get("time_us") for r in rows], dtype="Int64")
    return out


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
