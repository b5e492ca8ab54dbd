import json
from dataclasses import replace

import pytest
from fake_cupy import FakeCupy

from verifylab.calibrate import Plan, calibrate, write_calibration
from verifylab.device.cuda import CudaDevice
from verifylab.device.host import HostDevice
from verifylab.machine import MachineProfile
from verifylab.measured_profile import to_profile

QUICK = Plan(
    shape="tiny", node_counts=(2, 10, 40, 200), widths=(1, 2, 3), rows=(2, 3), repeats=2,
    replays=2, copy_bytes=4096,
)  # fmt: skip


@pytest.fixture(scope="module")
def result():
    return calibrate(HostDevice(), QUICK)


def test_every_coefficient_has_an_interval_a_unit_and_a_source(result):
    names = {
        "step_base_ms", "per_row_ms", "per_sequence_ms", "per_node_us",
        "record_base_ms", "record_per_node_us", "instantiate_base_ms", "instantiate_per_node_us",
        "launch_base_us", "launch_per_node_us", "exec_destroy_base_ms", "exec_destroy_per_node_us",
        "graph_destroy_base_ms", "graph_destroy_per_node_us",
        "replay_base_ms", "replay_per_node_us", "eager_base_ms", "eager_per_node_us",
    }  # fmt: skip
    assert set(result["coefficients"]) == names
    for name, fitted in result["coefficients"].items():
        assert fitted["low"] <= fitted["value"] <= fitted["high"]
        assert name.endswith(f"_{fitted['unit']}")
        assert fitted["source"] == "calibrate on host"


def test_the_samples_are_all_there(result):
    samples = result["samples"]
    assert len(samples["copy"]) == 2
    assert len(samples["graph_operations"]) == 2 * 4
    # Widths 2 and 3 have two forms, width 1 has one; two row counts; two repeats.
    assert len(samples["steps"]) == 2 * 2 * 5
    for row in samples["graph_operations"]:
        assert row["record"] > 0.0 and row["launch"] > 0.0 and row["eager"] > 0.0
    nodes = {(row["width"], row["form"]): row["nodes"] for row in samples["steps"] if (
        row["rows"] == 2)}  # fmt: skip
    assert nodes[3, "direct"] == 2 * 2 and nodes[3, "declined"] == 2 * 3 * 4


def test_recording_costs_more_with_more_nodes(result):
    assert result["coefficients"]["record_per_node_us"]["value"] > 0.0


def test_says_what_it_ran_on(result):
    assert result["machine"]["device"] == "host"
    assert result["plan"]["shape"] == "tiny"
    assert result["date"].endswith("+00:00")
    assert result["bandwidth"]["copy_gb_s"] > 0.0
    assert [(row["width"], row["rows"]) for row in result["bandwidth"]["steps"]] == [
        (2, 2), (2, 3), (3, 2), (3, 3),
    ]  # fmt: skip


def test_leaves_no_graph_behind():
    device = HostDevice()
    calibrate(device, replace(QUICK, repeats=1))
    assert device.live_graphs == 0


def test_writes_json_and_nothing_beside(result, tmp_path):
    path = write_calibration(result, tmp_path / "mine.json")
    assert json.loads(path.read_text()) == json.loads(json.dumps(result))
    assert list(tmp_path.iterdir()) == [path]


def test_runs_unchanged_on_the_cuda_device(monkeypatch):
    device = CudaDevice(cupy=FakeCupy())
    # The stand-in has no clock of its own.
    clock = HostDevice()
    monkeypatch.setattr(device, "mark", clock.mark)
    monkeypatch.setattr(device, "elapsed_ms", clock.elapsed_ms)
    said = []
    result = calibrate(device, QUICK, said.append)
    assert result["machine"]["gpu"] == "Fake GPU"
    assert result["coefficients"]["instantiate_per_node_us"]["source"] == "calibrate on cuda"
    assert said[0] == "copy bandwidth" and len(said) == 3
    assert device.live_graphs == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": "vast"}, "got 'vast'"),
        ({"shape": ["tiny"]}, r"shape must be one of .*, got \['tiny'\]"),
        ({"node_counts": (10, 20)}, r"node_counts must list 3 or more different .*got \[10, 20\]"),
        ({"node_counts": (10, 20, 20)}, "node_counts must list each number once"),
        ({"node_counts": [10, 20, 30.5]}, "node_counts must be a whole number, got 30.5"),
        ({"widths": [1]}, r"widths must list 2 or more different counts .*, got \[1\]"),
        ({"widths": [0]}, "widths must be from 1 to 32, got 0"),
        ({"widths": 4}, "widths must be a list of whole numbers, got 4"),
        ({"rows": [2]}, "rows must list 2 or more"),
        ({"rows": [2, 9]}, "rows must be from 1 to 8, got 9"),
        ({"repeats": 0}, "repeats must be from 1 to 10000, got 0"),
        ({"replays": 0}, "replays must be from 1"),
        ({"repeats": True}, "repeats must be a whole number, got True"),
        ({"weight_bytes": 5.5}, "weight_bytes must be a whole number, got 5.5"),
        ({"weight_bytes": -16}, "weight_bytes must be from 0"),
        ({"seed": "a"}, "seed must be a whole number"),
        ({"copy_bytes": 6}, "multiple of 4, got 6"),
    ],
)
def test_a_plan_that_cannot_be_measured_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        Plan(**change)


def test_becomes_a_machine_profile_that_reads_back(result):
    profile = to_profile(result, "here")
    assert MachineProfile.from_json(profile.to_json()) == profile
    assert (profile.kind, profile.gdn_layers, profile.other_nodes) == ("host", 2, 0)
    assert "host device" in profile.gpu and "gpu" not in profile.notes
    measured = result["coefficients"]["record_per_node_us"]["value"]
    assert profile["record_per_node_us"] == measured


def test_a_negative_cost_becomes_nothing_in_the_profile(result):
    changed = json.loads(json.dumps(result))
    changed["coefficients"]["step_base_ms"] |= {"low": -2.0, "value": -0.5, "high": 1.0}
    changed["coefficients"]["per_row_ms"] |= {"low": -2.0, "value": -0.5, "high": -0.1}
    profile = to_profile(changed, "here")
    base, row = profile.coefficients["step_base_ms"], profile.coefficients["per_row_ms"]
    assert (base.low, base.value, base.high) == (0.0, 0.0, 1.0)
    assert (row.low, row.value, row.high) == (0.0, 0.0, 0.0)


def test_a_gpu_calibration_is_called_measured(result):
    changed = json.loads(json.dumps(result))
    changed["machine"] = {"device": "cuda", "gpu": "Fake GPU", "cupy": "14"}
    changed["plan"]["weight_bytes"] = 64
    profile = to_profile(changed, "there")
    assert (profile.kind, profile.gpu, profile.other_nodes) == ("measured", "Fake GPU", 2)
