import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifylab.dcut import (
    DCUT_WIDTH_CAP,
    DEFAULT_LADDER,
    DEFAULT_RATIO,
    MAX_VERIFY_WIDTH,
    RATIOS,
    ROW_BUDGET,
    DraftLadder,
    chunk_ranges,
    dcut_applies,
    keep_count,
    plan,
    select,
    select_one,
    snap_ratio,
)
from verifylab.gate import Gate
from verifylab.ordering import NO_SLOT

PUBLISHED = Path(__file__).parents[1] / "data" / "published"


def published(name):
    return list(csv.DictReader((PUBLISHED / name).read_text("utf-8").splitlines()))


#: Few distinct values, so that ties are common; plus what is unmeasured, impossible, certain.
LOG_CONFIDENCE = st.sampled_from(
    [0.0, -0.0, -0.1, -0.2, -0.5, -0.7, -1e-300, -1e9, -math.inf, math.nan]
) | st.floats(max_value=0.0, allow_infinity=True)


@st.composite
def batches(draw, max_batches=3, max_width=6):
    drafts = draw(st.integers(1, 5))
    shape = (draw(st.integers(1, max_batches)), draw(st.integers(0, max_width)))
    positions = draw(st.integers(0, drafts))
    count = shape[0] * shape[1] * positions
    values = draw(st.lists(LOG_CONFIDENCE, min_size=count, max_size=count))
    return np.array(values, dtype=np.float64).reshape(*shape, positions), drafts


# --- the ratio and the count ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "snapped"),
    [
        (0, 0.25),
        (0.25, 0.25),
        (0.375, 0.25),
        (math.nextafter(0.375, 1), 0.5),
        (0.625, 0.5),
        (0.7, 0.75),
        (0.875, 0.75),
        (0.9, 1.0),
        (1, 1.0),
    ],
)
def test_ratio_snaps_to_the_nearest_and_down_on_a_tie(ratio, snapped):
    assert snap_ratio(ratio) == snapped


@pytest.mark.parametrize("ratio", [-0.01, 1.01, math.inf, math.nan])
def test_ratio_outside_is_refused(ratio):
    with pytest.raises(ValueError, match="ratio must be from 0 to 1, got"):
        snap_ratio(ratio)


def test_keep_rounds_halves_away_from_zero():
    # 10 * 0.25 = 2.5 and 2 * 0.25 = 0.5: half to even would give 2 and 0.
    assert keep_count(5, 3, 0.25, 96) == 3
    assert keep_count(1, 3, 0.25, 96) == 1
    assert keep_count(1, 2, 0.25, 96) == 0


@given(st.integers(1, 40), st.integers(1, 9), st.sampled_from(RATIOS), st.integers(2, 200))
def test_keep_is_the_rule_in_floats(width, drafts, ratio, row_budget):
    prunable = width * (drafts - 1)
    rounded = math.floor(prunable * ratio + 0.5)
    expected = max(0, min(rounded, row_budget - 2 * width, prunable))
    assert keep_count(width, drafts, ratio, row_budget) == expected


def test_keep_never_goes_below_nothing():
    assert keep_count(8, 3, 1.0, 16) == keep_count(8, 3, 1.0, 2) == 0
    assert keep_count(8, 3, 1.0, 17) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3, 0.5, 96), "width must be 1 or more, got 0"),
        ((-1, 3, 0.5, 96), "width must be 1 or more, got -1"),
        ((8, 0, 0.5, 96), "drafts must be 1 or more, got 0"),
        ((8, 3, 0.5, 1), "row_budget must be 2 or more, got 1"),
        ((8.5, 3, 0.5, 96), r"width must be a whole number, got 8\.5"),
        ((8, 3, 1.5, 96), r"ratio must be from 0 to 1, got 1\.5"),
    ],
)
def test_keep_refuses_what_is_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        keep_count(*arguments)


def test_published_share_of_rows_kept():
    rows = [row for row in published("dcut_ratio.csv") if row["kept_frac"]]
    assert len(rows) == 4
    for row in rows:
        width, ratio = int(row["concurrency"]), float(row["ratio"])
        kept = (2 * width + keep_count(width, 3, ratio)) / (width * 4)
        assert kept == pytest.approx(float(row["kept_frac"]), abs=0.0011)


def test_constants_are_the_published_ones():
    dims = {row["name"]: row["value"] for row in published("model_dims.csv")}
    assert int(dims["row_budget"]) == ROW_BUDGET
    assert int(dims["max_verify_width"]) == MAX_VERIFY_WIDTH


# --- select --------------------------------------------------------------------------------


@given(batches(), st.sampled_from([*RATIOS, 0.0, 0.6]), st.integers(2, 40))
def test_select_is_its_oracle(batch, ratio, row_budget):
    confidences, drafts = batch
    got = select(confidences, drafts, ratio, row_budget)
    assert got.dtype == np.int64
    assert got.shape == confidences.shape[:-1]
    for row, retained in zip(confidences, got, strict=True):
        assert select_one(row.tolist(), drafts, ratio, row_budget) == retained.tolist()


@given(batches(max_batches=1), st.sampled_from(RATIOS), st.integers(2, 40))
def test_select_keeps_one_to_all_and_spends_what_it_may(batch, ratio, row_budget):
    confidences, drafts = batch
    retained = select(confidences, drafts, ratio, row_budget)
    width = retained.shape[-1]
    assert ((retained >= 1) & (retained <= drafts)).all()
    if width:
        assert (retained - 1).sum() == keep_count(width, drafts, ratio, row_budget)


def test_select_takes_any_leading_axes():
    confidences = np.log(np.random.default_rng(0).uniform(size=(2, 3, 4, 8, 3)))
    got = select(confidences, 3, 0.75)
    flat = select(confidences.reshape(-1, 8, 3), 3, 0.75)
    assert got.shape == (2, 3, 4, 8)
    assert (got.reshape(-1, 8) == flat).all()
    assert (select(confidences[0, 0, 0], 3, 0.75) == got[0, 0, 0]).all()


def test_the_most_confident_prefixes_stay():
    confidences = np.log([[0.9, 0.9, 0.9], [0.9, 0.5, 0.9], [0.2, 0.9, 0.9], [0.9, 0.9, 0.1]])
    # Prefix products of drafts 2 and 3: .81 .729, .45 .405, .18 .162, .81 .081; four stay.
    assert select(confidences, 3, 0.5).tolist() == [3, 2, 1, 2]


def test_ties_go_to_the_earlier_sequence_then_the_earlier_draft():
    assert select(np.zeros((4, 3)), 3, 0.5).tolist() == [3, 3, 1, 1]
    assert select(np.full((4, 3), -math.inf), 3, 0.5).tolist() == [3, 3, 1, 1]


def test_what_is_not_measured_counts_as_certain():
    assert select([[math.nan, math.nan], [-0.1, -0.1]], 2, 0.5).tolist() == [2, 1]
    # The last draft is missing: it scores as the one before it.
    short = np.log([[0.5, 0.9], [0.5, 0.8]])
    assert select(short, 3, 0.5).tolist() == [3, 1]
    assert select(np.empty((2, 0)), 3, 0.5).tolist() == [3, 1]


def test_scores_add_up_in_draft_order_in_float64():
    # In float64 (-0.1 - 0.2) - 0.3 is below -0.6, and -0.1 + (-0.2 - 0.3) is not.
    assert (-0.1 - 0.2) - 0.3 < -0.6
    confidences = [[-0.1, -0.2, -0.3], [-0.0, -0.0, -0.6]]
    assert select(confidences, 3, 0.75).tolist() == [2, 3]


def test_one_draft_leaves_nothing_to_choose():
    assert select(np.zeros((2, 5, 1)), 1, 0.5).tolist() == [[1] * 5] * 2


def test_an_empty_batch_is_fine():
    assert select(np.zeros((0, 3)), 3, 0.75).shape == (0,)
    assert select(np.zeros((7, 0, 3)), 3, 0.75).shape == (7, 0)


@pytest.mark.parametrize(
    ("confidences", "message"),
    [
        ([[0.0, 0.3]], r"log_confidences must be 0 or less, got 0\.3"),
        ([[math.nan, math.inf]], "log_confidences must be 0 or less, got inf"),
        ([0.0, 0.0], r"log_confidences must have shape \(\.\.\., n, drafts\), got \(2,\)"),
        (np.zeros((2, 4)), "log_confidences must have at most 3 positions a sequence, .* got 4"),
    ],
)
def test_select_refuses_what_is_no_log_confidence(confidences, message):
    with pytest.raises(ValueError, match=message):
        select(confidences, 3, 0.5)


# --- plan ----------------------------------------------------------------------------------


def test_dcut_is_off_above_the_cap_and_below_two_drafts():
    assert dcut_applies(DCUT_WIDTH_CAP, 2)
    assert not dcut_applies(DCUT_WIDTH_CAP + 1, 3)
    assert not dcut_applies(4, 1)
    assert dcut_applies(16, 3, width_cap=16)
    assert not dcut_applies(1, 3, width_cap=0)


def test_plan_without_dcut_verifies_every_draft():
    made = plan(np.arange(16)[::-1], np.full((16, 3), -9.0), 3, Gate())
    assert made.retained.tolist() == [3] * 16
    assert made.depths.tolist() == [4] * 16
    assert made.order.tolist() == list(range(16))[::-1]


def test_the_gate_decides_who_gets_which_depth():
    slots = np.array([5, 1, 7, 3])
    confidences = np.array([[0, 0, 0], [-9, -9, -9], [0, 0, 0], [-1, -1, -1]], dtype=float)
    kept = plan(slots, confidences, 3, Gate(min_width=8))
    assert not kept.canonical
    assert kept.retained.tolist() == [3, 1, 3, 3]
    assert slots[kept.order].tolist() == [3, 5, 7, 1]
    assert kept.depths.tolist() == [4, 4, 4, 2]
    paired = plan(slots, confidences, 3, Gate(min_width=4))
    assert paired.canonical
    assert paired.retained.tolist() == kept.retained.tolist()
    assert slots[paired.order].tolist() == [1, 3, 5, 7]
    assert paired.depths.tolist() == [4, 4, 4, 2]


@given(batches(), st.booleans(), st.randoms(use_true_random=False))
def test_plan_keeps_the_multiset_and_orders_by_depth(batch, enabled, random):
    confidences, drafts = batch
    width = confidences.shape[1]
    slots = np.array([random.sample(range(50), width) for _ in confidences], dtype=np.int64)
    made = plan(slots, confidences, drafts, Gate(min_width=0, enabled=enabled))
    assert made.canonical == enabled
    assert (np.sort(made.depths) == np.sort(made.retained + 1)).all()
    assert (np.diff(made.depths) <= 0).all()
    if not enabled:
        own = np.take_along_axis(made.retained, made.order, axis=-1) + 1
        assert (made.depths == own).all()


def test_plan_of_no_sequence_and_of_one_without_a_slot():
    made = plan(np.zeros(0, dtype=np.int64), np.zeros((0, 3)), 3, Gate())
    assert made.order.tolist() == made.depths.tolist() == []
    made = plan(np.array([NO_SLOT, 4]), np.zeros((2, 3)), 3, Gate(min_width=0))
    assert made.order.tolist() == [1, 0]


def test_plan_refuses_slots_of_another_shape():
    with pytest.raises(ValueError, match=r"slots must have .* shape \(2,\), got \(3,\)"):
        plan(np.arange(3), np.zeros((2, 3)), 3, Gate())


# --- chunks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "row_budget", "expected"),
    [
        ([], 96, []),
        ([4] * 8, 96, [(0, 8)]),
        ([4] * 32, 96, [(0, 24), (24, 32)]),
        ([2] * 70, 96, [(0, 32), (32, 64), (64, 70)]),
        ([4, 4, 2, 2, 2], 8, [(0, 2), (2, 5)]),
        ([4, 2, 2], 4, [(0, 1), (1, 3)]),
    ],
)
def test_chunks(rows, row_budget, expected):
    assert chunk_ranges(rows, row_budget) == expected


@given(st.lists(st.integers(1, 9), max_size=80), st.integers(9, 100), st.integers(1, 40))
def test_chunks_cover_the_batch_within_every_limit(rows, row_budget, max_width):
    rows = sorted(rows, reverse=True)
    ranges = chunk_ranges(rows, row_budget, max_width)
    assert [p for start, stop in ranges for p in range(start, stop)] == list(range(len(rows)))
    for start, stop in ranges:
        assert 1 <= stop - start <= max_width
        assert sum(rows[start:stop]) <= row_budget


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([5, 2], 4), "row_budget must hold a sequence of 5 rows, got 4"),
        (([2, 4], 96), r"rows must be descending, .* got \[2, 4\]"),
        (([2, 0], 96), "rows must be 1 or more, got 0"),
        (([2], 0), "row_budget must be 1 or more, got 0"),
        (([2], 96, 0), "max_width must be 1 or more, got 0"),
    ],
)
def test_chunks_refuse_what_does_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        chunk_ranges(*arguments)


# --- the ladder ----------------------------------------------------------------------------


def test_ladder_gives_drafts_by_width():
    ladder = DraftLadder.parse(" 4:3, 8:2,16:1 ")
    assert [ladder.drafts(n) for n in (1, 4, 5, 8, 9, 16, 17, 500)] == [3, 3, 2, 2, 1, 1, 1, 1]
    assert str(ladder) == "4:3,8:2,16:1"
    assert DraftLadder.parse(str(ladder)) == ladder


def test_default_ladder_is_the_seeds():
    assert DraftLadder.parse("4:3,8:3,16:1,32:1") == DEFAULT_LADDER
    assert DEFAULT_RATIO in RATIOS


@pytest.mark.parametrize("same", ["3", " 3 ", 3])
def test_one_number_is_every_width(same):
    ladder = DraftLadder.parse(same)
    assert [ladder.drafts(n) for n in (1, 8, 128)] == [3, 3, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must read like .* got ''"),
        ("4:3,", "must read like .* got '4:3,'"),
        ("4=3", "must read like .* got '4=3'"),
        ("-4:3", "must read like"),
        ("4:3.5", "must read like"),
        ("0", "drafts must be 1 or more, got 0"),
        ("4:0", "drafts must be 1 or more, got 0"),
        ("0:3", "width must be 1 or more, got 0"),
        ("8:3,4:3", r"widths must ascend, got \[8, 4\]"),
        ("8:3,8:2", r"widths must ascend, got \[8, 8\]"),
    ],
)
def test_ladder_says_what_is_wrong(text, message):
    with pytest.raises(ValueError, match=message) as error:
        DraftLadder.parse(text)
    assert "\n" not in str(error.value)


def test_ladder_refuses_no_rung_and_no_width():
    with pytest.raises(ValueError, match="one rung or more"):
        DraftLadder(())
    with pytest.raises(ValueError, match="width must be 1 or more, got 0"):
        DEFAULT_LADDER.drafts(0)
