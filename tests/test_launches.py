import csv
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifylab.launches import FAST_LAUNCHES, DepthRun, depth_runs, launches_per_layer
from verifylab.ordering import NO_SLOT, verify_batch_order

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
GDN_LAUNCHES = list(
    csv.DictReader((PUBLISHED / "gdn_launches.csv").read_text("utf-8").splitlines()),
)


def arrangements(counts):
    """Every way to give slots 0 .. n-1 the depths of a (k4, k3, k2) multiset."""
    depths = [k for k, count in zip((4, 3, 2), counts, strict=True) for _ in range(count)]
    return np.array(sorted(set(itertools.permutations(depths))))


@pytest.mark.parametrize("row", GDN_LAUNCHES, ids=lambda r: r["multiset_k4_k3_k2"])
def test_published_launches(row):
    counts = tuple(map(int, row["multiset_k4_k3_k2"].strip("()").split(",")))
    depths = arrangements(counts)
    slots = np.broadcast_to(np.arange(int(row["n"])), depths.shape)
    assert slots.shape[1] == sum(counts)

    order, dispatched = verify_batch_order(slots, depths, False)
    dispatched_slots = np.take_along_axis(slots, order, axis=-1)
    launches = launches_per_layer(dispatched_slots, dispatched)
    assert round(float(launches.mean()), 1) == float(row["arrangement_mean"])
    assert launches.min() == int(row["arrangement_min"])
    assert launches.max() == int(row["arrangement_max"])

    # "Every run" leaves out runs of one, which cannot engage: (3,0,1) is published as 0.5.
    engages = [
        all(run.fast for run in depth_runs(s, d) if run.length >= 2)
        for s, d in zip(dispatched_slots, dispatched, strict=True)
    ]
    if row["p_every_run_engages"]:
        assert round(float(np.mean(engages)), 3) == float(row["p_every_run_engages"])
    else:
        assert max(counts) == 1

    order, dispatched = verify_batch_order(slots, depths, True)
    canonical = launches_per_layer(np.take_along_axis(slots, order, axis=-1), dispatched)
    assert set(canonical.tolist()) == {int(row["canonical"])}


def test_every_published_row_is_read():
    assert len(GDN_LAUNCHES) == 6


def test_runs_of_one_batch():
    assert depth_runs([0, 1, 2, 4, 6, 9], [4, 4, 4, 3, 3, 2]) == [
        DepthRun(start=0, length=3, depth=4, fast=True),
        DepthRun(start=3, length=2, depth=3, fast=False),
        DepthRun(start=5, length=1, depth=2, fast=False),
    ]
    assert launches_per_layer([0, 1, 2, 4, 6, 9], [4, 4, 4, 3, 3, 2]) == 2 + 2 * 6 + 4


@pytest.mark.parametrize(
    ("slots", "fast"),
    [
        ([3, 4], True),
        ([4, 3], False),
        ([3, 3], False),
        ([3, 5], False),
        ([NO_SLOT - 1, NO_SLOT], False),
        ([NO_SLOT, NO_SLOT], False),
        ([NO_SLOT, 0], False),
        ([0, NO_SLOT], False),
    ],
)
def test_only_consecutive_ascending_slots_take_the_fast_path(slots, fast):
    (run,) = depth_runs(slots, [3, 3])
    assert run.fast is fast
    assert run.launches == (FAST_LAUNCHES if fast else 12)
    assert launches_per_layer(slots, [3, 3]) == run.launches


@st.composite
def dispatched_batches(draw):
    batches, width = draw(st.integers(0, 4)), draw(st.integers(0, 7))
    size = batches * width
    slot = st.integers(0, 4) | st.sampled_from([NO_SLOT - 1, NO_SLOT])
    slots = draw(st.lists(slot, min_size=size, max_size=size))
    depths = draw(st.lists(st.integers(1, 3), min_size=size, max_size=size))
    shape = (batches, width)
    return np.array(slots, np.int64).reshape(shape), np.array(depths, np.int64).reshape(shape)


@given(dispatched_batches())
def test_the_fast_form_is_its_oracle(batch):
    slots, depths = batch
    got = launches_per_layer(slots, depths)
    assert got.dtype == np.int64
    assert got.tolist() == [
        sum(run.launches for run in depth_runs(s, d)) for s, d in zip(slots, depths, strict=True)
    ]


def test_consecutive_slots_are_seen_in_every_batch():
    # Ascending slots, so that the property test's rare fast runs are not all there is.
    rng = np.random.default_rng(0)
    slots = np.sort(rng.permuted(np.tile(np.arange(10), (2, 100, 1)), axis=-1)[..., :8], axis=-1)
    depths = np.sort(rng.integers(2, 5, slots.shape), axis=-1)[..., ::-1]
    got = launches_per_layer(slots, depths)
    assert got.shape == (2, 100)
    for index in np.ndindex(got.shape):
        assert got[index] == sum(r.launches for r in depth_runs(slots[index], depths[index]))


def test_one_slot_set_goes_with_many_depths():
    assert launches_per_layer([0, 1], [[3, 3], [3, 2]]).tolist() == [2, 10]


def test_empty_batches_launch_nothing():
    assert launches_per_layer([], []) == 0
    assert launches_per_layer(np.zeros((3, 0), int), np.zeros((3, 0), int)).tolist() == [0, 0, 0]
    assert depth_runs([], []) == []


@pytest.mark.parametrize(
    ("slots", "depths", "message"),
    [
        ([0, 1], [2], "the same length"),
        (0, 2, "must have shape"),
        ([-1, 0], [2, 2], "slots must be 0 or more.* got -1"),
        ([0, 1], [2, 0], "depths must be 1 or more.* got 0"),
        ([0.0, 1.0], [2, 2], "slots must be an array of integers, got dtype float64"),
        (np.array([2**64 - 1], np.uint64), [2], "slots must be at most"),
    ],
)
def test_what_is_no_batch_is_refused(slots, depths, message):
    for function in (launches_per_layer, depth_runs):
        with pytest.raises((TypeError, ValueError), match=message):
            function(slots, depths)


def test_depth_runs_takes_one_batch():
    with pytest.raises(ValueError, match=r"one batch of shape \(n,\), got \(1, 2\)"):
        depth_runs([[0, 1]], [[2, 2]])


def test_one_batch_is_counted_as_in_a_batch_of_batches():
    rng = np.random.default_rng(5)
    for _ in range(300):
        width = int(rng.integers(1, 70))
        slots = np.sort(rng.choice(90, width, replace=False))
        slots[rng.random(width) < 0.05] = NO_SLOT
        depths = np.sort(rng.integers(1, 4, width))[::-1].copy()
        alone = launches_per_layer(slots, depths)
        assert alone.shape == () and alone.dtype == np.int64
        assert alone == launches_per_layer(slots[None], depths[None])[0]
