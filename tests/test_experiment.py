"""The experiment: the compiled loop is the readable step, and both count what they say."""

import functools
import signal
import threading
import time
import tracemalloc
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from verifylab import experiment, fastpath
from verifylab.counters import SCALARS, Counters, times
from verifylab.dcut import DraftLadder
from verifylab.device.model import ModelDevice
from verifylab.experiment import Executed, Settings, grid, nodes_of, run, run_on, steps_of
from verifylab.gate import Gate
from verifylab.graph_cache import Outcome
from verifylab.key import parse_graph_key
from verifylab.keyspace import key_space
from verifylab.machine import StepWork, load_profile
from verifylab.policy import POLICIES, Baked, policy
from verifylab.workload import Workload, calibrated

GB10 = load_profile("gb10-published")
#: How the compiled loop packs what a step's dispatches came to into one number.
WEIGHT = {
    Outcome.HIT: 1,
    Outcome.CAPTURE: 1000,
    Outcome.EAGER: 10**6,
    Outcome.UPDATE: 10**9,
    Outcome.BORROW: 10**12,
}
ALL = tuple(sorted(POLICIES))
#: Where a graph serves any width of its tier, the device's clock replays the width it captured.
WIDTH_IN_KEY = tuple(name for name in ALL if POLICIES[name].baked is not Baked.TIER)
ARMS = [("arrangement", None), ("canonical", None), ("gated", Gate(4))]


def traced(load, name, gate, chosen, profile=GB10):
    """The compiled loop with its trace: what it did in every step, warm-up included."""
    captured = {}
    compiled = fastpath.simulate

    def simulate(*arguments, **options):
        n, total = chosen.width, chosen.steps + chosen.warmup_steps
        traces = (
            np.full((total, n), -1), np.full((total, n), -1), np.full(total, -1),
            np.full(total, -1),
        )  # fmt: skip
        captured["traces"] = traces
        return compiled(*arguments, **options, trace=traces)

    fastpath.simulate = simulate
    try:
        result = run(load, name, gate, profile, chosen)
    finally:
        fastpath.simulate = compiled
    return result, captured["traces"]


def assert_same_counts(fast, slow):
    assert fast.as_dict() == slow.as_dict()
    assert fast.reached.tolist() == slow.reached.tolist()
    assert fast.accepted.tolist() == slow.accepted.tolist()


@st.composite
def cases(draw, names=ALL):
    width = draw(st.integers(1, 12) | st.sampled_from([33, 40]))
    drafts = draw(st.integers(1, 8))
    ladder = draw(
        st.just(((1, drafts),))
        | st.just(((2, drafts), (5, max(1, drafts - 1)), (9, 2)))
        | st.just(((3, 1), (8, drafts)))
    )
    mode = draw(st.sampled_from(["steady", "drain"]))
    met = range(1, width + 1) if mode == "drain" else (width,)
    deepest = max(DraftLadder(ladder).drafts(w) for w in met)
    load = Workload(
        acceptance=draw(st.sampled_from([(0.793, 0.637, 0.608), (0.3,), (0.97, 0.9)])),
        confidence_spread=draw(st.sampled_from([0.0, 0.3, 0.626, 1.0])),
        informativeness=draw(st.sampled_from([1.0, 0.0])),
        sharpness=draw(st.sampled_from([1.0, 2.0])),
        output_tokens=draw(st.sampled_from([1, 2, 3, 7, 25, 256])),
        mode=mode,
        ladder=DraftLadder(ladder),
    )
    chosen = Settings(
        width,
        steps=draw(st.integers(1, 40)),
        warmup_steps=0 if mode == "drain" else draw(st.sampled_from([0, 1, 7])),
        seed=draw(st.integers(0, 2**64 - 1)),
        capacity=draw(st.integers(1, 40)),
        ratio=draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])),
        row_budget=draw(st.integers(deepest + 1, 40) | st.just(96)),
        max_width=draw(st.sampled_from([32, 5, 1])),
        width_cap=draw(st.sampled_from([8, 0, 40])),
    )
    name = draw(st.sampled_from(names))
    gate = Gate(draw(st.integers(0, 41)), draw(st.booleans())) if name == "gated" else None
    return load, name, gate, chosen


#: Once, the hash of a two-sequence chunk that begins with slot 0 at 2 rows met that of a single.
COLLIDED = (
    calibrated(output_tokens=25, mode="drain", ladder=DraftLadder(((1, 6),))),
    "arrangement",
    None,
    Settings(3, steps=4, warmup_steps=0, seed=3, capacity=1, ratio=0.0, row_budget=10),
)


@settings(max_examples=250)
@example(COLLIDED)
@given(cases())
def test_the_compiled_loop_is_the_readable_step(case):
    """Step by step: order, assigned depths, cache outcomes, tokens; then every counter."""
    load, name, gate, chosen = case
    steps = []
    slow = run(load, name, gate, GB10, chosen, path="readable", observe=steps.append)
    fast, (order, depths, outcome, tokens) = traced(load, name, gate, chosen)
    for step in steps:
        n = len(step.order)
        t = step.index
        assert order[t, :n].tolist() == step.order.tolist()
        assert depths[t, :n].tolist() == step.depths.tolist()
        assert (order[t, n:] == -1).all() and (depths[t, n:] == -1).all()
        assert outcome[t] == sum(WEIGHT[done.outcome] for done in step.outcomes)
        assert tokens[t] == step.emitted.sum()
    assert (tokens[len(steps) :] == -1).all()  # a drain that is empty stops
    assert_same_counts(fast.counters, slow.counters)
    assert fast.times == slow.times
    assert (fast.policy, fast.measured, fast.device) == (slow.policy, False, "model")


@pytest.mark.parametrize("name", ["arrangement", "canonical"])
@pytest.mark.parametrize("mode", ["steady", "drain"])
def test_a_long_run_with_many_evictions_is_the_same(name, mode):
    load = calibrated(mode=mode, output_tokens=600 if mode == "drain" else 40)
    chosen = Settings(8, steps=1500, warmup_steps=0 if mode == "drain" else 100, capacity=6)
    fast = run(load, name, None, GB10, chosen)
    slow = run(load, name, None, GB10, chosen, path="readable")
    assert_same_counts(fast.counters, slow.counters)
    if mode == "drain":
        assert fast.counters.finished_requests == 8
        assert fast.counters.tokens == 8 * 600
        assert fast.counters.steps < 1500
    assert fast.counters.evictions > 0 or name == "canonical"


@pytest.mark.parametrize("name", ["arrangement", "canonical"])
@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.75])
def test_ties_between_confidences_go_the_same_way(name, spread, ratio):
    """At spread 0 every draft of a depth scores alike, at 1 all that will be refused do."""
    load = calibrated(confidence_spread=spread, ladder=DraftLadder(((1, 5),)))
    chosen = Settings(6, steps=100, warmup_steps=0, ratio=ratio)
    steps = []
    slow = run(load, name, None, GB10, chosen, path="readable", observe=steps.append)
    fast, (order, depths, _, tokens) = traced(load, name, None, chosen)
    assert order.tolist() == [s.order.tolist() for s in steps]
    assert depths.tolist() == [s.depths.tolist() for s in steps]
    assert tokens.tolist() == [s.emitted.sum() for s in steps]
    assert_same_counts(fast.counters, slow.counters)


# --- the readable step ---------------------------------------------------------------------


@settings(max_examples=60)
@given(cases(("arrangement", "canonical", "gated")))
def test_a_step_keeps_its_promises(case):
    load, name, gate, chosen = case
    last = {}

    def check(step):
        n = len(step.order)
        drafts, keep = chosen.drafts_and_keep(load, n)
        assert len(set(step.slots.tolist())) == n  # no two sequences share a slot
        assert step.slots.max() < (chosen.width if load.mode == "steady" else n)  # compacted
        assert sorted(step.depths) == sorted(step.retained + 1)
        if keep >= 0:
            assert step.retained.sum() == n + keep
        assert 1 <= step.emitted.min() and step.emitted.max() <= drafts + 1
        verified = np.empty(n, int)
        verified[step.order] = step.depths - 1
        assert (step.emitted <= np.minimum(step.prefix, verified) + 1).all()
        for chunk in step.dispatches:
            pairs, _ = parse_graph_key(chunk.key)
            assert [p for p, _ in pairs] == step.slots[step.order][
                chunk.start : chunk.stop
            ].tolist()
            assert [d for _, d in pairs] == step.depths[chunk.start : chunk.stop].tolist()
        last["step"] = step

    counters = run(load, name, gate, GB10, chosen, path="readable", observe=check).counters
    assert counters.hits + counters.captures == counters.dispatches
    assert counters.steps <= counters.dispatches
    assert counters.captures - counters.evictions <= chosen.capacity
    if not chosen.warmup_steps:
        assert counters.nodes_captured - counters.nodes_evicted >= 0
        assert counters.keys_seen <= counters.captures
    assert counters.nodes_launched == (
        GB10.gdn_layers * counters.layer_launches + GB10.other_nodes * counters.dispatches
    )
    assert (counters.accepted <= counters.reached).all()


@pytest.mark.parametrize(("name", "gate"), ARMS)
def test_the_lru_of_the_compiled_loop_against_an_ordered_dict(name, gate):
    """Keys come from the trace, the cache is three lines: outcomes and evictions must agree."""
    for capacity in (1, 2, 3, 10, 32):
        chosen = Settings(6, steps=3000, warmup_steps=0, capacity=capacity, seed=capacity)
        fast, (order, depths, outcome, _) = traced(calibrated(), name, gate, chosen)
        kept = OrderedDict()
        evictions = hits = 0
        for t in range(chosen.steps):
            key = (tuple(order[t]), tuple(depths[t]))  # steady: slot i is input i
            hit = key in kept
            hits += hit
            kept[key] = None
            kept.move_to_end(key)
            if len(kept) > capacity:
                kept.popitem(last=False)
                evictions += 1
            assert outcome[t] == (1 if hit else 1000)
        assert (fast.counters.hits, fast.counters.evictions) == (hits, evictions)
        assert fast.counters.keys_seen == len(
            {(*o, *d) for o, d in zip(order, depths, strict=True)}
        )


# --- common random numbers -----------------------------------------------------------------


def test_both_arms_meet_the_same_drafts():
    """As long as a request is at the same token, its confidences and prefix are the same."""
    met = {}

    def hit(dispatch, slots):
        return Executed(Outcome.HIT, 0)

    for name in experiment.ARMS:
        chosen = Settings(8, steps=400, warmup_steps=0)
        at = np.zeros(8, int)
        request = np.arange(8)
        for step in steps_of(calibrated(), policy(name), chosen, hit):
            for i in range(8):
                token = (int(request[i]), int(at[i]))
                seen = (step.log_confidences[i].tobytes(), int(step.prefix[i]))
                assert met.setdefault(token, seen) == seen
            at += step.emitted
            done = at >= 256
            request[done] += 8
            at[done] = 0
    assert len(met) < 1.7 * 400 * 8  # they did meet


def test_seeds_differ_and_a_seed_repeats():
    chosen = Settings(8, steps=500)
    first = run(calibrated(), "arrangement", None, GB10, chosen).counters
    assert_same_counts(run(calibrated(), "arrangement", None, GB10, chosen).counters, first)
    other = run(calibrated(), "arrangement", None, GB10, replace(chosen, seed=1)).counters
    assert other.tokens != first.tokens or other.captures != first.captures


@pytest.mark.parametrize("name", ["arrangement", "indirect", "exec_update", "borrow"])
@pytest.mark.parametrize(("mode", "steps", "warmup"), [("steady", 230, 50), ("drain", 9999, 0)])
@pytest.mark.parametrize("each", [1, 7, 50])
def test_a_run_in_slices_counts_the_same(monkeypatch, name, mode, steps, warmup, each):
    load = calibrated(mode=mode, output_tokens=60)
    chosen = Settings(6, steps=steps, warmup_steps=warmup, capacity=9, ratio=0.5)
    whole = run(load, name, None, GB10, chosen).counters
    monkeypatch.setattr(
        fastpath, "simulate", functools.partial(fastpath.simulate, slice_steps=each)
    )
    assert_same_counts(run(load, name, None, GB10, chosen).counters, whole)


@pytest.fixture
def interrupts():
    """Ctrl-C as a terminal has it: a shell's background job starts with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_after(seconds):
    """Ctrl-C, at the thread that waits."""
    main = threading.main_thread().ident
    threading.Timer(seconds, signal.pthread_kill, [main, signal.SIGINT]).start()


def test_an_interrupt_ends_a_long_run_soon(interrupts):
    chosen = Settings(8, steps=10**12)
    run(calibrated(), "arrangement", None, GB10, Settings(8, steps=10))  # compiled
    interrupt_after(0.5)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(calibrated(), "arrangement", None, GB10, chosen)
    assert time.monotonic() - started < 5


def test_an_interrupt_ends_a_grid_and_its_threads(interrupts):
    # The first cell, a drain of few steps, ends by itself; the threads then run the others.
    chosen = Settings(8, steps=10**12, warmup_steps=0)
    arms = [("arrangement", None), ("canonical", None)]
    running = threading.active_count()

    def halted(*arguments, halt, **options):
        if arguments[1] == 1:
            return real(*arguments[:2], 10, *arguments[3:], halt=halt, **options)
        return real(*arguments, halt=halt, **options)

    # The loop is loaded or compiled before the clock runs.
    grid(calibrated(), [1], GB10, Settings(1, steps=10), seeds=[0], arms=arms)
    real, fastpath.simulate = fastpath.simulate, halted
    try:
        interrupt_after(0.7)
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            grid(calibrated(), [1, 8], GB10, chosen, seeds=range(5), arms=arms, jobs=2)
    finally:
        fastpath.simulate = real
    assert time.monotonic() - started < 5
    assert threading.active_count() == running


def test_one_failed_cell_ends_the_others():
    real = fastpath.simulate

    def failing(*arguments, **options):
        if int(arguments[0]) == 1:
            raise MemoryError
        steps = 10 if int(arguments[0]) == 0 else 10**12
        return real(*arguments[:2], steps, *arguments[3:], **options)

    fastpath.simulate = failing
    try:
        with pytest.raises(MemoryError):
            grid(calibrated(), [4], GB10, Settings(4), seeds=range(4), arms=ARMS[:1], jobs=3)
    finally:
        fastpath.simulate = real


def test_threads_do_not_change_a_grid():
    one, many = (
        grid(
            calibrated(), [2, 5, 8], GB10, Settings(1, steps=200), seeds=range(4), arms=ARMS,
            spreads=(0.3, 0.6), jobs=jobs,
        )
        for jobs in (1, 7)
    )  # fmt: skip
    assert one.equals(many)
    assert list(one.columns) == ["width", "policy", "min_width", "spread", "seed", *SCALARS]
    assert len(one) == 3 * 3 * 2 * 4
    assert set(one[one.policy == "gated"].min_width) == {4}
    assert set(one[one.policy != "gated"].min_width) == {-1}
    row = one[(one.width == 5) & (one.policy == "gated") & (one.spread == 0.3) & (one.seed == 2)]
    alone = run(
        calibrated(confidence_spread=0.3), "gated", Gate(4), GB10, Settings(5, steps=200, seed=2)
    ).counters
    assert row.iloc[0][list(SCALARS)].to_dict() == alone.as_dict()


def test_widths_and_arms_may_be_any_iterable_too():
    spreads = [0.3, 0.6]
    listed = grid(
        calibrated(), [2, 4], GB10, Settings(2, 20), seeds=[0], arms=ARMS, spreads=spreads
    )
    lazy = grid(
        calibrated(), iter([2, 4]), GB10, Settings(2, 20), seeds=iter([0]), arms=iter(ARMS),
        spreads=iter(spreads),
    )  # fmt: skip
    pd.testing.assert_frame_equal(lazy, listed)


def test_seeds_may_be_any_iterable():
    chosen = Settings(1, steps=20)
    once = grid(calibrated(), [2, 4], GB10, chosen, seeds=iter([3, 5]))
    assert once.equals(grid(calibrated(), [2, 4], GB10, chosen, seeds=[3, 5]))
    assert len(once) == 2 * 2 * 2


@pytest.mark.parametrize("width", [16, 17, 32, 33, 64, 128])
def test_from_sixteen_up_the_arms_are_bit_equal(width):
    """D-Cut is off above width 8: every depth is the same, so there is nothing to assign."""
    a, b = (
        run(calibrated(), name, None, GB10, Settings(width, steps=300, warmup_steps=20))
        for name in experiment.ARMS
    )
    assert_same_counts(a.counters, b.counters)
    assert a.times == b.times


def test_a_gate_is_one_arm_or_the_other_when_the_width_stays():
    for width in (4, 8):
        chosen = Settings(width, steps=300)
        arms = {n: run(calibrated(), n, None, GB10, chosen).counters for n in experiment.ARMS}
        for gate in (Gate(8), Gate(4), Gate(0), Gate(9), Gate(0, enabled=False)):
            gated = run(calibrated(), "gated", gate, GB10, chosen).counters
            expected = "canonical" if gate.canonical(width) else "arrangement"
            assert_same_counts(gated, arms[expected])


# --- times ---------------------------------------------------------------------------------


@settings(max_examples=40)
@given(cases(WIDTH_IN_KEY))
def test_times_from_counters_are_the_virtual_clock(case):
    load, name, gate, chosen = case
    device = ModelDevice(GB10)
    key_policy = policy(name, gate, row_budget=chosen.row_budget, max_width=chosen.max_width)
    clock = {}

    count = nodes_of(key_policy.rules, GB10.gdn_layers, GB10.other_nodes)

    def body(dispatch):
        graph, loose, pieces = count(dispatch)
        return device.body(StepWork(dispatch.width, dispatch.rows, graph, pieces, loose))

    def observe(step):
        clock[step.index] = device.clock()

    result = run_on(
        device, load, key_policy, chosen, body, gdn_layers=GB10.gdn_layers,
        other_nodes=GB10.other_nodes, observe=observe,
    )  # fmt: skip
    started = clock.get(chosen.warmup_steps - 1, 0.0)
    counted = clock[max(clock)] - started
    if result.counters.steps:
        assert result.times.total_ms == pytest.approx(counted, rel=1e-9)


def test_a_device_serves_one_run_after_another():
    """Nothing is left behind: no graph, no wrapped method, no timing of the run before."""
    device = ModelDevice(GB10)
    live = []
    capture, destroy = device.capture, device.destroy
    device.capture = lambda body: (live.append(1), capture(body))[1]
    device.destroy = lambda graph: (live.pop(), destroy(graph))[1]
    kept = device.destroy

    def body(dispatch):
        return device.body(StepWork(dispatch.width, dispatch.rows, 100))

    counts = []
    for _ in range(2):
        result = run_on(
            device, calibrated(), policy("arrangement"), Settings(8, 200, 0), body,
            gdn_layers=1, other_nodes=0,
        )  # fmt: skip
        counts.append(result.counters.as_dict())
        assert live == []
        assert device.destroy is kept
    assert counts[0] == counts[1]

    def broken(dispatch):
        raise RuntimeError("mine") if device.clock() > 0 else RuntimeError("at once")

    with pytest.raises(RuntimeError):
        run_on(
            device, calibrated(), policy("arrangement"), Settings(8, 5, 0), broken,
            gdn_layers=1, other_nodes=0,
        )  # fmt: skip
    assert live == [] and device.destroy is kept


def test_tok_s_and_step_ms_are_tokens_and_time():
    result = run(calibrated(), "canonical", None, GB10, Settings(8, steps=100))
    assert result.tok_s == pytest.approx(
        result.counters.tokens / (times(result.counters, GB10).total_ms / 1e3)
    )
    assert result.step_ms == pytest.approx(result.times.total_ms / 100)
    assert not result.measured


# --- what must come out of it by itself ----------------------------------------------------


def test_keys_met_lie_in_the_key_space_and_canonical_has_few():
    for width in (2, 4, 8):
        space = key_space(width, 3)
        chosen = Settings(width, steps=20_000)
        a = run(calibrated(), "arrangement", None, GB10, chosen).counters
        b = run(calibrated(), "canonical", None, GB10, chosen).counters
        assert a.keys_seen == space.arrangement_keys
        assert b.keys_seen == space.canonical_keys
        assert not a.keys_overflow


def test_a_drain_meets_only_keys_of_its_widths():
    chosen = Settings(8, steps=10**6, warmup_steps=0)
    load = calibrated(mode="drain", output_tokens=20_000)
    for name, keys in (("arrangement", "arrangement_keys"), ("canonical", "canonical_keys")):
        counters = run(load, name, None, GB10, chosen).counters
        reachable = sum(getattr(key_space(w, 3), keys) for w in range(1, 9))
        assert reachable / 2 < counters.keys_seen <= reachable


def test_the_bigger_the_cache_the_fewer_captures():
    captures = [
        run(calibrated(), "arrangement", None, GB10, Settings(8, capacity=c)).counters.captures
        for c in (1, 8, 32, 128, 266, 1000)
    ]
    assert captures == sorted(captures, reverse=True)
    assert captures[0] > 10 * captures[-2]
    assert captures[-1] == captures[-2]  # all 266 keys fit


def test_keys_beyond_the_limit_are_a_lower_bound_and_say_so():
    """12 sequences of 8 drafts under D-Cut: nearly every dispatch has a key of its own."""
    load = calibrated(ladder=DraftLadder(((1, 8),)))
    settings_ = Settings(12, steps=fastpath.SEEN_LIMIT + 3000, ratio=0.5, width_cap=12)
    counters = run(load, "arrangement", None, GB10, settings_).counters
    assert counters.keys_overflow == 1
    assert counters.keys_seen == fastpath.SEEN_LIMIT
    fewer = run(load, "arrangement", None, GB10, replace(settings_, steps=2000)).counters
    assert not fewer.keys_overflow
    assert fewer.keys_seen > 2000


def test_memory_does_not_grow_with_steps():
    load = calibrated()
    run(load, "arrangement", None, GB10, Settings(8, steps=10))

    def peak(steps):
        tracemalloc.start()
        try:
            run(load, "arrangement", None, GB10, Settings(8, steps=steps))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small, large = peak(2_000), peak(200_000)
    assert large < 1.1 * small + 10_000


# --- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("width", 0, "width must be from 1 to 1024, got 0"),
        ("width", 1025, "width must be from 1 to 1024, got 1025"),
        ("width", True, "width must be a whole number, got True"),
        ("width", 8.0, "width must be a whole number, got 8.0"),
        ("width", "8", "width must be a whole number, got '8'"),
        ("steps", 0, "steps must be from 1"),
        ("warmup_steps", -1, "warmup_steps must be from 0"),
        ("seed", -1, "seed must be from 0"),
        ("seed", 2**64, "seed must be from 0"),
        ("capacity", 0, "capacity must be from 1 to 65536, got 0"),
        ("ratio", 1.5, "ratio must be from 0 to 1, got 1.5"),
        ("ratio", float("nan"), "ratio must be from 0 to 1, got nan"),
        ("row_budget", 1, "row_budget must be from 2"),
        ("max_width", 0, "max_width must be from 1"),
        ("width_cap", -1, "width_cap must be from 0"),
    ],
)
def test_each_setting_is_checked_by_name(field, value, message):
    with pytest.raises(ValueError, match=message):
        Settings(**{"width": 8, field: value})


def test_numpy_integers_are_whole_numbers():
    chosen = Settings(np.int64(4), steps=np.int32(50), seed=np.uint64(2**64 - 1))
    plain = Settings(4, steps=50, seed=2**64 - 1)
    for path in ("fast", "readable"):
        a, b = (run(calibrated(), "arrangement", None, GB10, s, path=path) for s in (chosen, plain))
        assert_same_counts(a.counters, b.counters)


def test_what_cannot_run_is_refused_in_both_paths():
    for path in ("fast", "readable"):
        with pytest.raises(ValueError, match="warmup_steps must be 0 in mode 'drain'"):
            run(calibrated(mode="drain"), "canonical", None, GB10, Settings(8), path=path)
        with pytest.raises(ValueError, match="row_budget must hold one sequence of 4 rows, got 3"):
            run(calibrated(), "canonical", None, GB10, Settings(8, row_budget=3), path=path)
        with pytest.raises(ValueError, match="policy must be one of"):
            run(calibrated(), "other", None, GB10, Settings(8), path=path)
    # Two rows are enough while the width stays at 16; a drain comes to widths of four rows.
    narrow = Settings(16, steps=20, warmup_steps=0, row_budget=2)
    a, b = (run(calibrated(), "gated", None, GB10, narrow, path=p) for p in ("fast", "readable"))
    assert_same_counts(a.counters, b.counters)
    for path in ("fast", "readable"):
        with pytest.raises(ValueError, match="row_budget must hold one sequence of 4 rows, got 2"):
            run(calibrated(mode="drain"), "gated", None, GB10, narrow, path=path)
    with pytest.raises(ValueError, match="path must be 'fast' or 'readable', got 'quick'"):
        run(calibrated(), "canonical", None, GB10, Settings(8), path="quick")


def test_counters_of_nothing():
    empty = Counters()
    assert empty.tokens_per_sequence_step == empty.capture_fraction == empty.launches_per_layer == 0
    assert np.isnan(empty.acceptance()).all()
    assert list(empty.as_dict()) == list(SCALARS)
