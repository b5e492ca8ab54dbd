"""The slot pool: which sequence holds which recurrent state.

Captured graphs bake slot addresses, so the policy here decides how many slot sets a workload
visits. No two owners ever share a slot.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType

from verifylab.checks import whole

__all__ = ["POLICIES", "SlotPool"]

#: Ways to choose the next slot: the one freed last (the seed's engine), or the lowest free one.
POLICIES = ("lifo", "lowest")


class SlotPool:
    """Slots ``0 .. size - 1``, each free or held by one owner.

    Parameters
    ----------
    size : int
        Slots, 1 or more.
    policy : {"lifo", "lowest"}
        Which free slot `acquire` takes: the one freed last (a new pool hands out 0, 1, 2, ...),
        or the lowest.
    compaction : bool
        Whether `compact` moves anyone. Off, it is a policy of its own: survivors stay where
        they are.

    Raises
    ------
    ValueError
        When `size` is below 1 or the policy is unknown.
    """

    def __init__(self, size: int, policy: str = "lifo", compaction: bool = True) -> None:
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
        self.size = whole("size", size, 1)
        self.policy = policy
        self.compaction = compaction
        self._free = list(range(self.size - 1, -1, -1))  # the end is handed out first
        self._slots: dict[Hashable, int] = {}

    @property
    def held(self) -> Mapping[Hashable, int]:
        """Slot by owner, a live read-only view."""
        return MappingProxyType(self._slots)

    @property
    def free(self) -> tuple[int, ...]:
        """Free slots in the order in which `acquire` would hand them out."""
        return tuple(reversed(self._free)) if self.policy == "lifo" else tuple(sorted(self._free))

    def acquire(self, owner: Hashable) -> int | None:
        """Give `owner` a slot; ``None`` when all are held, which is for admission to handle.

        Raises
        ------
        ValueError
            When `owner` holds a slot already.
        """
        if owner in self._slots:
            raise ValueError(f"an owner holds one slot, {owner!r} holds {self._slots[owner]}")
        if not self._free:
            return None
        slot = self._free[-1] if self.policy == "lifo" else min(self._free)
        self._take(owner, slot)
        return slot

    def release(self, owner: Hashable) -> int:
        """Free the slot of `owner`, now the one freed last, and return it.

        Raises
        ------
        ValueError
            When `owner` holds no slot.
        """
        if owner not in self._slots:
            raise ValueError(f"an owner must hold a slot to release it, {owner!r} holds none")
        slot = self._slots.pop(owner)
        self._free.append(slot)
        return slot

    def compact(self, survivors: Sequence[Hashable], n: int) -> list[tuple[Hashable, int, int]]:
        """Move survivors with a slot of `n` or more into ``[0, n)``, as far as there is room.

        In batch order each takes the highest slot that is still free there. Slots held by
        others, such as a sequence in prefill, are left alone, so some survivors may stay out.
        A move is an acquire and a release: what it vacates counts as freed last, so after a
        compaction the next slot handed out (LIFO) is the one that the last move vacated.

        Parameters
        ----------
        survivors : sequence of hashable
            Owners still decoding, in batch order.
        n : int
            Width after the retirement, from 0 to `size`.

        Returns
        -------
        list of (owner, int, int)
            ``(owner, from, to)`` in the order of the moves: the caller copies these states.
            Empty when `compaction` is off.

        Raises
        ------
        ValueError
            When a survivor holds no slot or is named twice, or `n` is out of range. Nothing
            moves then.
        """
        n = whole("n", n, 0)
        if n > self.size:
            raise ValueError(f"n must be from 0 to the pool's {self.size} slots, got {n}")
        for owner in survivors:
            if owner not in self._slots:
                raise ValueError(f"a survivor must hold a slot, {owner!r} holds none")
        if len(set(survivors)) < len(survivors):
            raise ValueError(f"survivors must differ from each other, got {list(survivors)}")
        if not self.compaction:
            return []
        targets = sorted(slot for slot in self._free if slot < n)
        moves = []
        for owner in survivors:
            if not targets:
                break
            if self._slots[owner] >= n:
                target = targets.pop()
                source = self.release(owner)
                self._take(owner, target)
                moves.append((owner, source, target))
        return moves

    def _take(self, owner: Hashable, slot: int) -> None:
        self._free.remove(slot)
        self._slots[owner] = slot

    def __len__(self) -> int:
        return len(self._slots)
