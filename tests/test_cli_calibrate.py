"""`verifylab calibrate`: what it writes, what it prints, and what it refuses before measuring."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from verifylab import calibrate as measuring
from verifylab import cli, cli_calibrate
from verifylab.calibration_plan import open_for, plan_for
from verifylab.device import host
from verifylab.machine import load_profile

QUICK = ["calibrate", "--device", "host", "--quick"]


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def invoke(*arguments):
    return CliRunner().invoke(cli.main, arguments)


def test_writes_a_profile_that_loads_and_the_numbers_behind_it(tmp_path):
    done = invoke(*QUICK, "--weight-bytes", "100", "--out", "mine.json", "--samples", "raw.json",
                  "--json")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    profile = load_profile("mine.json")
    assert (profile.name, profile.kind, profile.gdn_layers) == ("mine", "host", 2)
    assert "numpy" in profile.notes and "64 weight bytes a layer" in profile.notes
    rows = {row["coefficient"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert set(rows["record_per_node_us"]) == {"coefficient", "value", "low", "high", "unit"}
    assert rows["copy"]["unit"] == "GB/s" and rows["copy"]["value"] > 0
    raw = json.loads((tmp_path / "raw.json").read_text())
    assert raw["coefficients"]["record_per_node_us"]["value"] == rows["record_per_node_us"]["value"]
    assert "wrote mine.json" in done.stderr and "wrote raw.json" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.json", "raw.json"]


def test_is_named_after_machine_and_shape_and_never_overwrites(tmp_path):
    done = invoke(*QUICK)
    assert done.exit_code == 0, done.stderr
    assert "record_per_node_us" in done.stdout
    before = (tmp_path / "host-tiny.json").read_text()
    again = invoke(*QUICK)
    assert again.exit_code == 2 and "host-tiny.json exists" in again.stderr
    assert "--force" in again.stderr and len(again.stderr.splitlines()) == 1
    assert (tmp_path / "host-tiny.json").read_text() == before
    assert invoke(*QUICK, "--force").exit_code == 0
    assert (tmp_path / "host-tiny.json").read_text() != before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shape", "big"], "shape must be one of"),
        (["--weight-bytes", "-1"], "--weight-bytes must be 0 or more, got -1"),
        (["--out", "x.txt"], "--out must name a file that ends in .json, got 'x.txt'"),
        (["--out", "a.json", "--samples", "./a.json"], "two files"),
        (["--out", "/proc/x.json"], "cannot write into /proc"),
        (["--device", "tpu"], "'tpu' is not one of"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_measured(monkeypatch, arguments, words):
    monkeypatch.setattr(measuring, "calibrate", None)
    done = invoke(*QUICK, *arguments)
    assert done.exit_code == 2 and words in done.stderr
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_more_memory_than_there_is_is_one_sentence(monkeypatch, tmp_path):
    zeros = np.zeros

    def small(shape, dtype=float):
        if np.prod(shape, dtype=float) > 2**28:
            raise MemoryError
        return zeros(shape, dtype)

    monkeypatch.setattr(host.np, "zeros", small)
    done = invoke(*QUICK, "--weight-bytes", str(2**40))
    assert done.exit_code == 2, done.output
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "512.00 GiB" in line and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_fails_half_way_leaves_what_was_there(monkeypatch, tmp_path):
    (tmp_path / "mine.json").write_text("old")

    def broken(*_):
        raise ValueError("the settings do not tell the coefficients apart")

    monkeypatch.setattr(measuring, "calibrate", broken)
    assert invoke(*QUICK, "--out", "mine.json", "--force").exit_code != 0
    assert (tmp_path / "mine.json").read_text() == "old"


def test_the_file_is_named_after_a_gpu():
    assert cli_calibrate._slug("NVIDIA H200 (141GB)") == "nvidia-h200-141gb"


def test_plans_fit_the_device():
    host, gpu = plan_for("host"), plan_for("cuda")
    assert (host.shape, gpu.shape) == ("tiny", "small")
    assert max(host.node_counts) == 1000 and max(gpu.node_counts) == 10_000
    assert plan_for("host", node_counts=[], widths=[3, 4]).widths == (3, 4)
    assert plan_for("host", node_counts=[], rows=(), shape="") == host
    # 100 bytes a step on two layers: 50 each, in whole 16-byte accesses.
    assert plan_for("host", weight_bytes=100).weight_bytes == 64
    for changes, words in (
        ({"repeats": 0}, "repeats must be from 1"),
        ({"weight_bytes": -1}, "weight_bytes must be from 0 to 1099511627776, got -1"),
        ({"weight_bytes": 5.5}, "weight_bytes must be a whole number, got 5.5"),
        ({"shape": 0}, "shape must be one of"),
        ({"widths": 0}, "widths must be a list"),
    ):
        with pytest.raises(ValueError, match=words):
            plan_for("host", **changes)
    with pytest.raises(ValueError, match="device must be auto, host or cuda, got 'model'"):
        open_for("model")
