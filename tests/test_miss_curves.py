import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifylab.caches import CacheRule, simulate
from verifylab.miss_curves import EVICTIONS, miss_ratio_curve, stack_distances

COUNTED = (
    "hits", "captures", "evictions", "eager", "nodes_launched", "nodes_captured", "nodes_evicted",
    "nodes_eager",
)  # fmt: skip
TRACES = st.lists(st.integers(0, 7), max_size=60)
SIZES = st.lists(st.integers(0, 6), min_size=8, max_size=8)


@settings(max_examples=200, deadline=None)
@given(TRACES, SIZES, st.sampled_from(EVICTIONS), st.data())
def test_every_point_of_a_curve_is_a_direct_simulation(keys, nodes, eviction, data):
    skip = data.draw(st.integers(0, len(keys)))
    curve = miss_ratio_curve(keys, nodes, eviction=eviction, skip=skip)
    for capacity in range(1, 10):
        direct = simulate(keys, CacheRule(eviction, capacity), nodes, skip=skip)
        for name in COUNTED:
            # A trace without keys has no curve, and counts nothing.
            assert getattr(curve.at(capacity), name) == getattr(direct, name), (capacity, name)


@settings(deadline=None)
@given(TRACES, st.sampled_from(EVICTIONS))
def test_a_curve_is_the_histogram_of_plain_stack_distances(keys, eviction):
    distances = stack_distances(keys, eviction)
    curve = miss_ratio_curve(keys, eviction=eviction)
    for capacity, hits in zip(curve.capacities, curve.hits, strict=True):
        assert hits == sum(d is not None and d <= capacity for d in distances)


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("keys_used", [3, 266, 5000])
def test_long_traces(eviction, keys_used):
    # Long enough for the line of last uses to be squeezed many times.
    rng = np.random.default_rng(keys_used)
    keys = np.concatenate([
        rng.integers(0, keys_used, 15_000),
        np.arange(15_000) % keys_used,
        np.minimum(rng.zipf(1.3, 15_000), keys_used) - 1,
    ])  # fmt: skip
    nodes = rng.integers(1, 9, keys_used)
    curve = miss_ratio_curve(keys, nodes, eviction=eviction, skip=1000)
    assert (np.diff(curve.hits) >= 0).all()
    assert (curve.evictions >= 0).all()
    for capacity in (1, 2, 32, 266, 1024, 6000):
        direct = simulate(keys, CacheRule(eviction, capacity), nodes, skip=1000)
        for name in COUNTED:
            assert getattr(curve.at(capacity), name) == getattr(direct, name), (capacity, name)


def test_min_is_below_lru_everywhere():
    keys = np.random.default_rng(1).integers(0, 40, 5000)
    lru, best = miss_ratio_curve(keys), miss_ratio_curve(keys, eviction="min")
    assert (best.miss_ratio <= lru.miss_ratio).all()
    assert best.miss_ratio[-1] == lru.miss_ratio[-1] == 40 / 5000


def test_frame_has_a_row_a_capacity():
    frame = miss_ratio_curve([0, 1, 0, 2, 0]).frame()
    assert frame.capacity.tolist() == [1, 2, 3]
    assert frame.captures.tolist() == [5, 3, 3]
    assert frame.eager.tolist() == [0, 0, 0]


def test_ids_that_never_come_are_no_part_of_the_curve():
    assert len(miss_ratio_curve([5, 5, 7]).hits) == 2


def test_what_is_no_curve_is_refused():
    with pytest.raises(ValueError, match="a curve needs a stack algorithm"):
        miss_ratio_curve([0], eviction="lfu")
    with pytest.raises(ValueError, match="capacity must be 1 or more graphs, got 0"):
        miss_ratio_curve([0]).at(0)
