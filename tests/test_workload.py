"""The workload: its confidence tables hold what was asked for, and bad input is one sentence."""

import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaln
from scipy.stats import beta

from verifylab.dcut import DEFAULT_LADDER, DraftLadder
from verifylab.draws import request_words
from verifylab.experiment import Settings, run
from verifylab.machine import load_profile
from verifylab.published import DataError, data_dir
from verifylab.workload import (
    MAX_DRAFTS,
    MAX_OUTPUT_TOKENS,
    QUANTILES,
    Workload,
    _beta_bins,
    calibrated,
    confidence_tables,
    spread_nodes,
)

MEANS = [1e-9, 0.01, 0.1, 0.5, 0.637449, 0.793, 0.99, 1 - 1e-9]
SPREADS = [
    0.0, 1e-300, 1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.02, 0.1, 0.3, 0.5, 0.626, 0.8, 0.9,
    0.95, 0.98, 0.99, 0.999, 0.9999, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12, float(np.nextafter(1, 0)), 1.0,
]  # fmt: skip


def made(**changes):
    return Workload(**{"acceptance": (0.8, 0.6), "confidence_spread": 0.5, **changes})


# --- the bins of one depth -----------------------------------------------------------------


@pytest.mark.parametrize("mean", MEANS)
def test_bins_are_probabilities_that_rise_and_average_to_the_mean(mean):
    for spread in SPREADS:
        bins = _beta_bins(mean, spread)
        assert bins.shape == (QUANTILES,)
        assert bins.min() >= 0.0 and bins.max() <= 1.0
        assert bins.mean() == pytest.approx(mean, abs=1e-9), spread
        assert np.diff(bins).min() > -1e-12, spread


@settings(max_examples=30)
@given(st.floats(1e-6, 1 - 1e-6), st.floats(0, 1))
def test_bins_hold_the_mean_whatever_is_asked(mean, spread):
    bins = _beta_bins(mean, spread)
    assert bins.mean() == pytest.approx(mean, abs=1e-9)
    assert np.diff(bins).min() > -1e-12


@pytest.mark.parametrize("mean", [0.05, 0.3, 0.5, 0.793, 0.95])
def test_the_variance_is_the_spread_s_share(mean):
    for spread in SPREADS:
        share = _beta_bins(mean, spread).var() / (mean * (1 - mean))
        # Bins lose what varies within them: most where all is in two points, 1 / QUANTILES of it.
        assert share == pytest.approx(spread, abs=0.006, rel=1e-3), spread


@pytest.mark.parametrize(("mean", "spread"), [(0.5, 0.2), (0.793, 0.626), (0.637449, 0.9)])
def test_bins_are_the_quantiles_of_a_beta(mean, spread):
    """Each bin's mean by a fine mid-point sum of SciPy's own quantile function."""
    concentration = 1 / spread - 1
    fine = 64
    q = (np.arange(QUANTILES * fine) + 0.5) / (QUANTILES * fine)
    quantiles = beta.ppf(q, mean * concentration, (1 - mean) * concentration)
    expected = quantiles.reshape(QUANTILES, fine).mean(1)
    assert _beta_bins(mean, spread) == pytest.approx(expected, abs=2e-6)


def test_bins_that_crowd_towards_one_keep_their_values():
    """Once, quantiles just below 1 were all 1.0, and the mean of the bins went with them.

    Near 1 the tail of a Beta is a power law, so its upper quantiles are known without SciPy: in
    the top 199 bins they are closer to 1 than 1e-30, which no float64 below 1 can say.
    """
    bins = _beta_bins(0.793, 0.95)
    a, b = 0.793 * (1 / 0.95 - 1), 0.207 * (1 / 0.95 - 1)
    upper = np.arange(1, 201) / QUANTILES
    distance = np.exp((np.log(upper) + np.log(b) + betaln(a, b)) / b)
    assert distance.max() < 1e-30
    assert (bins[-199:] == 1.0).all()
    share_below = np.count_nonzero(bins < 0.5) / QUANTILES
    assert share_below == pytest.approx(beta.cdf(0.5, a, b), abs=1 / QUANTILES)
    assert bins.mean() == pytest.approx(0.793, abs=1e-12)


@pytest.mark.parametrize("spread", [0.999, 0.9999, 1 - 1e-9])
def test_bins_near_spread_one_become_two_points(spread):
    """Once, the bin that straddles the middle was wrong by its whole size (means off by 2e-4)."""
    bins = _beta_bins(0.793, spread)
    exact = _beta_bins(0.793, 1.0)
    ones = round(0.793 * QUANTILES)
    assert np.count_nonzero(bins > 0.5) == pytest.approx(ones, abs=2)
    assert np.abs(bins - exact).mean() < 2 * (1 - spread) + 1e-9


def test_the_ends_of_the_spread():
    assert (_beta_bins(0.3, 0.0) == 0.3).all()
    knowing = _beta_bins(0.25, 1.0)
    assert (knowing[: QUANTILES * 3 // 4] == 0).all() and (knowing[QUANTILES * 3 // 4 :] == 1).all()


# --- the tables ----------------------------------------------------------------------------


def test_tables_have_a_row_a_depth_and_cannot_be_written():
    tables = made().tables()
    assert tables.log_reported.shape == tables.accept_below.shape == (MAX_DRAFTS, QUANTILES)
    for table in (tables.log_reported, tables.accept_below):
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 0
    assert made().tables() is made().tables()  # cached by value


def test_deeper_drafts_take_the_last_acceptance():
    load = made(acceptance=(0.9, 0.5, 0.25))
    assert [load.acceptance_at(d) for d in range(5)] == [0.9, 0.5, 0.25, 0.25, 0.25]
    true = load.tables().accept_below.mean(1) / 2.0**32
    assert true == pytest.approx([load.acceptance_at(d) for d in range(MAX_DRAFTS)], abs=1e-9)
    assert load.expected_tokens(1) == pytest.approx(1.9)
    assert load.expected_tokens(3) == pytest.approx(1 + 0.9 + 0.45 + 0.1125)


def test_well_calibrated_confidences_are_the_acceptance():
    tables = made(confidence_spread=0.626).tables()
    assert np.exp(tables.log_reported) == pytest.approx(tables.accept_below / 2.0**32, abs=1e-9)


def test_simulated_acceptance_given_the_confidence_is_the_confidence():
    """The calibration property, on drawn words."""
    load = made(acceptance=(0.7,), confidence_spread=0.4)
    tables = load.tables()
    n = 400_000
    words = request_words(11, np.arange(n), np.zeros(n, int), 1)[:, 0]
    bins = (words[:, 0] >> np.uint64(20)).astype(int)
    reported = np.exp(tables.log_reported[0, bins])
    accepted = words[:, 1] < tables.accept_below[0, bins]
    decile = np.minimum((reported * 10).astype(int), 9)
    for d in range(10):
        here = decile == d
        mean = reported[here].mean()
        error = np.sqrt(mean * (1 - mean) / here.sum())
        assert accepted[here].mean() == pytest.approx(mean, abs=5 * error)


def test_without_informativeness_every_draft_of_a_depth_is_alike():
    tables = made(informativeness=0.0).tables()
    assert np.ptp(tables.accept_below[0]) == 0
    assert tables.accept_below[0, 0] == round(0.8 * 2**32)
    assert np.ptp(tables.log_reported[0]) > 1  # what is reported still varies
    half = made(informativeness=0.5).tables().accept_below / 2.0**32
    full = made().tables().accept_below / 2.0**32
    assert half[0] == pytest.approx(0.8 + 0.5 * (full[0] - 0.8), abs=1e-9)


@pytest.mark.parametrize("spread", [0.0, 0.3, 0.626, 0.95, 1.0])
@pytest.mark.parametrize("sharpness", [1e-3, 0.2, 0.5, 2.0, 50.0, 1e6])
def test_sharpness_raises_the_reported_odds_to_a_power(spread, sharpness):
    """Confidences of exactly 0 and 1 included: no warning, no NaN, never above certain."""
    sharp = made(confidence_spread=spread, sharpness=sharpness).tables()
    plain = made(confidence_spread=spread).tables()
    assert (sharp.accept_below == plain.accept_below).all()
    assert not np.isnan(sharp.log_reported).any()
    assert sharp.log_reported.max() <= 0.0
    assert (sharp.log_reported[0, 1:] >= sharp.log_reported[0, :-1] - 1e-12).all()
    c = np.exp(plain.log_reported[0])
    inner = (c > 0.01) & (c < 0.99)
    expected = -np.logaddexp(0.0, -sharpness * np.log(c[inner] / (1 - c[inner])))
    assert sharp.log_reported[0, inner] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_tables_of_many_depths_do_not_mix():
    together = confidence_tables((0.2, 0.9), 0.5, 1.0, 1.0)
    assert (together.log_reported[1] == confidence_tables((0.9,), 0.5, 1.0, 1.0).log_reported).all()


# --- what a run sees of it -----------------------------------------------------------------


def test_a_run_reports_the_acceptance_it_was_given():
    load = made(acceptance=(0.8, 0.6, 0.3), ladder=DraftLadder(((1, 4),)), output_tokens=10**6)
    machine = load_profile("gb10-published")
    counters = run(load, "arrangement", None, machine, Settings(4, 20_000, ratio=1.0)).counters
    assert counters.acceptance()[:4] == pytest.approx([0.8, 0.6, 0.3, 0.3], abs=0.01)
    assert np.isnan(counters.acceptance()[4:]).all()
    assert counters.tokens_per_sequence_step == pytest.approx(load.expected_tokens(4), rel=0.01)


# --- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("acceptance", (), r"acceptance must list probabilities between 0 and 1 .*got \(\)"),
        ("acceptance", (0.5, 1.0), r"acceptance must list .*got \(0.5, 1.0\)"),
        ("acceptance", (0.0,), "acceptance must list"),
        ("acceptance", (float("nan"),), "acceptance must list"),
        ("acceptance", ("0.5",), "acceptance must list"),
        ("acceptance", 0.5, "acceptance must list .*got 0.5"),
        ("acceptance", "0.5", "acceptance must list .*got '0.5'"),
        ("acceptance", None, "acceptance must list"),
        ("confidence_spread", -0.1, "confidence_spread must be a number from 0 to 1, got -0.1"),
        ("confidence_spread", 1.1, "confidence_spread must be a number from 0 to 1, got 1.1"),
        ("confidence_spread", float("nan"), "confidence_spread must .*got nan"),
        ("confidence_spread", "0.5", "confidence_spread must .*got '0.5'"),
        ("confidence_spread", True, "confidence_spread must .*got True"),
        ("confidence_spread", [0.5], r"confidence_spread must .*got \[0.5\]"),
        ("informativeness", 2, "informativeness must be a number from 0 to 1, got 2"),
        ("sharpness", 0, "sharpness must be above 0 and finite, got 0"),
        ("sharpness", float("inf"), "sharpness must be above 0 and finite, got inf"),
        ("sharpness", float("nan"), "sharpness must .*got nan"),
        ("output_tokens", 0, f"output_tokens must .* from 1 to {MAX_OUTPUT_TOKENS}, got 0"),
        ("output_tokens", MAX_OUTPUT_TOKENS + 1, "output_tokens must"),
        ("output_tokens", 1.5, "output_tokens must be a whole number .*got 1.5"),
        ("output_tokens", True, "output_tokens must be a whole number .*got True"),
        ("mode", "stead", "mode must be one of steady, drain, got 'stead'"),
        ("ladder", DraftLadder(((4, 9),)), r"drafts must be from 1 to 8 .*got 9"),
    ],
)
def test_each_field_is_checked_by_name(field, value, message):
    with pytest.raises(ValueError, match=message) as caught:
        made(**{field: value})
    assert "\n" not in str(caught.value)


def test_numpy_numbers_and_lists_are_fine():
    load = made(
        acceptance=[np.float64(0.5)], confidence_spread=np.float64(0), output_tokens=np.int64(3)
    )
    assert load.acceptance == (0.5,)
    assert hash(load) == hash(made(acceptance=(0.5,), confidence_spread=0.0, output_tokens=3))


# --- the stored fit ------------------------------------------------------------------------


def test_calibrated_reads_the_stored_fit():
    stored = json.loads((data_dir() / "workloads" / "published.json").read_text("utf-8"))
    load = calibrated()
    assert list(load.acceptance) == stored["acceptance"]["values"]
    assert load.confidence_spread == stored["confidence_spread"]["value"]
    assert spread_nodes() == stored["confidence_spread"]["nodes"]
    assert load.ladder == DEFAULT_LADDER
    assert calibrated(mode="drain", output_tokens=7) == replace(load, mode="drain", output_tokens=7)


def test_calibrated_checks_changes():
    with pytest.raises(ValueError, match="mode must be one of steady, drain, got 'x'"):
        calibrated(mode="x")


@pytest.fixture
def data_copy(tmp_path, monkeypatch):
    """A copy of data/ that a test may damage."""
    copy = tmp_path / "data"
    shutil.copytree(data_dir(), copy)
    monkeypatch.setenv("VERIFYLAB_DATA", str(copy))
    return copy


GOOD = {
    "acceptance": {"values": [0.5]},
    "confidence_spread": {"value": 0.5, "nodes": [0.1]},
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is damaged: Expecting value"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ("5", "is damaged"),
        ("\udcff", "is damaged"),
        ("[" * 100_000, "is damaged"),
        ("1" * 5_000, "is damaged"),
        ("{}", "lacks the field 'acceptance'"),
        (json.dumps({"acceptance": {}}), "lacks the field 'values'"),
        (json.dumps({**GOOD, "acceptance": []}), "is damaged"),
        (json.dumps({**GOOD, "acceptance": {"values": "0.5"}}), "damaged: acceptance must list"),
        (json.dumps({**GOOD, "acceptance": {"values": [2]}}), "damaged: acceptance must list"),
        (json.dumps({**GOOD, "confidence_spread": {"value": None}}), "confidence_spread must"),
        (json.dumps({**GOOD, "confidence_spread": {"value": "x"}}), "confidence_spread must"),
        (json.dumps({**GOOD, "confidence_spread": {"value": float("nan")}}), "got nan"),
    ],
)
def test_a_damaged_fit_is_one_sentence(data_copy, text, message):
    raw = text.encode("utf-8", "surrogateescape")
    (data_copy / "workloads" / "published.json").write_bytes(raw)
    with pytest.raises(DataError, match=message) as caught:
        calibrated()
    assert "workload published.json" in str(caught.value)
    assert str(data_copy) not in str(caught.value)


@pytest.mark.parametrize("nodes", [None, [], [2.0], ["0.5"], 0.5, "0.5"])
def test_damaged_nodes_are_one_sentence(data_copy, nodes):
    spread = {"value": 0.5} if nodes is None else {"value": 0.5, "nodes": nodes}
    text = json.dumps({**GOOD, "confidence_spread": spread})
    (data_copy / "workloads" / "published.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"workload published.json (lacks the field|is damaged)"):
        spread_nodes()


def test_a_missing_fit_is_one_sentence(data_copy):
    with pytest.raises(DataError, match="no workload 'other' in data/workloads"):
        calibrated("other")
    (data_copy / "workloads" / "published.json").unlink()
    with pytest.raises(DataError, match="no workload 'published' in data/workloads"):
        calibrated()


@pytest.mark.skipif(sys.platform == "win32", reason="a folder opens differently there")
def test_a_folder_in_its_place_is_one_sentence(data_copy):
    (data_copy / "workloads" / "published.json").unlink()
    (data_copy / "workloads" / "published.json").mkdir()
    with pytest.raises(DataError, match="workload published.json is damaged"):
        calibrated()


@pytest.mark.parametrize("mean", [1e-300, 1e-10, 1 - 1e-10, 0.0, 1.0, float("nan"), True])
def test_an_acceptance_that_no_draw_tells_from_none_is_refused(mean):
    with pytest.raises(ValueError, match="means must be between 0 and 1"):
        confidence_tables((mean,), 1e-300, 1.0, 1.0)
    with pytest.raises(ValueError, match="acceptance must list probabilities between 0 and 1"):
        made(acceptance=(mean,))


@pytest.mark.parametrize("mean", [1e-9, 1e-6, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("spread", [5e-324, 1e-100, 1e-16, 1e-9, 0.5, 1 - 1e-9, 1 - 2**-53])
@pytest.mark.parametrize("sharpness", [1.0, 2.0])
def test_tables_hold_numbers_at_the_ends(mean, spread, sharpness):
    tables = confidence_tables((mean,), spread, 1.0, sharpness)
    assert not np.isnan(tables.log_reported).any() and (tables.log_reported <= 0).all()
    assert tables.accept_below.max() <= 2**32
    assert tables.accept_below.mean() / 2**32 == pytest.approx(mean, abs=1e-9)
