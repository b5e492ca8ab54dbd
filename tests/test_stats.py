"""Paired differences: the parts add up to the whole, intervals are SciPy's, pairs are pairs."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from verifylab.experiment import Settings, grid
from verifylab.machine import load_profile
from verifylab.stats import PARTS, interval, log_mean, paired, split, with_times
from verifylab.workload import calibrated

GB10 = load_profile("gb10-published")
POSITIVE = st.floats(1e-6, 1e12)
PART = st.just(0.0) | st.floats(1e-9, 1e12)


@pytest.fixture(scope="module")
def runs():
    settings = Settings(1, steps=300, warmup_steps=50)
    return grid(calibrated(), [2, 8, 16], GB10, settings, seeds=range(5), spreads=(0.4, 0.7))


# --- the logarithmic mean ------------------------------------------------------------------


@given(POSITIVE, POSITIVE)
def test_the_logarithmic_mean_lies_between_and_is_symmetric(a, b):
    mean = float(log_mean(a, b))
    assert mean == pytest.approx(float(log_mean(b, a)), rel=1e-8)
    assert min(a, b) * (1 - 1e-8) <= mean <= max(a, b) * (1 + 1e-8)
    assert mean >= np.sqrt(a) * np.sqrt(b) * (1 - 1e-8)  # geometric <= logarithmic <= arithmetic
    assert mean <= (a + b) / 2 * (1 + 1e-8)


@given(POSITIVE, st.floats(-1e-3, 1e-3))
def test_near_equality_it_keeps_its_digits(a, step):
    b = a * (1 + step)
    exact = a * (1 + step / 2 - step**2 / 12 + step**3 / 24)
    assert float(log_mean(a, b)) == pytest.approx(exact, rel=1e-9)
    assert float(log_mean(a, a)) == a


def test_it_takes_arrays():
    assert log_mean([1.0, 2.0], [1.0, 4.0]) == pytest.approx([1.0, 2 / np.log(2)])


# --- the split -----------------------------------------------------------------------------


@st.composite
def differences(draw):
    tokens = (draw(POSITIVE), draw(POSITIVE))
    parts = {name: (draw(PART), draw(PART)) for name in ("captures", "launches")}
    parts["work"] = (draw(POSITIVE), draw(POSITIVE))
    return tokens, parts


@given(differences())
def test_the_parts_add_up_to_the_whole(case):
    tokens, parts_ms = case
    delta, parts = split(tokens, parts_ms)
    base = tokens[0] / sum(b for b, _ in parts_ms.values())
    other = tokens[1] / sum(o for _, o in parts_ms.values())
    assert float(delta) == pytest.approx(100 * (other / base - 1), rel=1e-9, abs=1e-9)
    size = sum(abs(float(p)) for p in parts.values())
    assert sum(map(float, parts.values())) == pytest.approx(float(delta), abs=1e-8 * (size + 1e-6))
    assert list(parts) == list(PARTS)


@given(differences())
def test_each_part_has_the_sign_of_its_cause(case):
    tokens, parts_ms = case
    _, parts = split(tokens, parts_ms)
    assert np.sign(parts["tokens"]) == np.sign(np.log(tokens[1] / tokens[0]))
    for name, (b, o) in parts_ms.items():
        assert np.sign(parts[name]) == np.sign(b - o)


@given(differences())
def test_a_cause_that_does_not_differ_has_no_part(case):
    tokens, parts_ms = case
    delta, parts = split((tokens[0],) * 2, {n: (b, b) for n, (b, _) in parts_ms.items()})
    assert float(delta) == 0.0
    assert all(float(p) == 0.0 for p in parts.values())
    _, parts = split(tokens, parts_ms | {"launches": (5.0, 5.0)})
    assert float(parts["launches"]) == 0.0


def test_small_differences_are_shared_in_proportion():
    _, parts = split((1000, 1001), {"captures": (10, 9), "launches": (20, 20), "work": (70, 71)})
    assert parts["tokens"] == pytest.approx(0.1, rel=0.01)
    assert parts["captures"] == pytest.approx(1.0, rel=0.01)
    assert parts["work"] == pytest.approx(-1.0, rel=0.01)


# --- intervals -----------------------------------------------------------------------------


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.sampled_from([0.5, 0.95, 0.99]))
def test_the_interval_is_scipy_s(values, confidence):
    mean, low, high = interval(np.array(values), confidence)
    assert mean == pytest.approx(np.mean(values))
    error = scipy_stats.sem(values)
    if error > 1e-9 * (1 + abs(mean)):
        expected = scipy_stats.t.interval(confidence, len(values) - 1, mean, error)
        assert (low, high) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert low <= mean <= high


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(4)
    covered = [
        low <= 3.0 <= high for _, low, high in (interval(rng.normal(3, 2, 5)) for _ in range(2000))
    ]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_one_value_has_no_interval():
    mean, low, high = interval(np.array([7]))
    assert mean == 7.0 and np.isnan(low) and np.isnan(high)


def test_equal_values_have_a_point():
    assert interval(np.zeros(5)) == (0.0, 0.0, 0.0)


# --- paired runs ---------------------------------------------------------------------------


def test_with_times_adds_columns_and_keeps_the_rest(runs):
    timed = with_times(runs, GB10)
    assert timed[runs.columns].equals(runs)
    assert "total_ms" not in runs
    parts = timed.work_ms + timed.launches_ms + timed.captures_ms
    assert parts.to_numpy() == pytest.approx(timed.total_ms.to_numpy())
    assert (timed.tok_s * timed.total_ms / 1e3).to_numpy() == pytest.approx(runs.tokens.to_numpy())
    assert (timed.step_ms * timed.steps).to_numpy() == pytest.approx(timed.total_ms.to_numpy())


def test_paired_has_a_row_a_width_and_spread_whose_parts_add_up(runs):
    table = paired(runs, GB10)
    assert list(zip(table.width, table.spread, strict=True)) == [
        (w, s) for w in (2, 8, 16) for s in (0.4, 0.7)
    ]
    assert (table.n == 5).all()
    total = sum(table[f"{part}_pct"] for part in PARTS)
    assert total.to_numpy() == pytest.approx(table.delta_pct.to_numpy(), abs=1e-9)
    for name in ("delta", *PARTS):
        assert (table[f"{name}_low"] <= table[f"{name}_pct"] + 1e-12).all()
        assert (table[f"{name}_pct"] <= table[f"{name}_high"] + 1e-12).all()
    timed = with_times(runs, GB10)
    cell = timed[(timed.width == 8) & (timed.spread == 0.7)].pivot(
        index="seed", columns="policy", values="tok_s"
    )
    expected = interval((100 * (cell.canonical / cell.arrangement - 1)).to_numpy())
    row = table[(table.width == 8) & (table.spread == 0.7)].iloc[0]
    assert (row.delta_pct, row.delta_low, row.delta_high) == pytest.approx(expected)


def test_in_steady_state_the_work_is_the_same_and_sixteen_is_all_zeros(runs):
    table = paired(runs, GB10)
    assert (table.work_pct == 0).all()
    nothing = table[table.width == 16].drop(columns=["width", "spread", "n"])
    assert (nothing == 0).all(axis=None)


def test_paired_does_not_care_about_the_order_of_rows(runs):
    shuffled = runs.sample(frac=1, random_state=3)
    pd.testing.assert_frame_equal(paired(shuffled, GB10), paired(runs, GB10))


def test_an_arm_against_itself_is_nothing(runs):
    same = paired(runs, GB10, base="canonical", other="canonical")
    assert (same.drop(columns=["width", "spread", "n"]) == 0).all(axis=None)


def test_different_seeds_are_refused(runs):
    missing = runs[~((runs.policy == "canonical") & (runs.width == 8) & (runs.seed == 3))]
    message = "width 8: arrangement and canonical must have run on the same seeds"
    with pytest.raises(ValueError, match=message):
        paired(missing, GB10)
    moved = runs.assign(seed=runs.seed + (runs.policy == "canonical"))
    with pytest.raises(ValueError, match="must have run on the same seeds"):
        paired(moved, GB10)


def test_a_missing_arm_is_refused(runs):
    for name in ("arrangement", "canonical"):
        with pytest.raises(ValueError, match="must have run on the same seeds"):
            paired(runs[runs.policy == name], GB10)


def test_a_seed_that_comes_twice_is_refused(runs):
    with pytest.raises(ValueError, match="width 2: .*must have run on each seed once"):
        paired(pd.concat([runs, runs]), GB10)
