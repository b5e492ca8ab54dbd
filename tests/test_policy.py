"""Key policies: order, depths, chunks, key and launches of a planned batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifylab.gate import Gate
from verifylab.key import parse_graph_key, verify_graph_key
from verifylab.launches import depth_runs
from verifylab.ordering import NO_SLOT
from verifylab.policy import POLICIES, Baked, GatedPolicy, Rows, policy, token_tier


@st.composite
def batches(draw, least=1, most=40):
    n = draw(st.integers(least, most))
    slots = draw(st.permutations(range(n + 3)))[:n]
    rows = draw(st.lists(st.integers(2, 9), min_size=n, max_size=n))
    return np.array(slots), np.array(rows)


def pairs(dispatch):
    return tuple(zip(dispatch.slots.tolist(), dispatch.depths.tolist(), strict=True))


SEED_SLOTS, SEED_ROWS = np.array([7, 2, 5, 0, 3]), np.array([2, 4, 2, 3, 4])


def test_the_two_arms_of_one_batch_by_hand():
    plan = policy("arrangement").step(SEED_SLOTS, SEED_ROWS)
    (chunk,) = plan.dispatches
    assert pairs(chunk) == ((2, 4), (3, 4), (0, 3), (5, 2), (7, 2))
    assert chunk.launches_per_layer == 2 + 6 + 8  # fast run, one of three rows, two not adjacent
    plan = policy("canonical").step(SEED_SLOTS, SEED_ROWS)
    (chunk,) = plan.dispatches
    assert pairs(chunk) == ((0, 4), (2, 4), (3, 3), (5, 2), (7, 2))
    assert chunk.launches_per_layer == 16 + 6 + 8
    assert (chunk.width, chunk.rows) == (5, 15)


@given(batches(), st.integers(0, 45), st.booleans(), st.integers(9, 40), st.integers(1, 40))
def test_a_step_is_its_dispatches(batch, min_width, enabled, row_budget, max_width):
    slots, rows = batch
    gate = Gate(min_width, enabled)
    plan = GatedPolicy(gate, row_budget, max_width).step(slots, rows)
    assert sorted(plan.order) == list(range(len(slots)))
    assert sorted(plan.depths) == sorted(rows)
    assert [d.start for d in plan.dispatches] == [0, *(d.stop for d in plan.dispatches[:-1])]
    assert plan.dispatches[-1].stop == len(slots)
    for chunk in plan.dispatches:
        assert 1 <= chunk.width <= max_width and chunk.rows <= row_budget
        at = slice(chunk.start, chunk.stop)
        assert (chunk.slots == slots[plan.order][at]).all()
        assert (chunk.depths == plan.depths[at]).all()
        assert chunk.key == verify_graph_key(list(pairs(chunk)), False)
        assert parse_graph_key(chunk.key) == (pairs(chunk), False)
        runs = depth_runs(chunk.slots, chunk.depths)
        assert chunk.launches_per_layer == sum(run.launches for run in runs)
    if gate.canonical(len(slots)):
        assert (np.diff(slots[plan.order]) > 0).all()
    else:
        assert (plan.depths == rows[plan.order]).all()


@given(batches(least=9))
def test_the_full_width_decides_not_the_chunk_s(batch):
    """Chunks of at most 8 under a gate at 9: still canonical, as the batch is."""
    slots, rows = batch
    plan = GatedPolicy(Gate(9), max_width=8).step(slots, rows)
    assert max(chunk.width for chunk in plan.dispatches) <= 8
    assert (np.diff(slots[plan.order]) > 0).all()
    narrow = GatedPolicy(Gate(9), max_width=8).step(slots[:8], rows[:8])
    assert (narrow.depths == rows[:8][narrow.order]).all()


def test_the_named_policies_are_gates():
    rows = np.array([2, 3, 4])
    slots = np.array([0, 1, 2])
    by_name = {name: policy(name, Gate(3)).step(slots, rows) for name in POLICIES}
    assert by_name["arrangement"].order.tolist() == [2, 1, 0]
    assert by_name["canonical"].order.tolist() == [0, 1, 2]
    assert by_name["gated"].order.tolist() == [0, 1, 2]
    assert policy("gated", Gate(4)).step(slots, rows).order.tolist() == [2, 1, 0]
    assert policy("gated").gate == Gate()
    assert {policy(name).name for name in POLICIES} == set(POLICIES)


@pytest.mark.parametrize("name", ["", "canon", None, 3])
def test_an_unknown_policy_lists_the_known(name):
    with pytest.raises(ValueError, match="policy must be one of arrangement, canonical, gated"):
        policy(name)


def test_a_sequence_without_a_slot_runs_eager_and_comes_last():
    slots = np.array([NO_SLOT, 1, 0])
    for name in ("arrangement", "canonical"):
        plan = policy(name).step(slots, np.array([3, 3, 3]))
        (chunk,) = plan.dispatches
        assert plan.order.tolist() == [2, 1, 0]
        assert chunk.key is None
        assert chunk.launches_per_layer == 3 * 6  # no slot, no fast path


def test_only_the_chunk_without_a_slot_runs_eager():
    slots = np.array([NO_SLOT, 1, 0])
    plan = policy("canonical", max_width=2).step(slots, np.array([3, 3, 3]))
    first, second = plan.dispatches
    assert first.key is not None and second.key is None
    assert (first.launches_per_layer, second.launches_per_layer) == (2, 6)


def test_all_without_slots():
    plan = policy("canonical").step(np.full(3, NO_SLOT), np.array([2, 4, 3]))
    assert plan.dispatches[0].key is None
    assert plan.depths.tolist() == [4, 3, 2]


def test_the_sentinel_is_in_the_key():
    plan = GatedPolicy(Gate(), wy_tables_null=True).step(np.array([0]), np.array([2]))
    assert parse_graph_key(plan.dispatches[0].key) == (((0, 2),), True)


def test_no_sequences_no_dispatches():
    plan = policy("canonical").step(np.zeros(0, int), np.zeros(0, int))
    assert plan.dispatches == () and len(plan.order) == 0


def test_more_rows_than_the_budget_are_refused():
    with pytest.raises(ValueError, match="row_budget must hold a sequence of 9 rows, got 8"):
        policy("canonical", row_budget=8).step(np.array([0]), np.array([9]))


# -- the table of policies ------------------------------------------------------------------------


@st.composite
def drafted(draw):
    n = draw(st.integers(1, 12))
    drafts = draw(st.integers(1, 7))
    slots = draw(st.lists(st.integers(0, 15), min_size=n, max_size=n, unique=True))
    rows = draw(st.lists(st.integers(2, drafts + 1), min_size=n, max_size=n))
    return np.array(slots), np.array(rows), drafts


def baked(name, dispatch):
    """What a graph captured for this dispatch bakes: everything that is not device data."""
    rules = POLICIES[name]
    slots = tuple(dispatch.slots.tolist())
    depths = tuple(dispatch.depths.tolist())
    if rules.baked in (Baked.PAIRS, Baked.PADDED):
        return dispatch.launches_per_layer, slots, depths
    if rules.baked is Baked.RUNS:
        return dispatch.launches_per_layer, depths
    if rules.baked is Baked.UNIFORM:
        return dispatch.launches_per_layer, len(depths), depths[0]
    return dispatch.launches_per_layer, dispatch.rows


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(st.lists(drafted(), min_size=2, max_size=12))
def test_no_false_sharing_and_key_closure(name, many):
    """Two steps with one key bake the same launches; every step of slotted sequences has a key."""
    by_key = {}
    drafts = many[0][2]
    for slots, rows, _ in many:
        rows = np.minimum(rows, drafts + 1)
        for canonical in (Gate(0), Gate(enabled=False)):
            for dispatch in policy(name, canonical).step(slots, rows, drafts).dispatches:
                if POLICIES[name].sightings == 0:
                    assert dispatch.key is None, "eager by rule"
                    continue
                assert dispatch.key is not None
                assert by_key.setdefault(dispatch.key, baked(name, dispatch)) == baked(
                    name, dispatch
                )
                assert dispatch.rows >= dispatch.depths.sum(), "every verified row is computed"
                if name == "exec_update":
                    runs = depth_runs(dispatch.slots, dispatch.depths)
                    nodes = sum(r.launches for r in runs)
                    same = by_key.setdefault(("signature", dispatch.signature), nodes)
                    assert same == nodes, "an update must not change the nodes"


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(drafted())
def test_who_keeps_their_own_depth(name, batch):
    """Only the canonical assignment re-pairs; padding only ever verifies more."""
    slots, rows, drafts = batch
    chosen = policy(name, Gate(0))
    plan = chosen.step(slots, rows, drafts)
    assert sorted(plan.order.tolist()) == list(range(len(slots)))
    if chosen.rules.rows is Rows.DEEPEST:
        assert (plan.depths == rows.max()).all()
    elif chosen.rules.gated:
        assert sorted(plan.depths.tolist()) == sorted(rows.tolist())
    else:
        assert plan.depths.tolist() == rows[plan.order].tolist()


def test_indirect_needs_no_slot_in_its_key_and_is_always_fast():
    one = policy("indirect").step(np.array([5, 9, 2]), np.array([4, 3, 4]), 3).dispatches[0]
    two = policy("indirect").step(np.array([0, 1, 7]), np.array([3, 4, 4]), 3).dispatches[0]
    assert one.key == two.key
    assert one.launches_per_layer == two.launches_per_layer == 4


@pytest.mark.parametrize(
    ("rows", "drafts", "sglang", "vllm"),
    [(1, 3, 4, 4), (28, 3, 28, 32), (25, 3, 28, 32), (33, 3, 40, 40), (7, 1, 8, 8), (5, 2, 6, 9)],
)
def test_token_tiers(rows, drafts, sglang, vllm):
    assert token_tier(rows, drafts) == sglang
    assert token_tier(rows, drafts, piecewise=True) == vllm


@given(st.integers(1, 400), st.integers(1, 8), st.booleans())
def test_a_tier_holds_its_rows_and_spans_whole_requests(rows, drafts, piecewise):
    tier = token_tier(rows, drafts, piecewise)
    assert tier >= rows
    assert tier % (drafts + 1) == 0
    assert token_tier(tier, drafts, False) == tier or piecewise


def test_unknown_policies_are_refused_with_the_list():
    with pytest.raises(ValueError, match="policy must be one of arrangement, canonical"):
        policy("nope")


def test_a_gate_goes_in_front_of_policies_that_key_the_pairs():
    for name, rules in POLICIES.items():
        gated = policy(name, Gate(4)).rules.gated
        pairs_policy = rules.baked is Baked.PAIRS and name != "arrangement"
        assert gated == pairs_policy
        assert policy(name).rules.gated == (name in ("canonical", "gated"))
