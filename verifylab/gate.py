"""The width gate: whether a batch gets the canonical depth-to-slot assignment.

One decision, asked once per batch with the FULL batch width, never a chunk's. The rest of the
library takes a `Gate`, whose inputs are given; only the three functions below read the
environment, and they read it once per process.
"""

from __future__ import annotations

import functools
import operator
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np

__all__ = [
    "CANONICAL_KEY_MIN_WIDTH",
    "KILL_SWITCH_VARIABLE",
    "MIN_WIDTH_VARIABLE",
    "Gate",
    "canonical_assignment",
    "canonical_key_min_width",
    "canonical_verify_key_enabled",
]

#: Width from which the assignment is canonical unless told otherwise (design note, section 2).
CANONICAL_KEY_MIN_WIDTH = 8

#: Presence alone, whatever the value, turns canonical assignment off (design note, section 2).
KILL_SWITCH_VARIABLE = "ATLAS_NO_CANONICAL_VERIFY_KEY"

#: The gate's width by value (design note, section 2).
MIN_WIDTH_VARIABLE = "ATLAS_CANONICAL_KEY_MIN_WIDTH"

#: Largest `usize` where pointers have 64 bits.
_USIZE_MAX = 2**64 - 1

#: Unicode White_Space (PropList.txt), which is what Rust's `str::trim` takes off. `str.strip()`
#: without an argument would also take off U+001C to U+001F.
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

_USIZE = re.compile(r"\+?0*([0-9]*)")


@dataclass(frozen=True, slots=True)
class Gate:
    """The width gate with its two inputs given instead of read from the environment.

    Attributes
    ----------
    min_width : int
        Batches of this many sequences or more are canonical; 0 or more. 0 means at every width, a
        value above the widest batch means never. Default: `CANONICAL_KEY_MIN_WIDTH`.
    enabled : bool
        False is the kill switch: no batch is canonical, whatever `min_width` says.

    Raises
    ------
    TypeError
        When `min_width` is no integer (a bool is none) or `enabled` is no bool.
    ValueError
        When `min_width` is below 0.
    """

    min_width: int = CANONICAL_KEY_MIN_WIDTH
    enabled: bool = True

    def __post_init__(self) -> None:
        # Through object: the dataclass is frozen, and a NumPy integer is stored as an int.
        object.__setattr__(self, "min_width", _count("min_width", self.min_width))
        if not isinstance(self.enabled, (bool, np.bool_)):
            raise TypeError(f"enabled must be True or False, got {self.enabled!r}")
        object.__setattr__(self, "enabled", bool(self.enabled))

    def canonical(self, width: SupportsIndex) -> bool:
        """Say whether a batch of `width` sequences gets the canonical assignment.

        Parameters
        ----------
        width : int
            Sequences in the FULL batch, 0 or more; never a chunk's.

        Returns
        -------
        bool

        Raises
        ------
        TypeError
            When `width` is no integer.
        ValueError
            When `width` is below 0.
        """
        return _count("width", width) >= self.min_width and self.enabled

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Gate:
        """Read a gate from environment variables.

        Parameters
        ----------
        environ : mapping of str to str
            For example ``os.environ``. `KILL_SWITCH_VARIABLE` counts by presence,
            `MIN_WIDTH_VARIABLE` by value; a value that Rust would not parse gives the default.

        Returns
        -------
        Gate
        """
        return cls(_parse_min_width(environ), KILL_SWITCH_VARIABLE not in environ)


@functools.cache
def canonical_verify_key_enabled() -> bool:
    """Say whether the kill switch is clear in this process's environment.

    Returns
    -------
    bool
        False when `KILL_SWITCH_VARIABLE` is present with any value, the empty one and ``0``
        included. Read once per process.
    """
    return KILL_SWITCH_VARIABLE not in os.environ


@functools.cache
def canonical_key_min_width() -> int:
    """Give the gate's width from this process's environment.

    Returns
    -------
    int
        `MIN_WIDTH_VARIABLE` where Rust's ``str::trim`` then ``parse::<usize>`` (64 bit) would
        accept it, else `CANONICAL_KEY_MIN_WIDTH`. Read once per process.
    """
    return _parse_min_width(os.environ)


def canonical_assignment(width: SupportsIndex) -> bool:
    """Decide for one batch, by this process's environment: canonical or not.

    Parameters
    ----------
    width : int
        Sequences in the FULL batch, 0 or more; never a chunk's.

    Returns
    -------
    bool
        True when the kill switch is clear and `width` reaches `canonical_key_min_width`.

    Raises
    ------
    TypeError, ValueError
        As `Gate.canonical`.
    """
    return Gate(canonical_key_min_width(), canonical_verify_key_enabled()).canonical(width)


def _parse_min_width(environ: Mapping[str, str]) -> int:
    text = environ.get(MIN_WIDTH_VARIABLE)
    width = None if text is None else _parse_usize(text)
    return CANONICAL_KEY_MIN_WIDTH if width is None else width


def _parse_usize(text: str) -> int | None:
    """Parse as Rust would; None where Rust would refuse."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Python smuggles bytes that are no UTF-8 through as surrogates; Rust's `env::var` fails.
        return None
    text = text.strip(_WHITE_SPACE)
    match = _USIZE.fullmatch(text)
    if match is None or text in ("", "+"):
        return None
    digits = match[1] or "0"
    # More than 20 digits cannot fit, and Python's int() refuses more than 4,300.
    if len(digits) > len(str(_USIZE_MAX)) or int(digits) > _USIZE_MAX:
        return None
    return int(digits)


def _count(name: str, value: SupportsIndex) -> int:
    """Check an integer of 0 or more and return it as an int."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if count < 0:
        raise ValueError(f"{name} must be 0 or more, got {count}")
    return count
