"""Why canonical costs: the split, the guess, the spread, the recorded drafts, the verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from verifylab import advise, why
from verifylab.experiment import Settings
from verifylab.machine import load_profile
from verifylab.stats import PARTS
from verifylab.workload import calibrated

GB10 = load_profile("gb10-published")
SMALL = why.Why(widths=[1, 2, 3, 4, 8, 9, 16], focus=[2, 8], seeds=4, steps=400)


@pytest.fixture(scope="module")
def split():
    return why.splits(SMALL)


@pytest.fixture(scope="module")
def band():
    return why.over_spread(SMALL)


def test_the_parts_add_up_at_every_width_and_ratio(split):
    assert len(split) == 7 * 3
    parts = split[[f"{p}_pct" for p in PARTS]].sum(axis=1)
    assert np.allclose(parts, split.delta_pct, atol=1e-9)
    assert (split[split.width > 8].delta_pct == 0).all()
    assert (split[split.width == 1].delta_pct == 0).all()


def test_the_loss_is_tokens_and_the_guess_is_rejected(split):
    verdicts = why.guess(split)
    assert set(verdicts.width) >= {2, 4}
    assert (verdicts.delta_pct < 0).all() and (verdicts.tokens_pct < 0).all()
    assert set(verdicts.verdict) == {"rejected"}


def test_the_guess_would_be_supported_where_launches_explain_the_loss():
    made = pd.DataFrame(
        {"width": [4], "ratio": [0.75], "delta_pct": [-3.0], "delta_high": [-2.5],
         "tokens_pct": [0.0], "launches_pct": [-3.0], "launches_low": [-3.2],
         "launches_high": [-2.8]}
    )  # fmt: skip
    assert list(why.guess(made).verdict) == ["supported"]
    made[["launches_low", "launches_high"]] = [[-0.2, 0.1]]
    assert list(why.guess(made).verdict) == ["open"]


def test_the_loss_grows_with_the_spread_from_nothing(band):
    for _, rows in band.groupby("width"):
        at = rows.sort_values("spread").set_index("spread").tokens_pct
        assert at.loc[0.0] == 0.0, "no confidence, no pairing to lose"
        assert at.loc[0.1] < 0 and at.loc[0.6] < at.loc[0.1]
    assert band.fitted.sum() == 2 and band.node.sum() == 2 * 5


def test_the_implied_spread_lies_where_the_curve_crosses():
    made = pd.DataFrame(
        {"width": [2, 2, 2], "spread": [0.0, 0.5, 1.0], "delta_pct": [0.0, -4.0, -6.0],
         "fitted": [False, True, False]}
    )  # fmt: skip
    row = why.implied_spreads(made).iloc[0]
    assert row.published_pct == -2.4 and row.predicted_pct == -4.0
    assert row.implied_spread == pytest.approx(0.3)
    never = why.implied_spreads(made.assign(delta_pct=[1.0, 2.0, 3.0])).iloc[0]
    assert np.isnan(never.implied_spread)


def test_uninformative_confidences_lose_nothing():
    table = why.calibrations(why.Why(focus=[4], seeds=16, steps=800)).set_index("kind")
    assert table.loc["uninformative"].tokens_low < 0.1
    assert table.loc["uninformative"].tokens_high > -0.1
    assert table.loc["well calibrated"].tokens_high < -4
    half = table.loc["half informative"].tokens_pct
    assert table.loc["well calibrated"].tokens_pct < half < -1


def test_recorded_drafts_say_the_same():
    table = why.both_workloads(why.Why(widths=[2, 8], seeds=8, steps=800))
    at = table.set_index(["drafts", "width"]).tokens_pct
    for width in (2, 8):
        assert at["recorded drafts", width] == pytest.approx(at["calibrated draws", width], abs=1.5)
        assert abs(at["positions independent, shuffled", width]) < 0.5
        assert at["recorded drafts", width] < -2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widths": [0]}, "widths must be from 1 to 1024, got 0"),
        ({"widths": []}, "widths must list at least one number, got none"),
        ({"focus": "2,4"}, "focus must be a list of whole numbers, got '2,4'"),
        ({"ratios": [0.5, 1.5]}, "ratios must be from 0 to 1, got 1.5"),
        ({"ratios": []}, "ratios must list each number once, at least one"),
        ({"seeds": 1}, "seeds must be from 2 to 10000, got 1"),
        ({"trace": "nope"}, "nope"),
        ({"machine": "nope"}, "no machine profile 'nope'"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        why.Why(**change)


@pytest.fixture(scope="module")
def verdict():
    return advise.advise([2, 4, 8], machine=GB10, seeds=4, steps=400)


def test_the_verdict_names_gate_policy_and_basis(verdict):
    gate, policy, off, basis = verdict.sentences
    assert off.startswith("D-Cut off instead") and off.count(" at ") == 3
    assert gate.startswith("Gate at 8 (")
    assert "indirect" in policy and "at 8" in policy
    assert basis.startswith("Modelled on gb10-published at 31.3 ms a capture and eviction")
    assert verdict.min_width == 8
    assert list(verdict.table.columns) == [
        "width", "policy", "tok_s", "low", "high", "keys", "capture_fraction",
    ]  # fmt: skip
    best = verdict.table.groupby("width").first().policy
    assert best[8] in ("indirect", "sglang_ragged")
    gains = verdict.gains.set_index(["width", "policy"]).gain_pct
    assert gains[8, "indirect"] > 4
    # At this ratio and ladder one sequence always keeps all its drafts, and padded pads to that.
    assert gains[8, "unpruned"] == gains[8, "padded"]
    assert set(verdict.table[verdict.table.policy == "unpruned"].width) == {2, 4, 8}
    against = verdict.gains.groupby("width").against.first()
    assert dict(against) == {2: "arrangement", 4: "arrangement", 8: "canonical"}


def test_cheap_graphs_keep_the_gate_shut():
    free = advise.advise([4, 8], machine=GB10, graph_ms=0.0, seeds=3, steps=300)
    assert free.min_width == 9
    assert free.sentences[0].startswith("Keep canonical off")


def test_scaling_the_graph_cost_scales_captures_and_nothing_else():
    assert advise.graph_ms_of(GB10) == pytest.approx(31.3, abs=0.1)
    scaled = advise.with_graph_ms(GB10, 10.0)
    assert advise.graph_ms_of(scaled) == pytest.approx(10.0)
    assert scaled["per_row_ms"] == GB10["per_row_ms"]
    assert scaled["update_per_node_us"] == GB10["update_per_node_us"]
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="graph_ms must be 0 or more milliseconds"):
            advise.with_graph_ms(GB10, bad)


def test_the_map_names_the_winner_and_its_lead():
    maps = why.policy_maps(
        why.Why(widths=[2, 8, 12, 16], ratios=[0.75], seeds=6, steps=300), [0.0, 30.0]
    )
    assert set(maps.by_cost.width) == {2, 8, 16}
    assert (maps.by_cost.gain_pct >= -1e-9).all() and (maps.by_cost.lead_pct >= 0).all()
    assert set(maps.kept.policy) <= set(why.KERNELS_KEPT)
    assert set(maps.by_ratio.ratio) == {0.75, 1.0}
    assert set(maps.table.seeds) == {6}
    runs = advise.policy_runs(calibrated(), [8], GB10, Settings(8, steps=300), seeds=6)
    (cell,) = advise.policy_map(runs, GB10, [30.0]).to_dict("records")
    at = maps.by_cost[(maps.by_cost.width == 8) & (maps.by_cost.graph_ms == 30.0)]
    assert at.policy.item() == cell["policy"]
    assert at.gain_pct.item() == pytest.approx(cell["gain_pct"], rel=1e-12)
    dear = maps.by_cost[(maps.by_cost.width == 8) & (maps.by_cost.graph_ms == 30.0)].iloc[0]
    assert dear.gain_pct > 10


@pytest.mark.parametrize("widths", [[], [2, 2]])
def test_advise_refuses_widths_that_are_none_or_twice(widths):
    with pytest.raises(ValueError, match="widths must list each width once"):
        advise.advise(widths, machine=GB10)


def test_the_published_ab_lies_between_nothing_and_the_steady_prediction():
    table = why.against_published(why.Why(focus=[2, 4], seeds=4, steps=400)).set_index("width")
    for width in (2, 4):
        row = table.loc[width]
        assert row.drain_pct < row.steady_pct < row.published_pct < 0
        assert row.steady_low <= row.steady_pct <= row.steady_high
        assert 0 < row.published_over_steady < 1
    assert why.against_published(why.Why(focus=[3], seeds=2, steps=50)).empty


def test_break_even_prices_the_lead_against_the_kernels():
    table = why.break_even(why.Why(widths=[2, 8], seeds=4, steps=400)).set_index("width")
    assert table.loc[8].better_arm == "canonical" and table.loc[2].better_arm == "arrangement"
    assert table.loc[8].gdn_ms == pytest.approx(8 * 2.42)
    assert table.loc[8].slack_ms > 5 * table.loc[2].slack_ms > 0


def test_the_best_gate_is_shut_where_a_policy_has_no_captures_to_save():
    table = advise.best_gates(calibrated(), [2, 8], GB10, Settings(8, steps=400), seeds=3)
    best = table.set_index("policy")
    assert best.loc["arrangement"].best_gate == 8 and best.loc["arrangement"].gain_8 > 5
    assert best.loc["eager"].best_gate == 9, "eager loses the tokens and saves nothing"
    assert (best.gain_2 < 0).all()
    assert set(best.index) == {
        "arrangement", "borrow", "exec_update", "eager", "capture_on_second_use",
    }  # fmt: skip


def test_a_graph_cost_of_ones_own_is_that_of_every_table():
    config = why.Why(widths=[2, 8], ratios=[0.75], seeds=4, steps=300, own_graph_ms=10.0)
    assert advise.graph_ms_of(config.profile()) == pytest.approx(10.0)
    maps = why.policy_maps(config, [0.0, 30.0])
    assert sorted(set(maps.by_cost.graph_ms)) == [0.0, 10.0, 30.0]
    assert set(maps.by_ratio.graph_ms.round(9)) == {10.0}
    own, dear = (
        why.splits(asked).set_index("width").captures_pct
        for asked in (config, replace(config, own_graph_ms=None))
    )
    assert 0 < own[8] < dear[8] / 2
    with pytest.raises(ValueError, match="graph_ms must be 0 or more"):
        why.Why(own_graph_ms=-1.0)
