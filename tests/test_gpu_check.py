"""The GPU script, rehearsed on the host device."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from verifylab.machine import load_profile

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "gpu_check.sh"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash; none on PATH")


def run(*arguments, python=sys.executable):
    environment = {**os.environ, "PYTHON": python, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=200,
    )


def test_the_script_runs_end_to_end_on_the_host(tmp_path):
    done = run("--device", "host", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all parts done" in done.stdout
    assert re.findall(r"^== (.*)", done.stdout, re.MULTILINE) == [
        "doctor", "calibrate_tiny", "costs", "sweep"
    ]  # fmt: skip
    assert load_profile(str(tmp_path / "host-tiny.json")).kind == "host"
    result = json.loads((tmp_path / "calibration-tiny.json").read_text())
    assert result["machine"]["device"] == "host"
    assert list(tmp_path.glob("runs/graph_costs/*/figures/graph_costs.png"))
    (summary,) = tmp_path.glob("runs/measured_width_gate/*/summary.txt")
    assert "Measured on host CPU" in summary.read_text()


def test_its_time_limits_add_up_to_under_eight_minutes():
    text = SCRIPT.read_text()
    limits = dict(re.findall(r"^ *part \"?(\w+?)\"? (\d+) ", text, re.MULTILINE))
    tests = int(re.search(r"part tests (\d+) env VERIFYLAB_GPU=required", text)[1])
    calibrate = 2 * int(re.search(r'part "calibrate_\$shape" (\d+)', text)[1])
    rest = sum(int(limits[name]) for name in ("doctor", "costs", "sweep"))
    assert tests + calibrate + rest < 480


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--devise", "host"], "unknown argument: --devise"),
        (["--device", "tpu"], "must be cuda or host, got tpu"),
        (["--device"], "must be cuda or host"),
        (["--out"], "--out must name a folder"),
    ],
)
def test_a_mistake_is_named(arguments, words):
    done = run(*arguments)
    assert done.returncode == 2 and words in done.stderr


def test_without_the_environment_it_says_how_to_make_it(tmp_path):
    done = run("--device", "host", "--out", str(tmp_path / "new"), python="absent/python")
    assert done.returncode == 2
    assert done.stderr.startswith("no absent/python: run make setup first")
    assert not (tmp_path / "new").exists()


def test_without_a_gpu_it_fails_and_says_which_part(tmp_path):
    from devices import gpu_or_skip

    try:
        gpu_or_skip()
    except pytest.skip.Exception:
        done = run("--quick", "--out", str(tmp_path))
        assert done.returncode == 1
        assert "FAILED: doctor" in done.stdout and "== tests" not in done.stdout
        assert "Traceback" not in (tmp_path / "doctor.log").read_text()
        return
    pytest.skip("there is a GPU: scripts/gpu_check.sh itself is the check")
