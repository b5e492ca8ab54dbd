import numpy as np
import pytest

from verifylab.cost_fit import Coefficient, fit_costs


def test_an_exact_line_is_found_with_no_width():
    nodes = np.array([10, 100, 1000, 10_000.0])
    base, slope = fit_costs(np.column_stack([np.ones(4), nodes]), 3.0 + 0.25 * nodes)
    assert base.value == pytest.approx(3.0) and slope.value == pytest.approx(0.25)
    assert slope.high - slope.low < 1e-9


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(12), np.geomspace(10, 10_000, 12)])
    truth = np.array([2.0, 0.05])
    inside = np.zeros(2)
    for _ in range(400):
        fits = fit_costs(x, (x @ truth) * (1.0 + 0.05 * rng.standard_normal(12)))
        inside += [f.low <= t <= f.high for f, t in zip(fits, truth, strict=True)]
    assert (np.abs(inside / 400 - 0.95) < 0.04).all()


def test_what_would_be_below_zero_is_nothing_and_the_others_are_fitted_without_it():
    rng = np.random.default_rng(1)
    counts = np.array([(w, r) for w in (1, 2, 4, 8) for r in (2, 3, 4, 5)], float)
    x = np.column_stack([np.ones(16), counts.prod(axis=1), counts[:, 0]])
    # As measured on a host: unbounded, a sequence would save time.
    costs = (0.1 + 0.05 * x[:, 1] - 0.03 * x[:, 2]) * rng.normal(1.0, 0.01, 16)
    base, row, sequence = fit_costs(x, costs)
    assert (sequence.value, sequence.low) == (0.0, 0.0) and 0.0 < sequence.high < 0.1
    weighted = x[:, :2] / costs[:, None]
    alone, *_ = np.linalg.lstsq(weighted, np.ones(16), rcond=None)
    assert [base.value, row.value] == pytest.approx(list(alone))
    # Student's t of the two that are fitted, on 14 degrees of freedom.
    residuals = 1.0 - weighted @ alone
    spread = np.sqrt(residuals @ residuals / 14 * np.diag(np.linalg.inv(weighted.T @ weighted)))
    assert row.high - row.value == pytest.approx(2.1448 * spread[1], rel=1e-4)
    assert row.value - row.low == pytest.approx(2.1448 * spread[1], rel=1e-4)


def test_an_interval_is_cut_at_nothing():
    nodes = np.array([10.0, 20, 30, 40, 50])
    costs = nodes * [1.1, 0.9, 1.05, 0.9, 1.1]
    for fitted in fit_costs(np.column_stack([np.ones(5), nodes]), costs):
        assert 0.0 <= fitted.low <= fitted.value < fitted.high


def test_small_costs_count_as_much_as_large_ones():
    nodes = np.array([10.0, 30, 100, 300, 1000, 3000, 10_000])
    costs = 5.0 + 0.01 * nodes
    costs[-1] *= 1.1
    base, _ = fit_costs(np.column_stack([np.ones(7), nodes]), costs)
    assert base.value == pytest.approx(5.0, rel=0.05)


@pytest.mark.parametrize(
    ("regressors", "costs", "words"),
    [
        ([[1, 1], [1, 2]], [1, 2], "more than 2 samples for an interval, got 2"),
        ([[1], [1], [1]], [1, 0, 1], "above 0, got 0.0"),
        ([[1, 2], [1, 2], [1, 2]], [1, 2, 3], "tell the coefficients apart"),
    ],
)
def test_what_cannot_be_fitted_is_named(regressors, costs, words):
    with pytest.raises(ValueError, match=words):
        fit_costs(regressors, costs)


def test_scaled_changes_the_unit_of_all_three():
    assert Coefficient(1.0, 0.5, 2.0).scaled(1e3) == Coefficient(1e3, 500.0, 2e3)
