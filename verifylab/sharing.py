"""Which arrangements of one batch's depths share its canonical key."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import factorial, prod

import numpy as np

from verifylab.key import verify_graph_keys
from verifylab.launches import launches_per_layer
from verifylab.ordering import verify_batch_order

__all__ = ["Sharing", "multiset_arrangements", "sharing"]


@dataclass(frozen=True, slots=True)
class Sharing:
    """The arrangements of a multiset of depths over a set of slots.

    Attributes
    ----------
    count : int
        How many there are. Each has an arrangement key of its own; all share one canonical key.
    slots : tuple of int
        Ascending.
    listed : tuple of tuple of int
        The first of them: rows by slot as in `slots`, the canonical assignment first.
    launches : tuple of int
        Launches in each GDN layer that each of `listed` costs in the arrangement arm.
    arrangement_keys, canonical_keys : int
        Different keys among `listed`, in either arm.
    own : tuple of int
        Rows by slot of the batch itself.
    """

    count: int
    slots: tuple[int, ...]
    listed: tuple[tuple[int, ...], ...]
    launches: tuple[int, ...]
    arrangement_keys: int
    canonical_keys: int
    own: tuple[int, ...]


def multiset_arrangements(counts: Sequence[int]) -> int:
    """Return in how many ways a multiset can be dealt out: the multinomial of its counts."""
    return factorial(sum(counts)) // prod(factorial(count) for count in counts)


def sharing(slots: Sequence[int], depths: Sequence[int], most: int = 12) -> Sharing:
    """List arrangements that share the canonical key of a batch.

    Parameters
    ----------
    slots, depths : sequence of int, shape (n,)
        A sound batch of one dispatch (see `verifylab.explain.explain`).
    most : int
        How many to list.
    """
    by_slot = sorted(zip(slots, depths, strict=True))
    held = [slot for slot, _ in by_slot]
    own = tuple(rows for _, rows in by_slot)
    count = multiset_arrangements(list(Counter(depths).values()))
    listed = list(itertools.islice(_descending(own), most))
    if own not in listed:
        listed[-1] = own
    batch = np.array(listed, dtype=np.int64)
    keys = {}
    order, assigned = verify_batch_order(np.array(held), batch, False)
    dispatched = np.array(held)[order]
    keys[False] = verify_graph_keys(dispatched, assigned, False)
    _, dealt = verify_batch_order(np.array(held), batch, True)
    keys[True] = verify_graph_keys(np.broadcast_to(held, dealt.shape), dealt, False)
    return Sharing(
        count,
        tuple(held),
        tuple(listed),
        tuple(launches_per_layer(dispatched, assigned).tolist()),
        len(np.unique(keys[False], axis=0)),
        len(np.unique(keys[True], axis=0)),
        own,
    )


def _descending(depths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Distinct permutations from the deepest-first on, lexicographically descending."""
    here = sorted(depths, reverse=True)
    while True:
        yield tuple(here)
        # the previous permutation in lexicographic order
        i = len(here) - 2
        while i >= 0 and here[i] <= here[i + 1]:
            i -= 1
        if i < 0:
            return
        j = len(here) - 1
        while here[j] >= here[i]:
            j -= 1
        here[i], here[j] = here[j], here[i]
        here[i + 1 :] = reversed(here[i + 1 :])
