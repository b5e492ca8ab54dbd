import itertools
import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle_rule import oracle, oracle_key
from rule_routes import ROUTES, by, stub_cupy

from verifylab.key import (
    SENTINEL,
    BatchKeys,
    batch_keys,
    parse_graph_key,
    verify_graph_key,
    verify_graph_keys,
)
from verifylab.ordering import NO_SLOT

all_routes = pytest.mark.parametrize("route", ROUTES)

WORD_MAX = 2**32 - 1
words = st.integers(0, 9) | st.integers(0, WORD_MAX) | st.sampled_from([WORD_MAX, WORD_MAX - 1])
pair_lists = st.lists(st.tuples(words, words.filter(bool)), max_size=12)


# One batch.


def test_the_layout():
    key = verify_graph_key([(1, 4), (0x01020304, 2)], False)
    assert key == bytes.fromhex("01000000 04000000 04030201 02000000 ffffffff")
    assert verify_graph_key([(1, 4)], True) == bytes.fromhex("01000000 04000000 feffffff")
    assert verify_graph_key([], False) == b"\xff\xff\xff\xff"
    assert SENTINEL == WORD_MAX


@given(pair_lists, st.booleans())
def test_equals_the_oracle_and_comes_back(pairs, null):
    key = verify_graph_key(pairs, null)
    assert key == oracle_key(pairs, null)
    assert parse_graph_key(key) == (tuple(pairs), null)


@given(pair_lists, st.booleans(), pair_lists, st.booleans())
def test_different_batches_have_different_keys(pairs, null, others, other_null):
    same = (pairs, null) == (others, other_null)
    assert (verify_graph_key(pairs, null) == verify_graph_key(others, other_null)) is same


def test_a_slot_with_the_sentinels_value_is_not_mistaken():
    """Every short batch out of the values that could be confused."""
    tricky = (1, WORD_MAX - 1, WORD_MAX)
    pairs = list(itertools.product(tricky, repeat=2))
    made = [
        verify_graph_key(batch, null)
        for n in range(4)
        for batch in itertools.product(pairs, repeat=n)
        for null in (False, True)
    ]
    assert len(set(made)) == len(made) == 2 * sum(9**n for n in range(4))
    assert all(verify_graph_key(*parse_graph_key(key)) == key for key in made)


def test_numpy_pairs():
    key = verify_graph_key(np.array([[3, 4], [5, 2]], dtype=np.int16), np.bool_(True))
    assert key == oracle_key([(3, 4), (5, 2)], True)


def test_a_batch_without_all_its_slots_has_no_key():
    assert verify_graph_key([(0, 2), (NO_SLOT, 3)], False) is None
    assert verify_graph_key([(np.int64(NO_SLOT), 3)], True) is None


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([(1, 2), (-1, 2)], ValueError, r"slot must be 0 to 0xffffffff in a key, got -1 at pair 1"),
        ([(2**32, 2)], ValueError, r"slot must be 0 to 0xffffffff in a key, got 4294967296"),
        ([(NO_SLOT - 1, 2)], ValueError, "slot must be"),
        ([(NO_SLOT + 1, 2)], ValueError, "slot must be"),
        ([(1, 0)], ValueError, r"rows must be 1 to 0xffffffff in a key, got 0 at pair 0"),
        ([(1, 2**32)], ValueError, "rows must be 1 to 0xffffffff in a key, got 4294967296"),
        ([(1, NO_SLOT)], ValueError, "rows must be"),
        ([(NO_SLOT, 0)], ValueError, "rows must be"),
        ([(NO_SLOT, 2), (2**32, 1)], ValueError, "slot must be"),
        ([(1.0, 2)], TypeError, r"slot must be an integer, got 1.0 at pair 0"),
        ([(1, "2")], TypeError, r"rows must be an integer, got '2' at pair 0"),
    ],
)
def test_a_bad_value_is_an_error_and_never_wraps(pairs, error, message):
    with pytest.raises(error, match=message):
        verify_graph_key(pairs, False)


@pytest.mark.parametrize("null", [0, 1, None, "no"])
def test_wy_tables_null_is_a_bool(null):
    for call in (
        lambda: verify_graph_key([(1, 2)], null),
        lambda: verify_graph_keys([1], [2], null),
        lambda: batch_keys([1], [2], False, null),
    ):
        with pytest.raises(TypeError, match="wy_tables_null must be True or False, got "):
            call()


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (b"", ValueError, r"4 \* \(2 n \+ 1\) bytes for n sequences, got 0"),
        (b"\xff" * 3, ValueError, "got 3"),
        (b"\xff" * 8, ValueError, "got 8"),
        (b"\xff" * 11, ValueError, "got 11"),
        (b"\xff" * 13, ValueError, "got 13"),
        (oracle_key([(1, 2)], False)[:-1] + b"\x7f", ValueError, "end in .*, got 0x7fffffff"),
        (oracle_key([], False)[:3] + b"\x00", ValueError, "must end in 0xffffffff or 0xfffffffe"),
        (b"\xfd\xff\xff\xff", ValueError, "got 0xfffffffd"),
        (oracle_key([(1, 2), (3, 0)], True), ValueError, "rows must be 1 .*, got 0 at pair 1"),
        ("\xff" * 4, TypeError, "key must be bytes, got str"),
        (None, TypeError, "key must be bytes, got NoneType"),
    ],
)
def test_what_is_no_key_is_refused(key, error, message):
    with pytest.raises(error, match=message):
        parse_graph_key(key)


@given(st.binary(max_size=44))
def test_whatever_parses_is_the_key_of_what_it_parses_to(data):
    try:
        pairs, null = parse_graph_key(data)
    except ValueError:
        return
    assert verify_graph_key(pairs, null) == data


# Many batches.


def random_batches(count, n, seed=0):
    rng = np.random.default_rng(seed)
    pool = np.broadcast_to(np.arange(2 * n), (count, 2 * n))
    return rng.permuted(pool, axis=1)[:, :n].copy(), rng.integers(2, 10, (count, n))


@all_routes
@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("n", [1, 2, 8, 32])
def test_many_keys_equal_the_oracles_one_by_one(route, n, canonical, null):
    slots, depths = random_batches(120, n)
    slots[3, 0] = WORD_MAX
    order, assigned, found = by(route, batch_keys, slots, depths, canonical, null)
    assert found.dtype == np.uint32
    ordered = np.take_along_axis(slots, order, -1)
    np.testing.assert_array_equal(
        by(route, verify_graph_keys, ordered, assigned, null), found, strict=True
    )
    for i in range(len(slots)):
        expected = oracle(slots[i].tolist(), depths[i].tolist(), canonical)
        assert (order[i].tolist(), assigned[i].tolist()) == expected
        pairs = list(zip(ordered[i].tolist(), expected[1], strict=True))
        key = found[i].astype("<u4").tobytes()
        assert key == oracle_key(pairs, null) == verify_graph_key(pairs, null)
        assert parse_graph_key(key) == (tuple(pairs), null)


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("n", [2, 8, 128, 130])
def test_compiled_and_general_agree_on_a_lot(n, canonical):
    slots, depths = random_batches(2**18 // n + 3, n, seed=n)
    for fast, general in zip(
        by("compiled", batch_keys, slots, depths, canonical, True),
        by("general", batch_keys, slots, depths, canonical, True),
        strict=True,
    ):
        np.testing.assert_array_equal(fast, general, strict=True)


@all_routes
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (1,), (2, 3, 4)])
def test_any_leading_shape(route, shape):
    slots, depths = np.zeros(shape, int), np.ones(shape, int)
    made = by(route, batch_keys, slots, depths, True, False)
    assert [part.shape for part in made] == [shape, shape, (*shape[:-1], 2 * shape[-1] + 1)]
    assert (made[2][..., -1] == WORD_MAX).all()
    np.testing.assert_array_equal(
        by(route, verify_graph_keys, slots, depths, False), made[2], strict=True
    )


@all_routes
def test_one_slot_set_goes_with_many_depth_draws(route):
    depths = np.array(list(itertools.product((2, 3, 4), repeat=8)))
    slots = np.array([9, 4, 0, 7, 5, 2, 8, 1])
    for canonical, count in ((True, 45), (False, 6561)):
        made = by(route, batch_keys, slots, depths, canonical, False)[2]
        assert made.shape == (6561, 17)
        assert len(np.unique(made, axis=0)) == count


@all_routes
@pytest.mark.parametrize(
    ("slots", "depths", "error", "message"),
    [
        ([[1, 2], [3, NO_SLOT]], [4, 2], ValueError, r"no key, got NO_SLOT at slots\[1, 1\]; keep"),
        ([NO_SLOT], [4], ValueError, r"got NO_SLOT at slots\[0\]"),
        (
            [1, 2**32],
            [4, 2],
            ValueError,
            r"at most 0xffffffff in a key, got 4294967296 at slots\[1",
        ),
        ([1, 2], [2**32, 2], ValueError, r"depths must be at most 0xffff.*96 at depths\[0\]"),
        ([1, -2], [4, 2], ValueError, r"slots must be 0 or more.*got -2 at slots\[1\]"),
        ([1, 2], [4, 0], ValueError, r"depths must be 1 or more rows, got 0 at depths\[1\]"),
        ([1, 2], [4], ValueError, r"the same length.*shapes \(2,\) and \(1,\)"),
        ([1.0, 2], [4, 2], TypeError, "slots must be an array of integers"),
    ],
)
def test_errors_say_which_batch(route, slots, depths, error, message):
    with pytest.raises(error, match=message):
        by(route, verify_graph_keys, slots, depths, False)
    for canonical in (False, True):
        with pytest.raises(error, match=message):
            by(route, batch_keys, slots, depths, canonical, False)


@all_routes
def test_the_largest_words(route):
    slots, depths = [[WORD_MAX, 0]], [[1, WORD_MAX]]
    made = by(route, batch_keys, slots, depths, False, False)[2]
    assert made.tolist() == [[0, WORD_MAX, WORD_MAX, 1, WORD_MAX]]


def test_the_parts_have_names():
    made = batch_keys([3, 1], [2, 4], True, True)
    assert isinstance(made, BatchKeys)
    assert made.order.tolist() == [1, 0]
    assert made.assigned.tolist() == [4, 2]
    assert made.words.tolist() == [1, 4, 3, 2, WORD_MAX - 1]


def test_keys_of_gpu_arrays_stay_there():
    cupy = stub_cupy()
    with mock.patch.dict(sys.modules, {"cupy": cupy}):
        made = batch_keys(cupy.asarray([3, 1]), cupy.asarray([2, 4]), True, False)
    assert all(type(part) is cupy.ndarray for part in made)
