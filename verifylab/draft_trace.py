"""Drafts of a real model, token position by token position: a trace, and what it looks like.

A row is one token position of one decoded sequence: the log-confidences of the drafts that a step
started there would propose, and how many of them the model would accept. Because every position
has its row, an arm that verifies other depths than another still replays the same text: a step
that emits a tokens moves on to the row a places further. `data/traces/README.md` says how the
trace that comes along was made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from verifylab.published import DataError, data_dir

__all__ = ["TRACE_DRAFTS", "DraftTrace"]

#: Drafts at each position of a trace: the model that made it has three heads.
TRACE_DRAFTS = 3
#: A log-probability may exceed 0 by the rounding of the float32 that it was stored in.
_ROUNDING = 1e-6
_COLUMNS = ("sequence", "position", *(f"logc{d + 1}" for d in range(TRACE_DRAFTS)), "accepted")


@dataclass(frozen=True, slots=True, eq=False)
class DraftTrace:
    """Sequences of token positions, one after the other, with the drafts of each position.

    Parameters
    ----------
    offsets : ndarray of int64, shape (sequences + 1,)
        Rows of sequence s: ``offsets[s]`` to ``offsets[s + 1]``, by position from 0.
    log_confidences : ndarray of float64, shape (rows, TRACE_DRAFTS)
        Natural logarithm of the probability that each head gives to its own draft; 0 or less.
    accepted : ndarray of int64, shape (rows,)
        Drafts accepted in a row from the first, 0 to `TRACE_DRAFTS`, had all been verified.
    name : str
    how : mapping
        How it was made, as stored beside it.

    Raises
    ------
    DataError
        Naming the trace, what is wrong with it and where.
    """

    offsets: np.ndarray
    log_confidences: np.ndarray
    accepted: np.ndarray
    name: str = "unnamed"
    how: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        offsets = np.ascontiguousarray(self.offsets, np.int64)
        logs = np.array(self.log_confidences, np.float64, order="C")
        accepted = np.ascontiguousarray(self.accepted, np.int64)
        if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or (np.diff(offsets) < 1).any():
            self._refuse("needs at least one sequence, none of them empty")
        rows = int(offsets[-1])
        if logs.shape != (rows, TRACE_DRAFTS) or accepted.shape != (rows,):
            self._refuse(
                f"must have {rows} rows of {TRACE_DRAFTS} log-confidences and one accepted length, "
                f"got shapes {logs.shape} and {accepted.shape}"
            )
        bad = ~(np.isfinite(logs) & (logs <= _ROUNDING)).all(axis=1)
        if bad.any():
            row = int(bad.argmax())
            self._refuse(
                f"log-confidences must be finite and 0 or less, got {logs[row].tolist()} "
                f"at row {row}"
            )
        bad = (accepted < 0) | (accepted > TRACE_DRAFTS)
        if bad.any():
            row = int(bad.argmax())
            self._refuse(
                f"accepted must be from 0 to {TRACE_DRAFTS}, got {accepted[row]} at row {row}"
            )
        np.minimum(logs, 0.0, out=logs)
        for name, array in (
            ("offsets", offsets),
            ("log_confidences", logs),
            ("accepted", accepted),
        ):
            array = array.view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def _refuse(self, what: str) -> None:
        raise DataError(f"trace {self.name}: {what}")

    @property
    def rows(self) -> int:
        """Token positions, over all sequences."""
        return len(self.accepted)

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Positions of each sequence, int64 (sequences,)."""
        return np.diff(self.offsets)

    @property
    def sequence_of(self) -> np.ndarray:
        """Sequence of each row, int64 (rows,)."""
        return np.repeat(np.arange(self.sequences), self.lengths)

    def reached(self, depth: int) -> np.ndarray:
        """Rows (bool) whose drafts before `depth`, counted from 0, were all accepted."""
        return self.accepted >= depth

    def with_log_confidences(self, log_confidences: np.ndarray, name: str) -> DraftTrace:
        """Return the same text and outcomes with other confidences, (rows, TRACE_DRAFTS)."""
        return replace(self, log_confidences=log_confidences, name=name)

    @classmethod
    def load(cls, name: str = "mtp_drafts", folder: str | Path | None = None) -> DraftTrace:
        """Read ``data/traces/<name>.parquet``.

        Where ``<name>.json`` stands beside it, its SHA-256 must be that of the table. Another
        engine's trace needs only the table: columns ``sequence, position, logc1, logc2, logc3,
        accepted``, a row a token position, sequences one after the other.

        Parameters
        ----------
        name : str
            Letters, digits, ``-`` and ``_``.
        folder : path, optional
            Default: ``data/traces``.

        Raises
        ------
        DataError
            When a file is missing or damaged, naming it and what is wrong.
        """
        import pandas as pd

        if not name.replace("-", "").replace("_", "").isalnum():
            raise DataError(f"a trace's name must be letters, digits, - and _, got {name!r}")
        path = Path(folder if folder is not None else data_dir() / "traces") / f"{name}.parquet"
        how = _how(path)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise DataError(f"no trace {name!r}: {path.name} is missing from data/traces") from None
        except OSError as error:
            raise DataError(f"trace {path.name} cannot be read: {error.strerror}") from None
        if how.get("sha256", hashlib.sha256(content).hexdigest()) != (
            hashlib.sha256(content).hexdigest()
        ):
            raise DataError(f"trace {path.name} is damaged: its SHA-256 is not that of {name}.json")
        try:
            table = pd.read_parquet(path)
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
            reason = str(error).splitlines()[0]
            raise DataError(f"trace {path.name} is damaged: no Parquet table ({reason})") from None
        return cls.from_table(table, name, how)

    @classmethod
    def from_table(
        cls, table: Any, name: str = "unnamed", how: Mapping[str, Any] | None = None
    ) -> DraftTrace:
        """Build from a DataFrame with the columns that `load` names.

        Raises
        ------
        DataError
            When a column is missing or holds no numbers, or rows are out of order.
        """
        missing = [c for c in _COLUMNS if c not in table.columns]
        if missing:
            raise DataError(f"trace {name}: lacks the column {', '.join(missing)}")
        for column in _COLUMNS:
            kind = table[column].dtype.kind if isinstance(table[column].dtype, np.dtype) else "?"
            if kind not in ("f" if column.startswith("logc") else "iu"):
                raise DataError(f"trace {name}: column {column} holds {table[column].dtype}")
        if not len(table):
            raise DataError(f"trace {name}: needs at least one sequence, got no rows")
        sequence = table["sequence"].to_numpy(np.int64)
        first = np.concatenate([[True], sequence[1:] != sequence[:-1]])
        starts = np.flatnonzero(first)
        if len(np.unique(sequence)) != len(starts):
            raise DataError(f"trace {name}: the rows of a sequence must stand together")
        expected = np.arange(len(table)) - starts[np.cumsum(first) - 1]
        wrong = table["position"].to_numpy(np.int64) != expected
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"trace {name}: positions of a sequence must count 0, 1, 2, ..., got "
                f"{table['position'].iloc[row]} for {expected[row]} at row {row}"
            )
        return cls(
            np.append(starts, len(table)),
            table[[f"logc{d + 1}" for d in range(TRACE_DRAFTS)]].to_numpy(np.float64),
            table["accepted"].to_numpy(np.int64),
            name,
            dict(how or {}),
        )


def _how(path: Path) -> dict[str, Any]:
    """Content of the JSON beside a trace; empty where there is none."""
    beside = path.with_suffix(".json")
    try:
        body = json.loads(beside.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{beside.name} is damaged: {error}") from None
    if not isinstance(body, dict):
        raise DataError(f"{beside.name} is damaged: it must hold an object")
    return body
