import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from verifylab.slots import POLICIES, SlotPool

SIZE = 6


class PoolMachine(RuleBasedStateMachine):
    """A server's life on the pool: admit, start to decode, retire and compact, cancel.

    The model is written from the rule, not from the code: `freed` lists the free slots, the
    one freed last at the end.
    """

    @initialize(policy=st.sampled_from(POLICIES), compaction=st.booleans())
    def start(self, policy, compaction):
        self.pool = SlotPool(SIZE, policy, compaction)
        self.freed = list(reversed(range(SIZE)))
        self.model = {}
        self.decoding = []
        self.names = itertools.count()

    @rule()
    def admit(self):
        owner = next(self.names)
        slot = self.pool.acquire(owner)
        if not self.freed:
            assert slot is None
            return
        expected = self.freed[-1] if self.pool.policy == "lifo" else min(self.freed)
        assert slot == expected
        self.freed.remove(slot)
        self.model[owner] = slot

    @rule(data=st.data())
    def finish_prefill(self, data):
        waiting = [owner for owner in self.model if owner not in self.decoding]
        if waiting:
            self.decoding.append(data.draw(st.sampled_from(waiting)))

    @rule(data=st.data())
    def cancel(self, data):
        if self.model:
            owner = data.draw(st.sampled_from(sorted(self.model)))
            self.free(owner)

    @rule(data=st.data())
    def retire_and_compact(self, data):
        retired = (
            data.draw(st.lists(st.sampled_from(self.decoding), unique=True))
            if (self.decoding)
            else []
        )
        for owner in retired:
            self.free(owner)
        n = len(self.decoding)
        before = dict(self.model)
        moves = self.pool.compact(self.decoding, n)
        if not self.pool.compaction:
            assert moves == []
            return
        for owner, source, target in moves:
            assert owner in self.decoding
            assert self.model[owner] == source >= n > target
            assert target in self.freed
            assert target == max(slot for slot in self.freed if slot < n)
            self.freed.remove(target)
            self.freed.append(source)
            self.model[owner] = target
        left = [owner for owner in self.decoding if self.model[owner] >= n]
        assert not left or not [slot for slot in self.freed if slot < n]
        moved = {owner for owner, _, _ in moves}
        assert all(self.model[o] == slot for o, slot in before.items() if o not in moved)
        assert [o for o in self.decoding if before[o] >= n][: len(moves)] == [m[0] for m in moves]

    def free(self, owner):
        slot = self.pool.release(owner)
        assert slot == self.model.pop(owner)
        self.freed.append(slot)
        if owner in self.decoding:
            self.decoding.remove(owner)

    @invariant()
    def nobody_shares_a_slot(self):
        held = dict(self.pool.held)
        assert held == self.model
        assert len(set(held.values())) == len(held) == len(self.pool)
        assert sorted([*held.values(), *self.pool.free]) == list(range(SIZE))

    @invariant()
    def the_free_list_is_the_models(self):
        if self.pool.policy == "lifo":
            assert self.pool.free == tuple(reversed(self.freed))
        else:
            assert self.pool.free == tuple(sorted(self.freed))


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def filled(size, owners, **options):
    pool = SlotPool(size, **options)
    for owner in owners:
        pool.acquire(owner)
    return pool


@pytest.mark.parametrize("policy", POLICIES)
def test_a_new_pool_hands_out_slots_from_zero(policy):
    pool = SlotPool(4, policy)
    assert [pool.acquire(name) for name in "abcd"] == [0, 1, 2, 3]
    assert pool.acquire("e") is None
    assert len(pool) == 4


def test_policies_differ_in_what_they_reuse():
    for policy, expected in (("lifo", [0, 2, 1]), ("lowest", [0, 1, 2])):
        pool = filled(3, "abc", policy=policy)
        for owner in "bca":
            pool.release(owner)
        assert [pool.acquire(name) for name in "xyz"] == expected


def test_compaction_fills_the_highest_gap_first():
    pool = filled(8, "abcdefgh")
    for owner in "bdc":
        pool.release(owner)
    assert pool.compact("aefgh", 5) == [("f", 5, 3), ("g", 6, 2), ("h", 7, 1)]
    assert dict(pool.held) == {"a": 0, "e": 4, "f": 3, "g": 2, "h": 1}
    # Freed last: what the last move vacated.
    assert pool.free == (7, 6, 5)


def test_compaction_spares_a_sequence_in_prefill():
    pool = filled(4, ["gone", "prefill", "b", "c"])
    pool.release("gone")
    # Two survivors, one slot free below 2: c stays where it is.
    assert pool.compact(["b", "c"], 2) == [("b", 2, 0)]
    assert dict(pool.held) == {"prefill": 1, "b": 0, "c": 3}
    assert pool.free == (2,)


def test_without_compaction_survivors_stay():
    pool = filled(4, "abcd", compaction=False)
    pool.release("a")
    assert pool.compact("bcd", 3) == []
    assert dict(pool.held) == {"b": 1, "c": 2, "d": 3}


def test_compaction_without_a_reason_does_nothing():
    pool = filled(4, "abcd")
    assert pool.compact("abcd", 4) == []
    pool.release("d")
    assert pool.compact("abc", 3) == []
    assert pool.compact([], 0) == []


def test_held_is_read_only():
    pool = filled(2, "a")
    with pytest.raises(TypeError):
        pool.held["b"] = 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.acquire("a"), "an owner holds one slot, 'a' holds 0"),
        (lambda p: p.release("z"), "an owner must hold a slot to release it, 'z' holds none"),
        (lambda p: p.compact(["a", "z"], 1), "a survivor must hold a slot, 'z' holds none"),
        (lambda p: p.compact(["b", "b"], 1), "survivors must differ from each other, got"),
        (lambda p: p.compact(["b"], -1), "n must be 0 or more, got -1"),
        (lambda p: p.compact(["b"], 4), "n must be from 0 to the pool's 3 slots, got 4"),
        (lambda p: SlotPool(0), "size must be 1 or more, got 0"),
        (lambda p: SlotPool(2, "fifo"), "policy must be one of lifo, lowest, got 'fifo'"),
    ],
)
def test_mistakes_are_refused_and_change_nothing(call, message):
    pool = filled(3, "ab")
    with pytest.raises(ValueError, match=message):
        call(pool)
    assert dict(pool.held) == {"a": 0, "b": 1}
    assert pool.free == (2,)
