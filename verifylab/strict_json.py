"""JSON that is sure to be shown and stored again: what records are read as, and parameters kept as.

Python's own reader takes more than it can write: infinity, halves of surrogate pairs, and levels
in which whoever walks them runs out of stack.
"""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["MAX_DEPTH", "nests", "parse", "unpaired"]

#: Levels of lists and tables: a choice of this module, far from where Python's stack ends.
MAX_DEPTH = 100


def parse(content: bytes) -> Any:
    """Read JSON.

    Raises
    ------
    ValueError
        When it is none, or holds a number that is not finite, text that is not Unicode, or more
        than `MAX_DEPTH` levels.
    """
    text = content.decode("utf-8-sig")
    try:
        body = json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"more than {MAX_DEPTH} levels") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and nests(body):
        raise ValueError(f"more than {MAX_DEPTH} levels")
    if "\\u" in text and unpaired(json.dumps(body, ensure_ascii=False)):
        raise ValueError("text that is not Unicode")
    return body


def nests(value: Any) -> bool:
    """Whether a value has more than `MAX_DEPTH` levels of lists and tables."""
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, (dict, list, tuple))]:
        depth += 1
        if depth > MAX_DEPTH:
            return True
        level = [i for one in level for i in (one.values() if isinstance(one, dict) else one)]
    return False


def unpaired(text: str) -> bool:
    """Whether a text holds half of a surrogate pair, which no encoding has."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number
