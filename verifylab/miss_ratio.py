"""Reuse distances of a stream of keys, and the LRU miss-ratio curve that follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["miss_ratio_curve", "stack_distances"]


def stack_distances(keys: ArrayLike) -> NDArray[np.int64]:
    """Distinct other keys between each use of a key and its use before (-1: the first use).

    LRU of any capacity above the distance hits: Mattson's stack algorithm (1970), in
    O(uses log uses) with a Fenwick tree over the uses.

    Parameters
    ----------
    keys : array_like of int, shape (uses,)
    """
    keys = np.asarray(keys)
    if keys.ndim != 1:
        raise ValueError(f"keys must have one dimension, got shape {keys.shape}")
    if not len(keys):
        return np.zeros(0, np.int64)
    from verifylab._stack import distances

    _, ids = np.unique(keys, return_inverse=True)
    return distances(ids.astype(np.int64))


def miss_ratio_curve(keys: ArrayLike, largest: int | None = None) -> pd.DataFrame:
    """Hits and captures of an LRU cache of every capacity, from one pass.

    Parameters
    ----------
    keys : array_like of int, shape (uses,)
    largest : int, optional
        Largest capacity; default: the number of keys.

    Returns
    -------
    DataFrame
        ``capacity`` (1 up)``, hits, captures, miss_ratio``.
    """
    import pandas as pd

    distance = stack_distances(keys)
    many = int((distance < 0).sum())
    largest = max(many, 1) if largest is None else largest
    if largest < 1:
        raise ValueError(f"largest must be 1 or more graphs, got {largest}")
    within = np.bincount(distance[distance >= 0], minlength=largest)[:largest]
    hits = np.cumsum(within)
    captures = len(distance) - hits
    return pd.DataFrame(
        {
            "capacity": np.arange(1, largest + 1),
            "hits": hits,
            "captures": captures,
            "miss_ratio": captures / max(len(distance), 1),
        }
    )
