import shutil

import pytest
from fake_cupy import FakeCupy

from verifylab.device import cuda_info
from verifylab.device.diagnose import diagnose

ORDER = ["driver", "cupy", "gpu", "nvrtc", "capture", "kernels"]


def answers() -> str:
    return "CUDA 13.0, 1 GPU"


@pytest.fixture
def fake(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to run kernels.cu on the CPU; none on PATH")
    return FakeCupy(tmp_path)


def test_all_is_well(fake):
    checks = list(diagnose(fake, answers))
    assert [check.name for check in checks] == ORDER
    assert all(check.ok for check in checks), checks
    assert checks[0].detail == answers() and "Fake GPU" in checks[2].detail
    assert not fake.live


@pytest.mark.parametrize(
    ("call", "status", "name", "words"),
    [
        ("getDeviceCount", 100, "gpu", "CUDA_VISIBLE_DEVICES"),
        ("compile", 222, "nvrtc", "update the NVIDIA driver"),
        ("launch_kernel", 700, "capture", "restart the process"),
        ("graphInstantiate", 2, "capture", "cache's capacity"),
        ("streamEndCapture", 901, "capture", "invalidated"),
    ],
)
def test_the_first_that_fails_ends_it_with_its_fix(fake, call, status, name, words):
    fake.fail[call] = status
    checks = list(diagnose(fake, answers))
    assert [check.name for check in checks] == ORDER[: ORDER.index(name) + 1]
    assert [check.ok for check in checks] == [True] * (len(checks) - 1) + [False]
    assert words in checks[-1].detail


def test_wrong_numbers_are_found():
    # Without a compiler this CuPy's kernels compute nothing.
    last = list(diagnose(FakeCupy(), answers))[-1]
    assert last.name == "kernels" and not last.ok
    assert "differ from their NumPy twin" in last.detail


def test_without_cupy_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    driver, cupy = diagnose(driver=answers)
    assert driver.ok and cupy.name == "cupy" and "pip install" in cupy.detail


class Driver:
    """Stands in for libcuda."""

    def __init__(self, status, count):
        self.status, self.count = status, count

    def cuInit(self, flags):
        return self.status

    def cuDeviceGetCount(self, count):
        count._obj.value = self.count

    def cuDriverGetVersion(self, version):
        version._obj.value = 13010


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (None, "no NVIDIA driver"),
        (Driver(100, 0), "CUDA_VISIBLE_DEVICES"),
        (Driver(0, 0), "CUDA_VISIBLE_DEVICES"),
        (Driver(803, 0), "cuInit gives 803"),
    ],
)
def test_the_driver_is_asked_first_and_without_cupy(monkeypatch, library, words):
    def load(name):
        if library is None:
            raise OSError("cannot open shared object file")
        return library

    monkeypatch.setattr(cuda_info.ctypes, "CDLL", load)
    (only,) = diagnose()
    assert only.name == "driver" and not only.ok and words in only.detail


def test_a_driver_that_answers(monkeypatch):
    monkeypatch.setattr(cuda_info.ctypes, "CDLL", lambda name: Driver(0, 2))
    assert cuda_info.ask_driver() == "CUDA 13.1, 2 GPUs"
