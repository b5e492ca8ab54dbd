"""Read the objects of one JSON array one at a time, in bounded memory, mending as it goes.

`json` parses each object in C; this module only finds where objects begin and end, and how to go
on after one that cannot be parsed: cut off, nested too deep, or with a number of a million digits.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from verifylab.trace_file import Notes

__all__ = ["MAX_OBJECT", "load_text", "objects", "salvage"]

#: Longest object that is kept, in characters.
MAX_OBJECT = 1 << 23
#: Deepest nesting that is followed.
MAX_DEPTH = 200
#: Tokens of a damaged text that are looked at to mend it: some seconds' worth.
MAX_TOKENS = 10_000_000

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n,]*")
#: Where to go on after what is no JSON, and what shows that a value is whole.
_NEXT = re.compile(r"[,{\]]")
_CLOSED, _DELIMITERS = ("{", "[", '"'), (",", "]", " ", "\n", "\r", "\t")
#: Between two objects of an array; sought backwards in a stretch of the text.
_BETWEEN = re.compile(r"\}(?=\s*,\s*\{)")
_STRETCH, _SOUGHT = 1 << 16, 1 << 12
#: Characters kept while the array is sought.
_KEPT = 1 << 20
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|["{}\[\]]', re.S)


def _end(text: str, start: int) -> int:
    """Position after the object or array at `start`; -1 when it does not end in `text`."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        mark = token.group()
        if mark in ("{", "["):
            depth += 1
        elif mark in ("}", "]"):
            depth -= 1
            if depth <= 0:
                return token.end()
        elif mark == '"':
            return -1  # a string without its end
    return -1


def objects(blocks: Iterator[bytes], opening: re.Pattern[str], notes: Notes) -> Iterator[Any]:
    """Yield the elements of the array whose ``[`` ends the first match of `opening`, in lists.

    Parameters
    ----------
    blocks : iterator of bytes
        UTF-8; bytes that are not are replaced.
    opening : compiled pattern
        Sought from the beginning, through everything before the array.
    notes : Notes
        What could not be parsed, by offset (in characters).

    Yields
    ------
    str
        First the text before the array, or its last 1 MiB.
    list
        Then the elements, parsed, some at a time.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    text, offset, last = "", 0, False

    def more() -> bool:
        nonlocal text, last
        block = next(blocks, None)
        last = block is None
        text += decode(block or b"", last)
        return not last

    found = None
    while found is None:
        going = more()
        # Of a text cut at its front only the front's first character may not begin the match.
        found = opening.search(text, 1 if offset else 0)
        if found is None:
            if not going:
                return
            if len(text) > _KEPT:
                offset += len(text) - _KEPT
                text = text[-_KEPT:]
    yield text[: found.end()]
    at, alone = found.end(), 0  # up to `alone`, elements are parsed one by one
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        if at >= alone:
            several, at, alone = _stretch(text, at)
            if several:
                yield several
                continue
        mark, where = text[at : at + 1], f"offset {offset + at:,}"
        if mark == "]":
            return
        end, problem = -1, ""
        try:
            value, end = _DECODER.raw_decode(text, at)
            # A number at the end of the text may go on in the next block.
            if mark in _CLOSED or last or text[end : end + 1] in _DELIMITERS:
                yield [value]
                at = end
                continue
            end, problem = -1, "not JSON"
        except (ValueError, RecursionError) as error:
            problem = _reason(error)
            if mark and mark in "{[":
                end = _end(text, at)
            elif mark and mark != '"' and (found := _NEXT.search(text, at + 1)):
                end = found.start()
        if end >= 0:
            notes.add("object", f"{where}: {problem}, left out")
            at = end
        elif last:
            cut = "an object is cut off" if mark else "the array has no end, the file is cut off"
            notes.add("cut", f"{where}: {cut}")
            return
        elif len(text) - at >= MAX_OBJECT:
            notes.add("cut", f"{where}: an object over {MAX_OBJECT:,} characters, reading stopped")
            return
        else:
            offset, text, alone, at = offset + at, text[at:], alone - at, 0
            more()


def _stretch(text: str, at: int) -> tuple[list[Any], int, int]:
    """Parse many elements at once, if the guess of where one ends was right.

    What parses as an array from a known beginning is that, so a wrong guess can only fail.

    Returns
    -------
    list, int, int
        The elements, none after a failure; where they end; and up to where another attempt would
        fail too, so that whatever is parsed in vain is parsed in vain once.
    """
    stop = at + _STRETCH
    if stop > len(text):
        return [], at, at
    end = _last_between(text, stop)
    if end < at:
        return [], at, at + _SOUGHT
    try:
        return json.loads(f"[{text[at:end]}]"), end, end
    except json.JSONDecodeError as error:
        bad = at - 1 + error.pos
    except (ValueError, RecursionError):  # these do not say where
        return [], at, end
    end = _last_between(text, bad)
    try:
        if end > at:
            return json.loads(f"[{text[at:end]}]"), end, bad + 1
    except (ValueError, RecursionError):
        pass
    return [], at, bad + 1


def _last_between(text: str, stop: int) -> int:
    """Where the last object ends that is followed by another, not far before `stop`; or -1."""
    ends = [found.end() for found in _BETWEEN.finditer(text, max(stop - _SOUGHT, 0), stop)]
    return ends[-1] if ends else -1


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg})"
    return "a number with too many digits"


def load_text(text: str) -> Any:
    """Parse JSON; every way in which that fails is a ValueError with a short reason."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" at offset {error.pos:,}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"{_reason(error)}{where}") from None


def salvage(text: str) -> Any:
    """Parse JSON that was cut off: up to its last complete value, every bracket closed.

    Looked at are the first `MAX_TOKENS` brackets, commas and strings.

    Raises
    ------
    ValueError
        When nothing can be saved.
    """
    stack: list[str] = []
    best: tuple[int, str] | None = None
    tokens = re.finditer(r'"(?:[^"\\]|\\.)*+"|["{}\[\],]', text, re.S)
    for token in itertools.islice(tokens, MAX_TOKENS):
        mark = token.group()
        if mark == '"' or len(stack) > MAX_DEPTH:
            break
        if mark in ("{", "["):
            stack.append("}" if mark == "{" else "]")
        elif mark in ("}", "]"):
            if not stack or stack.pop() != mark:
                break
            best = token.end(), "".join(reversed(stack))
            if not stack:
                break
        elif mark == ",":
            best = token.start(), "".join(reversed(stack))
    if best is None:
        raise ValueError("nothing in it is complete")
    return load_text(text[: best[0]] + best[1])
