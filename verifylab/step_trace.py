"""The step trace: what any engine can write of its verify steps, and this library can replay.

A Parquet file with one row a step. The lists of a row run in parallel: entry i is one sequence.
`docs/step_trace.md` has the ten lines that an engine adds.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

__all__ = ["FORMAT", "MAGIC", "OUTCOMES", "StepTraceWriter", "problem", "schema"]

FORMAT = "step_trace"
MAGIC = b"PAR1"
VERSION = "1"
#: What a step did with the graph cache; empty where the engine does not say.
OUTCOMES = ("hit", "capture", "update", "borrow", "eager", "")
META = b"verifylab.step_trace"
LISTS = ("slots", "depths", "accepted", "confidences")
#: Slot of a sequence that has none.
NO_SLOT_WORD = 0xFFFFFFFF
Ints = Sequence[int] | np.ndarray
#: Steps held while writing or reading.
BATCH = 8192


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
    outcome       string                   hit, capture, update, borrow, eager; empty: not said
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
        metadata={META: VERSION.encode()},
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
        self._closed = False

    def step(
        self,
        slots: Ints,
        depths: Ints,
        *,
        accepted: Ints | None = None,
        confidences: Sequence[Sequence[float | None] | None] | np.ndarray | None = None,
        verified: Ints | None = None,
        outcome: str = "",
        time_us: int | None = None,
    ) -> None:
        """Add a step; see `schema` for what the values mean.

        Raises
        ------
        ValueError
            When the lists differ in length, a value is of another kind or out of range, the outcome
            is unknown, or the trace is closed. The trace goes on without the step.
        """
        if self._closed:
            raise ValueError(f"step {self._steps}: the trace is closed")
        row: dict[str, Any] = {"step": self._steps}
        try:
            for name, values in (
                ("slots", slots), ("depths", depths), ("accepted", accepted),
                ("verified", verified),
            ):  # fmt: skip
                row[name] = None if values is None else _whole_list(name, values)
            row["confidences"] = None if confidences is None else _logarithms(confidences)
            row["time_us"] = None if time_us is None else _whole("time_us", time_us)
            row["outcome"] = outcome
            wrong = problem(row)
            if time_us is not None and not -(2**63) <= row["time_us"] < 2**63:
                wrong = f"time_us must have 64 bits, got {time_us!r:.40}"
        except ValueError as error:
            wrong = str(error)
        if wrong:
            raise ValueError(f"step {self._steps}: {wrong}")
        row["width"] = len(row["slots"])
        self._rows.append(row)
        self._steps += 1
        if len(self._rows) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
            self._rows.clear()

    def close(self) -> None:
        """Write what is held, and give the file its name; nothing when that is done."""
        if self._closed:
            return
        self._closed = True
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


def _whole(name: str, value: Any) -> int:
    """Return a whole number; a fraction, text or a truth value is refused."""
    if not isinstance(value, bool | np.bool_):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise ValueError(f"{name} must be a whole number, got {value!r:.40}")


def _whole_list(name: str, values: Any) -> list[int]:
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.ndim == 1:
        return values.tolist()
    try:
        return [_whole(f"each of {name}", value) for value in values]
    except TypeError:
        raise ValueError(f"{name} must be a list of whole numbers, got {values!r:.40}") from None


def _logarithms(confidences: Any) -> list[list[float | None] | None]:
    """Return them as lists of float, None where not measured."""
    try:
        return [
            None if row is None else [None if c is None else float(c) for c in row]
            for row in confidences
        ]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            "confidences must be a list of numbers for each sequence, or None where not measured"
        ) from None


def problem(row: dict[str, Any]) -> str:
    """Say what is wrong with a step; empty when nothing is."""
    slots, depths = row["slots"], row["depths"]
    if slots is None or depths is None:
        return "slots or depths are null"
    for name in (*LISTS[1:], "verified"):
        values = row.get(name)
        if values is not None and len(values) != len(slots):
            return f"{name} must have one entry a sequence ({len(slots)}), got {len(values)}"
    if row.get("width") is not None and row["width"] != len(slots):
        return f"width says {row['width']}, slots are {len(slots)}"
    # A null entry compares with nothing: it is refused here, where lists of Python's are given.
    for name, least, most in (
        ("slots", 0, NO_SLOT_WORD), ("depths", 1, 2**31 - 1), ("verified", 1, 2**31 - 1),
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
    held = [s for s in slots if s != NO_SLOT_WORD]
    if len(set(held)) != len(held):
        return f"two sequences share a slot in {list(slots)}"
    outcome = row.get("outcome")
    if not isinstance(outcome, str | None) or (outcome or "") not in OUTCOMES:
        return f"outcome must be {', '.join(OUTCOMES[:-1])} or empty, got {row['outcome']!r:.40}"
    return ""
