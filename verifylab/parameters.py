"""Parameter values: what TOML can say, held against the default that a notebook has."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from verifylab.notebook import UNKNOWN

__all__ = ["fit", "show"]

_ANYTHING = "a number, string, true, false, list or table"


def fit(value: Any, default: Any) -> tuple[str, Any]:
    """Hold a value against a default.

    Parameters
    ----------
    value : object
        From a grid file.
    default : object
        Of the notebook; `None` and `UNKNOWN` take any value that JSON can hold.

    Returns
    -------
    problem : str
        What would be right, empty when the value is.
    value : object
        With whole numbers made floats where the default is a float.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "finite", value
    if default is None or default is UNKNOWN:
        return ("" if _plain(value) else _ANYTHING), value
    if isinstance(default, bool):
        return ("" if isinstance(value, bool) else "true or false"), value
    if isinstance(default, int):
        right = isinstance(value, int) and not isinstance(value, bool)
        return ("" if right else "a whole number"), value
    if isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return "a number", value
        try:
            return "", float(value)
        except OverflowError:
            return "a number that fits a float", value
    if isinstance(default, str):
        return ("" if isinstance(value, str) else "a string"), value
    if isinstance(default, (list, tuple)):
        if not isinstance(value, list):
            return "a list", value
        example = _example(default)
        fitted = [fit(item, example) for item in value]
        problem = next((p for p, _ in fitted if p), "")
        if problem:
            return f"a list, each item {problem}", value
        return "", [item for _, item in fitted]
    if isinstance(default, dict):
        return ("" if isinstance(value, dict) and _plain(value) else "a table"), value
    return ("" if _plain(value) else _ANYTHING), value


def _example(items: Iterable[Any]) -> Any:
    """Give an item that stands for all, UNKNOWN where they differ in kind or there are none."""
    kinds = {type(item) for item in items}
    if kinds == {int, float}:
        return 0.0
    return next(iter(items)) if len(kinds) == 1 else UNKNOWN


def _plain(value: Any) -> bool:
    """Whether JSON can hold it: TOML's dates cannot be passed to a notebook."""
    if isinstance(value, dict):
        return all(_plain(item) for item in value.values())
    if isinstance(value, list):
        return all(_plain(item) for item in value)
    return isinstance(value, (bool, int, str)) or (
        isinstance(value, float) and math.isfinite(value)
    )


def show(value: Any) -> str:
    """Show a value in a message: as JSON, cut at 80 characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
