import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifylab.caches import EVICTIONS, CacheCounts, CacheRule, densify, simulate
from verifylab.counters import Counters
from verifylab.device.model import GRAPH_BYTES_PER_NODE, ModelDevice
from verifylab.graph_cache import GraphCache, Outcome
from verifylab.key import verify_graph_keys
from verifylab.machine import StepWork, load_profile

ONLINE = ("lru", "lfu", "slru", "none")
TRACES = st.lists(st.integers(0, 7), max_size=60)
SIZES = st.lists(st.integers(0, 6), min_size=8, max_size=8)
CAPACITIES = st.none() | st.integers(1, 6)


@st.composite
def rules(draw):
    eviction = draw(st.sampled_from(tuple(EVICTIONS)))
    online = eviction in ONLINE
    return CacheRule(
        eviction,
        capacity=draw(CAPACITIES),
        capacity_nodes=draw(st.none() | st.integers(1, 16)),
        admit_on=draw(st.integers(1, 4)) if online else 1,
        idle_steps=draw(st.none() | st.integers(1, 9)) if online else None,
        protected_percent=draw(st.sampled_from([0, 34, 50, 80, 100])),
    )


@settings(max_examples=300, deadline=None)
@given(TRACES, SIZES, rules(), st.data())
def test_the_compiled_loop_counts_what_plain_python_counts(keys, nodes, rule, data):
    skip = data.draw(st.integers(0, len(keys)))
    fast = simulate(keys, rule, nodes, skip=skip)
    assert fast == simulate(keys, rule, nodes, skip=skip, path="readable")
    assert fast.requests == len(keys) - skip


@settings(deadline=None)
@given(TRACES, SIZES, rules(), st.data())
def test_counted_parts_add_up_to_the_whole(keys, nodes, rule, data):
    cut = data.draw(st.integers(0, len(keys)))
    whole, rest = simulate(keys, rule, nodes), simulate(keys, rule, nodes, skip=cut)
    if rule.offline:
        return  # the head alone would have had another future
    head = simulate(keys[:cut], rule, nodes)
    for name in ("hits", "captures", "evictions", "eager", "nodes_evicted", "node_steps"):
        assert getattr(head, name) + getattr(rest, name) == getattr(whole, name), name


@settings(deadline=None)
@given(TRACES, SIZES.map(lambda s: [n + 1 for n in s]), CAPACITIES, st.none() | st.integers(1, 20))
def test_lru_does_what_the_graph_cache_does(keys, nodes, capacity, capacity_nodes):
    device = ModelDevice(load_profile("gb10-published"))
    cache = GraphCache(
        device,
        capacity or 10**6,
        capacity_bytes=None if capacity_nodes is None else capacity_nodes * GRAPH_BYTES_PER_NODE,
    )
    outcomes = [cache.step(k, device.body(StepWork(1, 1, nodes[k]))) for k in keys]
    counts = simulate(keys, CacheRule("lru", capacity, capacity_nodes), nodes)
    stats = cache.stats
    assert (counts.hits, counts.captures, counts.evictions, counts.eager) == (
        stats.hits, stats.captures, stats.evictions, stats.eager,
    )  # fmt: skip
    captured = sum(nodes[k] for k, o in zip(keys, outcomes, strict=True) if o is Outcome.CAPTURE)
    assert counts.nodes_captured == captured
    assert counts.nodes_captured - counts.nodes_evicted == cache.nbytes // GRAPH_BYTES_PER_NODE


@settings(deadline=None)
@given(TRACES, st.integers(1, 6), st.sampled_from(ONLINE), st.integers(1, 3), st.data())
def test_no_online_rule_beats_the_offline_ones(keys, capacity, eviction, admit_on, data):
    idle = data.draw(st.none() | st.integers(1, 9))
    online = simulate(keys, CacheRule(eviction, capacity, None, admit_on, idle))
    best = simulate(keys, CacheRule("min_bypass", capacity))
    assert online.hits <= best.hits
    forced = simulate(keys, CacheRule("min", capacity))
    assert forced.hits <= best.hits
    if admit_on == 1 and eviction != "none":
        assert online.hits <= forced.hits


def best_hits(keys, capacity, bypass):
    """Hits of the best choice at every miss, by trying all of them."""
    states = {frozenset(): 0}
    for key in keys:
        following: dict[frozenset, int] = {}
        for held, hits in states.items():
            if key in held:
                options = [(held, hits + 1)]
            else:
                options = [(held, hits)] if bypass else []
                if len(held) < capacity:
                    options.append((held | {key}, hits))
                else:
                    options += [((held - {gone}) | {key}, hits) for gone in held]
            for state, value in options:
                following[state] = max(following.get(state, -1), value)
        states = following
    return max(states.values())


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=16), st.integers(1, 3))
def test_the_offline_rules_are_the_optimum_over_all_choices(keys, capacity):
    assert simulate(keys, CacheRule("min", capacity)).hits == best_hits(keys, capacity, False)
    bypass = simulate(keys, CacheRule("min_bypass", capacity))
    assert bypass.hits == best_hits(keys, capacity, True)


def hits(keys, **rule):
    return simulate(keys, CacheRule(**rule)).hits


def test_lfu_lets_the_least_used_go_and_of_those_the_longest_unused():
    # 0 used twice, 1 and 2 once: 1 goes for 3, so 0 and 2 still hit.
    assert hits([0, 0, 1, 2, 3, 0, 2], eviction="lfu", capacity=3) == 3
    assert hits([0, 0, 1, 2, 3, 1], eviction="lfu", capacity=3) == 1
    # A count starts again at a capture: 1 comes back with one use.
    assert hits([1, 1, 1, 0], eviction="lfu", capacity=1) == 2


def test_slru_protects_what_was_replayed():
    scan = [0, 0, *range(1, 8), 0]
    assert hits(scan, eviction="lru", capacity=4) == 1
    assert hits(scan, eviction="slru", capacity=4, protected_percent=50) == 2
    # With nothing protected it is LRU.
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 9, 300)
    assert hits(keys, eviction="slru", capacity=4, protected_percent=0) == hits(keys, capacity=4)


def test_admission_captures_on_the_nth_sighting():
    counts = simulate([0, 0, 0, 1, 0, 1, 1], CacheRule("lru", 8, admit_on=3))
    assert (counts.eager, counts.captures, counts.hits) == (4, 2, 1)
    # Evicted, a key that has proven itself is captured at once.
    counts = simulate([0, 0, 1, 1, 0], CacheRule("lru", 1, admit_on=2))
    assert (counts.eager, counts.captures) == (2, 3)


def test_a_graph_times_out_after_more_than_idle_steps():
    assert hits([0, 1, 1, 0], capacity=8, idle_steps=3) == 2
    counts = simulate([0, 1, 1, 0], CacheRule("lru", 8, idle_steps=2))
    assert (counts.hits, counts.evictions) == (1, 1)


def test_without_eviction_a_full_cache_runs_the_rest_eager():
    counts = simulate([0, 1, 2, 0, 1, 2], CacheRule("none", 2))
    assert (counts.captures, counts.evictions, counts.eager, counts.hits) == (2, 0, 2, 2)


def test_a_graph_larger_than_the_cache_is_kept_alone():
    counts = simulate([0, 1, 1, 0], CacheRule("lru", None, 5), [3, 9])
    assert (counts.hits, counts.evictions, counts.peak_nodes) == (1, 2, 9)


def test_peaks_and_mean():
    counts = simulate([0, 1, 2, 0], CacheRule("lru", 2), [5, 2, 1])
    assert (counts.peak_graphs, counts.peak_nodes) == (2, 7)
    assert counts.node_steps == 5 + 7 + 3 + 6


def test_count_names_are_those_of_the_experiment():
    shared = {f.name for f in dataclasses.fields(CacheCounts)} - {
        "peak_graphs", "peak_nodes", "node_steps",
    }  # fmt: skip
    assert shared <= {f.name for f in dataclasses.fields(Counters)}


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), max_size=40))
def test_densify_numbers_rows_as_it_numbers_their_bytes(rows):
    words = np.array(rows, np.uint32).reshape(-1, 3)
    ids, first = densify(words)
    by_bytes, first_of_bytes = densify([row.tobytes() for row in words])
    assert np.array_equal(ids, by_bytes)
    assert np.array_equal(first, first_of_bytes)
    assert np.array_equal(words[first][ids], words)
    assert ids.tolist() == [] or sorted(set(ids.tolist())) == list(range(len(first)))


def test_densify_takes_graph_key_words():
    slots = np.array([[0, 1], [1, 0], [0, 1]])
    ids, first = densify(verify_graph_keys(slots, np.full((3, 2), 2), False))
    assert ids.tolist() == [0, 1, 0]
    assert first.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"eviction": "fifo"}, "eviction must be one of lru, lfu"),
        ({"capacity": 0}, "capacity must be from 1"),
        ({"capacity": True}, "capacity must be a whole number, got True"),
        ({"capacity_nodes": 0}, "capacity_nodes must be from 1"),
        ({"admit_on": 0}, "admit_on must be from 1"),
        ({"admit_on": None}, "admit_on must be a whole number, got None"),
        ({"idle_steps": 0}, "idle_steps must be from 1"),
        ({"protected_percent": 101}, "protected_percent must be from 0 to 100, got 101"),
        ({"eviction": "min", "admit_on": 2}, "offline bound: admit_on must be 1"),
    ],
)
def test_a_rule_says_what_is_wrong(changes, words):
    with pytest.raises(ValueError, match=words):
        CacheRule(**changes)


@pytest.mark.parametrize(
    ("keys", "extra", "error", "words"),
    [
        ([0.5], {}, TypeError, "keys must be ids in one dimension"),
        ([[1]], {}, TypeError, "keys must be ids in one dimension"),
        ([-1], {}, ValueError, "keys must be 0 or more, got -1"),
        ([10**9], {}, ValueError, "keys must be dense ids"),
        ([3], {"nodes": [1]}, ValueError, "nodes must have a size for every key up to 3"),
        ([0], {"nodes": [-1]}, ValueError, "nodes must be 0 or more"),
        ([0], {"nodes": [0.5]}, TypeError, "nodes must be one whole number a key"),
        ([0], {"skip": 2}, ValueError, "skip must be from 0 to the trace's 1 keys, got 2"),
        ([0], {"path": "slow"}, ValueError, "path must be 'fast' or 'readable'"),
    ],
)
def test_a_trace_says_what_is_wrong(keys, extra, error, words):
    with pytest.raises(error, match=words):
        simulate(keys, CacheRule(), **extra)


def test_densify_refuses_what_are_no_words():
    with pytest.raises(TypeError, match="whole numbers of shape"):
        densify(np.zeros(3, np.uint32))


def test_an_empty_trace_counts_nothing():
    counts = simulate([], CacheRule())
    assert counts.requests == 0
    assert counts.miss_ratio == 0.0
