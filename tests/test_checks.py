"""Bad numbers are refused everywhere in one sentence that names them."""

import numpy as np
import pytest

from verifylab.cache_study import Config as CacheConfig
from verifylab.checks import fraction, whole, whole_list
from verifylab.churn import Churn
from verifylab.dcut import DraftLadder, chunk_ranges, keep_count, plan, snap_ratio
from verifylab.experiment import Settings
from verifylab.explain import explain
from verifylab.gate import Gate
from verifylab.keyspace import key_space, slot_sets
from verifylab.launches import depth_runs, launches_per_layer
from verifylab.slots import SlotPool
from verifylab.width_gate import Config
from verifylab.workload import Workload


def test_numbers_come_back_as_python_s_own():
    assert type(whole("n", np.int8(3), 0, 9)) is int
    assert whole("n", 10**30, 1) == 10**30
    assert whole_list("n", np.array([2, 1]), 0, 9) == [2, 1]
    assert whole_list("n", (2, 2), 0, 9, distinct=False) == [2, 2]
    assert type(fraction("r", np.float32(0.5))) is float and fraction("r", 1) == 1.0


NAN = float("nan")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: whole("n", True, 0, 9), "n must be a whole number, got True"),
        (lambda: whole("n", np.True_, 0), "n must be a whole number, got "),
        (lambda: whole("n", 2.0, 0, 9), "n must be a whole number, got 2.0"),
        (lambda: whole("n", 10, 0, 9), "n must be from 0 to 9, got 10"),
        (lambda: whole("n", -1, 0), "n must be 0 or more, got -1"),
        (lambda: whole_list("n", "12", 0), "n must be a list of whole numbers, got '12'"),
        (lambda: whole_list("n", 3, 0), "n must be a list of whole numbers, got 3"),
        (lambda: whole_list("n", [], 0), "n must list at least one number, got none"),
        (lambda: whole_list("n", [1, 1], 0), "n must list each number once"),
        (lambda: fraction("r", "0.5"), "r must be a number from 0 to 1, got '0.5'"),
        (lambda: fraction("r", NAN), "r must be from 0 to 1, got nan"),
        (lambda: keep_count(True, 3, 0.75), "width must be a whole number, got True"),
        (lambda: keep_count(8, 3.0, 0.75), "drafts must be a whole number, got 3.0"),
        (lambda: snap_ratio("0.5"), "ratio must be a number from 0 to 1, got '0.5'"),
        (lambda: snap_ratio(None), "ratio must be a number from 0 to 1, got None"),
        (lambda: snap_ratio(True), "ratio must be a number from 0 to 1, got True"),
        (lambda: Settings(4, ratio=None), "ratio must be a number from 0 to 1, got None"),
        (lambda: key_space(8, 3, width_cap=NAN), "width_cap must be a whole number, got nan"),
        (lambda: key_space(8, 3, slot_sets=True), "slot_sets must be a whole number, got True"),
        (lambda: plan([0, 1], [[0.0], [0.0]], 1, Gate(), width_cap=None), "width_cap must be a"),
        (lambda: slot_sets(8.0, 2), "pool must be a whole number, got 8.0"),
        (lambda: chunk_ranges([2.5]), "rows must be a whole number, got 2.5"),
        (lambda: chunk_ranges([2], max_width=True), "max_width must be a whole number, got True"),
        (lambda: SlotPool(True), "size must be a whole number, got True"),
        (lambda: DraftLadder("4:3"), "rungs must be a tuple of .*, got '4:3'"),
        (lambda: DraftLadder(((4, True),)), "drafts must be a whole number, got True"),
        (lambda: Workload((0.8,), 0.3, ladder="4:3"), "ladder must be a DraftLadder .* got '4:3'"),
        (lambda: explain([0.9, 1.2], [2, 2], Gate()), "slots must be a whole number, got 0.9"),
        (lambda: explain([0, 1], [2.9, True], Gate()), "depths must be a whole number, got 2.9"),
        (lambda: explain([0, 1], [2, True], Gate()), "depths must be a whole number, got True"),
        (lambda: explain("01", [2, 2], Gate()), "slots must be a list of whole numbers, got '01'"),
        (lambda: explain([-1], [2], Gate()), "slots must be from 0 to 4294967295, got -1"),
        (lambda: launches_per_layer([0], [2**62]), "depths must be at most 4294967295 rows"),
        (lambda: depth_runs([0], [2**32]), "depths must be at most 4294967295 rows"),
        (lambda: Config(widths=4), "widths must be a list of whole numbers, got 4"),
        (lambda: Config(dcut_ratio=True), "dcut_ratio must be a number from 0 to 1, got True"),
        (lambda: CacheConfig(widths=[True]), "widths must be a whole number, got True"),
        (lambda: CacheConfig(steps="9"), "steps must be a whole number, got '9'"),
        (lambda: CacheConfig(churn_load="x"), "churn_load must be between 0 and 1, got 'x'"),
        (lambda: Churn(arrivals_per_step="1"), "arrivals_per_step must be .*, got '1'"),
    ],
)
def test_what_is_no_such_number_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_deepest_that_a_key_holds_counts_exactly():
    deepest = 2**32 - 1
    assert launches_per_layer([0, 5], [deepest, deepest]) == 4 * deepest
    many = launches_per_layer(np.tile([0, 5], 50), np.full(100, deepest))
    assert (
        many == 200 * deepest == sum(r.launches for r in depth_runs([0, 5] * 50, [deepest] * 100))
    )
