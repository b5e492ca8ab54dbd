"""The recommendation, on hand-made runs where the best threshold is known."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifylab.counters import SCALARS, times
from verifylab.experiment import Settings, grid
from verifylab.gate import Gate
from verifylab.machine import load_profile
from verifylab.recommend import NEVER, Recommendation, log_gains, recommend, recommend_arms
from verifylab.workload import calibrated

GB10 = load_profile("gb10-published")


def made(gains, thresholds, seeds=6, noise=0.0, spreads=(0.5,), jitter=0):
    """Runs in which canonical at a width multiplies the tokens by ``1 + gains[width]``."""
    rng = np.random.default_rng(jitter)
    rows = []
    for spread in spreads:
        for width, gain in gains.items():
            for seed in range(seeds):
                wobble = 1 + noise * rng.standard_normal()
                for threshold in (NEVER, *thresholds):
                    on = threshold != NEVER and Gate(threshold).canonical(width)
                    counts = dict.fromkeys(SCALARS, 0)
                    counts.update(
                        steps=100, dispatches=100, sequences=100 * width, rows=300 * width,
                        tokens=200.0 * width * ((1 + gain) * wobble if on else 1),
                    )  # fmt: skip
                    rows.append(
                        {"width": width, "min_width": threshold, "spread": spread, "seed": seed}
                        | counts
                    )
    return pd.DataFrame(rows)


def test_the_best_threshold_is_found():
    gains = {2: -0.03, 4: -0.02, 6: 0.01, 8: 0.05}
    result = recommend(made(gains, [0, 3, 5, 7, 9]), GB10, draws=200)
    assert (result.min_width, result.same_as, result.probability) == (5, (5,), 1.0)
    mean = np.mean(np.log1p([0, 0, 0.01, 0.05]))
    assert result.gain_pct == pytest.approx(100 * np.expm1(mean))
    assert result.gain_low == pytest.approx(result.gain_pct)  # no noise: every draw says the same
    assert not result.never
    assert result.table.min_width.tolist() == [0, 3, 5, 7, 9]
    expected = [
        100 * np.expm1(np.mean([np.log1p(g) if w >= m else 0 for w, g in gains.items()]))
        for m in (0, 3, 5, 7, 9)
    ]
    assert result.table.gain_pct.tolist() == pytest.approx(expected)


def test_the_order_of_candidates_and_rows_does_not_matter():
    runs = made({2: -0.03, 8: 0.05}, [9, 0, 5], noise=0.01)
    result = recommend(runs, GB10, draws=200)
    assert result.min_width == 5
    assert result.table.min_width.tolist() == [9, 0, 5]
    shuffled = runs.sample(frac=1, random_state=1)
    again = recommend(shuffled, GB10, draws=200)
    assert (again.min_width, again.gain_pct) == (5, pytest.approx(result.gain_pct))


def test_among_equals_the_published_default_is_named():
    result = recommend(made({4: -0.05, 12: 0.05}, [0, 5, 12, 8, 7]), GB10, draws=100)
    assert result.min_width == 8
    assert result.same_as == (5, 7, 8, 12)
    assert result.probability == 1.0
    assert "Gate at 8 (5, 7, 12 decide alike" in result.sentence()
    assert result.widths == (4, 12) and "tok/s, mean over widths 4, 12 (95 %" in result.sentence()


def test_without_the_default_the_highest_that_switches_something_on():
    result = recommend(made({4: -0.05, 8: 0.05}, [0, 5, 6, 7]), GB10, draws=100)
    assert (result.min_width, result.same_as) == (7, (5, 6, 7))


def test_when_it_only_loses_it_is_never():
    result = recommend(made({2: -0.05, 4: -0.01}, [0, 3, 5, 33]), GB10, draws=100)
    assert result.never
    assert (result.min_width, result.same_as, result.gain_pct) == (5, (5, 33), 0.0)
    assert result.sentence().startswith(
        "Keep canonical off at these widths: gate at 5 (33 decides alike"
    )
    assert "+0.0" not in result.sentence()


def test_thresholds_in_a_row_are_named_as_one_span():
    result = recommend(made({4: -0.05, 8: 0.05}, [0, 5, 6, 7, 8, 4]), GB10, draws=100)
    assert "Gate at 8 (5 to 7 decide alike at these widths)." in result.sentence()
    arms = made({4: -0.05, 8: 0.05}, [0])
    names = {NEVER: "arrangement", 0: "canonical"}
    found = recommend_arms(arms.assign(policy=arms.min_width.map(names)), GB10, draws=100)
    assert (found.min_width, found.same_as) == (8, (5, 6, 7, 8))
    alone = recommend(made({8: 0.05}, [0, 9]), GB10, draws=100)
    assert "% tok/s, at width 8 (95 % interval" in alone.sentence()
    assert list(found.table.min_width) == [4, 5, 6, 7, 8, 9]


def test_widths_where_it_makes_no_difference_do_not_count():
    """From 16 up the arms are equal: a gate at 9 switches on, but nothing comes of it."""
    result = recommend(made({4: -0.05, 8: -0.02, 16: 0.0}, [0, 5, 9, 33]), GB10, draws=100)
    assert result.never
    assert result.same_as == (9, 33)


def test_a_coin_toss_is_about_one_half():
    """Two candidates whose difference is nothing but noise between seeds."""
    probabilities = []
    for jitter in range(20):
        runs = made({8: 0.0}, [0, 9], seeds=10, noise=0.02, jitter=jitter)
        table = recommend(runs, GB10, draws=400).table
        assert table.probability.sum() == pytest.approx(1.0)
        probabilities.append(table.probability[0])
    assert 0.2 < np.mean(probabilities) < 0.8


@settings(max_examples=25)
@given(
    st.dictionaries(st.sampled_from([2, 4, 8, 16]), st.floats(-0.1, 0.1), min_size=1),
    st.lists(st.integers(0, 20), min_size=1, max_size=6, unique=True),
    st.integers(0, 5),
)
def test_probabilities_are_shares_of_the_draws(gains, thresholds, jitter):
    runs = made(gains, thresholds, seeds=3, noise=0.03, jitter=jitter)
    result = recommend(runs, GB10, draws=100)
    table = result.table
    assert table.probability.between(0, 1).all()
    assert result.probability == table.set_index("min_width").probability[result.min_width]
    decisions = table.assign(
        on=[tuple(Gate(m).canonical(w) for w in gains) for m in table.min_width]
    )
    # Those that decide alike share their draws, and every draw has a winner.
    alike = decisions.groupby("on").probability
    assert (alike.nunique() == 1).all()
    assert alike.first().sum() == pytest.approx(1.0, abs=1e-9)
    assert set(result.same_as) >= {result.min_width}
    assert result.gain_pct == pytest.approx(table.gain_pct.max())
    assert result.gain_low <= result.gain_high


def test_a_draw_is_repeatable():
    runs = made({4: 0.0, 8: 0.01}, [0, 8], noise=0.02)
    a, b = (recommend(runs, GB10, draws=300, seed=5) for _ in range(2))
    assert a.table.equals(b.table)
    other = recommend(runs, GB10, draws=300, seed=6)
    assert not a.table.equals(other.table)


def test_the_central_gain_is_the_ratio_of_the_pooled_rates():
    chosen = Settings(1, steps=200, warmup_steps=20)
    arms = grid(calibrated(), [4, 8], GB10, chosen, seeds=range(3))
    base = arms[arms.policy == "arrangement"].assign(min_width=NEVER)
    other = arms[arms.policy == "canonical"].assign(min_width=0)
    central, drawn, widths, candidates = log_gains(pd.concat([base, other]), GB10, draws=50)
    assert (widths, candidates) == ([4, 8], [0])
    assert central.shape == (2, 1) and drawn.shape == (50, 2, 1)
    for i, width in enumerate(widths):
        rates = []
        for runs in (other, base):
            total = runs[runs.width == width][list(SCALARS)].sum()
            rates.append(total.tokens / times(total, GB10).total_ms)
        assert central[i, 0] == pytest.approx(np.log(rates[0] / rates[1]))


def test_the_draws_follow_machine_seeds_and_spread():
    """Each source of doubt alone moves the draws; without any they all say the same."""
    chosen = Settings(8, steps=200, warmup_steps=20)

    def spread_of_draws(profile, seeds, spreads):
        arms = grid(calibrated(), [8], GB10, chosen, seeds=range(seeds), spreads=spreads)
        base = arms[arms.policy == "arrangement"].assign(min_width=NEVER)
        other = arms[arms.policy == "canonical"].assign(min_width=0)
        runs = pd.concat([base, other])
        return float(np.ptp(log_gains(runs, profile, draws=100)[1]))

    sure = replace(
        GB10,
        coefficients={
            n: replace(c, low=c.value, high=c.value) for n, c in GB10.coefficients.items()
        },
    )
    assert spread_of_draws(sure, 1, (0.626,)) < 1e-12
    assert spread_of_draws(sure, 5, (0.626,)) > 1e-3
    assert spread_of_draws(GB10, 1, (0.626,)) > 1e-3
    assert spread_of_draws(sure, 1, (0.626, 0.3, 0.9)) > 1e-3


@pytest.mark.parametrize("column", ["width", "min_width", "spread", "seed"])
def test_a_missing_combination_is_refused(column):
    runs = made({4: 0.1, 8: 0.2}, [0, 8], spreads=(0.5, 0.6))
    hole = runs.groupby(column).head(3).index[-1]
    with pytest.raises(ValueError, match="runs must hold every width, min_width, spread and seed"):
        log_gains(runs.drop(index=hole), GB10)


def test_a_combination_that_comes_twice_is_refused():
    runs = made({4: 0.1, 8: 0.2}, [0, 8])
    with pytest.raises(ValueError, match="once, got some twice"):
        log_gains(pd.concat([runs, runs.tail(1)]), GB10)


def test_without_the_base_it_is_refused():
    runs = made({8: 0.1}, [0])
    with pytest.raises(ValueError, match=r"runs must hold the base, min_width -1"):
        recommend(runs[runs.min_width != NEVER], GB10)


def test_the_sentence_says_how_sure():
    sure = recommend(made({8: 0.05}, [0, 9]), GB10, draws=100)
    assert "over 99%" in sure.sentence()
    noisy = recommend(made({8: 0.005}, [0, 9], noise=0.02), GB10, draws=200)
    assert f"{noisy.probability:.0%}" in noisy.sentence()
    assert f"{noisy.gain_pct:+.1f} % tok/s" in noisy.sentence()


def test_when_every_candidate_loses_the_sentence_says_so():
    from verifylab.width_gate import Config, width_gate

    config = Config(
        widths=[2, 4], min_widths=[0, 2], seeds=3, steps=300, warmup_steps=20, device="model"
    )
    best = width_gate(config).recommendation
    assert best.gain_pct < 0 and not best.never
    assert best.sentence().startswith("None of these thresholds pays, never canonical is better")


def test_when_both_arms_are_one_run_it_says_so():
    result = recommend(made({2: 0.0, 16: 0.0}, [0, 8, 33]), GB10, draws=100)
    assert result.indifferent
    assert result.sentence().startswith("No difference: both arms are the same run")


@pytest.mark.parametrize("draws", [0, True, 2.0])
def test_draws_are_checked(draws):
    runs = made({8: 0.1}, [0, 8])
    with pytest.raises(ValueError, match="draws must be "):
        recommend(runs, GB10, draws=draws)


def test_the_runner_up_is_named_with_all_that_decide_alike():
    def said(*rows, own=7, probability=0.6):
        table = pd.DataFrame(rows, columns=["min_width", "gain_pct", "probability"])
        table = table.assign(gain_low=table.gain_pct - 1, gain_high=table.gain_pct + 1)
        made = Recommendation(own, (own,), probability, 1.0, 0.0, 2.0, False, False, "seeds",
                              (2, 6, 7, 8), table)  # fmt: skip
        return made.sentence()

    assert "redraws of seeds (next is 5, 6, in 40%). Against" in said(
        (7, 1.0, 0.6), (5, 0.9, 0.4), (6, 0.9, 0.4), (2, 0.1, 0.0)
    )
    assert "(more often it is never canonical, in 70%)" in said(
        (7, 1.0, 0.3), (9, 0.0, 0.7), probability=0.3
    )
    assert "redraws of seeds. Against" in said((7, 1.0, 1.0), (8, 0.5, 0.0), probability=1.0)
    assert "redraws of seeds. Against" in said((7, 1.0, 1.0), probability=1.0)
