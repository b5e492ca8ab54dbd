"""The key space around one width, with its multisets: what the explorer's second tab shows."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from verifylab.dcut import DCUT_WIDTH_CAP, dcut_applies
from verifylab.exploration import Exploration
from verifylab.gate import Gate
from verifylab.keyspace import KeySpace, key_space, key_space_table, reachable_multisets
from verifylab.sharing import multiset_arrangements

__all__ = ["Choices", "arm_keys", "choices"]


@dataclass(frozen=True, slots=True)
class Choices:
    """Counted key spaces.

    Attributes
    ----------
    chosen : KeySpace
        Of the width asked for.
    spaces : DataFrame
        `keyspace.key_space_table` of widths 1 to 8, and of the width asked for.
    capacity : int
        Graphs that the cache holds.
    listed : tuple of (str, int)
        Multisets in words, most arrangements first, each with how many it has.
    unlisted : int
        Further multisets.
    """

    chosen: KeySpace
    spaces: pd.DataFrame
    capacity: int
    listed: tuple[tuple[str, int], ...]
    unlisted: int


def choices(settings: Exploration, most: int = 12) -> Choices:
    """Count the key space of a width and list up to `most` of its multisets."""
    width, ladder, ratio = settings.width, settings.ladder(), settings.dcut_ratio
    drafts = ladder.drafts(width)
    if dcut_applies(width, drafts, DCUT_WIDTH_CAP):
        multisets = reachable_multisets(width, drafts, ratio)
    else:
        multisets = [(width, *[0] * (drafts - 1))]
    counted = sorted(((multiset_arrangements(m), m) for m in multisets), reverse=True)
    listed = tuple((_words(m, drafts), count) for count, m in counted[:most])
    widths = sorted({*range(1, DCUT_WIDTH_CAP + 1), width})
    return Choices(
        key_space(width, drafts, ratio),
        key_space_table(widths, ladder, ratio),
        settings.graph_capacity,
        listed,
        len(multisets) - len(listed),
    )


def arm_keys(settings: Exploration) -> int:
    """Return how many keys the cache player's policy can produce at its width.

    For policies whose key holds no slots: the multisets (one a dispatch order of runs).
    """
    space = key_space(settings.width, settings.ladder().drafts(settings.width), settings.dcut_ratio)
    gated = settings.cache_policy == "gated" and Gate(settings.threshold).canonical(settings.width)
    if gated or settings.cache_policy in ("canonical", "indirect"):
        return space.canonical_keys
    return space.arrangement_keys


def _words(counts: tuple[int, ...], drafts: int) -> str:
    """Say a multiset: ``4 x 4 rows, 4 x 3 rows``."""
    rows = range(drafts + 1, 1, -1)
    return ", ".join(f"{c} x {k} rows" for k, c in zip(rows, counts, strict=True) if c)
