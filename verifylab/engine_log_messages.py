"""The messages of an Atlas engine log: what each starts with, its columns, and how it is parsed.

A message is read field by field (``name=value``), so that a field which a version lacks, or adds,
costs only itself. Every pattern is linear in the message's length: logs may be hostile.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from verifylab.dcut import ROW_BUDGET
from verifylab.key import SENTINEL
from verifylab.trace_file import MOST, Notes

__all__ = ["ANSI", "KINDS", "NEEDLES", "VERIFY", "Kind", "Messages", "key_table"]

#: Distinct keys kept; further ones are counted as captures without a key.
MAX_KEYS = 200_000
#: `key_id` of a capture whose step had no key, and of one beyond `MAX_KEYS`.
NO_KEY, KEY_DROPPED = -1, -2

ANSI = re.compile(rb"\x1b\[[0-9;]{0,16}[A-Za-z]")
_FIELD = re.compile(rb"(\w{1,24})=(\[[^\[\]]*\]|Some\(\[[^\[\]]*\]\)|[^\s,()\[\]]{1,32})")
_WHOLE = re.compile(rb"\d{1,15}")
_NUMBER = re.compile(rb"-?\d{1,15}(?:\.\d{1,18})?(?:[eE][-+]?\d{1,2})?")
_NAN = float("nan")
#: What the steps of a window are the sum of.
_PARTS = (b"replay", b"borrow", b"CAPTURE", b"eager")
_LIST = re.compile(rb"(?:Some\()?\[([\d, ]*)\]\)?")


class Kind(NamedTuple):
    """A message: what it starts with, its table, and its columns (name, field, whole number?)."""

    needle: bytes
    table: str
    columns: tuple[tuple[str, bytes, bool], ...]


def _kind(needle: str, table: str, columns: str) -> Kind:
    """`columns` is ``name:f`` for a number, ``name:i`` for a whole one, or ``name=field:i``."""
    out = []
    for item in columns.split():
        names, kind = item.split(":")
        name, _, source = names.partition("=")
        out.append((name, (source or name).encode(), kind == "i"))
    return Kind(needle.encode(), table, tuple(out))


KINDS = (
    _kind("Captured CUDA graph for batched verify", "captures", "n:i key_id:i"),
    _kind("Captured CUDA graph for batch size", "decode_captures", "size:i n:i"),
    _kind("verify graph borrow:", "borrows", "n:i rows=R:i key_n:i ghosts:i"),
    _kind(
        "batched-verify graphs [",
        "windows",
        "steps:i n:i replay:i borrow:i capture=CAPTURE:i eager:i capture_frac:f live_keys:i "
        "capacity:i",
    ),
    _kind(
        "batched-verify GDN ",
        "fast_path",
        "run_length=n:i depth=k:i engaged:i declined:i declined_frac:f",
    ),
    _kind("MTP D-Cut ", "dcut", "ratio:f steps:i rows_full:i rows_kept:i kept_frac:f"),
    _kind(
        "MTP accept ",
        "acceptance",
        "n:i k_drafts:i verifies:i p1:f mean_na:f tok_step:f token_ratio:f span_ms:f",
    ),
    _kind(
        " positional: ",
        "positional",
        "steps:i p1:f p2_uncond:f p3_uncond:f p2_cond:f p3_cond:f seq_len:i",
    ),
)
VERIFY, _DECODE, _BORROW, _WINDOWS = 0, 1, 2, 3
#: What the messages start with: the format is told by them.
NEEDLES = tuple(kind.needle for kind in KINDS)


class Messages:
    """Parses messages, numbers the keys that they name, counts captures without a readable one."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.keys: dict[bytes, int] = {}
        self.unreadable = 0

    def parse(self, kind: int, message: bytes, line: Callable[[], int]) -> tuple[float, ...] | None:
        """Return the values of the kind's columns (NaN: missing), or None with a note.

        `line` gives the line number, and is called only for a note.
        """
        if b"\x1b" in message:
            message = ANSI.sub(b"", message)
        fields = dict(_FIELD.findall(message))
        if kind == VERIFY:
            return self._capture(fields, line)
        if kind == _DECODE:
            fields[b"size"] = message[len(NEEDLES[_DECODE]) :].split(b"(", 1)[0].strip()
        elif kind == _BORROW:
            for name, pattern in (
                (b"key_n", rb"(\d{1,15})-seq key"),
                (b"ghosts", rb"(\d{1,15}) ghost"),
            ):
                if found := re.search(pattern, message):
                    fields[name] = found.group(1)
        elif steps := re.search(rb"\[(\d{1,32}) steps", message[:64]):
            fields.setdefault(b"steps", steps.group(1))
        for name, text in fields.items():
            if text.isdigit() and int(text) > MOST:
                number = f"{name.decode()}={text.decode()}"
                self.notes.add("absurd", partial(_absurd, line, number))
        if live := re.fullmatch(rb"(\d{1,15})/(\d{1,15})", fields.get(b"live_keys", b"")):
            fields[b"live_keys"], fields[b"capacity"] = live.groups()
        values = tuple(_number(fields.get(f), whole) for _, f, whole in KINDS[kind].columns)
        if all(v != v for v in values):
            what = KINDS[kind].needle.decode().strip(" [:")
            self.notes.add(
                "cut", lambda: f"line {line():,}: a {what!r} message without readable fields"
            )
            return None
        if kind == _WINDOWS:
            said, n, *parts, fraction, held, capacity = values
            ends = re.search(rb"(\w{1,24})=\d+\s*\Z", message)
            last = _PARTS.index(ends.group(1)) if ends and ends.group(1) in _PARTS else None
            if last is not None and sum(parts) != said:
                parts[last] = _NAN  # the message ends in it: its digits may be cut
            said, *parts = self._filled(said, parts, line)
            if held > capacity:
                capacity = _NAN  # cut likewise
            values = said, n, *parts, fraction, held, capacity
        return values

    def _filled(
        self, steps: float, parts: list[float], line: Callable[[], int]
    ) -> tuple[float, ...]:
        """Fill in what the other counts of a window give; note where they contradict."""
        missing = [i for i, part in enumerate(parts) if part != part]
        total = sum(part for part in parts if part == part)
        if not missing and steps != steps:
            steps = total
        elif missing and (total == steps or len(missing) == 1 and total < steps):
            for i in missing:
                parts[i] = steps - total
        elif total > steps or not missing and total != steps:
            self.notes.add(
                "sum",
                lambda: (
                    f"line {line():,}: replay, borrow, capture and eager make {total:.0f}, "
                    f"not the {steps:.0f} steps said"
                ),
            )
        return steps, *parts

    def _capture(
        self, fields: dict[bytes, bytes], line: Callable[[], int]
    ) -> tuple[float, ...] | None:
        """Return (sequences, key id) of a capture."""
        text, n = fields.get(b"key", b""), _number(fields.get(b"n"), True)
        if text == b"None":
            return n, NO_KEY
        words = _LIST.fullmatch(text)
        if words is None:
            self.unreadable += 1
            self.notes.add("cut", lambda: f"line {line():,}: a capture without a readable key")
            return None
        digits = words.group(1).replace(b",", b" ").split()
        key = [int(w) if len(w) <= 15 else 2**40 for w in digits]
        problem = _key_problem(key)
        if not problem and n == n and n != len(key) // 2:
            problem = f"of {len(key) // 2} sequences where the line says n={n:.0f}"
        if problem:
            self.unreadable += 1
            self.notes.add("key", lambda: f"line {line():,}: no key of a verify graph: {problem}")
            return None
        packed = np.array(key, "<u4").tobytes()
        known = self.keys.get(packed)
        if known is None:
            if len(self.keys) >= MAX_KEYS:
                self.notes.add(
                    "keys", lambda: f"line {line():,}: over {MAX_KEYS:,} keys, not kept apart"
                )
                return len(key) // 2, KEY_DROPPED
            known = self.keys[packed] = len(self.keys)
        return len(key) // 2, known


def _absurd(line: Callable[[], int], number: str) -> str:
    return f"line {line():,}: {number} is no count, left out"


def _number(text: bytes | None, whole: bool) -> float:
    """Return a field as a number; NaN when it is missing, cut or no such number."""
    if text is None or not (_WHOLE if whole else _NUMBER).fullmatch(text):
        return _NAN
    number = float(text)
    return _NAN if whole and number > MOST else number


def _key_problem(words: list[int]) -> str:
    if len(words) % 2 == 0 or len(words) < 3:
        return f"{len(words)} words, it needs 2 n + 1"
    if words[-1] not in (SENTINEL, SENTINEL - 1):
        return f"it ends in {words[-1]}, not in {SENTINEL} or {SENTINEL - 1}"
    if max(words) > SENTINEL or min(words[1:-1:2]) < 1:
        return "a word beyond 32 bits, or 0 rows"
    slots, deepest = words[:-1:2], max(words[1:-1:2])
    if deepest > ROW_BUDGET:
        return f"a sequence of {deepest} rows, a dispatch holds {ROW_BUDGET}"
    if max(slots) == SENTINEL:
        return f"slot {SENTINEL} stands for a sequence without a slot, which has no key"
    if len(set(slots)) < len(slots):
        return f"two sequences share a slot in {slots[:40]}"
    return ""


def key_table(keys: list[bytes]) -> Any:
    """Return keys as a table: ``key_id, key, n, rows, slots, depths, canonical``."""
    import pandas as pd

    words = [np.frombuffer(key, "<u4").astype(np.int64) for key in keys]
    slots, depths = [w[:-1:2] for w in words], [w[1:-1:2] for w in words]
    return pd.DataFrame(
        {
            "key_id": np.arange(len(keys)),
            "key": pd.Series(keys, dtype=object),
            "n": np.array([len(s) for s in slots], np.int64),
            "rows": np.array([d.sum() for d in depths], np.int64),
            "slots": pd.Series(slots, dtype=object),
            "depths": pd.Series(depths, dtype=object),
            "canonical": np.array(
                [
                    bool((np.diff(s) > 0).all() and (np.diff(d) <= 0).all())
                    for s, d in zip(slots, depths, strict=True)
                ],
                bool,
            ),
        }
    )
