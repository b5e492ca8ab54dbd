"""The GPU script, rehearsed on the host device."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "gpu_check.sh"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash; none on PATH")


def run(*arguments):
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=120,
    )


def test_the_script_runs_end_to_end_on_the_host(tmp_path):
    done = run("--device", "host", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all parts done" in done.stdout
    result = json.loads((tmp_path / "calibrate_small.json").read_text())
    assert result["machine"]["device"] == "host"
    assert "copy" in (tmp_path / "calibrate_small.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--devise", "host"], "unknown argument: --devise"),
        (["--device", "tpu"], "must be cuda or host, got tpu"),
    ],
)
def test_a_mistake_is_named(arguments, words):
    done = run(*arguments)
    assert done.returncode == 2 and words in done.stderr


def test_without_a_gpu_it_fails_and_says_which_part(tmp_path):
    from devices import gpu_or_skip

    try:
        gpu_or_skip()
    except pytest.skip.Exception:
        done = run("--quick", "--out", str(tmp_path))
        assert done.returncode == 1
        assert "FAILED: doctor tests calibrate_small calibrate_gdn27b" in done.stdout
        assert "Traceback" not in (tmp_path / "doctor.log").read_text()
        return
    pytest.skip("there is a GPU: scripts/gpu_check.sh itself is the check")
