"""The fits: on the published figures, from nothing else, and stored as they come out."""

import json
from dataclasses import replace

import numpy as np
import pytest

from verifylab import fit, published
from verifylab.dcut import RATIOS, DraftLadder
from verifylab.experiment import Settings, run
from verifylab.machine import StepWork, load_profile
from verifylab.published import DataError, data_dir, table
from verifylab.workload import Workload, calibrated


@pytest.fixture(scope="module")
def spread():
    return fit.fit_spread(tuple(fit.fit_acceptance()["values"]))


@pytest.fixture(scope="module")
def fitted(spread):
    """`fit_workload`, with its slow half done once for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "fit_spread", {calibrated().acceptance: spread}.__getitem__)
        return fit.fit_workload()


def test_the_stored_workload_is_the_fit(fitted):
    stored = (data_dir() / "workloads" / "published.json").read_text(encoding="utf-8")
    assert json.dumps(fitted, indent=1) + "\n" == stored


def test_write_stores_both_fits(tmp_path, monkeypatch, fitted):
    monkeypatch.setattr(fit, "fit_workload", lambda: fitted)
    paths = fit.write(tmp_path)
    assert [p.relative_to(tmp_path).as_posix() for p in paths] == [
        "workloads/published.json",
        "machines/gb10-published.json",
    ]
    for path in paths:
        stored = data_dir() / path.relative_to(tmp_path)
        assert path.read_text(encoding="utf-8") == stored.read_text(encoding="utf-8")


def test_the_fits_never_see_what_is_held_out(monkeypatch):
    """Reading the A/B or the key counts raises; every other held-out figure is taken away."""
    read = []
    honest = published._read

    def watching(path):
        read.append(path.name)
        if path.stem in ("canonical_ab", "key_counts"):
            raise AssertionError(f"a fit reads {path.name}")
        frame = honest(path)
        if path.stem == "step_breakdown":
            frame = frame[frame.term != "idle_c2"]
        if path.stem == "nsys_c8":
            frame = frame[~frame.quantity.str.startswith("tok_s")]
        if path.stem == "dcut_ratio":
            frame = frame.drop(columns="tok_s")
        return frame

    monkeypatch.setattr(published, "_read", watching)
    monkeypatch.setattr(fit, "GRID", np.array([0.5, 0.6, 0.7]))
    with pytest.raises(AssertionError, match="a fit reads canonical_ab.csv"):
        table("canonical_ab")
    fit.fit_workload()
    fit.fit_machine()
    assert {"acceptance.csv", "dcut_ratio.csv", "step_breakdown.csv", "nsys_c8.csv"} <= set(read)


# --- acceptance ----------------------------------------------------------------------------


def test_the_acceptance_lies_on_the_published_curve():
    result = fit.fit_acceptance()
    p1, p2, p3 = result["values"]
    assert p1 == 0.793
    assert 1 + p1 * (1 + p2 * (1 + p3)) == pytest.approx(2.606, abs=1e-5)
    low2, high2 = result["p2_range"]
    low3, high3 = result["p3_range"]
    assert 0.551 <= low2 < p2 < high2 <= 0.649
    assert 0.381 <= low3 < p3 < high3 <= 0.638
    for a, b in ((low2, high3), (high2, low3)):  # the ends of the stretch are on the curve too
        assert p1 * (1 + a * (1 + b)) + 1 == pytest.approx(2.606, abs=1e-4)


def test_figures_that_contradict_each_other_are_refused(monkeypatch):
    frame = table("acceptance")
    frame.loc[(frame.n == 8) & (frame.drafts == 3), "tokens_per_step"] = 3.9
    monkeypatch.setattr(fit, "table", lambda name: frame)
    with pytest.raises(DataError, match=r"acceptance.csv: tokens_per_step 3.9 .*leaves no p2"):
        fit.fit_acceptance()


def test_a_sweep_without_its_ratios_is_refused(monkeypatch):
    frame = table("dcut_ratio")
    monkeypatch.setattr(fit, "table", lambda name: frame[frame.ratio != "0.5"])
    with pytest.raises(DataError, match=r"dcut_ratio.csv: need tok_step at the ratios"):
        fit.fit_spread((0.8,))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_simulated_acceptance_and_tokens_land_on_the_target(seed):
    """n = 8, 3 drafts, ratio 1.0: p1 0.793, conditional p2 and p3, 2.606 tokens a step, 1 %."""
    load = calibrated(output_tokens=10**6)
    machine = load_profile("gb10-published")
    settings = Settings(8, steps=25_000, seed=seed, ratio=1.0)
    counters = run(load, "arrangement", None, machine, settings).counters
    p1, p2, p3 = counters.acceptance()[:3]
    assert p1 == pytest.approx(0.793, rel=0.01)
    assert p2 == pytest.approx(load.acceptance[1], rel=0.01)
    assert p3 == pytest.approx(load.acceptance[2], rel=0.01)
    assert counters.tokens_per_sequence_step == pytest.approx(2.606, rel=0.01)


def test_requests_of_usual_length_still_land_within_one_percent():
    """A request's last step is cut to what it asks for: a third of a percent at 256 tokens."""
    settings = Settings(8, steps=25_000, ratio=1.0)
    machine = load_profile("gb10-published")
    counters = run(calibrated(), "arrangement", None, machine, settings).counters
    assert counters.tokens_per_sequence_step == pytest.approx(2.606, rel=0.01)


# --- the spread ----------------------------------------------------------------------------


def test_the_posterior_is_a_distribution(spread):
    assert spread.weight.sum() == pytest.approx(1.0)
    assert spread.weight.min() >= 0
    quantiles = [spread.quantile(q) for q in (0.025, 0.1, 0.5, 0.9, 0.975)]
    assert quantiles == sorted(quantiles)
    assert 0 < quantiles[0] and quantiles[-1] < 1
    assert spread.grid[spread.weight.argmax()] == pytest.approx(spread.best, abs=0.05)


def test_residuals_are_small_and_belong_to_their_ratios(spread, fitted):
    rows = table("dcut_ratio")
    rows = rows[(rows.concurrency == 8) & rows.tok_step.notna() & (rows.ratio != "off")]
    published_by_ratio = dict(zip(rows.ratio.astype(float), rows.tok_step, strict=True))
    for stored in fitted["confidence_spread"]["residuals"]:
        assert stored["published"] == published_by_ratio[stored["ratio"]]
        assert stored["fitted"] - stored["published"] == pytest.approx(stored["residual"], abs=2e-4)
        assert abs(stored["residual"]) < 0.03  # published repeats differ by 0.02
    i = int(spread.rss.argmin())
    assert (spread.residuals() ** 2).sum() == pytest.approx(spread.rss[i])
    assert spread.rss[i] == spread.rss.min()


def test_the_curve_is_what_the_simulation_emits():
    """`ratio_curve` takes expectations; the experiment draws. They must mean the same."""
    load = Workload(
        calibrated().acceptance, 0.6, ladder=DraftLadder(((8, 3),)), output_tokens=10**6
    )
    curve = fit.ratio_curve(load, RATIOS)
    machine = load_profile("gb10-published")
    for expected, ratio in zip(curve, RATIOS, strict=True):
        settings = Settings(8, steps=20_000, ratio=ratio)
        counters = run(load, "arrangement", None, machine, settings).counters
        assert counters.tokens_per_sequence_step == pytest.approx(expected, rel=0.006)


def test_more_spread_makes_pruning_cheaper():
    """What identifies the spread: the better the confidences tell, the less a small ratio costs."""
    load = calibrated()
    kept = [
        fit.ratio_curve(replace(load, confidence_spread=s), (0.25, 1.0)) for s in (0.1, 0.5, 0.9)
    ]
    share = [low / full for low, full in kept]
    assert share == sorted(share)
    assert kept[0][1] == pytest.approx(kept[2][1], abs=0.01)  # nothing is pruned at ratio 1


def test_the_machine_gives_back_the_figures_it_was_fitted_to():
    machine = load_profile("gb10-published")
    one = StepWork(1, 4, machine.nodes(8))
    assert machine.body_ms(one) == pytest.approx(94.0, abs=0.05)
    per_step = 4500 * 149 / 167 / 1e3
    for operation, figure in (
        ("instantiate", 15.38),
        ("exec_destroy", 5.25),
        ("graph_destroy", 2.4),
    ):
        assert machine[f"{operation}_per_node_us"] * per_step == pytest.approx(figure, rel=1e-4)
