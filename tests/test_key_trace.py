import numpy as np
import pytest

from verifylab.caches import CacheRule, simulate
from verifylab.experiment import Settings, run
from verifylab.gate import Gate
from verifylab.key import parse_graph_key
from verifylab.key_trace import key_trace
from verifylab.machine import load_profile
from verifylab.policy import StepPlan, policy
from verifylab.workload import calibrated

MACHINE = load_profile("gb10-published")
CASES = [
    ("arrangement", 8, "steady", 0.75),
    ("canonical", 8, "steady", 0.75),
    ("arrangement", 8, "steady", 0.5),
    ("arrangement", 3, "steady", 0.25),
    ("gated", 12, "drain", 0.75),
    ("arrangement", 6, "drain", 0.75),
    ("arrangement", 1, "steady", 0.75),
]


def made(mode, **changes):
    return calibrated(mode=mode, output_tokens=24, **changes)


def settings_of(width, mode, ratio, **changes):
    warmup = 0 if mode == "drain" else 30
    return Settings(width, **{"steps": 200, "warmup_steps": warmup, "ratio": ratio} | changes)


@pytest.mark.parametrize(("name", "width", "mode", "ratio"), CASES)
@pytest.mark.parametrize("capacity", [1, 7, 500])
def test_a_trace_and_a_cache_count_what_the_experiment_counts(name, width, mode, ratio, capacity):
    chosen = settings_of(width, mode, ratio, capacity=capacity, steps=3000)
    trace = key_trace(made(mode), policy(name), chosen, MACHINE)
    cache = simulate(trace.ids, CacheRule("lru", capacity), trace.nodes, skip=trace.skip)
    expected = run(made(mode), name, None, MACHINE, chosen).counters
    assert trace.counters(cache).as_dict() == expected.as_dict()


def test_wide_batches_split_into_dispatches():
    chosen = settings_of(70, "steady", 0.75, capacity=3, steps=500)
    trace = key_trace(made("steady"), policy("arrangement"), chosen, MACHINE)
    cache = simulate(trace.ids, CacheRule("lru", 3), trace.nodes, skip=trace.skip)
    got = trace.counters(cache)
    expected = run(made("steady"), "arrangement", None, MACHINE, chosen).counters
    assert got.dispatches == 3 * got.steps
    assert got.capture_steps >= expected.capture_steps
    got.capture_steps = expected.capture_steps  # known only where a step is one dispatch
    assert got.as_dict() == expected.as_dict()


@pytest.mark.parametrize(("name", "width", "mode", "ratio"), CASES)
def test_the_compiled_trace_is_the_readable_one(name, width, mode, ratio):
    chosen = settings_of(width, mode, ratio)
    load = made(mode, confidence_spread=0.3, sharpness=1.5)
    fast = key_trace(load, policy(name), chosen, MACHINE)
    slow = key_trace(load, policy(name), chosen, MACHINE, path="readable")
    assert np.array_equal(fast.ids, slow.ids)
    assert np.array_equal(fast.nodes, slow.nodes)
    assert fast.keys == slow.keys
    assert fast.skip == slow.skip
    assert fast.base.as_dict() == slow.base.as_dict()


def test_keys_name_slots_and_rows():
    trace = key_trace(made("steady"), policy("canonical"), settings_of(4, "steady", 0.75), MACHINE)
    for key in trace.keys:
        pairs, _ = parse_graph_key(key)
        assert [slot for slot, _ in pairs] == [0, 1, 2, 3]
    assert trace.ids.max() + 1 == len(trace.keys) == len(trace.nodes)


def test_a_policy_of_another_kind_is_traced_step_by_step():
    class Fixed:
        """Any policy with a `step`."""

        name = "fixed"

        def __init__(self):
            self.inner = policy("gated", Gate(0))

        def step(self, slots, rows, drafts):
            plan = self.inner.step(slots, rows, drafts)
            return StepPlan(plan.order, plan.depths, plan.dispatches)

    chosen = settings_of(8, "steady", 0.75)
    trace = key_trace(made("steady"), Fixed(), chosen, MACHINE)
    assert trace.policy == "fixed"
    canonical = key_trace(made("steady"), policy("canonical"), chosen, MACHINE)
    assert np.array_equal(trace.ids, canonical.ids)


def test_what_is_wrong_is_said():
    chosen = settings_of(4, "steady", 0.75)
    with pytest.raises(ValueError, match="warmup_steps must be 0 in mode 'drain'"):
        key_trace(made("drain"), policy("canonical"), chosen, MACHINE)
    with pytest.raises(ValueError, match="path must be 'fast' or 'readable'"):
        key_trace(made("steady"), policy("canonical"), chosen, MACHINE, path="slow")
    trace = key_trace(made("steady"), policy("canonical"), chosen, MACHINE)
    with pytest.raises(ValueError, match="must have counted this trace's 200 dispatches"):
        trace.counters(simulate(trace.ids, CacheRule(), trace.nodes))
