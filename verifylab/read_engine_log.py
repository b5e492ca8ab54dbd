"""Read an Atlas engine log: captured keys, graph counters, fast path, D-Cut and acceptance.

The log says of every capture which key it was, and of every 200 steps how many were replayed. It
does not say which key a replayed step had. Lines come plain or with ANSI colours, with fields
missing or added, cut off, or two on one line; a prefix before the time (as `docker compose logs`
writes) tells engines apart, but for the times in it.
"""

from __future__ import annotations

import contextlib
import re
from array import array
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from verifylab.engine_log_messages import ANSI, KINDS, NEEDLES, VERIFY, Messages, key_table
from verifylab.log_prefix import engine_name
from verifylab.trace_file import (
    SPELLED_OUT,
    Limits,
    LineBlock,
    Notes,
    Trace,
    hits,
    line_blocks,
    nothing_readable,
    whole_column,
)

__all__ = ["FORMAT", "NEEDLES", "read_engine_log", "readable"]

FORMAT = "atlas_log"
#: A message is looked at up to here; the longest real one, 1,024 sequences, has 12 kB.
MAX_MESSAGE = 1 << 16
_MEMO_ENTRIES, _MEMO_BYTES = 1 << 16, 1 << 12
#: Clock steps back that are no mere reordering of lines: a restart, or another file appended.
_RESTART_US = 1_000_000
_NO_TIME = np.iinfo(np.int64).min
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?")


@dataclass(slots=True)
class _Rows:
    """Rows of one kind in flat arrays. Equal messages share their `values` row."""

    offsets: list[np.ndarray] = field(default_factory=list)
    times: list[np.ndarray] = field(default_factory=list)
    engines: list[np.ndarray] = field(default_factory=list)
    picks: list[np.ndarray] = field(default_factory=list)
    values: array = field(default_factory=lambda: array("d"))
    distinct: int = 0


class _Reader:
    """Reads one log, a block at a time: memory speed between messages, arrays over them."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.rows = [_Rows() for _ in KINDS]
        self.engines: dict[str, int] = {"": 0}
        self.latest: dict[int, int] = {}
        self.restarts: dict[int, list[int]] = {}
        self.messages = Messages(notes)
        self.memo: dict[bytes, int] = {}

    def block(self, block: LineBlock) -> None:
        """Read a block of whole lines."""
        data = block.data
        found = hits(data, NEEDLES)
        if not len(found):
            return
        at, kinds = found[:, 0], found[:, 1]
        chars = np.frombuffer(data, np.uint8)
        feeds = np.flatnonzero(chars == 10)
        line = np.searchsorted(feeds, at)
        # A message ends with its line, or where the next one interrupts it.
        ends = np.append(feeds, len(data))[line]
        ends[:-1] = np.minimum(ends[:-1], at[1:])
        ends = np.minimum(ends, at + MAX_MESSAGE)
        picks = self._messages(block, at.tolist(), ends.tolist(), kinds.tolist())
        starts = np.append(0, feeds + 1)[line]
        # Of two messages on a line the second's time stands within the first.
        starts[1:] = np.maximum(starts[1:], at[:-1])
        read = np.flatnonzero(picks >= 0)
        at, kinds, picks = at[read], kinds[read], picks[read]
        times, engines = self._heads(chars, data, np.maximum(starts[read], at - 1024), at)
        self._clock(block.offset + at, times, engines)
        for kind in np.unique(kinds):
            mine, rows = kinds == kind, self.rows[kind]
            rows.offsets.append(block.offset + at[mine])
            rows.times.append(times[mine])
            rows.engines.append(engines[mine])
            rows.picks.append(picks[mine])

    def _messages(
        self, block: LineBlock, at: list[int], ends: list[int], kinds: list[int]
    ) -> np.ndarray:
        """Row of `values` for each message, -1 where it cannot be read."""
        data, memo, known = block.data, self.memo, self.memo.get
        picks = [known(data[a:e]) for a, e in zip(at, ends, strict=True)]
        for i, pick in enumerate(picks):
            if pick is not None:
                continue
            message = data[at[i] : ends[i]]
            pick = known(message)  # an equal one may have come earlier in this block
            if pick is None:
                rows = self.rows[kinds[i]]
                values = self.messages.parse(kinds[i], message, partial(block.line_at, at[i]))
                if values is None:
                    picks[i] = -1
                    continue
                pick = rows.distinct
                rows.values.extend(values)
                rows.distinct += 1
                if len(message) <= _MEMO_BYTES and len(memo) < _MEMO_ENTRIES:
                    memo[message] = pick
            picks[i] = pick
        return np.array(picks, np.int32)

    def _heads(
        self, chars: np.ndarray, data: bytes, starts: np.ndarray, at: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Time (microseconds) and engine of each message, from what stands before it."""
        many = len(starts)
        texts, engines = np.full(many, b"NaT", "S26"), np.zeros(many, np.int16)
        todo = np.ones(many, bool)
        for colour in (0, 4):  # plain, or behind the escape that a terminal's dimmed time has
            begin = starts + colour
            usual = np.flatnonzero(todo & (begin + 27 <= at))
            usual = usual[
                (chars[begin[usual] + 10] == ord("T")) & (chars[begin[usual] + 26] == ord("Z"))
            ]
            if colour:
                usual = usual[chars[starts[usual]] == 0x1B]
            if len(usual):
                picked = chars[begin[usual, None] + np.arange(26)]
                texts[usual] = np.ascontiguousarray(picked).view("S26")[:, 0]
                todo[usual] = False
        for i in np.flatnonzero(todo).tolist():
            texts[i], engines[i] = self._unusual_head(data[starts[i] : at[i]])
        return _microseconds(texts), engines

    def _unusual_head(self, text: bytes) -> tuple[bytes, int]:
        """Time and engine where a prefix, colours or another message stand in the way."""
        text = ANSI.sub(b"", text) if b"\x1b" in text else text
        *_, last = (None, *_TIME.finditer(text))
        if last is None:
            return b"NaT", 0
        name = ""
        if last.start() and len(self.engines) < 1000:
            name = engine_name(text[: last.start()].decode("utf-8", "replace"))
        return last.group()[:26], self.engines.setdefault(name, len(self.engines))

    def _clock(self, offsets: np.ndarray, times: np.ndarray, engines: np.ndarray) -> None:
        """Note where an engine's clock goes back; far back is a restart."""
        for engine in np.unique(engines).tolist():
            mine = np.flatnonzero((engines == engine) & (times != _NO_TIME))
            if not len(mine):
                continue
            t = times[mine]
            steps = np.diff(t, prepend=self.latest.get(engine, t[0]))
            self.latest[engine] = int(t[-1])
            back = np.flatnonzero(steps < 0)
            for i in back[:SPELLED_OUT].tolist():
                self.notes.add(
                    "clock goes back",
                    f"offset {offsets[mine[i]]:,}: the clock goes back by {-steps[i] / 1e6:,.6f} s",
                )
            self.notes.more("clock goes back", len(back[SPELLED_OUT:]))
            far = offsets[mine[steps < -_RESTART_US]].tolist()
            self.restarts.setdefault(engine, []).extend(far)

    def tables(self) -> dict[str, Any]:
        """Return the tables that have rows; `captures` and `keys` always. The rows are let go."""
        import pandas as pd

        out: dict[str, Any] = {}
        for index, kind in enumerate(KINDS):
            rows = self.rows[index]
            if not rows.offsets and index != VERIFY:
                continue
            offsets = _joined(rows.offsets, np.int64)
            engines = _joined(rows.engines, np.int16)
            segment = np.zeros(len(offsets), np.int32)
            for engine, restarts in self.restarts.items():
                mine = engines == engine
                segment[mine] = np.searchsorted(restarts, offsets[mine], "right")
            frame = {
                "offset": offsets,
                "time": _joined(rows.times, np.int64).view("datetime64[us]"),
                "engine": pd.Categorical.from_codes(engines, list(self.engines)),
                "segment": segment,
            }
            values = np.array(rows.values, float).reshape(-1, len(kind.columns))
            picks = _joined(rows.picks, np.int32)
            for j, (name, _, whole) in enumerate(kind.columns):
                few = values[:, j]  # equal messages share a row: pick from few, of the final type
                if name == "key_id":
                    frame[name] = few.astype(np.int64)[picks]
                else:
                    frame[name] = whole_column(few).take(picks) if whole else few[picks]
            out[kind.table] = pd.DataFrame(frame, copy=False)
        out["keys"] = key_table(list(self.messages.keys))
        return out


def _joined(parts: list[np.ndarray], dtype: Any) -> np.ndarray:
    """Join the parts and let them go, so that a long log is not held twice."""
    out = np.concatenate([np.zeros(0, dtype), *parts])
    parts.clear()
    return out


_FORM = np.frombuffer(b"0000-00-00T00:00:00.000000", np.uint8)


def _microseconds(texts: np.ndarray) -> np.ndarray:
    """Microseconds since 1970 of ``2026-08-17T05:46:12.123456`` (S26, cut anywhere after :12).

    NumPy parses, but only what has this form: of other texts it warns, or refuses all for one.
    """
    chars = np.ascontiguousarray(texts).view(np.uint8).reshape(-1, 26)
    # A digit of the form stands for any digit; past the seconds the text may have ended.
    fits = np.where(_FORM == ord("0"), chars - np.uint8(ord("0")) < 10, chars == _FORM)
    fits[:, 19:] |= chars[:, 19:] == 0
    good = fits.all(axis=1)
    out = np.full(len(texts), np.datetime64("NaT", "us"))
    try:
        out[good] = texts[good].astype("M8[us]")
    except ValueError:  # the 30th of February, or hour 24: one by one
        for i in np.flatnonzero(good).tolist():
            with contextlib.suppress(ValueError):
                out[i] = np.datetime64(texts[i].decode(), "us")
    return out.view(np.int64)


def readable(data: bytes) -> int:
    """Count the messages in `data` that can be read, of the first thousand."""
    found, messages = hits(data, NEEDLES)[:1000], Messages(Notes())
    ends = [*found[1:, 0].tolist(), len(data)]
    count = 0
    for (at, kind), stop in zip(found.tolist(), ends, strict=True):
        end = data.find(b"\n", at, min(stop, at + MAX_MESSAGE))
        message = data[at : end if end >= 0 else min(stop, at + MAX_MESSAGE)]
        count += messages.parse(kind, message, lambda: 0) is not None
    return count


def read_engine_log(path: str | Path, *, limits: Limits | None = None) -> Trace:
    """Read an Atlas engine log, gzip or not.

    Parameters
    ----------
    path : path
        Streamed: memory does not grow with lines of no interest.
    limits : Limits, optional
        How far gzip data may grow.

    Returns
    -------
    Trace
        All but ``keys`` have ``offset`` (bytes), ``time`` (UTC, NaT where the line has none),
        ``engine`` (the text before the time) and ``segment`` (goes up when the clock goes back by
        over a second). A field that is missing is NA or NaN.

        - ``captures``: ``n`` (sequences), ``key_id`` (-1: no key, -2: not kept apart)
        - ``keys``: ``key_id, key`` (bytes)``, n, rows, slots, depths, canonical``; slots and
          depths (rows) in dispatch order
        - ``windows``: ``steps, n, replay, borrow, capture, eager, capture_frac, live_keys,
          capacity``; a count that the others give is filled in
        - ``fast_path`` (cumulative; captures and eager steps only), ``dcut``, ``acceptance``,
          ``positional``, ``borrows`` (transitions only), ``decode_captures``: where there are any

    Raises
    ------
    TraceError
        When the file cannot be opened or has no message of this format.
    """
    path = Path(path)
    notes = Notes()
    reader = _Reader(notes)
    size = 0
    for block in line_blocks(path, notes, limits=limits):
        reader.block(block)
        size = block.offset + len(block.data)
    counts = {
        kind.table: sum(map(len, rows.offsets))
        for kind, rows in zip(KINDS, reader.rows, strict=True)
    }
    counts = {name: count for name, count in counts.items() if count}
    if not counts:
        raise nothing_readable(path, "an Atlas engine", size, notes)
    tables = reader.tables()
    if reader.messages.unreadable:
        counts["captures_unreadable"] = reader.messages.unreadable
    steps = counts.get("captures", 0)
    if "windows" in tables:
        steps = sum(map(int, tables["windows"].steps.dropna()))
    return Trace(FORMAT, path.name, tables, counts, steps, sum(counts.values()), notes.texts())
