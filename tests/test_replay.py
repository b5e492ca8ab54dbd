"""Replays against the run that wrote the trace, against brute force, and bounds against truth."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import capture_line, window_line

from verifylab import replay as rp
from verifylab import replay_tables as tables
from verifylab.answers_keys import keys_per_width, reuse
from verifylab.cache_study import RULES
from verifylab.caches import CacheRule
from verifylab.experiment import Settings, run
from verifylab.gate import Gate
from verifylab.log_bounds import bounds
from verifylab.machine import load_profile
from verifylab.miss_curves import miss_ratio_curve, reuse_distances
from verifylab.modelled_trace import engine_log_lines, write_step_trace
from verifylab.policy import POLICIES, GatedPolicy, policy, signature
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
def test_reuse_distances_and_curve_are_lru_exactly(keys, capacity) -> None:
    curve = miss_ratio_curve(np.array(keys, np.int64))
    assert curve.at(capacity).hits == brute_lru(keys, capacity)
    distance = reuse_distances(np.array(keys, np.int64))
    for i, key in enumerate(keys):
        before = max((j for j in range(i) if keys[j] == key), default=None)
        want = -1 if before is None else len(set(keys[before + 1 : i]))
        assert distance[i] == want


def test_replaying_an_arm_gives_the_counters_of_its_run(modelled) -> None:
    for arm, (trace, _, truth) in modelled.items():
        # The canonical arm's engine re-paired: its trace has the planner's own depths all the same.
        got = rp.replay(trace, policy(arm), MACHINE)
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
    keys, _ = rp.traced(trace, policy("arrangement"), MACHINE)
    curve = miss_ratio_curve(keys.ids, keys.nodes)
    assert curve.at(32).nodes_captured == truth.counters.nodes_captured
    assert curve.captures[31] == truth.counters.captures


def test_a_larger_cache_saves_captures_and_canonical_nearly_all(modelled) -> None:
    trace = modelled["arrangement"][0]
    arms = [policy("arrangement"), policy("canonical")]
    table = pd.concat(
        [tables.replay_table(trace, arms, MACHINE, capacity) for capacity in (32, 300)],
        ignore_index=True,
    )
    assert table.captures.tolist() == [table.captures[0], 3, table["keys"][0], 3]
    assert table.captures_saved[1] == table.captures[0] - 3
    # Own depths as logged: tokens are exact; re-paired they are not.
    assert table.tok_s_low[0] == table.tok_s_high[0]
    assert table.tok_s_low[1] < table.tok_s_high[1]


def test_the_gate_table_agrees_with_the_arms(modelled) -> None:
    trace = modelled["arrangement"][0]
    gates = tables.gate_table(trace, [0, 8, 9], MACHINE)
    canonical = rp.replay(trace, policy("canonical"), MACHINE)
    assert gates.captures.tolist()[:2] == [canonical.counters.captures] * 2
    assert gates.gain_low[2] == gates.gain_high[2] == 0.0
    assert gates.gain_low[1] > 0


def test_tokens_are_bounded_where_acceptance_was_not_seen(tmp_path) -> None:
    with StepTraceWriter(tmp_path / "s.parquet") as trace:
        # Canonical gives slot 0 the depth 4 that slot 1 had earned, and slot 1 its 2.
        trace.step([0, 1], [2, 4], accepted=[1, 2])
    trace = read_step_trace(tmp_path / "s.parquet")
    own = rp.replay(trace, policy("arrangement"), MACHINE, 1)
    assert own.tokens_low == own.tokens_high == 1 + 2 + 2
    other = rp.replay(trace, policy("canonical"), MACHINE, 1)
    # Slot 0: its one verified draft was accepted, how many of three would be is open: 1 to 3.
    # Slot 1: one of the two accepted is verified.
    assert (other.tokens_low, other.tokens_high) == (1 + 1 + 2, 3 + 1 + 2)


def test_a_trace_without_acceptance_or_slots(tmp_path) -> None:
    with StepTraceWriter(tmp_path / "s.parquet") as trace:
        trace.step([0, 2**32 - 1], [4, 4])
        trace.step([], [])
        trace.step([0, 1], [4, 4])
    got = rp.replay(read_step_trace(tmp_path / "s.parquet"), policy("gated"), MACHINE, 1)
    assert got.tokens_low is None and np.isnan(got.as_row()["tok_s_low"])
    assert (got.counters.eager, got.counters.captures, got.counters.steps) == (1, 1, 2)


FRONTED = [p.name for p in tables.every_policy() if p.name not in POLICIES]


def named(name, gate=None):
    """A policy of the table, or one with a gate in front."""
    base, _, front = name.partition(" + ")
    return policy(base, gate or (Gate() if front or base == "gated" else None))


@pytest.mark.parametrize(("mode", "width"), [("steady", 3), ("steady", 8), ("drain", 8)])
@pytest.mark.parametrize("name", [*POLICIES, *FRONTED])
def test_every_policy_replays_to_the_counters_of_its_run(tmp_path, name, mode, width) -> None:
    """The policy that wrote the trace verified what it would have verified: all is equal."""
    chosen = Settings(width, steps=250, warmup_steps=0, seed=5, capacity=6)
    workload = calibrated(mode=mode)
    gate = Gate(2) if "gate" in name else None
    acting = named(name, gate)
    write_step_trace(tmp_path / "s.parquet", workload, acting, chosen, MACHINE)
    truth = run(workload, acting.name, gate, MACHINE, chosen)
    trace = read_step_trace(tmp_path / "s.parquet")
    got = rp.replay(trace, acting, MACHINE, 6)
    want, ours = truth.counters.as_dict(), got.counters.as_dict()
    assert {k: ours[k] for k in want.keys() - RUN_ONLY} == {
        k: want[k] for k in want.keys() - RUN_ONLY
    }
    assert got.tokens_low == got.tokens_high == truth.counters.tokens
    assert got.times.total_ms == pytest.approx(truth.times.total_ms)
    # The same through the caches' own module, where the policy leaves the cache free.
    if acting.rules.borrow or acting.rules.update or acting.rules.sightings > 1:
        with pytest.raises(ValueError, match="cache of its own"):
            rp.replay_cache(trace, acting, MACHINE, CacheRule("lru", 6))
    else:
        other = rp.replay_cache(trace, acting, MACHINE, CacheRule("lru", 6))
        assert other.counters.as_dict() == ours


def test_a_borrowed_graph_is_paid_with_its_ghosts(tmp_path) -> None:
    with StepTraceWriter(tmp_path / "s.parquet") as trace:
        trace.step([0, 1, 2], [4, 3, 2], accepted=[0, 0, 0])
        trace.step([0, 1], [4, 3], accepted=[0, 0])
        trace.step([0, 2], [4, 3], accepted=[0, 0])  # begins with no cached pairs
        trace.step([0, 1, 2], [4, 3, 2], accepted=[0, 0, 0])
    got = rp.replay(read_step_trace(tmp_path / "s.parquet"), policy("borrow"), MACHINE).counters
    assert (got.captures, got.borrowed, got.hits) == (2, 1, 1)
    assert (got.ghosts, got.filler_rows, got.rows) == (1, 2, 9 + 9 + 7 + 9)
    assert (got.graph_launches, got.sequences, got.keys_seen) == (4, 10, 3)


def test_a_gate_can_stand_in_front() -> None:
    assert FRONTED == [
        "borrow + gate", "exec_update + gate", "eager + gate", "capture_on_second_use + gate",
    ]  # fmt: skip
    assert len(tables.every_policy()) == len(POLICIES) + 4


def test_caches_order_as_theory_says(modelled) -> None:
    trace, arm = modelled["arrangement"][0], policy("arrangement")
    rules = {name: CacheRule(capacity=32, **rule) for name, rule in RULES.items()}
    table = tables.cache_table(trace, [arm, policy("indirect")], MACHINE, rules)
    at = table[table.policy == "arrangement"].set_index("cache")
    assert at.hits.idxmax() == "MIN, may run eager"
    assert at.captures["LRU"] == modelled["arrangement"][2].counters.captures
    assert at.captures_saved["MIN (offline)"] > 0 and at.captures_saved["LRU"] == 0
    assert (at.hits + at.captures + at.eager == at.steps).all()
    second = rp.replay(trace, policy("capture_on_second_use"), MACHINE).counters
    assert second.steps == 600 and second.eager == at.eager["LRU, admit on 2nd"]
    assert set(table.groupby("policy")["keys"].nunique()) == {1}


def test_any_policy_can_be_plugged_in(modelled) -> None:
    class Wrapped:
        name = "wrapped"

        def step(self, slots, rows, drafts):
            return policy("canonical").step(slots, rows, drafts)

    trace = modelled["arrangement"][0]
    got = rp.replay(trace, Wrapped(), MACHINE)
    assert (got.policy, got.cache, got.counters.captures) == ("wrapped", "lru(32)", 3)


def test_a_log_cannot_be_replayed_and_says_so(modelled) -> None:
    with pytest.raises(TraceError, match="does not hold every step.*log_bounds"):
        rp.replay(modelled["arrangement"][1], policy("gated"), MACHINE, 1)


@pytest.mark.parametrize("capacity", [8, 32, 100, 300])
@pytest.mark.parametrize("arm", [n for n in POLICIES if n not in ("gated", "borrow")])
@pytest.mark.parametrize("from_start", [None, True])
def test_bounds_from_the_log_hold_the_truth_from_the_trace(
    modelled, arm, capacity, from_start
) -> None:
    trace, log, _ = modelled["arrangement"]
    truth = rp.replay(trace, policy(arm), MACHINE, capacity)
    row = bounds(log, policy(arm), capacity, MACHINE, from_start=from_start).iloc[0]
    assert row.steps == 600
    assert row.captures_low <= truth.counters.captures <= row.captures_high
    assert row["keys"] >= truth.counters.keys_seen or arm == "exec_update"
    if arm != "exec_update":  # whose updates are not captures
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


def test_what_a_log_can_and_cannot_bound(modelled) -> None:
    log, other = modelled["canonical"][1], modelled["arrangement"][1]
    # Keys that hold no pairing do not need it.
    assert bounds(log, policy("indirect"), from_start=True).iloc[0].captures_high == 3
    assert bounds(log, policy("eager")).iloc[0].captures_high == 0
    row = bounds(other, policy("borrow")).iloc[0]
    assert np.isnan(row.captures_high) and "order of all steps" in row.why
    assert bounds(other, policy("capture_on_second_use"), from_start=True).iloc[0].captures_low == 0


def test_an_engine_log_is_not_written_of_keys_it_has_no_words_for() -> None:
    with pytest.raises(ValueError, match=r"key_policy must .* got 'indirect'"):
        next(engine_log_lines(calibrated(), policy("indirect"), Settings(2), MACHINE))


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


@pytest.mark.parametrize("end", [" borrow=", " CAPTURE=", " eager=", " live_keys="])
@pytest.mark.parametrize("from_start", [None, True])
def test_a_window_cut_off_makes_no_bound_too_narrow(modelled, tmp_path, end, from_start) -> None:
    """The first window lacks a count, and captures of it are unreadable."""
    trace = modelled["arrangement"][0]
    chosen = Settings(8, steps=600, warmup_steps=0, seed=3)
    lines = list(engine_log_lines(calibrated(), policy("arrangement"), chosen, MACHINE))
    at = next(i for i, line in enumerate(lines) if "batched-verify graphs" in line)
    lines[at] = lines[at].split(end)[0]
    lines[:6] = [line.split("key=")[0] for line in lines[:6]]
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    cut = read_engine_log(tmp_path / "a.log")
    for capacity in (8, 32, 100, 300):
        for arm in ("arrangement", "canonical", "indirect", "padded"):
            truth = rp.replay(trace, policy(arm), MACHINE, capacity).counters.captures
            row = bounds(cut, policy(arm), capacity, from_start=from_start).iloc[0]
            assert not row.captures_low > truth and not row.captures_high < truth
            assert "exact" not in row.why


def test_without_windows_an_unreadable_capture_leaves_the_upper_end_open(tmp_path) -> None:
    path = tmp_path / "a.log"
    good = capture_line([0, 1], [4, 4])
    path.write_text(good + "\n" + good[:-30] + "\n")
    row = bounds(read_engine_log(path), policy("canonical")).iloc[0]
    assert np.isnan(row.captures_high) and row.captures_low == 0


def test_nonsense_is_refused(modelled) -> None:
    with pytest.raises(ValueError, match="capacity must be 1 or more"):
        rp.replay(modelled["arrangement"][0], policy("gated"), MACHINE, 0)
    with pytest.raises(ValueError, match="one dimension"):
        reuse_distances([[1]])
    assert len(reuse_distances([])) == 0


def test_a_node_structure_is_told_beyond_16_bits() -> None:
    """Runs of 70,000 and of 70,000 - 2**16 sequences, or of as many rows, are not the same."""
    few, many = 70_000 - 2**16, 70_000
    long = [signature(np.arange(n), np.ones(n, np.int64)) for n in (few, many)]
    deep = [signature(np.arange(2), np.full(2, rows)) for rows in (few, many)]
    assert len({*long, *deep}) == 4
