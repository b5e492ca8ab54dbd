import csv
import itertools
import math
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifylab.dcut import DEFAULT_LADDER, RATIOS, DraftLadder, keep_count, select
from verifylab.gate import Gate
from verifylab.keyspace import (
    TABLE_COLUMNS,
    bound_arrangements,
    bound_multisets,
    count_arrangements,
    count_multisets,
    gate_key_space,
    key_space,
    key_space_table,
    reachable_multisets,
    slot_sets,
)

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
KEY_COUNTS = list(
    csv.DictReader((PUBLISHED / "key_counts.csv").read_text("utf-8").splitlines()),
)


def enumerate_arrangements(width, drafts, keep):
    """Every tuple of extras that adds up, the long way."""
    return [e for e in itertools.product(range(drafts), repeat=width) if sum(e) == keep]


def as_multiset(extras, drafts):
    count = Counter(extras)
    return tuple(count[extra] for extra in range(drafts - 1, -1, -1))


def confidences_for(extras, drafts):
    """Log-confidences that make D-Cut choose these extras: certain up to there, then not."""
    position = np.arange(drafts)
    return np.where(position <= np.asarray(extras)[..., None], 0.0, -1.0)


# --- the published counts --------------------------------------------------------------------


@pytest.mark.parametrize("row", KEY_COUNTS, ids=lambda r: f"n{r['n']}-{r['ratio'] or 'off'}")
def test_published_key_counts(row):
    width, drafts, ratio = int(row["n"]), int(row["drafts"]), float(row["ratio"] or 0.75)
    space = key_space(width, drafts, ratio)
    assert space.arrangement_keys == int(row["keys_arrangement"])
    assert space.canonical_keys == space.multisets == int(row["keys_canonical"])
    if not row["keep"]:
        assert row["multisets_k4_k3_k2"] == "uniform"
        assert (space.keep, space.rows) == (width * (drafts - 1), width * (drafts + 1))
        return
    assert (space.keep, space.rows) == (int(row["keep"]), int(row["rows_total"]))
    arrangements = enumerate_arrangements(width, drafts, space.keep)
    assert len(arrangements) == int(row["keys_arrangement"])
    assert len({as_multiset(e, drafts) for e in arrangements}) == int(row["keys_canonical"])
    if row["multisets_k4_k3_k2"]:
        listed = "|".join(
            f"({','.join(map(str, counts))})"
            for counts in reachable_multisets(width, drafts, ratio)
        )
        assert listed == row["multisets_k4_k3_k2"]


def test_every_published_row_is_read():
    assert [row["n"] for row in KEY_COUNTS] == ["2", "4", "8", "8", "8", "16"]


def test_the_seeds_bound():
    assert bound_multisets(8, 3) == math.comb(10, 2) == 45
    assert bound_arrangements(8, 3) == 3**8 == 6561
    tuples = list(itertools.product((2, 3, 4), repeat=8))
    assert len(tuples) == 6561
    assert len({tuple(sorted(t)) for t in tuples}) == 45


def test_measured_counts_stay_within_the_key_space():
    for row in KEY_COUNTS:
        if row["keys_measured"]:
            assert int(row["keys_measured"].split("-")[-1]) <= int(row["keys_arrangement"])


# --- formulas against enumeration --------------------------------------------------------------


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("drafts", [1, 2, 3, 4, 5])
def test_counts_are_what_enumeration_finds(drafts, ratio):
    for width in range(1, 7 if drafts < 5 else 6):
        for row_budget in (96, 2 * width + 3, 2 * width, 2):
            keep = keep_count(width, drafts, ratio, row_budget)
            arrangements = enumerate_arrangements(width, drafts, keep)
            multisets = sorted({as_multiset(e, drafts) for e in arrangements})
            case = (width, drafts, ratio, row_budget)
            assert count_arrangements(*case) == len(arrangements)
            assert count_multisets(*case) == len(multisets)
            assert reachable_multisets(*case) == multisets


@pytest.mark.parametrize("ratio", RATIOS)
def test_arrangements_are_the_sum_of_multinomials(ratio):
    for width, drafts in itertools.product((1, 5, 8, 13), (2, 3, 4)):
        total = 0
        for counts in reachable_multisets(width, drafts, ratio):
            assert sum(counts) == width
            ways = math.factorial(width)
            for count in counts:
                ways //= math.factorial(count)
            total += ways
        assert total == count_arrangements(width, drafts, ratio)


@pytest.mark.parametrize("width", [8, 32])
def test_counts_over_every_budget_add_up_to_the_bound(width):
    # With ratio 1 the budget alone sets keep, so the budgets sweep every coefficient once.
    for drafts in (2, 3, 8):
        prunable = width * (drafts - 1)
        budgets = [max(2, 2 * width + keep) for keep in range(prunable + 1)]
        multisets = sum(count_multisets(width, drafts, 1.0, budget) for budget in budgets)
        arrangements = sum(count_arrangements(width, drafts, 1.0, budget) for budget in budgets)
        assert multisets == bound_multisets(width, drafts)
        assert arrangements == bound_arrangements(width, drafts)


def test_wide_counts_are_exact_and_quick():
    started = time.perf_counter()
    for ratio in RATIOS:
        wide = key_space(32, 8, ratio, row_budget=10_000, width_cap=32)
        assert wide.canonical_keys >= 1
    elapsed_ms = 1000 * (time.perf_counter() - started) / len(RATIOS)
    # 10 ms is the promise; a test machine shared with others gets some slack.
    assert elapsed_ms < 50
    half = count_arrangements(32, 8, 0.5, 10_000)
    assert half > 2**64
    # The middle coefficient by repeated multiplication: no closed form.
    power = [1]
    for _ in range(32):
        longer = [0] * (len(power) + 7)
        for degree, coefficient in enumerate(power):
            for extra in range(8):
                longer[degree + extra] += coefficient
        power = longer
    assert half == power[112]


def test_numpy_integers_do_not_wrap():
    assert count_arrangements(np.int64(32), np.int64(8), 0.5, np.int64(10_000)) > 2**64
    assert count_multisets(np.int32(8), np.int32(3), 0.75) == 3


# --- against D-Cut itself ----------------------------------------------------------------------


@given(
    st.integers(1, 8),
    st.integers(1, 4),
    st.sampled_from(RATIOS),
    st.integers(2, 40),
    st.integers(0, 2**32),
)
def test_dcut_only_ever_chooses_a_reachable_multiset(width, drafts, ratio, row_budget, seed):
    confidences = np.log(np.random.default_rng(seed).uniform(size=(20, width, drafts)))
    reachable = set(reachable_multisets(width, drafts, ratio, row_budget))
    for retained in select(confidences, drafts, ratio, row_budget):
        assert as_multiset((retained - 1).tolist(), drafts) in reachable


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize(("width", "drafts"), [(1, 3), (2, 3), (4, 3), (8, 3), (5, 4), (8, 2)])
def test_every_arrangement_has_confidences_that_produce_it(width, drafts, ratio):
    keep = keep_count(width, drafts, ratio)
    wanted = np.array(enumerate_arrangements(width, drafts, keep))
    got = select(confidences_for(wanted, drafts), drafts, ratio)
    assert (got == wanted + 1).all()


# --- widths, gates, pools, tables --------------------------------------------------------------


def test_without_dcut_there_is_one_key():
    off = key_space(16, 3)
    assert (off.keep, off.rows, off.arrangement_keys, off.canonical_keys) == (32, 64, 1, 1)
    assert key_space(16, 3, width_cap=16).arrangement_keys > 1
    # The row budget is D-Cut's: without it every draft is verified, and chunks split the batch.
    assert key_space(32, 3).rows == 128
    assert key_space(4, 1).rows == 8


def test_slot_sets_multiply_both_arms():
    assert slot_sets(10, 8) == 45
    assert slot_sets(4, 8) == 0
    space = key_space(8, 3, slot_sets=45)
    assert (space.multisets, space.canonical_keys, space.arrangement_keys) == (3, 135, 266 * 45)


def test_gate_takes_the_arm_of_each_width():
    widths = [1, 2, 4, 8, 16]
    # One sequence keeps round(2 * 0.75) = 2 of 2: one key.
    assert gate_key_space(Gate(min_width=8), widths, 3) == 1 + 2 + 10 + 3 + 1
    assert gate_key_space(Gate(min_width=0), widths, 3) == 1 + 1 + 2 + 3 + 1
    assert gate_key_space(Gate(enabled=False), widths, 3) == 1 + 2 + 10 + 266 + 1
    assert gate_key_space(Gate(), [8, 8], 3) == 3
    assert gate_key_space(Gate(), [], 3) == 0
    assert gate_key_space(Gate(), [2, 8], DEFAULT_LADDER, pool=8) == 2 * 28 + 3
    assert gate_key_space(Gate(), [8], DraftLadder.parse("1")) == 1


def test_table_has_the_columns_and_the_counts():
    table = key_space_table([2, 4, 8, 16])
    assert tuple(table.columns) == TABLE_COLUMNS
    assert table["arrangement_keys"].tolist() == [2, 10, 266, 1]
    assert table["canonical_keys"].tolist() == [1, 2, 3, 1]
    assert set(map(str, table.dtypes)) == {"int64"}
    assert tuple(key_space_table([]).columns) == TABLE_COLUMNS


def test_table_stays_exact_beyond_int64():
    table = key_space_table([32], 8, 0.5, row_budget=10_000, width_cap=32)
    assert table["arrangement_keys"].dtype == object
    assert table["arrangement_keys"][0] == count_arrangements(32, 8, 0.5, 10_000)
    assert table["keep"].dtype == np.int64


def test_long_lists_are_refused_and_counted():
    with pytest.raises(ValueError, match="lists at most 1000000 multisets and width 32 with 12"):
        reachable_multisets(32, 12, 0.5, 10_000)
    with pytest.raises(ValueError, match="has 3: count them with count_multisets"):
        reachable_multisets(8, 3, limit=2)
    assert len(reachable_multisets(8, 3, limit=3)) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: key_space(0, 3), "width must be 1 or more, got 0"),
        (lambda: key_space(-2, 3), "width must be 1 or more, got -2"),
        (lambda: key_space(8, 0), "drafts must be 1 or more, got 0"),
        (lambda: key_space(16, 3, row_budget=0), "row_budget must be 2 or more, got 0"),
        (lambda: key_space(8, 3, slot_sets=-1), "slot_sets must be 0 or more, got -1"),
        (lambda: slot_sets(0, 2), "pool must be 1 or more, got 0"),
        (lambda: bound_multisets(8, 0), "depth_values must be 1 or more, got 0"),
        (lambda: bound_arrangements(0, 3), "width must be 1 or more, got 0"),
        (lambda: key_space_table([8], ratio=2), "ratio must be from 0 to 1, got 2"),
        (lambda: gate_key_space(Gate(), [0], 3), "width must be 1 or more, got 0"),
    ],
)
def test_what_is_out_of_range_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()
