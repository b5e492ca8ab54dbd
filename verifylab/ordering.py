"""The ordering rule: in which order a verify batch is dispatched, and who verifies how many rows.

Canonical: by slot ascending, and the depths are dealt out along it, deepest first. So the slot
set and the depth multiset alone decide the key. Otherwise: deepest first, then by slot, and every
sequence keeps its own depth. Ties go to the earlier input index.

The functions take one batch or a million, NumPy or CuPy arrays. Large NumPy inputs go through
`verifylab._fast_rule`, which gives the same numbers.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["NO_SLOT", "verify_batch_order", "verify_batch_permutation"]

#: The slot of a sequence that has none: sorts last. The engine uses its largest index, 2**64 - 1;
#: here it is the largest *int64*, so that the usual integer arrays can hold it.
NO_SLOT = int(np.iinfo(np.int64).max)

# Elements from which numba's import, about a second once per process, is worth it: a call of this
# size takes the general way some 50 ms, and whoever makes one makes many. Once loaded the compiled
# rule is the faster one at every size (both measured by benchmarks/bench_rule.py).
_WORTH_LOADING = 1 << 20

# A NumPy or a CuPy array, or anything np.asarray takes. CuPy may not be installed: no better type.
Array = Any


def verify_batch_permutation(slots: Array, depths: Array, canonical: bool) -> Array:
    """Order verify batches for dispatch; the permutation alone.

    Parameters
    ----------
    slots : (..., n) array of int
        Each sequence's slot, 0 or more; `NO_SLOT` for a sequence without one. NumPy or CuPy, any
        integer dtype; anything else is converted to NumPy.
    depths : (..., n) array of int
        Each sequence's rows, 1 or more. The leading axes of `slots` and `depths` broadcast: one
        slot set goes with many depth draws. The last axis does not.
    canonical : bool
        By slot (True), or by depth descending and then slot (False). See `Gate.canonical`.

    Returns
    -------
    order : (..., n) array of int64
        ``order[p]`` is the input index dispatched at position p. The same kind of array as the
        inputs.

    Raises
    ------
    TypeError
        When a dtype is no integer, `canonical` no bool, or one array is NumPy and one CuPy.
    ValueError
        When the shapes do not fit, a slot is negative or above `NO_SLOT`, or a depth is below 1.

    Notes
    -----
    A slot that occurs twice in a batch is legal here: the tie goes to the earlier input index.
    For CuPy arrays the checks of the values wait for the device.
    """
    xp, slots, depths = as_batches(slots, depths)
    canonical = as_flag("canonical", canonical, "ask a gate: gate.canonical(width)")
    if (rule := compiled_rule(xp, slots)) and (
        fast := rule.order_batches(slots, depths, canonical)
    ):
        return fast[0]
    check_values(slots, depths)
    return permutation(xp, slots, depths, canonical)


def verify_batch_order(slots: Array, depths: Array, canonical: bool) -> tuple[Array, Array]:
    """Order verify batches for dispatch and assign the depths.

    Parameters
    ----------
    slots, depths, canonical
        As in `verify_batch_permutation`.

    Returns
    -------
    order : (..., n) array of int64
        As from `verify_batch_permutation`: the permutation never depends on who calls.
    assigned : (..., n) array of int64
        ``assigned[p]`` are the rows verified at position p: when canonical the batch's depths in
        descending order, else ``depths[order[p]]``.

    Raises
    ------
    TypeError, ValueError
        As `verify_batch_permutation`.
    """
    xp, slots, depths = as_batches(slots, depths)
    canonical = as_flag("canonical", canonical, "ask a gate: gate.canonical(width)")
    if (rule := compiled_rule(xp, slots)) and (
        fast := rule.order_batches(slots, depths, canonical)
    ):
        return fast[0], fast[1]
    check_values(slots, depths)
    order = permutation(xp, slots, depths, canonical)
    return order, assignment(xp, depths, order, canonical)


# The rule itself. Only what NumPy and CuPy both have: CuPy's lexsort stops at two axes, and its
# sorts are always stable and always ascending.


def permutation(xp: ModuleType, slots: Array, depths: Array, canonical: bool) -> Array:
    """Give the dispatch order of checked batches. Arguments as `as_batches` returns them."""
    if slots.size == 0:
        return xp.empty(slots.shape, dtype=np.int64)  # CuPy's sort is not asked about nothing
    by_slot = xp.argsort(slots, axis=-1, kind="stable")
    if not canonical:
        deepest_first = -xp.take_along_axis(depths, by_slot, axis=-1)
        by_depth = xp.argsort(deepest_first, axis=-1, kind="stable")
        by_slot = xp.take_along_axis(by_slot, by_depth, axis=-1)
    return by_slot.astype(np.int64, copy=False)


def assignment(xp: ModuleType, depths: Array, order: Array, canonical: bool) -> Array:
    """Give the rows at each dispatch position, for an `order` from `permutation`."""
    if depths.size == 0:
        return xp.empty(depths.shape, dtype=np.int64)
    if canonical:
        return -xp.sort(-depths, axis=-1)
    return xp.take_along_axis(depths, order, axis=-1)


# Taking arguments in. `verifylab.key` uses these too.


def as_batches(slots: Array, depths: Array) -> tuple[ModuleType, Array, Array]:
    """Bring `slots` and `depths` to int64 arrays of one shape and find their namespace."""
    named = {"slots": slots, "depths": depths}
    kinds = {name: _kind(array) for name, array in named.items()}
    if set(kinds.values()) == {"numpy", "cupy"}:
        raise TypeError(
            f"slots and depths must be on the same side, got slots from {kinds['slots']} and "
            f"depths from {kinds['depths']}"
        )
    xp = sys.modules["cupy"] if "cupy" in kinds.values() else np
    slots, depths = (_as_int64(xp, name, array) for name, array in named.items())
    if slots.shape != depths.shape:
        shape = _common_shape(slots.shape, depths.shape)
        slots, depths = xp.broadcast_to(slots, shape), xp.broadcast_to(depths, shape)
    return xp, slots, depths


def as_flag(name: str, value: Any, hint: str) -> bool:
    """Take a bool and nothing that merely has a truth value, such as a Gate."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}; {hint}")
    return bool(value)


def check_values(slots: Array, depths: Array) -> None:
    """Refuse a negative slot and a depth below 1, naming the first."""
    if slots.size and int(slots.min()) < 0:
        raise ValueError(
            f"slots must be 0 or more, or NO_SLOT, got {first('slots', slots, slots < 0)}"
        )
    if depths.size and int(depths.min()) < 1:
        raise ValueError(
            f"depths must be 1 or more rows, got {first('depths', depths, depths < 1)}"
        )


def first(name: str, array: Array, mask: Array) -> str:
    """Name the first element of `array` where `mask` is true, as '-1 at slots[0, 3]'."""
    index = tuple(int(positions[0]) for positions in mask.nonzero())
    return f"{int(array[index])} at {name}[{', '.join(map(str, index))}]"


def compiled_rule(xp: ModuleType, slots: Array) -> ModuleType | None:
    """Give `verifylab._fast_rule` where it pays for these arrays, else None."""
    loaded = f"{__package__}._fast_rule" in sys.modules
    if xp is not np or not (loaded or slots.size >= _WORTH_LOADING):
        return None
    from verifylab import _fast_rule  # imports numba: only here

    return _fast_rule


def _kind(array: Array) -> str:
    """Say 'numpy', 'cupy' or, for what is still to be converted, 'other'. Imports neither."""
    module = type(array).__module__.partition(".")[0]
    return module if module in ("numpy", "cupy") else "other"


def _as_int64(xp: ModuleType, name: str, array: Array) -> Array:
    converted = xp.asarray(array)
    if converted.size == 0:
        converted = converted.astype(np.int64)  # the dtype of an empty list says nothing
    if converted.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an array of integers, got dtype {converted.dtype}")
    if converted.ndim == 0:
        raise ValueError(f"{name} must have shape (..., n), got the scalar {int(converted)}")
    unsigned = converted.dtype.kind == "u" and converted.dtype.itemsize == 8
    if unsigned and (above := converted > NO_SLOT).any():
        limit = "NO_SLOT (2**63 - 1)" if name == "slots" else "2**63 - 1"
        raise ValueError(f"{name} must be at most {limit}, got {first(name, converted, above)}")
    return converted.astype(np.int64, copy=False)


def _common_shape(slots: tuple[int, ...], depths: tuple[int, ...]) -> tuple[int, ...]:
    try:
        if slots[-1] == depths[-1]:
            return np.broadcast_shapes(slots, depths)
    except ValueError:
        pass
    raise ValueError(
        "slots and depths must have the same length, and leading axes that broadcast, "
        f"got shapes {slots} and {depths}"
    )
