"""The width-gate study on a real clock: same counts as the model's, times of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from devices import KINDS, make_device

from verifylab import plots
from verifylab.counters import SCALARS
from verifylab.device.arm import ArmDevice
from verifylab.device.base import DeviceError
from verifylab.device.host import HostDevice
from verifylab.experiment import grid
from verifylab.measured import BLOCK, measure
from verifylab.recommend import NEVER, recommend_measured
from verifylab.verify_shape import SHAPES
from verifylab.width_gate import Config, WidthGate, width_gate

# Steps are no multiple of BLOCK, so that arms end inside one.
CONFIG = Config(
    widths=[2, 4], min_widths=[0, 3, 4, 9], seeds=2, steps=BLOCK + 7, warmup_steps=10,
    graph_capacity=3, output_tokens=12, device="host", shape="tiny",
)  # fmt: skip


@pytest.fixture(scope="module")
def result() -> WidthGate:
    return width_gate(CONFIG)


def modelled(config: Config, arms) -> pd.DataFrame:
    """The model's counts for a machine with the layers of the step that was measured."""
    shape = SHAPES[config.shape]
    other = shape.layers if config.weight_bytes else 0
    profile = replace(config.profile(), gdn_layers=shape.layers, other_nodes=other)
    return pd.concat(
        grid(
            config.workload(), [width], profile, config.settings(width),
            seeds=range(config.seeds), arms=arms, jobs=1,
        )
        for width in config.widths
    )  # fmt: skip


def assert_counts(measured: pd.DataFrame, expected: pd.DataFrame, by: list[str]) -> None:
    a, b = (frame.set_index(by).sort_index()[list(SCALARS)] for frame in (measured, expected))
    pd.testing.assert_frame_equal(a, b)


@pytest.mark.parametrize(
    "changes", [{}, {"weight_bytes": 100}, {"warmup_steps": 0}, {"mode": "drain"}], ids=str
)
def test_counts_are_those_of_the_model(changes):
    config = replace(CONFIG, **changes)
    arms = measure(config, "host").arms
    expected = modelled(config, [("arrangement", None), ("canonical", None)])
    assert_counts(arms, expected, ["width", "policy", "seed"])
    assert arms.captures.sum() > 0 and arms.evictions.sum() > 0


def test_in_a_drain_every_threshold_is_a_run_of_its_own():
    from verifylab.gate import Gate

    config = replace(CONFIG, mode="drain")
    runs = measure(config, "host").runs
    gated = runs[runs.min_width != NEVER]
    expected = modelled(config, [("gated", Gate(m)) for m in config.min_widths])
    assert_counts(gated, expected, ["width", "min_width", "seed"])
    # At width 4, threshold 3 is canonical for a while, 9 never: the same times as the base.
    at = runs[runs.width == 4].groupby("min_width").total_ms.sum()
    assert at[9] == at[NEVER] != at[3] and at[0] != at[3]


def test_more_memory_than_there_is_is_a_sentence(monkeypatch):
    zeros = np.zeros

    def small(shape, dtype=float):
        if np.prod(shape, dtype=float) > 2**28:
            raise MemoryError
        return zeros(shape, dtype)

    monkeypatch.setattr(np, "zeros", small)
    with pytest.raises(DeviceError, match="allocating 512.00 GiB: the host has not that much"):
        measure(replace(CONFIG, weight_bytes=2**40), "host")


def test_the_turns_taken_do_not_change_the_counts():
    one, two = (measure(CONFIG, "host", order_seed=seed).arms for seed in (1, 2))
    assert_counts(one, two, ["width", "policy", "seed"])


@pytest.mark.parametrize("kind", KINDS[2:])
def test_the_events_and_the_wait_of_a_gpu(kind):
    device = make_device(kind)
    measured = measure(CONFIG, device)
    assert measured.machine == device.describe()["gpu"] and "CuPy" in measured.ran
    expected = modelled(CONFIG, [("arrangement", None), ("canonical", None)])
    assert_counts(measured.arms, expected, ["width", "policy", "seed"])
    assert device.live_graphs == 0


def test_times_are_parts_of_the_clock(result):
    measured = measure(CONFIG, "host")
    for frame in (measured.runs, measured.arms):
        parts = frame.work_ms + frame.captures_ms + frame.launches_ms
        np.testing.assert_allclose(parts, frame.total_ms)
        assert (frame.device_ms > 0).all() and (frame.device_ms < frame.total_ms).all()
        assert (frame.captures_ms[frame.captures > 0] > 0).all()
        assert (frame.tok_s == frame.tokens / frame.total_ms * 1e3).all()
    assert set(measured.runs.min_width) == {NEVER, *CONFIG.min_widths}


def test_the_study_has_the_columns_of_a_modelled_one(result):
    model = width_gate(replace(CONFIG, device="model"))
    for name in ("gates", "arms", "differences"):
        mine, theirs = getattr(result, name), getattr(model, name)
        if name == "arms":  # D-Cut off is a third arm of the model alone
            theirs = theirs[theirs.policy != "unpruned"]
        assert list(mine.columns) == list(theirs.columns) and len(mine) == len(theirs)
        assert set(mine.time) == {"measured"} and set(theirs.time) == {"modelled"}
        assert set(mine.machine) == {"host CPU"}
    exact = ["width", "min_width", "canonical", "reachable_keys", "keys_seen", "tokens_per_step"]
    pd.testing.assert_frame_equal(result.gates[exact], model.gates[exact])
    assert "Measured on host CPU" in result.provenance and "'tiny'" in result.provenance
    assert "gb10" not in result.summary()


def test_figures_say_measured(result):
    figure = plots.width_gate_figure(result)
    words = [t.get_text() for ax in figure.axes for t in ax.texts]
    assert sum(text.startswith("measured on host CPU | ") for text in words) == 4
    shown = [ax.get_title(loc="left") for ax in figure.axes]
    assert "How sure within what is redrawn: seeds" in shown
    assert "modelled" not in " ".join([*words, *shown, figure.get_suptitle()])
    assert "measured)" in figure.get_suptitle()


def test_a_stopwatch_stands_still_between_dispatches():
    device = HostDevice()
    now = [0.0]
    device.clock = lambda: now[0]

    def body(on) -> None:
        now[0] += 5.0

    one, two = ArmDevice(device), ArmDevice(device)
    graph = one.capture(body)
    assert one.clock() == 0.0, "the dispatch ends with its launch"
    one.launch(graph)
    assert one.clock() == 5.0
    now[0] += 1000.0  # the experiment's own time
    one.run(body)
    assert one.clock() == 10.0 and one.device_ms == 5.0
    two.run(body)
    assert two.clock() == 5.0 and one.clock() == 10.0
    assert one.timings.total_ms["record"] == 5.0 and one.timings.count["eager"] == 1
    assert two.timings.count["eager"] == 1 and two.timings.count["record"] == 0


def test_the_recommendation_comes_from_the_measured_seeds():
    rng = np.random.default_rng(0)
    rows = [
        {"width": 8, "min_width": m, "seed": s, "tokens": 100.0,
         "total_ms": (10.0 if m in (NEVER, 9) else 9.0) * noise}
        for s, noise in enumerate(1 + 0.2 * rng.random(6)) for m in (NEVER, 0, 8, 9)
    ]  # fmt: skip
    runs = pd.DataFrame(rows)
    found = recommend_measured(runs)
    assert (found.min_width, found.same_as, found.probability) == (8, (0, 8), 1.0)
    # The noise is shared by the arms of a seed: pairing takes it out.
    assert found.gain_pct == pytest.approx(100 / 9) and found.gain_low == pytest.approx(100 / 9)
    assert found.table.probability.tolist() == [1.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="every width, threshold and seed"):
        recommend_measured(runs.iloc[1:])
    with pytest.raises(ValueError, match="must hold the base"):
        recommend_measured(runs[runs.min_width != NEVER])


def test_a_mistake_is_named():
    with pytest.raises(ValueError, match="drafts must be at most 7 .* got 8"):
        measure(replace(CONFIG, drafts=8), "host")
    with pytest.raises(ValueError, match="shape must be one of .* got 'huge'"):
        replace(CONFIG, shape="huge")
    with pytest.raises(ValueError, match="weight_bytes must be from 0"):
        replace(CONFIG, weight_bytes=-1)
