"""Checks of parameters: each error names the parameter, its value and what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["fraction", "whole", "whole_list"]


def whole(name: str, value: Any, low: int, high: int) -> int:
    """Return `value` as an int within [low, high]; a bool is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be from {low} to {high}, got {value}")
    return int(value)


def whole_list(name: str, values: Any, low: int, high: int) -> list[int]:
    """Return `values` as a list of different ints within [low, high], at least one."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be a list of whole numbers, got {values!r}")
    out = [whole(name, value, low, high) for value in values]
    if not out:
        raise ValueError(f"{name} must list at least one number, got none")
    if len(set(out)) != len(out):
        raise ValueError(f"{name} must list each number once, got {out}")
    return out


def fraction(name: str, value: Any) -> float:
    """Return `value` as a float from 0 to 1; a bool or NaN is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")
    if not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {value}")
    return float(value)
