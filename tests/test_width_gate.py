"""The main job: parameters checked by name, tables that agree, and what must come out by itself."""

import numpy as np
import pandas as pd
import pytest

from verifylab.device import Choice, DeviceError
from verifylab.experiment import Settings, grid
from verifylab.gate import Gate
from verifylab.graph_price import graph_ms_of
from verifylab.keyspace import key_space
from verifylab.machine import load_profile
from verifylab.stats import PARTS, paired
from verifylab.width_gate import Config, save, width_gate
from verifylab.workload import calibrated, spread_nodes

NAN = float("nan")
SMALL = {
    "widths": [2, 8, 16],
    "min_widths": [0, 8, 9, 33],
    "seeds": 3,
    "steps": 200,
    "warmup_steps": 50,
    "draws": 200,
    "device": "model",
}
GATE_COLUMNS = (
    "width min_width canonical reachable_keys keys_seen capture_fraction tokens_per_step "
    "launches_per_layer step_ms tok_s tok_s_low tok_s_high gain_pct gain_low gain_high "
    "seeds time machine date"
).split()
ARM_COLUMNS = (
    "width policy reachable_keys keys_seen capture_fraction tokens_per_step launches_per_layer "
    "step_ms tok_s tok_s_low tok_s_high bound_tok_s extrapolated seeds time machine date graph_ms"
).split()


@pytest.fixture(scope="module")
def small():
    return width_gate(Config.from_parameters(SMALL))


@pytest.fixture(scope="module")
def drained():
    parameters = SMALL | {"mode": "drain", "output_tokens": 300, "widths": [4, 8, 12]}
    return width_gate(Config.from_parameters(parameters))


# --- parameters ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("widths", [0], "widths must be from 1 to 1024, got 0"),
        ("widths", [8, -1], "widths must be from 1 to 1024, got -1"),
        ("widths", [2000], "widths must be from 1 to 1024, got 2000"),
        ("widths", [], "widths must list at least one number, got none"),
        ("widths", [2, 2], r"widths must list each number once, got \[2, 2\]"),
        ("widths", "8", "widths must be a list of whole numbers, got '8'"),
        ("widths", 8, "widths must be a list of whole numbers, got 8"),
        ("widths", None, "widths must be a list of whole numbers, got None"),
        ("widths", [True], "widths must be a whole number, got True"),
        ("widths", [2.0], "widths must be a whole number, got 2.0"),
        ("widths", [NAN], "widths must be a whole number, got nan"),
        ("widths", ["8"], "widths must be a whole number, got '8'"),
        ("widths", [[8]], r"widths must be a whole number, got \[8\]"),
        ("min_widths", [-1], "min_widths must be from 0 to 9223372036854775807, got -1"),
        ("min_widths", [2**63], "min_widths must be from 0 to"),
        ("min_widths", [], "min_widths must list at least one number, got none"),
        ("min_widths", [8, 8], r"min_widths must list each number once, got \[8, 8\]"),
        ("graph_capacity", 0, "graph_capacity must be from 1 to 65536, got 0"),
        ("graph_capacity", True, "graph_capacity must be a whole number, got True"),
        ("graph_capacity", "32", "graph_capacity must be a whole number, got '32'"),
        ("graph_capacity", NAN, "graph_capacity must be a whole number, got nan"),
        ("graph_capacity", None, "graph_capacity must be a whole number, got None"),
        ("dcut_ratio", 1.01, "dcut_ratio must be from 0 to 1, got 1.01"),
        ("dcut_ratio", -0.5, "dcut_ratio must be from 0 to 1, got -0.5"),
        ("dcut_ratio", NAN, "dcut_ratio must be from 0 to 1, got nan"),
        ("dcut_ratio", "0.75", "dcut_ratio must be a number from 0 to 1, got '0.75'"),
        ("dcut_ratio", True, "dcut_ratio must be a number from 0 to 1, got True"),
        ("drafts", 9, r"drafts must be from 1 to 8 \(rollback snapshots a slot keeps\), got 9"),
        ("drafts", "4:3,8:12", "drafts must be from 1 to 8 .*got 12"),
        ("drafts", 0, "drafts must be 1 or more, got 0"),
        ("drafts", -1, "draft ladder must read like .*got -1"),
        ("drafts", True, "draft ladder must read like .*got True"),
        ("drafts", 3.0, "draft ladder must read like .*got 3.0"),
        ("drafts", None, "draft ladder must read like .*got None"),
        ("drafts", [3], r"draft ladder must read like .*got \[3\]"),
        ("drafts", "8:3,4:2", r"draft ladder's widths must ascend, got \[8, 4\]"),
        ("drafts", "8=3", "draft ladder must read like '4:3,8:3,16:1'"),
        ("seeds", 1, "seeds must be from 2 to 10000, got 1"),
        ("seeds", 2.5, "seeds must be a whole number, got 2.5"),
        ("seeds", [1, 2], "seeds must be a whole number"),
        ("steps", 0, "steps must be from 1 to"),
        ("warmup_steps", -1, "warmup_steps must be from 0 to"),
        ("mode", "stead", "mode must be one of steady, drain, got 'stead'"),
        ("mode", None, "mode must be one of steady, drain, got None"),
        ("device", "gpu", "device must be one of auto, model, host, cuda, got 'gpu'"),
        ("device", None, "device must be one of auto, model, host, cuda, got None"),
        ("machine", "gb11", r"no machine profile 'gb11' .*there are: gb10-published"),
        ("machine", 5, "machine must be the name of a profile, got 5"),
        ("output_tokens", 0, "output_tokens must be from 1 to"),
        ("row_budget", 1, "row_budget must be from 2 to"),
        ("row_budget", 3, "row_budget must hold one sequence of 4 rows, got 3"),
        ("confidence_spread", 1.5, "confidence_spread must be a number from 0 to 1, got 1.5"),
        ("confidence_spread", NAN, "confidence_spread must be a number from 0 to 1, got nan"),
        ("confidence_spread", "0.5", "confidence_spread must be .*got '0.5'"),
        ("confidence_spread", True, "confidence_spread must be .*got True"),
        ("confidence_spread", [0.5], r"confidence_spread must be .*got \[0.5\]"),
        ("draws", 99, "draws must be from 100 to 1000000, got 99"),
    ],
)
def test_a_bad_parameter_is_one_sentence(name, value, message):
    with pytest.raises(ValueError, match=message) as caught:
        Config.from_parameters({name: value})
    assert "\n" not in str(caught.value)
    assert name.split("_")[-1].rstrip("s") in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("width", "unknown parameter 'width', did you mean 'widths'?"),
        ("minwidths", "unknown parameter 'minwidths', did you mean 'min_widths'?"),
        ("graph_capcity", "unknown parameter 'graph_capcity', did you mean 'graph_capacity'?"),
        ("Seeds", "unknown parameter 'Seeds', did you mean 'seeds'?"),
        ("zzz", "unknown parameter 'zzz'; known: widths, min_widths, graph_capacity,"),
    ],
)
def test_an_unknown_parameter_suggests_the_near_one(name, message):
    with pytest.raises(ValueError) as caught:
        Config.from_parameters({name: 1})
    assert str(caught.value).startswith(message)


def test_the_output_folder_is_no_parameter_of_the_study():
    assert Config.from_parameters({"out": "somewhere"}) == Config()


def test_numpy_numbers_and_tuples_are_taken():
    config = Config(widths=(np.int64(8),), min_widths=np.array([0, 8]), seeds=np.int32(2))
    assert config.widths == [8] and type(config.widths[0]) is int
    assert config.min_widths == [0, 8]


def test_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr("verifylab.device.gpu_answers", lambda: (False, "CuPy finds no GPU"))
    with pytest.raises(DeviceError, match="'cuda' was asked for, but .*CuPy finds no GPU"):
        Config(device="cuda")


def test_where_a_gpu_answers_auto_measures_on_it(monkeypatch):
    asked = []

    def measured(config, name):
        asked.append(name)
        raise DeviceError("far enough")

    monkeypatch.setattr("verifylab.width_gate.choose", lambda d: Choice("cuda", "a GPU answers: X"))
    monkeypatch.setattr("verifylab.width_gate.measure", measured)
    with pytest.raises(DeviceError, match="far enough"):
        width_gate(Config.from_parameters(SMALL | {"device": "auto"}))
    assert asked == ["cuda"]


def test_spreads_are_the_fit_s_or_the_one_given():
    load = calibrated()
    assert Config().spreads() == [load.confidence_spread, *spread_nodes()]
    assert Config(confidence_spread=0).spreads() == [0.0]
    assert Config(confidence_spread=0.3).workload().confidence_spread == 0.3


def test_a_drain_is_checked_at_every_width_it_passes():
    assert Config(widths=[16], row_budget=2).row_budget == 2
    with pytest.raises(ValueError, match="row_budget must hold one sequence of 4 rows, got 2"):
        Config(widths=[16], row_budget=2, mode="drain")


def test_in_a_drain_steps_and_warm_up_do_not_apply():
    chosen = Config(mode="drain", steps=7, warmup_steps=3).settings(8)
    assert chosen.warmup_steps == 0 and chosen.steps > 10**6


# --- the tables ----------------------------------------------------------------------------


def test_the_gates_table_has_a_row_a_width_and_threshold(small):
    assert list(small.gates.columns) == GATE_COLUMNS
    pairs = list(zip(small.gates.width, small.gates.min_width, strict=True))
    assert pairs == [(w, m) for w in SMALL["widths"] for m in SMALL["min_widths"]]
    assert set(small.gates.seeds) == {3}
    assert set(small.gates.time) == {"modelled"}
    assert set(small.gates.machine) == {"gb10-published"}
    assert small.gates.notna().all(axis=None)
    for row in small.gates.itertuples():
        assert row.canonical == Gate(row.min_width).canonical(row.width)
        assert row.tok_s_low <= row.tok_s <= row.tok_s_high
        assert row.keys_seen <= row.reachable_keys
        assert row.tok_s == pytest.approx(
            row.tokens_per_step * row.width / row.step_ms * 1e3, rel=0.02
        )


def test_reachable_keys_are_the_counted_ones(small):
    for row in small.gates.itertuples():
        space = key_space(row.width, 1 if row.width == 16 else 3)
        expected = space.canonical_keys if row.canonical else space.arrangement_keys
        assert row.reachable_keys == expected


def test_every_gate_is_one_of_the_arms(small):
    assert list(small.arms.columns) == ARM_COLUMNS
    assert set(small.arms.graph_ms) == {graph_ms_of(load_profile("gb10-published"))}
    arms = small.arms.set_index(["width", "policy"])
    shared = [c for c in GATE_COLUMNS if c in ARM_COLUMNS and c != "width"]
    for row in small.gates.to_dict("records"):
        arm = arms.loc[(row["width"], "canonical" if row["canonical"] else "arrangement")]
        assert {c: row[c] for c in shared} == {c: arm[c] for c in shared}
        if not row["canonical"]:
            assert row["gain_pct"] == row["gain_low"] == row["gain_high"] == 0.0


def test_the_bound_is_above_what_captures_leave(small):
    assert (small.arms.bound_tok_s >= small.arms.tok_s - 1e-9).all()
    free = small.arms[small.arms.capture_fraction == 0]
    assert free.bound_tok_s.to_numpy() == pytest.approx(free.tok_s.to_numpy())
    crowded = small.arms[(small.arms.width == 8) & (small.arms.policy == "arrangement")].iloc[0]
    assert crowded.bound_tok_s > 1.05 * crowded.tok_s


def test_the_differences_are_canonical_minus_arrangement(small):
    assert small.differences.width.tolist() == SMALL["widths"]
    total = sum(small.differences[f"{part}_pct"] for part in PARTS)
    assert total.to_numpy() == pytest.approx(small.differences.delta_pct.to_numpy(), abs=1e-9)
    gains = small.gates[small.gates.min_width == 0].gain_pct
    assert gains.to_numpy() == pytest.approx(small.differences.delta_pct.to_numpy())


def test_the_recommendation_is_among_the_candidates(small):
    assert small.recommendation.min_width == 8
    assert small.recommendation.same_as == (8,)
    assert small.recommendation.table.min_width.tolist() == SMALL["min_widths"]
    text = small.summary()
    assert small.recommendation.sentence() in text
    assert "Modelled time on gb10-published" in text and "n = 3 seeds x 200 steps" in text


def test_the_graph_cost_prices_what_was_counted(small):
    free = width_gate(Config.from_parameters({**SMALL, "graph_ms": 0}))
    assert set(free.arms.graph_ms) == {0}
    assert small.provenance.count(", 31.3 ms a graph, ") == 1
    assert free.provenance.count(", 0.0 ms a graph, ") == 1
    assert free.recommendation.never and not small.recommendation.never
    counted = ["width", "min_width", "keys_seen", "capture_fraction", "tokens_per_step"]
    pd.testing.assert_frame_equal(free.gates[counted], small.gates[counted])
    for bad in (-1, float("nan"), "ten", True, 10**400):
        with pytest.raises(ValueError, match="graph_ms must be 0 or more milliseconds"):
            Config.from_parameters({**SMALL, "graph_ms": bad})
    with pytest.raises(ValueError, match="graph_ms prices modelled time, and device 'host' meas"):
        Config.from_parameters({**SMALL, "graph_ms": 1.0, "device": "host"})


def test_the_same_parameters_give_the_same_tables(small):
    again = width_gate(Config.from_parameters(SMALL))
    pd.testing.assert_frame_equal(again.gates, small.gates)
    pd.testing.assert_frame_equal(again.recommendation.table, small.recommendation.table)


def test_saved_tables_come_back(small, tmp_path):
    paths = save(small, tmp_path / "new" / "folder")
    assert all(path.is_file() for path in paths)
    by_name = {path.name: path for path in paths}
    assert set(by_name) == {
        "result.parquet", "arms.csv", "differences.csv", "recommendation.csv", "summary.txt",
    }  # fmt: skip
    pd.testing.assert_frame_equal(pd.read_parquet(by_name["result.parquet"]), small.gates)
    pd.testing.assert_frame_equal(pd.read_csv(by_name["arms.csv"]), small.arms)
    assert by_name["summary.txt"].read_text(encoding="utf-8") == small.summary()


def test_huge_thresholds_and_split_batches():
    """A threshold beyond any float's whole numbers; a batch of 40 has a key a chunk."""
    changes = {"widths": [8, 40], "min_widths": [8, 2**53 + 1, 2**63 - 1], "steps": 50}
    result = width_gate(Config.from_parameters(SMALL | changes))
    assert result.gates.min_width.tolist() == 2 * changes["min_widths"]
    wide = result.gates[result.gates.width == 40]
    assert (wide.reachable_keys == 2).all() and (wide.keys_seen == 2).all()
    assert str(2**53 + 1) not in result.recommendation.sentence()  # 8 pays at width 8
    assert result.recommendation.min_width == 8


# --- a drain -------------------------------------------------------------------------------


def test_a_drain_runs_every_threshold_by_itself(drained):
    gates = drained.gates
    assert list(gates.columns) == GATE_COLUMNS
    assert (gates.keys_seen <= gates.reachable_keys).all()
    for row in gates[gates.min_width.isin([0, 33])].itertuples():
        total = 0
        for w in range(1, row.width + 1):
            space = key_space(w, 3 if w <= 8 else 1)
            total += space.canonical_keys if row.min_width == 0 else space.arrangement_keys
        assert row.reachable_keys == total
    always = gates[(gates.min_width == 0)].set_index("width")
    arms = drained.arms[drained.arms.policy == "canonical"].set_index("width")
    assert always.tok_s.to_dict() == arms.tok_s.to_dict()
    never = gates[gates.min_width == 33]
    assert (never.gain_pct == 0).all()
    # A gate at 8 acts on a drain from 12 although 12 itself makes no difference.
    assert gates[(gates.width == 12) & (gates.min_width == 8)].gain_pct.iloc[0] != 0
    assert "drain" in drained.provenance and "steps" not in drained.provenance


def test_a_drain_emits_what_was_asked_for(drained):
    machine = load_profile("gb10-published")
    load = calibrated(mode="drain", output_tokens=300)
    runs = grid(load, [4, 8, 12], machine, Settings(1, 10**6, 0), seeds=range(2))
    assert (runs.tokens == 300 * runs.width).all()
    assert (runs.finished_requests == runs.width).all()


# --- what must come out of it by itself ----------------------------------------------------


def test_the_signs_of_the_published_ab():
    """Loss at 2, loss at 4, gain at 8, nothing from 16 up; nine in ten steps capture at 8."""
    machine = load_profile("gb10-published")
    runs = grid(
        calibrated(), [2, 4, 8, 16, 32, 64], machine, Settings(1, 1000, 200), seeds=range(8)
    )
    table = paired(runs, machine).set_index("width")
    assert table.delta_high[2] < 0 and table.delta_high[4] < 0
    assert table.delta_low[8] > 0
    for width in (16, 32, 64):
        assert (table.loc[width].drop(["spread", "n"]) == 0).all()
    # Why: canonical always costs tokens; at 8 the captures it saves are worth more.
    assert (table.tokens_high[[2, 4, 8]] < 0).all()
    assert table.captures_low[8] > -table.tokens_low[8] > 0
    eight = runs[(runs.width == 8) & (runs.policy == "arrangement")]
    assert (eight.capture_steps / eight.steps > 0.8).all()
    assert (eight.capture_steps / eight.steps < 0.95).all()
    canonical = runs[(runs.width == 8) & (runs.policy == "canonical")]
    assert canonical.captures.max() == 0


def test_seeds_count_on_from_the_first():
    few = {"widths": [2], "min_widths": [0], "steps": 20, "warmup_steps": 0, "device": "model"}
    both = Config(**few, seeds=4)
    parts = [Config(**few, seeds=2, first_seed=at) for at in (0, 2)]
    assert [*both.all_seeds()] == [s for part in parts for s in part.all_seeds()]
    tok_s = [width_gate(config).gates.tok_s[0] for config in (both, *parts)]
    assert tok_s[1] != tok_s[2] and tok_s[0] == pytest.approx((tok_s[1] + tok_s[2]) / 2)
    with pytest.raises(ValueError, match="first_seed must be from 0"):
        Config(**few, first_seed=-1)
