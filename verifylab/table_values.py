"""Values of a table of results as JSON has them, to be told apart and shown."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["as_text", "is_number", "plain"]

#: A number beyond is taken for infinite: the variance of many still fits a float.
_LARGEST = 1e70


def plain(value: Any) -> Any:
    """Return a value of a table as JSON has it, as text where it has none; None where missing."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is pd.NA or value is pd.NaT or value != value:
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if value is None or isinstance(value, (bool, int, str)) or is_number(value):
        return value
    return str(value)


def is_number(value: Any) -> bool:
    """Whether it is finite, and so are the sum and the spread of many like it."""
    return isinstance(value, (int, float)) and abs(value) <= _LARGEST


def as_text(value: Any) -> str:
    """Return a value as JSON text: the same for the same value."""
    return json.dumps(plain(value), sort_keys=True)
