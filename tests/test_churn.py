import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifylab.churn import LENGTHS, MODES, ORDERS, Churn, churn
from verifylab.dcut import DraftLadder
from verifylab.slots import POLICIES
from verifylab.workload import calibrated

LOAD = calibrated()

CONFIGS = st.builds(
    Churn,
    slots=st.integers(1, 16),
    mode=st.sampled_from(MODES),
    arrivals_per_step=st.floats(0, 0.6),
    clients=st.integers(1, 20),
    mean_tokens=st.integers(1, 40),
    lengths=st.sampled_from(LENGTHS),
    prefill_steps=st.integers(0, 5),
    serial_prefill=st.booleans(),
    same_text=st.booleans(),
    pool=st.sampled_from(POLICIES),
    compaction=st.booleans(),
    steps=st.integers(1, 90),
    windows=st.integers(1, 4),
    seed=st.integers(0, 2**64 - 1),
)


@settings(max_examples=60, deadline=None)
@given(CONFIGS)
def test_the_compiled_loop_does_what_the_slot_pool_does(config):
    fast, slow = churn(LOAD, config), churn(LOAD, config, path="readable")
    assert fast.windows.equals(slow.windows)
    for name in ("arrangement_ids", "canonical_ids", "slot_set_ids", "arrangement_launches"):
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name


@settings(max_examples=40, deadline=None)
@given(CONFIGS)
def test_counts_are_consistent(config):
    result = churn(LOAD, config)
    total = result.totals()
    assert total.steps == len(result.canonical_ids) <= config.steps
    for order in ORDERS:
        assert total[f"{order}_fast_runs"] <= total[f"{order}_runs"]
        assert total[f"{order}_declined_steps"] <= total.pair_steps
    for ids, launches, order in (
        (result.arrangement_ids, result.arrangement_launches, "depth"),
        (result.canonical_ids, result.canonical_launches, "slot"),
    ):
        assert launches[ids].sum() == total[f"{order}_launches"]
    # Slot sets times multisets bound the canonical keys; arrangements refine them.
    sets = len(np.unique(result.slot_set_ids))
    assert sets <= len(result.canonical_launches) <= len(result.arrangement_launches)
    assert total.contiguous_steps + total.slot_declined_steps >= 0
    if total.contiguous_steps == total.pair_steps:
        assert total.slot_declined_steps == 0


def test_a_full_closed_batch_never_leaves_its_slots():
    # With no prefill each finished request is replaced at once, in its slot.
    for pool in POLICIES:
        result = churn(LOAD, Churn(8, clients=8, prefill_steps=0, pool=pool, steps=3000))
        assert result.slot_set_ids.max() == 0
        assert len(result.canonical_launches) == 3
        assert result.totals().slot_declined_steps == 0


def rounds(**changes):
    return churn(
        LOAD,
        Churn(16, "rounds", windows=2, lengths="fixed", steps=2000, **changes),
    ).windows


def share(table, order):
    return (table[f"{order}_declined_steps"] / table.pair_steps).tolist()


def test_equal_requests_decline_on_the_second_round_and_only_there():
    # All finish together, so LIFO hands the slots out again in descending order.
    table = rounds(same_text=True, prefill_steps=1)
    assert share(table, "arrival") == [0, 1]
    assert share(table, "slot") == share(table, "depth") == [0, 0]
    assert table.arrival_declined_steps.sum() / table.pair_steps.sum() == 0.5


def test_lowest_first_has_no_second_round_problem():
    assert share(rounds(same_text=True, prefill_steps=1, pool="lowest"), "arrival") == [0, 0]


def test_one_prefill_after_the_other_makes_it_a_little_less_than_half():
    table = rounds(same_text=True, serial_prefill=True, compaction=False)
    assert share(table, "arrival")[0] == 0
    assert 0.95 < share(table, "arrival")[1] < 1
    assert 0.45 < table.arrival_declined_steps.sum() / table.pair_steps.sum() < 0.5


def test_without_compaction_slot_sets_multiply_the_canonical_keys():
    busy = dict(slots=16, mode="open", arrivals_per_step=0.05, steps=6000)
    kept = churn(LOAD, Churn(**busy, compaction=True))
    loose = churn(LOAD, Churn(**busy, compaction=False))
    assert len(loose.canonical_launches) > 5 * len(kept.canonical_launches)
    assert loose.totals().contiguous_steps < kept.totals().contiguous_steps


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"slots": 0}, "slots must be from 1 to 32, got 0"),
        ({"slots": 33}, "slots must be from 1 to 32, got 33"),
        ({"steps": 1.5}, "steps must be a whole number, got 1.5"),
        ({"mode": "bursty"}, "mode must be one of open, closed, rounds"),
        ({"lengths": "long"}, "lengths must be one of fixed, uniform, geometric"),
        ({"pool": "fifo"}, "pool must be one of lifo, lowest"),
        ({"arrivals_per_step": -1.0}, "arrivals_per_step must be from 0 to 1000"),
    ],
)
def test_a_configuration_says_what_is_wrong(changes, words):
    with pytest.raises(ValueError, match=words):
        Churn(**changes)


def test_a_batch_must_fit_one_dispatch():
    wide = calibrated(ladder=DraftLadder.parse("32:4"))
    with pytest.raises(ValueError, match="slots must keep a full batch within one dispatch"):
        churn(wide, Churn(32))
    with pytest.raises(ValueError, match="path must be 'fast' or 'readable'"):
        churn(LOAD, Churn(), path="slow")
