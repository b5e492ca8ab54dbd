import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle_rule import oracle, oracle_batches
from rule_routes import ROUTES, by, stub_cupy

from verifylab import ordering
from verifylab.gate import Gate
from verifylab.ordering import NO_SLOT, verify_batch_order, verify_batch_permutation

all_routes = pytest.mark.parametrize("route", ROUTES)

slot_values = st.integers(0, 5) | st.integers(0, 2**33) | st.sampled_from([NO_SLOT, NO_SLOT - 1])
depth_values = st.integers(1, 9) | st.sampled_from([2**15 - 1, 2**15, 2**40, 2**63 - 1])


@st.composite
def batches(draw, slots=slot_values, depths=depth_values, max_width=12):
    n = draw(st.integers(0, max_width))
    exactly = {"min_size": n, "max_size": n}
    return draw(st.lists(slots, **exactly)), draw(st.lists(depths, **exactly))


def random_batches(count, n, seed=0, deepest=4):
    """As an engine has them: distinct slots out of a pool, depths of 2 and more."""
    rng = np.random.default_rng(seed)
    pool = np.broadcast_to(np.arange(2 * n), (count, 2 * n))
    return rng.permuted(pool, axis=1)[:, :n].copy(), rng.integers(2, deepest + 1, (count, n))


# What the prose says.


@all_routes
def test_canonical_pairs_slots_ascending_with_depths_descending(route):
    order, assigned = by(route, verify_batch_order, [7, 3, 5, 1], [2, 4, 3, 4], True)
    assert order.tolist() == [3, 1, 2, 0]
    assert assigned.tolist() == [4, 4, 3, 2]


@all_routes
def test_otherwise_everyone_keeps_their_depth_deepest_first_then_by_slot(route):
    order, assigned = by(route, verify_batch_order, [7, 3, 5, 1], [2, 4, 3, 4], False)
    assert order.tolist() == [3, 1, 2, 0]
    assert assigned.tolist() == [4, 4, 3, 2]
    order, assigned = by(route, verify_batch_order, [7, 3, 5, 1], [4, 2, 4, 3], False)
    assert order.tolist() == [2, 0, 3, 1]
    assert assigned.tolist() == [4, 4, 3, 2]


@all_routes
def test_the_two_orders_become_one(route):
    """Deepest first is slots ascending: what dispatch and the recurrent state each ask for."""
    slots, depths = random_batches(500, 8)
    order, assigned = by(route, verify_batch_order, slots, depths, True)
    assert (np.diff(np.take_along_axis(slots, order, -1)) > 0).all()
    assert (np.diff(assigned) <= 0).all()


@all_routes
@pytest.mark.parametrize(("canonical", "keys"), [(True, 45), (False, 6561)])
def test_every_arrangement_at_width_eight(route, canonical, keys):
    depths = np.array(list(itertools.product((2, 3, 4), repeat=8)))
    slots = np.random.default_rng(1).permutation(8)
    assert len(depths) == 3**8
    assert distinct(route, slots, depths, canonical) == keys


@all_routes
@pytest.mark.parametrize(("canonical", "keys"), [(True, 3), (False, 266)])
def test_the_three_observed_multisets(route, canonical, keys):
    multisets = ([4] * 5 + [3] * 2 + [2], [4] * 4 + [3] * 4, [4] * 6 + [2] * 2)
    arrangements = [set(itertools.permutations(multiset)) for multiset in multisets]
    assert [len(found) for found in arrangements] == [168, 70, 28]
    depths = np.array(list(itertools.chain(*arrangements)))
    assert distinct(route, np.arange(8), depths, canonical) == keys


def distinct(route, slots, depths, canonical):
    """Count the (slot, rows) sequences, which are what a graph bakes."""
    order, assigned = by(route, verify_batch_order, slots, depths, canonical)
    return len(np.unique(np.stack([slots[order], assigned], -1).reshape(len(depths), -1), axis=0))


@all_routes
@pytest.mark.parametrize("canonical", [False, True])
def test_no_slot_sorts_last_and_ties_go_to_the_input_index(route, canonical):
    slots, depths = [NO_SLOT, 2, 2, NO_SLOT, 0], [3] * 5
    order, assigned = by(route, verify_batch_order, slots, depths, canonical)
    assert order.tolist() == [4, 1, 2, 0, 3]
    assert assigned.tolist() == depths


# Properties.


@all_routes
@given(batches(), st.booleans())
def test_equals_the_oracle(route, batch, canonical):
    order, assigned = by(route, verify_batch_order, *batch, canonical)
    assert (order.dtype, assigned.dtype) == (np.int64, np.int64)
    assert (order.tolist(), assigned.tolist()) == oracle(*batch, canonical)
    assert by(route, verify_batch_permutation, *batch, canonical).tolist() == order.tolist()


@given(batches(), st.booleans())
def test_the_multiset_of_depths_and_the_sequences_are_kept(batch, canonical):
    order, assigned = verify_batch_order(*batch, canonical)
    assert sorted(order) == list(range(len(batch[0])))
    assert sorted(assigned) == sorted(batch[1])
    assert (np.diff(assigned) <= 0).all()


@given(batches())
def test_canonical_is_idempotent(batch):
    order, assigned = verify_batch_order(*batch, True)
    slots = np.array(batch[0], dtype=np.int64)[order]
    again, reassigned = verify_batch_order(slots, assigned, True)
    assert again.tolist() == list(range(len(slots)))
    assert reassigned.tolist() == assigned.tolist()


@given(batches(), st.randoms(use_true_random=False))
def test_canonical_knows_only_the_slot_set_and_the_multiset(batch, random):
    slots, depths = batch
    order, assigned = verify_batch_order(slots, depths, True)
    by_slot = [slots[i] for i in order]
    random.shuffle(slots)
    random.shuffle(depths)
    other, reassigned = verify_batch_order(slots, depths, True)
    assert [slots[i] for i in other] == by_slot
    assert reassigned.tolist() == assigned.tolist()


@given(batches())
def test_without_the_assignment_nobody_is_paired_anew(batch):
    order, assigned = verify_batch_order(*batch, False)
    assert assigned.tolist() == [batch[1][i] for i in order]


@given(batches(depths=st.just(3)))
def test_uniform_depths_are_the_same_in_both_arms(batch):
    for canonical, arrangement in zip(
        verify_batch_order(*batch, True), verify_batch_order(*batch, False), strict=True
    ):
        assert canonical.tobytes() == arrangement.tobytes()


@given(batches(max_width=16), st.integers(0, 16))
def test_below_the_gate_it_is_a_stable_sort_byte_for_byte(batch, least):
    slots, depths = batch
    n = len(slots)
    if Gate(least).canonical(n):
        return
    order, assigned = verify_batch_order(slots, depths, Gate(least).canonical(n))
    stable = sorted(range(n), key=lambda i: (-depths[i], slots[i]))
    assert order.tobytes() == np.array(stable, dtype=np.int64).tobytes()
    assert assigned.tobytes() == np.array([depths[i] for i in stable], dtype=np.int64).tobytes()


# Many batches.


@all_routes
@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 32])
def test_many_batches_equal_the_oracle_batch_by_batch(route, n, canonical):
    slots, depths = random_batches(301, n, seed=n, deepest=9)
    slots[::7, 0] = NO_SLOT
    order, assigned = by(route, verify_batch_order, slots, depths, canonical)
    assert (order.tolist(), assigned.tolist()) == oracle_batches(slots, depths, canonical, NO_SLOT)


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("n", [2, 8, 33, 128, 129])
def test_compiled_and_general_agree_on_a_lot(n, canonical):
    slots, depths = random_batches(2**19 // n + 5, n, seed=n, deepest=9)
    slots[np.random.default_rng(n).random(slots.shape) < 0.05] = NO_SLOT
    slots[1::5] //= 4  # duplicates
    for fast, general in zip(
        by("compiled", verify_batch_order, slots, depths, canonical),
        by("general", verify_batch_order, slots, depths, canonical),
        strict=True,
    ):
        np.testing.assert_array_equal(fast, general, strict=True)


@all_routes
@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (1,), (1, 1), (2, 3, 4), (1, 1, 2, 5)])
def test_any_leading_shape(route, shape, canonical):
    rng = np.random.default_rng(3)
    slots, depths = rng.integers(0, 9, shape), rng.integers(1, 5, shape)
    order, assigned = by(route, verify_batch_order, slots, depths, canonical)
    assert order.shape == assigned.shape == shape
    for index in np.ndindex(shape[:-1]):
        expected = oracle(slots[index].tolist(), depths[index].tolist(), canonical)
        assert (order[index].tolist(), assigned[index].tolist()) == expected


@all_routes
@pytest.mark.parametrize("canonical", [False, True])
def test_one_slot_set_goes_with_many_depth_draws(route, canonical):
    rng = np.random.default_rng(4)
    slots, depths = rng.permutation(6), rng.integers(1, 4, (5, 7, 6))
    whole = by(route, verify_batch_order, np.broadcast_to(slots, depths.shape), depths, canonical)
    for some, every in zip(
        by(route, verify_batch_order, slots, depths, canonical), whole, strict=True
    ):
        np.testing.assert_array_equal(some, every, strict=True)
    order = by(route, verify_batch_permutation, depths, slots + 1, canonical)
    assert order.shape == depths.shape


@all_routes
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, ">i4", np.uint64, ">u8"])
def test_any_integer_dtype(route, dtype):
    slots, depths = random_batches(9, 8)
    expected = verify_batch_order(slots, depths, False)
    found = by(route, verify_batch_order, slots.astype(dtype), depths.astype(dtype), False)
    for some, every in zip(found, expected, strict=True):
        np.testing.assert_array_equal(some, every, strict=True)


def test_arrays_that_are_awkward_in_memory():
    slots, depths = random_batches(40, 8)
    expected = by("general", verify_batch_permutation, slots, depths, False)
    buffer = np.zeros(slots.nbytes + 1, np.uint8)
    unaligned = buffer[1:].view(np.int64).reshape(slots.shape)
    unaligned[:] = slots
    frozen = depths.copy()
    frozen.flags.writeable = False
    for odd in (unaligned, np.asfortranarray(slots), np.repeat(slots, 2, axis=1)[:, ::2]):
        found = by("compiled", verify_batch_permutation, odd, frozen, False)
        np.testing.assert_array_equal(found, expected, strict=True)


@all_routes
def test_inputs_are_left_alone(route):
    slots, depths = random_batches(20, 8)
    before = slots.copy(), depths.copy()
    by(route, verify_batch_order, slots, depths, True)
    by(route, verify_batch_order, slots, depths, False)
    assert (slots == before[0]).all() and (depths == before[1]).all()


# The compiled rule.


def test_small_inputs_import_neither_numba_nor_cupy():
    code = (
        "import sys; from verifylab import key, ordering;"
        "ordering.verify_batch_order([1, 0], [2, 3], True); key.batch_keys([1], [2], False, True);"
        "print([name for name in ('numba', 'cupy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_compiled_rule_is_taken_for_large_numpy_inputs_and_once_loaded():
    large, small = np.zeros(ordering._WORTH_LOADING), np.zeros(8)
    with mock.patch.dict(sys.modules):
        sys.modules.pop("verifylab._fast_rule", None)
        assert ordering.compiled_rule(np, small) is None
        assert ordering.compiled_rule(stub_cupy(), large) is None
    assert ordering.compiled_rule(np, large).__name__ == "verifylab._fast_rule"
    assert ordering.compiled_rule(np, small) is not None


@pytest.mark.parametrize("n", range(1, 13))
def test_the_networks_sort_every_pattern_of_zeros_and_ones(n):
    """Which proves, by the 0-1 principle, that they sort everything."""
    from verifylab._fast_rule import _network

    values = np.array(list(itertools.product((0, 1), repeat=n)))
    for low, high in _network(n):
        assert low < high
        values[:, [low, high]] = np.sort(values[:, [low, high]], axis=1)
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize(
    ("slots", "depths", "fits"),
    [
        (2**32 - 1, 1, True),
        (NO_SLOT, 2**15 - 1, True),
        (2**32, 2, False),
        (2**33, 2, False),
        (NO_SLOT - 1, 2, False),
        (3, 2**15, False),
        (3, 2**63 - 1, False),
        (3, 0, False),
        (3, -(2**63), False),
        (-1, 2, False),
        (-(2**63), 2, False),
    ],
)
@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("at", [0, 31, 32, 39])
def test_what_does_not_pack_is_declined_wherever_it_stands(slots, depths, fits, canonical, at):
    from verifylab._fast_rule import order_batches

    all_slots, all_depths = random_batches(40, 5)
    all_slots[at, at % 5], all_depths[at, at % 5] = slots, depths
    found = order_batches(all_slots, all_depths, canonical)
    assert (found is not None) is fits


def test_one_thread_and_many_agree_from_many_threads():
    slots, depths = random_batches(3000, 8)
    expected = by("general", verify_batch_permutation, slots, depths, False)
    from verifylab import _fast_rule

    with (
        mock.patch.object(_fast_rule, "_ELEMENTS_PER_THREAD", 1000),
        mock.patch.object(_fast_rule, "_cpus", lambda: 3),
        ThreadPoolExecutor(4) as pool,
    ):
        jobs = [pool.submit(_fast_rule.order_batches, slots, depths, False) for _ in range(12)]
        for job in jobs:
            np.testing.assert_array_equal(job.result()[0], expected, strict=True)


# Refusals.


@all_routes
@pytest.mark.parametrize(
    ("slots", "depths", "error", "message"),
    [
        ([1, 2], [2], ValueError, r"the same length.*shapes \(2,\) and \(1,\)"),
        ([1], [2, 3], ValueError, r"the same length.*shapes \(1,\) and \(2,\)"),
        ([[1, 2]] * 3, [[1, 2]] * 2, ValueError, r"got shapes \(3, 2\) and \(2, 2\)"),
        ([0, -1], [2, 3], ValueError, r"slots must be 0 or more, or NO_SLOT, got -1 at slots\[1\]"),
        ([[0, 1]], [[2, 0]], ValueError, r"depths must be 1 or more rows, got 0 at depths\[0, 1\]"),
        ([0.0, 1.0], [2, 3], TypeError, "slots must be an array of integers, got dtype float64"),
        ([0, 1], [2.5, 3], TypeError, "depths must be an array of integers, got dtype float64"),
        ([False, True], [2, 3], TypeError, "slots must be an array of integers, got dtype bool"),
        (3, [2], ValueError, r"slots must have shape \(..., n\), got the scalar 3"),
        (
            [2**64 - 1],
            [2],
            ValueError,
            r"at most NO_SLOT \(2\*\*63 - 1\), got 1844.* at slots\[0\]",
        ),
        (
            [1],
            [2**63],
            ValueError,
            r"depths must be at most 2\*\*63 - 1, got 9223.* at depths\[0\]",
        ),
    ],
)
@pytest.mark.parametrize("canonical", [False, True])
def test_errors_say_what_is_wrong(route, slots, depths, error, message, canonical):
    for function in (verify_batch_order, verify_batch_permutation):
        with pytest.raises(error, match=message):
            by(route, function, slots, depths, canonical)


@pytest.mark.parametrize("canonical", [Gate(), 1, None, "yes", np.ones(2, bool)])
def test_canonical_is_a_bool_and_not_merely_true(canonical):
    with pytest.raises(TypeError, match="canonical must be True or False, got .*gate.canonical"):
        verify_batch_order([1], [2], canonical)


def test_a_numpy_bool_is_a_bool():
    assert verify_batch_permutation([1, 0], [2, 2], np.bool_(True)).tolist() == [1, 0]


def test_sides_are_not_mixed_but_a_list_goes_with_either():
    cupy = stub_cupy()
    with mock.patch.dict(sys.modules, {"cupy": cupy}):
        with pytest.raises(TypeError, match="same side, got slots from numpy and depths from cupy"):
            verify_batch_order(np.array([1, 0]), cupy.asarray([2, 3]), True)
        order = verify_batch_permutation([1, 0], cupy.asarray([2, 3]), True)
        assert type(order) is cupy.ndarray and order.get().tolist() == [1, 0]
