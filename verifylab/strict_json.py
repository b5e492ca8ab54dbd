"""JSON that is sure to be shown and stored again: what records are read as, and parameters kept as.

Python's own reader takes more than it can write: infinity, halves of surrogate pairs, and levels
in which whoever walks them runs out of stack.
"""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["MAX_DEPTH", "nests", "parse", "storable", "unpaired"]

#: Levels of lists and tables in a value: a choice of this module, far from where Python's stack
#: ends. A record has some more around its values.
MAX_DEPTH, _AROUND = 100, 4
#: Python reads whole numbers of up to 4,300 digits; these have 3,010.
_MOST_BITS = 10_000


def parse(content: bytes) -> Any:
    """Read JSON.

    Raises
    ------
    ValueError
        When it is none, or holds a number that is not finite, text that is not Unicode, or values
        of more than `MAX_DEPTH` levels.
    """
    text = content.decode("utf-8-sig")
    try:
        body = json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"more than {MAX_DEPTH} levels") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and nests(body, MAX_DEPTH + _AROUND):
        raise ValueError(f"more than {MAX_DEPTH} levels")
    if "\\u" in text and unpaired(json.dumps(body, ensure_ascii=False)):
        raise ValueError("text that is not Unicode")
    return body


def nests(value: Any, most: int = MAX_DEPTH) -> bool:
    """Whether a value has more than so many levels of lists and tables."""
    level = [value]
    while level := [one for one in level if isinstance(one, (dict, list, tuple))]:
        most -= 1
        if most < 0:
            return True
        level = [i for one in level for i in (one.values() if isinstance(one, dict) else one)]
    return False


def storable(value: Any) -> bool:
    """Whether JSON has this value and `parse` reads it again (a tuple as a list)."""
    return not nests(value) and _storable(value)


def _storable(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) for name in value) and _storable([*value, *value.values()])
    if isinstance(value, (list, tuple)):
        return all(map(_storable, value))
    if isinstance(value, str):
        return not unpaired(value)
    if isinstance(value, int):
        return value.bit_length() <= _MOST_BITS
    return value is None or _is_finite(value)


def unpaired(text: str) -> bool:
    """Whether a text holds half of a surrogate pair, which no encoding has."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _finite(text: str) -> float:
    number = float(text)
    if not _is_finite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)
