"""Checks of parameters: each error names the parameter, its value and what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["fraction", "is_number", "is_whole", "whole", "whole_list"]


def is_whole(value: Any) -> bool:
    """Whether `value` is an integer; a bool is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether `value` is an integer or a float (NaN and infinity are); a bool is none."""
    return is_whole(value) or isinstance(value, (float, np.floating))


def whole(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Return `value` as a Python int (counts must not wrap as NumPy's do) within [low, high]."""
    if not is_whole(value):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < low or (high is not None and value > high):
        right = f"{low} or more" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} must be {right}, got {value}")
    return int(value)


def whole_list(
    name: str, values: Any, low: int, high: int | None = None, *, distinct: bool = True
) -> list[int]:
    """Return `values` as a list of ints within [low, high], at least one, no two alike."""
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be a list of whole numbers, got {values!r}")
    out = [whole(name, value, low, high) for value in values]
    if not out:
        raise ValueError(f"{name} must list at least one number, got none")
    if distinct and len(set(out)) != len(out):
        raise ValueError(f"{name} must list each number once, got {out}")
    return out


def fraction(name: str, value: Any) -> float:
    """Return `value` as a float from 0 to 1; a bool or NaN is none."""
    if not is_number(value):
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {value}")
    return float(value)
