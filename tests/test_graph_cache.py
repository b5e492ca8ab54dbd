from collections import OrderedDict

import numpy as np
import pytest
from devices import KINDS, make_device
from hypothesis import given, settings
from hypothesis import strategies as st

from verifylab.device.base import Device, DeviceError, Graph
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP, GraphCache, Outcome
from verifylab.step_ops import TickLaunch
from verifylab.verify_shape import SHAPES


@pytest.fixture(params=KINDS)
def device(request):
    made = make_device(request.param)
    if hasattr(made, "prepare"):
        made.prepare(SHAPES["tiny"])
    return made


@pytest.fixture
def ticks(device):
    counter = device.allocate((1,), np.int32)

    def body(nodes):
        def issue(on):
            for _ in range(nodes):
                on.issue(TickLaunch(counter))

        return issue

    return body


def oracle(keys, capacity):
    """Which steps hit, and which key each miss drives out, by a list kept in order of use."""
    kept, outcomes, evicted = [], [], []
    for key in keys:
        outcomes.append(Outcome.HIT if key in kept else Outcome.CAPTURE)
        if key in kept:
            kept.remove(key)
        elif len(kept) == capacity:
            evicted.append(kept.pop(0))
        kept.append(key)
    return outcomes, evicted, kept


def test_devices_keep_the_contract(device, ticks):
    assert isinstance(device, Device)
    graph = device.capture(ticks(3))
    assert isinstance(graph, Graph)
    assert graph.nodes == 3 and graph.nbytes > 0
    device.destroy(graph)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=60), st.integers(1, 5))
@pytest.mark.parametrize("kind", KINDS)
def test_lru_is_exact(kind, keys, capacity):
    device = make_device(kind)
    counter = device.allocate((1,), np.int32)
    if hasattr(device, "prepare"):
        device.prepare(SHAPES["tiny"])
    cache = GraphCache(device, capacity)
    outcomes, evicted, kept = oracle(keys, capacity)
    got = [cache.step(key, lambda on: on.issue(TickLaunch(counter))) for key in keys]
    assert got == outcomes
    assert cache.keys() == kept
    assert cache.stats.evictions == len(evicted)
    assert device.live_graphs == len(kept)
    cache.clear()
    assert device.live_graphs == 0


def test_counts_and_times_every_operation(device, ticks):
    cache = GraphCache(device, capacity=2)
    for key in "ABACBA":
        cache.step(key, ticks(2))
    cache.step(None, ticks(2))
    assert (cache.stats.hits, cache.stats.captures) == (1, 5)
    assert (cache.stats.evictions, cache.stats.eager, cache.stats.steps) == (3, 1, 7)
    assert cache.stats.capture_fraction == 5 / 7
    count = device.timings.count
    assert count == {
        "record": 5, "instantiate": 5, "launch": 6, "exec_destroy": 3, "graph_destroy": 3,
        "eager": 1, "update": 0,
    }  # fmt: skip
    assert all(ms >= 0.0 for ms in device.timings.total_ms.values())
    assert device.launches == 12, "replays issue nothing"
    cache.reset_stats()
    assert cache.stats.steps == 0 and cache.stats.capture_fraction == 0.0
    cache.clear()


def test_capacity_by_bytes(device, ticks):
    one = device.capture(ticks(1))
    unit = one.nbytes
    device.destroy(one)
    cache = GraphCache(device, capacity=100, capacity_bytes=10 * unit)
    kept: OrderedDict[str, int] = OrderedDict()
    for key, nodes in [("A", 4), ("B", 4), ("C", 2), ("A", 4), ("D", 3), ("E", 20), ("F", 1)]:
        cache.step(key, ticks(nodes))
        if key in kept:
            kept.move_to_end(key)
        else:
            while kept and sum(kept.values()) + nodes > 10:
                kept.popitem(last=False)
            kept[key] = nodes
        assert cache.keys() == list(kept)
        assert cache.nbytes == unit * sum(kept.values())
    assert cache.keys() == ["F"], "a graph larger than the capacity is kept alone, then leaves"
    cache.clear()
    assert cache.nbytes == 0


def test_an_exception_in_the_body_leaves_everything_usable(device, ticks):
    cache = GraphCache(device, capacity=2)
    cache.step("A", ticks(1))
    cache.step("B", ticks(1))

    def fails(on):
        ticks(3)(on)
        raise KeyError("the body's own")

    before = cache.keys()
    for key in ("C", None):
        with pytest.raises(KeyError, match="the body's own"):
            cache.step(key, fails)
    assert cache.keys() == before and device.live_graphs == 2
    assert cache.step("A", fails) is Outcome.HIT, "a hit does not call the body"
    assert cache.step("C", ticks(1)) is Outcome.CAPTURE
    device.synchronise()
    cache.clear()


def test_a_failing_eviction_leaks_nothing(device, ticks, monkeypatch):
    cache = GraphCache(device, capacity=1)
    cache.step("A", ticks(1))
    destroy, calls = device.destroy, []

    def fails_once(graph):
        calls.append(graph)
        destroy(graph)
        if len(calls) == 1:
            raise DeviceError("told to fail")

    monkeypatch.setattr(device, "destroy", fails_once)
    with pytest.raises(DeviceError, match="told to fail"):
        cache.step("B", ticks(1))
    assert device.live_graphs == len(cache) == 0 and cache.nbytes == 0
    assert cache.step("B", ticks(1)) is Outcome.CAPTURE
    cache.clear()


def test_a_destroyed_graph_is_refused(device, ticks):
    graph = device.capture(ticks(1))
    device.destroy(graph)
    with pytest.raises(DeviceError, match="destroyed"):
        device.launch(graph)
    with pytest.raises(DeviceError, match="destroyed"):
        device.destroy(graph)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"capacity": 0}, "capacity must be 1 or more graphs, got 0"),
        ({"eviction": "fifo"}, "must be 'lru', got 'fifo'"),
        ({"capacity_bytes": 0}, "capacity_bytes must be 1 or more, got 0"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        GraphCache(make_device("model"), **options)


def test_default_capacity_is_the_published_one():
    assert GraphCache(make_device("model")).capacity == VERIFY_BATCHED_GRAPH_CAP == 32


@pytest.mark.parametrize("kind", KINDS[:3])
def test_nothing_is_left_after_ten_thousand_captures(kind):
    device = make_device(kind)
    if hasattr(device, "prepare"):
        device.prepare(SHAPES["tiny"])
    counter = device.allocate((1,), np.int32)
    cache = GraphCache(device, capacity=4)
    for key in range(10_000):
        cache.step(key, lambda on: on.issue(TickLaunch(counter)))
    assert cache.stats.evictions == 10_000 - 4
    assert device.live_graphs == 4
    if kind == "fake-cuda":
        assert len(device._cupy.live) == 8, "a graph and an executable each"
    cache.clear()
    assert device.live_graphs == 0
    if kind == "fake-cuda":
        assert not device._cupy.live


def test_second_use_runs_eager_first_and_captures_then(device, ticks):
    cache = GraphCache(device, capacity=4, sightings=2)
    assert [str(cache.step(k, ticks(2))) for k in "AABAB"] == [
        "eager", "capture", "eager", "hit", "capture",
    ]  # fmt: skip
    cache.clear()


def test_an_update_keeps_one_graph_a_signature(device, ticks):
    if device.name == "cuda":
        with pytest.raises(DeviceError, match="cudaGraphExecUpdate"):
            device.update(device.capture(ticks(2)), ticks(2))
        return
    cache = GraphCache(device, capacity=4, update=True)
    outcomes = [str(cache.step(k, ticks(2), signature="two nodes")) for k in "AABBA"]
    assert outcomes == ["capture", "hit", "update", "hit", "update"]
    assert len(cache) == 1 and cache.stats.updates == 2 and cache.stats.steps == 5
    cache.clear()


def test_borrowing_takes_the_cheapest_and_of_equals_the_latest(device, ticks):
    cache = GraphCache(device, capacity=4)
    for key in ("abc", "abd", "ab"):
        cache.step(key, ticks(2))
    cost = {"abc": 1, "abd": 1}
    outcome = cache.step("a", ticks(2), borrow=cost.get)
    assert (str(outcome), cache.last_key) == ("borrow", "abd")
    assert cache.stats.borrowed == 1 and "a" not in cache
    assert str(cache.step("x", ticks(2), borrow=lambda key: None)) == "capture"
    cache.clear()
