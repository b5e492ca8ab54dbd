"""The trace: what is refused, what the analyses find in traces whose answer is known."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifylab import draft_calibration as dc
from verifylab import draft_sequences as ds
from verifylab._fast_drafts import draw_trace
from verifylab.dcut import DraftLadder
from verifylab.draft_trace import TRACE_DRAFTS, DraftTrace
from verifylab.draws import philox4x32
from verifylab.published import DataError, data_dir
from verifylab.trace_workload import TraceWorkload

SPREADS = (0.6, 0.4, 0.3)
MEANS = (0.8, 0.65, 0.6)


def beta_trace(seed=0, sequences=400, length=256, sharpness=1.0) -> DraftTrace:
    """Independent Beta confidences of known spread, accepted with just that probability."""
    rng = np.random.default_rng(seed)
    rows = sequences * length
    p = np.empty((rows, TRACE_DRAFTS))
    for d, (mean, spread) in enumerate(zip(MEANS, SPREADS, strict=True)):
        k = 1 / spread - 1
        p[:, d] = rng.beta(mean * k, (1 - mean) * k, rows)
    accepted = np.cumprod(rng.random(p.shape) < p, axis=1).sum(axis=1)
    p = np.clip(p, 1e-9, 1 - 1e-9)
    reported = p**sharpness / (p**sharpness + (1 - p) ** sharpness)
    return DraftTrace(np.arange(sequences + 1) * length, np.log(reported), accepted, "beta")


def tiny(accepted=(0, 3, 1, 2, 0), lengths=(2, 3)) -> DraftTrace:
    logs = -np.arange(1, 3 * len(accepted) + 1).reshape(-1, 3) / 10
    return DraftTrace(np.cumsum([0, *lengths]), logs, np.array(accepted), "tiny")


def table_of(trace: DraftTrace) -> pd.DataFrame:
    columns = {
        "sequence": trace.sequence_of,
        "position": np.concatenate([np.arange(n) for n in trace.lengths]),
        **{f"logc{d + 1}": trace.log_confidences[:, d] for d in range(3)},
        "accepted": trace.accepted,
    }
    return pd.DataFrame(columns)


# --- the trace itself ---------------------------------------------------------------------------


def test_arrays_are_read_only_clipped_and_shaped():
    logs = np.full((2, 3), 1e-7)
    trace = DraftTrace(np.array([0, 2]), logs, np.array([3, 0]))
    assert (trace.log_confidences == 0).all() and (logs == 1e-7).all(), "the caller's own stays"
    assert (trace.rows, trace.sequences, trace.lengths.tolist()) == (2, 1, [2])
    with pytest.raises(ValueError, match="read-only"):
        trace.accepted[0] = 1
    assert tiny().sequence_of.tolist() == [0, 0, 1, 1, 1]
    assert tiny().reached(2).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("offsets", "logs", "accepted", "message"),
    [
        ([0], np.zeros((0, 3)), [], "at least one sequence"),
        ([0, 2, 2], np.zeros((2, 3)), [0, 0], "none of them empty"),
        ([0, 2], np.zeros((2, 2)), [0, 0], "3 log-confidences"),
        ([0, 2], np.zeros((2, 3)), [0], "one accepted length"),
        ([0, 2], [[0, 0, 0], [0, 0.1, 0]], [0, 0], "0 or less, got .*0.1.* at row 1"),
        ([0, 1], [[0, np.nan, 0]], [0], "finite"),
        ([0, 1], [[0, -np.inf, 0]], [0], "finite"),
        ([0, 2], np.zeros((2, 3)), [0, 4], "accepted must be from 0 to 3, got 4 at row 1"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(offsets, logs, accepted, message):
    with pytest.raises(DataError, match=f"trace bad: .*{message}"):
        DraftTrace(np.array(offsets), np.array(logs, float), np.array(accepted, int), "bad")


def test_a_table_comes_back_as_it_was(tmp_path):
    trace = tiny()
    table_of(trace).to_parquet(tmp_path / "mine.parquet")
    back = DraftTrace.load("mine", tmp_path)
    assert back.name == "mine" and back.how == {}
    for name in ("offsets", "log_confidences", "accepted"):
        assert np.array_equal(getattr(back, name), getattr(trace, name)), name


def _rename(table):
    return table.rename(columns={"logc2": "logc_2"})


def _words(table):
    return table.assign(accepted=["many"] * len(table))


def _gap(table):
    return table.drop(index=3)


def _apart(table):
    return table.assign(sequence=[0, 1, 0, 0, 0], position=[0, 0, 0, 1, 2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_rename, "lacks the column logc2"),
        (_words, "column accepted holds"),
        (_gap, "must count 0, 1, 2, ..., got 2 for 1 at row 3"),
        (_apart, "must stand together"),
        (lambda t: t.head(0), "got no rows"),
        (lambda t: t.assign(logc1=1.0), "0 or less"),
    ],
)
def test_a_damaged_table_is_named(tmp_path, damage, message):
    damage(table_of(tiny())).to_parquet(tmp_path / "t.parquet", index=False)
    with pytest.raises(DataError, match=f"trace t: .*{re.escape(message)}"):
        DraftTrace.load("t", tmp_path)


def test_damaged_files_are_named(tmp_path):
    with pytest.raises(DataError, match="no trace 'absent'"):
        DraftTrace.load("absent", tmp_path)
    with pytest.raises(DataError, match="must be letters"):
        DraftTrace.load("../up", tmp_path)
    path = tmp_path / "t.parquet"
    table_of(tiny()).to_parquet(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="t.parquet is damaged: no Parquet table"):
        DraftTrace.load("t", tmp_path)
    (tmp_path / "t.json").write_text(json.dumps({"sha256": "0" * 64}))
    with pytest.raises(DataError, match="its SHA-256 is not that of t.json"):
        DraftTrace.load("t", tmp_path)
    for text in ("{", "[]"):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(DataError, match="t.json is damaged"):
            DraftTrace.load("t", tmp_path)


# --- the analyses, where the answer is known ----------------------------------------------------


def test_known_spread_acceptance_and_calibration_are_found():
    table = dc.by_depth(beta_trace())
    assert table.acceptance.to_numpy() == pytest.approx(MEANS, abs=0.01)
    assert table.spread.to_numpy() == pytest.approx(SPREADS, abs=0.02)
    assert table.reported_spread.to_numpy() == pytest.approx(SPREADS, abs=0.02)
    assert table.skill.to_numpy() == pytest.approx(SPREADS, abs=0.02)
    assert (table.ece < 0.01).all()
    assert (table.spread_low < table.spread).all() and (table.spread < table.spread_high).all()
    expected = [m * (1 - m) * (1 - s) for m, s in zip(MEANS, SPREADS, strict=True)]
    assert table.brier.to_numpy() == pytest.approx(expected, abs=0.005)


def test_a_boastful_drafter_is_seen_and_put_right():
    boasting = beta_trace(sharpness=2.5)
    before = dc.by_depth(boasting)
    fixed = dc.recalibrated(boasting)
    after = dc.by_depth(fixed)
    assert (before.ece > 0.05).all() and (after.ece < 0.01).all()
    assert before.spread.to_numpy() == pytest.approx(SPREADS, abs=0.02), "order is all it takes"
    assert (before.reported_spread > before.spread + 0.1).all()
    assert np.array_equal(fixed.accepted, boasting.accepted)
    curve = dc.calibration(boasting)
    high = curve[(curve.depth == 3) & (curve.predicted > 0.7)]
    assert len(high) > 3 and (high.predicted > high.observed).all()


def test_uninformative_confidences_have_no_spread():
    silent = dc.uninformative(beta_trace(sequences=50))
    table = dc.by_depth(silent)
    assert table.reported_spread.to_numpy() == pytest.approx(0, abs=1e-12)
    assert (table.ece < 1e-9).all()
    assert dc.calibration(silent).groupby("depth").size().tolist() == [1, 1, 1]


def test_the_calibration_curve_counts_every_reached_row_once():
    trace = beta_trace(sequences=20)
    curve = dc.calibration(trace, bins=7)
    for depth, rows in curve.groupby("depth"):
        assert rows.n.sum() == trace.reached(depth - 1).sum()
        assert rows.predicted.is_monotonic_increasing
        assert ((rows.low <= rows.observed) & (rows.observed <= rows.high)).all()
        mean = (rows.n * rows.observed).sum() / rows.n.sum()
        assert mean == pytest.approx((trace.accepted >= depth).sum() / rows.n.sum())
    with pytest.raises(ValueError, match="bins must be 1 or more, got 0"):
        dc.calibration(trace, bins=0)


def test_a_depth_that_nothing_reached_is_empty_not_an_error():
    trace = tiny(accepted=(0, 0, 0, 0, 0))
    table = dc.by_depth(trace)
    assert table.n.tolist() == [5, 0, 0] and table.acceptance[0] == 0
    assert set(dc.calibration(trace).depth) == {1}
    for changed in (dc.recalibrated(trace), dc.uninformative(trace)):
        assert np.isfinite(changed.log_confidences).all()


def test_independent_draws_have_no_memory_and_repeated_ones_have():
    trace = beta_trace(sequences=200)
    table = ds.autocorrelation(trace, 8)
    assert table.groupby("series").size().to_dict() == dict.fromkeys(
        ("confidence", "accepted", "residual"), 8
    )
    assert (table.correlation.abs() < 0.02).all()
    assert (table[table.lag == 8].n == 200 * (256 - 8)).all(), "no pair crosses two sequences"
    twice = DraftTrace(
        trace.offsets * 2,
        np.repeat(trace.log_confidences, 2, axis=0),
        np.repeat(trace.accepted, 2),
    )
    first = ds.autocorrelation(twice, 2)
    assert first[first.lag == 1].correlation.to_numpy() == pytest.approx(0.5, abs=0.02)
    with pytest.raises(ValueError, match="max_lag must be from 1 to 2, got 3"):
        ds.autocorrelation(tiny(), 3)


def test_sequences_alike_spread_as_chance_does_and_others_more():
    alike = ds.sequence_spread(beta_trace())
    assert alike.acceptance.is_monotonic_increasing
    assert (alike.acceptance - alike.chance).abs().max() < 0.03
    easy = beta_trace(seed=1)
    accepted = easy.accepted.copy()
    accepted[: easy.rows // 2] = 3
    mixed = DraftTrace(easy.offsets, easy.log_confidences, accepted)
    table = ds.sequence_spread(mixed)
    assert table.acceptance.std() > 3 * table.chance.std()
    assert table[table.acceptance == 1].tokens.eq(4).all()
    small = ds.sequence_spread(tiny())
    assert small.sequence.tolist() == [0, 1] and small.n.tolist() == [2, 3]
    assert small.tokens.tolist() == [2.5, 2.0]


def test_replay_steps_as_an_engine_does():
    table = ds.replay(tiny())
    assert table.steps.tolist() == [2, 2], "0 then 3; 1 then 0 of the second's last place"
    assert table.tokens.tolist() == [5, 3]
    assert ds.replay(tiny(), 1).tokens.tolist() == [3, 3]
    assert ds.visited(tiny()).tolist() == [True, True, True, False, True]
    assert ds.visited(tiny(), 1).tolist() == [True, True, True, False, True]
    assert dc.by_depth(tiny(), rows=ds.visited(tiny())).n.tolist() == [4, 2, 1]
    with pytest.raises(ValueError, match="drafts must be from 1 to 3, got 4"):
        ds.replay(tiny(), 4)


# --- the workload -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    request=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**31),
    drafts=st.integers(1, 3),
    stretch=st.none() | st.integers(1, 300),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
)
def test_the_compiled_draw_is_the_readable_one(seed, request, position, drafts, stretch, lengths):
    rng = np.random.default_rng(sum(lengths))
    trace = DraftTrace(
        np.cumsum([0, *lengths]),
        -rng.random((sum(lengths), 3)),
        rng.integers(0, 4, sum(lengths)),
    )
    workload = TraceWorkload(trace, stretch=stretch)
    logs, prefix = workload.draw(seed, np.array([request], np.uint64), np.array([position]), drafts)
    scores = np.full(3, 7.0)
    length = draw_trace(
        np.uint64(seed), np.uint64(request), np.uint64(position), drafts, *workload.arrays(), scores
    )
    assert length == prefix[0]
    assert scores[:drafts].tolist() == np.cumsum(logs[0]).tolist()
    assert (scores[drafts:] == 7.0).all()


def test_a_request_reads_one_sequence_in_order_from_a_drawn_place():
    trace = beta_trace(sequences=9, length=32)
    workload = TraceWorkload(trace)
    assert workload.stretch == 32
    for request in range(40):
        rows = workload.rows(5, np.full(32, request), np.arange(32))
        assert len(set(trace.sequence_of[rows])) == 1 and len(set(rows)) == 32
        assert (np.diff(rows) == 1).sum() >= 30
    word = philox4x32(np.array([[0, 7, 0, 0]]), (5, 0))[0, 0]
    assert workload.rows(5, np.array([7]), np.array([0]))[0] == int(word) * trace.rows >> 32


@pytest.mark.parametrize("position", [0, 3, 40])
def test_every_row_is_equally_likely_at_every_position(position):
    trace = tiny()
    n = 50_000
    rows = TraceWorkload(trace).rows(3, np.arange(n), np.full(n, position))
    share = np.bincount(rows, minlength=trace.rows) / n
    assert share == pytest.approx(1 / trace.rows, abs=0.01)


def test_a_stretch_of_one_cuts_what_ties_neighbours():
    trace = beta_trace(sequences=9, length=32)
    rows = TraceWorkload(trace, stretch=1).rows(5, np.zeros(200, int), np.arange(200))
    assert (np.diff(rows) == 1).sum() < 10 and len(set(trace.sequence_of[rows])) == 9


def test_expected_tokens_follow_from_the_rows():
    workload = TraceWorkload(tiny())
    assert [workload.expected_tokens(d) for d in (1, 2, 3)] == [1.6, 2.0, 2.2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_tokens": 0}, "output_tokens must be from 1"),
        ({"mode": "fast"}, "mode must be one of steady, drain, got 'fast'"),
        ({"ladder": DraftLadder.parse(4)}, "drafts must be from 1 to 3 .*tiny.*, got 4"),
        ({"stretch": 0}, "stretch must be from 1 to .*, got 0"),
        ({"stretch": True}, "stretch must be from 1"),
    ],
)
def test_a_workload_refuses_what_it_cannot_replay(changes, message):
    with pytest.raises(ValueError, match=message):
        TraceWorkload(tiny(), **changes)


def test_a_draw_refuses_a_draft_that_was_not_recorded():
    for drafts in (0, 4):
        with pytest.raises(ValueError, match=f"drafts must be from 1 to 3.*got {drafts}"):
            TraceWorkload(tiny()).draw(0, np.zeros(1), np.zeros(1), drafts)


# --- the trace that comes along -----------------------------------------------------------------


@pytest.fixture(scope="module")
def stored() -> DraftTrace:
    return DraftTrace.load()


def test_the_stored_trace_is_what_its_record_says(stored):
    how = stored.how
    assert (how["rows"], how["sequences"]) == (stored.rows, stored.sequences)
    reach = [(stored.accepted >= d).mean() for d in range(4)]
    measured = [reach[d + 1] / reach[d] for d in range(3)]
    assert how["acceptance"] == pytest.approx(measured, abs=1e-4)
    assert stored.sequences >= 300 and 0.6 <= measured[0] <= 0.9
    assert how["command"].startswith("python scripts/train_drafts.py --seed")
    folder = data_dir() / "traces"
    assert sum(p.stat().st_size for p in folder.iterdir()) < 4_000_000
    text = (folder / "mtp_drafts.json").read_text() + (folder / "README.md").read_text()
    assert not re.search(r"/home/|/root/|/tmp/|/usr/|https?://", text), "no machine's paths"


def test_the_readme_quotes_what_the_trace_holds(stored):
    text = (data_dir() / "traces" / "README.md").read_text()
    seen = dc.by_depth(stored, rows=ds.visited(stored))
    for row, step in zip(dc.by_depth(stored).itertuples(), seen.itertuples(), strict=True):
        quoted = (
            f"| {row.depth} | {row.acceptance:.3f} | {step.acceptance:.3f} | {row.ece:.3f} "
            f"| {row.spread:.2f} | {step.spread:.2f} |"
        )
        assert quoted in text, quoted
    replayed = ds.replay(stored)
    assert f"{replayed.tokens.sum() / replayed.steps.sum():.2f} tokens" in text
    near = ds.autocorrelation(stored, 1).set_index("series").correlation
    assert f"{near.confidence:.2f}, {near.accepted:.2f} and {near.residual:.2f}" in text
    sequences = ds.sequence_spread(stored)
    assert f"{sequences.acceptance.std():.3f} against {sequences.chance.std():.3f}" in text
