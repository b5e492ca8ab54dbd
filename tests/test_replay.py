"""Replays against the run that wrote the trace, against brute force, and bounds against truth."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import capture_line, window_line

from verifylab import replay as rp
from verifylab.answers_keys import keys_per_width, reuse
from verifylab.experiment import Settings, run
from verifylab.gate import Gate
from verifylab.log_bounds import bounds
from verifylab.machine import load_profile
from verifylab.miss_ratio import miss_ratio_curve, stack_distances
from verifylab.modelled_trace import engine_log_lines, write_step_trace
from verifylab.policy import GatedPolicy, policy
from verifylab.read_engine_log import read_engine_log
from verifylab.read_step_trace import read_step_trace
from verifylab.step_trace import StepTraceWriter
from verifylab.trace_file import TraceError
from verifylab.workload import calibrated

MACHINE = load_profile("gb10-published")
#: A run's own counts that a replay cannot know.
RUN_ONLY = {"moves", "finished_requests", "keys_overflow"}


def brute_lru(keys, capacity):
    """Hits of a plain LRU."""
    held, hits = OrderedDict(), 0
    for key in keys:
        if key in held:
            hits += 1
            held.move_to_end(key)
        else:
            if len(held) == capacity:
                held.popitem(last=False)
            held[key] = None
    return hits


@pytest.fixture(scope="module")
def modelled(tmp_path_factory):
    """Step traces and logs of modelled runs by arm, with the runs."""
    folder, workload = tmp_path_factory.mktemp("m"), calibrated()
    out = {}
    for arm in ("arrangement", "canonical"):
        chosen = Settings(8, steps=600, warmup_steps=0, seed=3)
        write_step_trace(folder / f"{arm}.parquet", workload, policy(arm), chosen, MACHINE)
        text = "\n".join(engine_log_lines(workload, policy(arm), chosen, MACHINE))
        (folder / f"{arm}.log").write_text(text + "\n")
        out[arm] = (
            read_step_trace(folder / f"{arm}.parquet"),
            read_engine_log(folder / f"{arm}.log"),
            run(workload, arm, None, MACHINE, chosen),
        )
    return out


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=80), st.integers(1, 12))
def test_stack_distances_and_curve_are_lru_exactly(keys, capacity) -> None:
    curve = miss_ratio_curve(np.array(keys, np.int64), 12)
    assert curve.hits[capacity - 1] == brute_lru(keys, capacity)
    assert (curve.hits + curve.captures == len(keys)).all()
    distance = stack_distances(np.array(keys, np.int64))
    for i, key in enumerate(keys):
        before = max((j for j in range(i) if keys[j] == key), default=None)
        want = -1 if before is None else len(set(keys[before + 1 : i]))
        assert distance[i] == want


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=80), st.integers(1, 12))
def test_the_lru_cache_is_an_lru(keys, capacity) -> None:
    cache = rp.LruKeys(capacity)
    assert sum(cache.touch(key)[0] for key in keys) == brute_lru(keys, capacity)


def test_replaying_an_arm_gives_the_counters_of_its_run(modelled) -> None:
    for arm, (trace, _, truth) in modelled.items():
        # The canonical arm's engine re-paired: its trace has the planner's own depths all the same.
        got = rp.replay(trace, policy(arm), rp.LruKeys(32), MACHINE)
        want = truth.counters.as_dict()
        ours = got.counters.as_dict()
        for name in want.keys() - RUN_ONLY:
            assert ours[name] == want[name], (arm, name)
        assert got.tokens_low == got.tokens_high == truth.counters.tokens
        assert got.times.total_ms == pytest.approx(truth.times.total_ms)


def test_what_the_engine_said_of_its_steps_agrees(modelled) -> None:
    trace, _, truth = modelled["arrangement"]
    assert (trace.counts["capture"], trace.counts["hit"]) == (
        truth.counters.captures, truth.counters.hits,
    )  # fmt: skip
    table = keys_per_width(trace)
    assert table["keys"][0] == truth.counters.keys_seen and table.uses[0] == 600
    again = reuse(trace)
    assert (again.distance < 32).sum() == truth.counters.hits
    curve = miss_ratio_curve(rp.policy_keys(trace, policy("arrangement")))
    assert curve.captures[31] == truth.counters.captures


def test_a_larger_cache_saves_captures_and_canonical_nearly_all(modelled) -> None:
    trace = modelled["arrangement"][0]
    table = rp.replay_table(
        trace, [policy("arrangement"), policy("canonical")],
        [lambda: rp.LruKeys(32), lambda: rp.LruKeys(300)], MACHINE,
    )  # fmt: skip
    assert table.captures.tolist() == [table.captures[0], 3, table["keys"][0], 3]
    assert table.captures_saved[1] == table.captures[0] - 3
    # Own depths as logged: tokens are exact; re-paired they are not.
    assert table.tok_s_low[0] == table.tok_s_high[0]
    assert table.tok_s_low[1] < table.tok_s_high[1]


def test_the_gate_table_agrees_with_the_arms(modelled) -> None:
    trace = modelled["arrangement"][0]
    gates = rp.gate_table(trace, [0, 8, 9], lambda: rp.LruKeys(32), MACHINE)
    canonical = rp.replay(trace, policy("canonical"), rp.LruKeys(32), MACHINE)
    assert gates.captures.tolist()[:2] == [canonical.counters.captures] * 2
    assert gates.gain_low[2] == gates.gain_high[2] == 0.0
    assert gates.gain_low[1] > 0


def test_tokens_are_bounded_where_acceptance_was_not_seen(tmp_path) -> None:
    with StepTraceWriter(tmp_path / "s.parquet") as trace:
        # Canonical gives slot 0 the depth 4 that slot 1 had earned, and slot 1 its 2.
        trace.step([0, 1], [2, 4], accepted=[1, 2])
    trace = read_step_trace(tmp_path / "s.parquet")
    own = rp.replay(trace, policy("arrangement"), rp.LruKeys(1), MACHINE)
    assert own.tokens_low == own.tokens_high == 1 + 2 + 2
    other = rp.replay(trace, policy("canonical"), rp.LruKeys(1), MACHINE)
    # Slot 0: its one verified draft was accepted, how many of three would be is open: 1 to 3.
    # Slot 1: one of the two accepted is verified.
    assert (other.tokens_low, other.tokens_high) == (1 + 1 + 2, 3 + 1 + 2)


def test_a_trace_without_acceptance_or_slots(tmp_path) -> None:
    with StepTraceWriter(tmp_path / "s.parquet") as trace:
        trace.step([0, 2**32 - 1], [4, 4])
        trace.step([], [])
        trace.step([0, 1], [4, 4])
    got = rp.replay(
        read_step_trace(tmp_path / "s.parquet"), policy("gated"), rp.LruKeys(1), MACHINE
    )
    assert got.tokens_low is None and np.isnan(got.as_row()["tok_s_low"])
    assert (got.counters.eager, got.counters.captures, got.counters.steps) == (1, 1, 2)


def test_any_policy_and_any_cache_can_be_plugged_in(modelled) -> None:
    class SecondUse:
        """Captures on the second sighting, never evicts."""

        def __init__(self):
            self.seen = {}

        def touch(self, key):
            self.seen[key] = self.seen.get(key, 0) + 1
            return self.seen[key] > 1, ()

    class Wrapped:
        name = "wrapped"

        def step(self, slots, rows):
            return policy("canonical").step(slots, rows)

    trace = modelled["arrangement"][0]
    got = rp.replay(trace, Wrapped(), SecondUse(), MACHINE)
    assert (got.policy, got.cache, got.counters.captures) == ("wrapped", "SecondUse", 3)


def test_a_log_cannot_be_replayed_and_says_so(modelled) -> None:
    with pytest.raises(TraceError, match="does not hold every step.*log_bounds"):
        rp.replay(modelled["arrangement"][1], policy("gated"), rp.LruKeys(1), MACHINE)


@pytest.mark.parametrize("capacity", [8, 32, 100, 300])
@pytest.mark.parametrize("arm", ["arrangement", "canonical"])
@pytest.mark.parametrize("from_start", [None, True])
def test_bounds_from_the_log_hold_the_truth_from_the_trace(
    modelled, arm, capacity, from_start
) -> None:
    trace, log, _ = modelled["arrangement"]
    truth = rp.replay(trace, policy(arm), rp.LruKeys(capacity), MACHINE)
    row = bounds(log, policy(arm), capacity, MACHINE, from_start=from_start).iloc[0]
    assert row.steps == 600
    assert row.captures_low <= truth.counters.captures <= row.captures_high
    assert row.captures_ms_low <= float(truth.times.captures_ms) * 1.02
    assert float(truth.times.captures_ms) <= row.captures_ms_high * 1.02
    if from_start and (arm, capacity) in {
        ("arrangement", 32),
        ("canonical", 32),
        ("arrangement", 300),
    }:
        assert row.captures_low == row.captures_high and "exact" in row.why


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.permutations([0, 1, 2]).map(tuple), min_size=1, max_size=60),
    st.integers(1, 4), st.integers(0, 3), st.booleans(),
)  # fmt: skip
def test_bounds_hold_for_any_stream(tmp_path_factory, stream, capacity, more, merge) -> None:
    """Random keys through a small LRU: log it, bound it, and compare with the truth."""
    held, lines, captured = OrderedDict(), [], 0
    depths = {0: 2, 1: 3, 2: 4}
    for order in stream:
        pairs = tuple(sorted(((s, depths[o]) for s, o in enumerate(order)), key=lambda p: -p[1]))
        if pairs in held:
            held.move_to_end(pairs)
        else:
            if len(held) == capacity:
                held.popitem(last=False)
            held[pairs] = None
            captured += 1
            lines.append(capture_line([p[0] for p in pairs], [p[1] for p in pairs]))
    lines.append(window_line(len(stream) - captured, captured, len(held), capacity))
    path = tmp_path_factory.mktemp("b") / "a.log"
    path.write_text("\n".join(lines) + "\n")
    chosen = policy("canonical" if merge else "arrangement")
    new = [
        chosen.step(np.arange(3), np.array([depths[o] for o in order])).dispatches[0].key
        for order in stream
    ]
    size = max(1, capacity + more - 1)
    truth = len(new) - brute_lru(new, size)
    for from_start in (None, True):
        row = bounds(read_engine_log(path), chosen, size, from_start=from_start).iloc[0]
        if np.isnan(row.captures_low):
            assert "own depths are lost" in row.why
        else:
            assert row.captures_low <= truth <= row.captures_high


def test_a_canonical_log_says_nothing_of_the_arrangement(modelled) -> None:
    log = modelled["canonical"][1]
    row = bounds(log, policy("arrangement")).iloc[0]
    assert np.isnan(row.captures_high) and "own depths are lost" in row.why
    assert not np.isnan(bounds(log, GatedPolicy(Gate(8))).iloc[0].captures_high)


def test_engines_and_restarts_are_bounded_apart(tmp_path) -> None:
    """Two engines interleaved, one of them restarted: three caches."""
    early, late, back = (f"2026-08-17T{h:02}:00:00.000000Z" for h in (5, 6, 4))
    lines = []
    for name in ("a | ", "b | "):
        lines += [
            name + capture_line([1, 0], [4, 3], early),
            name + capture_line([0, 1], [4, 3], early),
        ]
        lines.append(name + window_line(8, 2, 2, time=late))
    lines += [
        "a | " + capture_line([1, 0], [4, 3], back),
        "a | " + window_line(4, 1, 1, time=early),
    ]
    path = tmp_path / "a.log"
    path.write_text("\n".join(lines) + "\n")
    table = bounds(read_engine_log(path), policy("canonical"))
    columns = ["engine", "segment", "steps", "captures_low", "captures_high"]
    assert table[columns].to_numpy().tolist() == [
        ["a", 0, 10, 1, 1], ["a", 1, 5, 1, 1], ["b", 0, 10, 1, 1],
    ]  # fmt: skip


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity must be 1 or more"):
        rp.LruKeys(0)
    with pytest.raises(ValueError, match="largest must be 1"):
        miss_ratio_curve([1], 0)
    with pytest.raises(ValueError, match="one dimension"):
        stack_distances([[1]])
    assert len(stack_distances([])) == 0
