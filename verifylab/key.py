"""The key a verify graph is cached under.

Little-endian 32-bit words: slot, rows, slot, rows, ... in dispatch order, and last a sentinel that
says whether the WY tables are there. A batch of n sequences has 2n + 1 words, so the length tells
n and the last word is the sentinel wherever it stands: two different batches never share a key,
not even where a slot has the sentinel's value.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from verifylab.ordering import (
    NO_SLOT,
    Array,
    as_batches,
    as_flag,
    assignment,
    check_values,
    compiled_rule,
    first,
    permutation,
)

__all__ = [
    "SENTINEL",
    "BatchKeys",
    "batch_keys",
    "parse_graph_key",
    "verify_graph_key",
    "verify_graph_keys",
]

#: Last word of a key whose step has its WY tables; one less without them (design note, section 2).
SENTINEL = 0xFFFFFFFF

_WORD_MAX = 0xFFFFFFFF


class BatchKeys(NamedTuple):
    """What `batch_keys` gives: the order, the assigned depths and the key words.

    Attributes
    ----------
    order, assigned : (..., n) array of int64
        As from `verify_batch_order`.
    words : (..., 2 n + 1) array of uint32
        As from `verify_graph_keys`.
    """

    order: Array
    assigned: Array
    words: Array


def verify_graph_key(
    pairs: Iterable[tuple[SupportsIndex, SupportsIndex]], wy_tables_null: bool
) -> bytes | None:
    """Give the key of one batch.

    Parameters
    ----------
    pairs : iterable of (slot, rows)
        In dispatch order; an (n, 2) array will do.
    wy_tables_null : bool
        Whether the step runs without WY tables.

    Returns
    -------
    bytes or None
        ``4 * (2 n + 1)`` bytes; None when a slot is `NO_SLOT`: the step runs eager.

    Raises
    ------
    TypeError
        When a slot or a row count is no integer or `wy_tables_null` no bool.
    ValueError
        When a slot or a row count does not fit 32 bits, or rows are below 1. That comes before
        None: a batch with a bad value is never silently eager.
    """
    words = []
    keyless = False
    for position, (slot, rows) in enumerate(pairs):
        slot = _index("slot", slot, position)
        keyless |= slot == NO_SLOT
        words.append(_word("slot", slot if slot != NO_SLOT else 0, position, 0))
        words.append(_word("rows", _index("rows", rows, position), position, 1))
    words.append(_sentinel(wy_tables_null))
    return None if keyless else struct.pack(f"<{len(words)}I", *words)


def verify_graph_keys(slots: Array, depths: Array, wy_tables_null: bool) -> Array:
    """Give the key words of many batches, each already in dispatch order.

    Parameters
    ----------
    slots, depths : (..., n) array of int
        Slots and rows by dispatch position: ``take_along_axis(slots, order, -1)`` and ``assigned``
        of `verify_batch_order`. Kinds, dtypes and broadcasting as there.
    wy_tables_null : bool
        Whether the steps run without WY tables.

    Returns
    -------
    words : (..., 2 n + 1) array of uint32
        In the machine's byte order; ``words.astype("<u4")[i].tobytes()`` is `verify_graph_key` of
        batch i.

    Raises
    ------
    TypeError
        As `verify_batch_order`, or when `wy_tables_null` is no bool.
    ValueError
        As `verify_batch_order`; when a slot or a depth does not fit 32 bits; when a batch holds
        `NO_SLOT`, which has no key: keep the batches with ``(slots != NO_SLOT).all(-1)``.
    """
    xp, slots, depths = as_batches(slots, depths)
    sentinel = _sentinel(wy_tables_null)
    check_values(slots, depths)
    _check_words(slots, depths)
    return _words(xp, slots, depths, sentinel)


def batch_keys(slots: Array, depths: Array, canonical: bool, wy_tables_null: bool) -> BatchKeys:
    """Order, assign and key many batches in one go.

    Parameters
    ----------
    slots, depths, canonical
        As in `verify_batch_order`, in input order.
    wy_tables_null : bool
        As in `verify_graph_keys`.

    Returns
    -------
    BatchKeys

    Raises
    ------
    TypeError, ValueError
        As `verify_batch_order` and `verify_graph_keys`.
    """
    xp, slots, depths = as_batches(slots, depths)
    canonical = as_flag("canonical", canonical, "ask a gate: gate.canonical(width)")
    sentinel = _sentinel(wy_tables_null)
    if rule := compiled_rule(xp, slots):
        if fast := rule.order_batches(slots, depths, canonical, sentinel):
            return BatchKeys(*fast)
    check_values(slots, depths)
    _check_words(slots, depths)
    order = permutation(xp, slots, depths, canonical)
    assigned = assignment(xp, depths, order, canonical)
    if slots.size:
        slots = xp.take_along_axis(slots, order, axis=-1)
    return BatchKeys(order, assigned, _words(xp, slots, assigned, sentinel))


def parse_graph_key(key: bytes) -> tuple[tuple[tuple[int, int], ...], bool]:
    """Take a key apart.

    Parameters
    ----------
    key : bytes
        From `verify_graph_key`.

    Returns
    -------
    pairs : tuple of (slot, rows)
        In dispatch order.
    wy_tables_null : bool

    Raises
    ------
    TypeError
        When `key` is no bytes.
    ValueError
        When it is no key: not an odd number of 32-bit words, a last word that is no sentinel, or
        a row count of 0.
    """
    if not isinstance(key, (bytes, bytearray, memoryview)):
        raise TypeError(f"key must be bytes, got {type(key).__name__}")
    key = bytes(key)
    if len(key) % 8 != 4:
        raise ValueError(f"key must have 4 * (2 n + 1) bytes for n sequences, got {len(key)}")
    *body, sentinel = struct.unpack(f"<{len(key) // 4}I", key)
    if sentinel not in (SENTINEL, SENTINEL - 1):
        raise ValueError(
            f"key must end in {SENTINEL:#010x} or {SENTINEL - 1:#010x}, got {sentinel:#010x}"
        )
    pairs = tuple(zip(body[::2], body[1::2], strict=True))
    for position, (_, rows) in enumerate(pairs):
        _word("rows", rows, position, 1)
    return pairs, sentinel != SENTINEL


def _sentinel(wy_tables_null: bool) -> int:
    return SENTINEL - as_flag("wy_tables_null", wy_tables_null, "it says: no WY tables")


def _index(name: str, value: Any, position: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r} at pair {position}") from None


def _word(name: str, value: int, position: int, least: int) -> int:
    if not least <= value <= _WORD_MAX:
        raise ValueError(
            f"{name} must be {least} to {_WORD_MAX:#x} in a key, got {value} at pair {position}"
        )
    return value


def _words(xp: Any, slots: Array, depths: Array, sentinel: int) -> Array:
    """Interleave checked batches in dispatch order."""
    words = xp.empty((*slots.shape[:-1], 2 * slots.shape[-1] + 1), dtype=np.uint32)
    words[..., 0:-1:2] = slots.astype(np.uint32)
    words[..., 1:-1:2] = depths.astype(np.uint32)
    words[..., -1] = sentinel
    return words


def _check_words(slots: Array, depths: Array) -> None:
    """Refuse what a word cannot hold; `check_values` has seen to the lower ends."""
    if slots.size and int(slots.max()) == NO_SLOT:
        where = first("slots", slots, slots == NO_SLOT).partition(" at ")[2]
        raise ValueError(
            f"a batch without all its slots has no key, got NO_SLOT at {where}; "
            "keep the batches with (slots != NO_SLOT).all(-1)"
        )
    for name, array in (("slots", slots), ("depths", depths)):
        if array.size and int(array.max()) > _WORD_MAX:
            raise ValueError(
                f"{name} must be at most {_WORD_MAX:#x} in a key, "
                f"got {first(name, array, array > _WORD_MAX)}"
            )
