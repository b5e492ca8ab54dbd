import shutil

import pytest
from fake_cupy import FakeCupy

from verifylab.device.diagnose import diagnose

ORDER = ["cupy", "driver", "nvrtc", "kernels", "capture"]


@pytest.fixture
def fake(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to run kernels.cu on the CPU; none on PATH")
    return FakeCupy(tmp_path)


def test_all_is_well(fake):
    checks = list(diagnose(fake))
    assert [check.name for check in checks] == ORDER
    assert all(check.ok for check in checks), checks
    assert "Fake GPU" in checks[1].detail
    assert not fake.live


@pytest.mark.parametrize(
    ("call", "status", "name", "words"),
    [
        ("getDeviceCount", 100, "driver", "CUDA_VISIBLE_DEVICES"),
        ("compile", 222, "nvrtc", "update the NVIDIA driver"),
        ("launch_kernel", 700, "kernels", "restart the process"),
        ("graphInstantiate", 2, "capture", "cache's capacity"),
        ("streamEndCapture", 901, "capture", "invalidated"),
    ],
)
def test_the_first_that_fails_ends_it_with_its_fix(fake, call, status, name, words):
    fake.fail[call] = status
    checks = list(diagnose(fake))
    assert [check.name for check in checks] == ORDER[: ORDER.index(name) + 1]
    assert [check.ok for check in checks] == [True] * (len(checks) - 1) + [False]
    assert words in checks[-1].detail


def test_wrong_numbers_are_found():
    # Without a compiler this CuPy's kernels compute nothing.
    last = list(diagnose(FakeCupy()))[-1]
    assert last.name == "kernels" and not last.ok
    assert "differ from their NumPy twin" in last.detail


def test_no_cupy_is_the_first_check(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    (only,) = diagnose()
    assert only.name == "cupy" and "pip install" in only.detail
