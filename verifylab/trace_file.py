"""What every reader of foreign files shares: the `Trace` it returns, streamed bytes, warnings.

A foreign file may be anything: cut off, interleaved, compressed without end, or hostile. Readers
see it as blocks of bounded size; what is wrong with it becomes a sentence with a line or an
offset, and whatever could be read before, and after, is kept.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from verifylab.paths import printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BLOCK",
    "MAX_LINE",
    "MOST",
    "Limits",
    "LineBlock",
    "Notes",
    "Trace",
    "TraceError",
    "blocks",
    "head",
    "hits",
    "line_blocks",
    "nothing_readable",
    "plain",
    "refuse_gzip",
    "whole_column",
]

#: Bytes read at a time.
BLOCK = 1 << 22
#: Longest line that is looked at; the rest of a longer one is skipped.
MAX_LINE = 1 << 20
_GZIP = b"\x1f\x8b"
#: Compressed bytes taken at first of a gzip member, which may be a small one; then ever more.
_FIRST = 256
_NOT_ZERO = re.compile(rb"[^\0]")
#: A number above this is no count.
MOST = 10**12
#: Warnings of one kind that are spelled out; the others are counted.
SPELLED_OUT = 5


def plain(text: object, most: int = 600) -> str:
    """Return text of a foreign file as one printable line, safe to show on a terminal."""
    line = " ".join(str(text)[: 2 * most].split())
    return printable(line)[:most]


class TraceError(ValueError):
    """A file cannot be read as a trace at all; the message says why, in one sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(plain(message, 1000))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a compressed file may grow to before it is left alone.

    Real logs shrink by 10 to 30 times, repetitive ones by up to 200; deflate ends at 1,032.
    """

    unpacked_bytes: int = 1 << 34
    ratio: int = 400
    ratio_from_bytes: int = 1 << 28


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What was read from one file.

    Attributes
    ----------
    format : str
        One of `verifylab.traces.FORMATS`.
    source : str
        File name, without its folder.
    tables : mapping of str to DataFrame
        Tidy tables; which ones, and their columns, is said by the reader of the format.
    counts : mapping of str to int
        Events by kind.
    steps : int
        Verify (or decode) steps that the file accounts for; 0 where it says nothing of steps.
    events : int
        Events in the file, those of no interest included where the format counts them.
    warnings : tuple of str
        What was wrong, each with a line or an offset in the (decompressed) file.
    about : mapping of str to str
        Facts of the whole file, such as the model or the GPU.
    """

    format: str
    source: str
    tables: Mapping[str, pd.DataFrame]
    counts: Mapping[str, int]
    steps: int
    events: int
    warnings: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)

    def table(self, name: str) -> pd.DataFrame:
        """Return a table by name.

        Raises
        ------
        TraceError
            When this trace has no such table; the message lists those it has.
        """
        if name not in self.tables:
            raise TraceError(
                f"{self.source} ({self.format}) has no table {name!r}, it has: "
                f"{', '.join(self.tables) or 'none'}"
            )
        return self.tables[name]


class Notes:
    """Warnings of one file: the first few of a kind in words, the others as a number."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def add(self, kind: str, text: str | Callable[[], str]) -> None:
        """Note `text`, or only count it when there were enough of its `kind`.

        A callable is called only if its text is wanted: a line number may take counting.
        """
        seen = self._counts.get(kind, 0)
        self._counts[kind] = seen + 1
        if seen < SPELLED_OUT:
            words = plain(text if isinstance(text, str) else text())
            self._texts.setdefault(kind, []).append(words)

    def more(self, kind: str, many: int) -> None:
        """Count `many` of a kind of which the first few were added in words."""
        if many:
            self._counts[kind] = self._counts.get(kind, 0) + many

    def texts(self) -> tuple[str, ...]:
        """Return them, in the order of their kinds' first appearance."""
        out = []
        for kind, texts in self._texts.items():
            out += texts
            if more := self._counts[kind] - len(texts):
                out.append(f"and {more:,} more of this kind: {kind}")
        return tuple(out)


def nothing_readable(path: Path, what: str, size: int, notes: Notes) -> TraceError:
    """Return the error of a file of `size` bytes in which no message of `what` could be read."""
    trouble = "; ".join(notes.texts())
    return TraceError(
        f"{path.name} has no readable message of {what} in {size:,} bytes"
        + (f" ({trouble})" if trouble else "")
    )


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines of a file (only the file's last may lack its line feed).

    `offset` and `line` are those of the first byte: bytes before it, and its line from 1.
    """

    offset: int
    line: int
    data: bytes

    def line_at(self, position: int) -> int:
        """Line number of ``data[position]``."""
        return self.line + self.data.count(b"\n", 0, position)


def _open(path: Path) -> IO[bytes]:
    """Open a regular file; anything else is refused with its reason."""
    name = path.name or str(path)
    try:
        if not path.exists():
            raise TraceError(f"{name}: no such file")
        if not path.is_file():
            raise TraceError(f"{name} is not a regular file")
        return path.open("rb")
    except (OSError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{name} cannot be read: {reason}") from None


def blocks(
    path: str | Path, notes: Notes, size: int = BLOCK, limits: Limits | None = None
) -> Iterator[bytes]:
    """Read a file, gzip or not, in blocks of at most `size` bytes.

    A damaged or cut-off gzip stream, one that grows beyond `limits`, and a read that fails midway
    end the blocks with a note; what came before has been given.

    Raises
    ------
    TraceError
        When the file cannot be opened.
    """
    with _open(Path(path)) as raw:
        total = 0
        try:
            block = raw.read(size)
            if block.startswith(_GZIP):
                yield from _gunzip(block, raw, notes, size, limits or Limits())
                return
            while block:
                total += len(block)
                yield block
                block = raw.read(size)
        except OSError as error:
            notes.add("read", f"offset {total:,}: reading stopped ({error.strerror or error})")


def _gunzip(
    data: bytes, raw: IO[bytes], notes: Notes, size: int, limits: Limits
) -> Iterator[bytes]:
    """Decompress; unlike `gzip`, give everything that stands before the damage."""
    given, held = 0, bytearray()  # small members make small outputs: they are gathered
    packed, trouble = _Packed(data, raw, size), ""
    inflate, ask = zlib.decompressobj(31), _FIRST
    while not trouble:
        piece, fresh = packed.take(min(ask, size)), ask == _FIRST
        if fresh and not piece:
            break
        before, most = None if fresh else inflate.copy(), size - len(held)
        try:
            got = inflate.decompress(piece, most)
            packed.give_back(len(inflate.unconsumed_tail) or len(inflate.unused_data))
            if not piece and not got:
                trouble = "the gzip data is cut off there; what came before is kept"
        except zlib.error as error:
            got = _up_to_damage(before or zlib.decompressobj(31), piece, most)
            trouble = _trouble(error, fresh and given + len(held) > 0)
        held += got
        ask *= 4
        total = given + len(held)
        if total > limits.unpacked_bytes or (
            total > limits.ratio_from_bytes and total > limits.ratio * packed.taken
        ):
            yield bytes(held)
            notes.add(
                "gzip",
                f"offset {total:,} after decompression: {total // max(packed.taken, 1):,} times "
                "what was compressed, and growing: reading stopped",
            )
            return
        if len(held) == size:
            yield bytes(held)
            given, held = total, bytearray()
        if inflate.eof:
            packed.skip_zeros()
            inflate, ask = zlib.decompressobj(31), _FIRST  # another member may follow
    if held:
        yield bytes(held)
    if trouble:
        notes.add("gzip", f"offset {given + len(held):,} after decompression: {trouble}")


class _Packed:
    """Compressed bytes, taken in pieces; what a piece had too much is given back uncopied."""

    def __init__(self, data: bytes, raw: IO[bytes], size: int) -> None:
        self._data, self._raw, self._size, self._at = data, raw, size, 0
        self.taken = 0

    def _more(self) -> bool:
        if self._at >= len(self._data):
            self._data, self._at = self._raw.read(self._size), 0
        return bool(self._data)

    def take(self, most: int) -> bytes:
        """Return up to `most` bytes; none at the end of the file."""
        if not self._more():
            return b""
        piece = self._data[self._at : self._at + most]
        self._at += len(piece)
        self.taken += len(piece)
        return piece

    def give_back(self, many: int) -> None:
        self._at -= many
        self.taken -= many

    def skip_zeros(self) -> None:
        """Pass the zeros that pad a member."""
        while self._more() and self._data[self._at] == 0:
            found = _NOT_ZERO.search(self._data, self._at)
            self._at = found.start() if found else len(self._data)


def _up_to_damage(inflate: Any, piece: bytes, most: int) -> bytes:
    """Return all that decompresses of a `piece` that is damaged somewhere.

    An error takes with it the output of its call, so calls ask for ever less, then give ever less.
    """
    out = bytearray()
    while most:
        before = inflate.copy()
        try:
            got = inflate.decompress(piece, most)
            piece, most = inflate.unconsumed_tail, most if got or piece else 0
            out += got
        except zlib.error:
            inflate, most = before, most // 2
    try:
        for at in range(len(piece)):
            out += inflate.decompress(piece[at : at + 1])
    except zlib.error:
        pass
    return bytes(out)


def _trouble(error: zlib.error, between: bool) -> str:
    """Put zlib's error into words; `between` members it is about what follows the one before."""
    if "incorrect header" in str(error) and between:
        return "what follows is no gzip data; what came before is kept"
    if "incorrect data" in str(error) or "incorrect length" in str(error):
        return (
            "the gzip data fails its checksum there; what came before is kept, some of it may be "
            "wrong"
        )
    return "the gzip data is damaged there; what came before is kept"


def head(path: str | Path, size: int = 1 << 16, notes: Notes | None = None) -> bytes:
    """Return the first `size` bytes, decompressed; fewer from a damaged or short file."""
    return next(blocks(path, notes or Notes(), size), b"")


def refuse_gzip(path: Path, what: str) -> None:
    """Refuse a compressed file of a format that is not read as a stream.

    Raises
    ------
    TraceError
        When `path` is gzip data, or cannot be opened.
    """
    with _open(path) as file:
        if file.read(len(_GZIP)) == _GZIP:
            raise TraceError(
                f"{path.name} is a compressed {what}: decompress it first: gunzip {path.name}"
            )


def line_blocks(
    path: str | Path, notes: Notes, size: int = BLOCK, limits: Limits | None = None
) -> Iterator[LineBlock]:
    """Read a text file in blocks of whole lines.

    Of a line longer than `MAX_LINE` that fits no block the rest is skipped, with a note.
    """
    carry, offset, line, skipping = b"", 0, 1, False
    for block in blocks(path, notes, size, limits):
        if skipping:
            end = block.find(b"\n")
            if end < 0:
                offset += len(block)
                continue
            offset += end  # the line feed itself is carried on, so that lines are counted right
            block, skipping = block[end:], False
        data = carry + block if carry else block
        end = data.rfind(b"\n") + 1
        if end:
            yield LineBlock(offset, line, data[:end])
            offset, line, carry = offset + end, line + data.count(b"\n"), data[end:]
        else:
            carry = data
        if len(carry) > MAX_LINE:
            notes.add(
                "long line",
                f"line {line:,}, offset {offset:,}: longer than {MAX_LINE:,} bytes, "
                "only its beginning was looked at",
            )
            yield LineBlock(offset, line, carry[:MAX_LINE])
            offset, carry, skipping = offset + len(carry), b"", True
    if carry:
        yield LineBlock(offset, line, carry)


def hits(data: bytes, needles: Sequence[bytes]) -> np.ndarray:
    """Where the needles occur, int64 of shape (hits, 2): position, index of the needle.

    In order of position. `bytes.find` runs at memory speed, some twenty times faster than an
    alternation in `re`.
    """
    found: list[int] = []
    many = len(needles)
    counts = []
    for needle in needles:
        before, find, append, step = len(found), data.find, found.append, len(needle)
        at = find(needle)
        while at >= 0:
            append(at)
            at = find(needle, at + step)
        counts.append(len(found) - before)
    out = np.empty((len(found), 2), np.int64)
    out[:, 0] = found
    out[:, 1] = np.repeat(np.arange(many), counts)
    return out[np.argsort(out[:, 0], kind="stable")]


def whole_column(values: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """Turn float64 with NaN for *missing* into pandas' Int64."""
    import pandas as pd

    values = np.asarray(values, np.float64)
    missing = np.isnan(values)
    return pd.arrays.IntegerArray(np.where(missing, 0, values).astype(np.int64), missing)
