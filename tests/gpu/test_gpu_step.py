"""The step on a real GPU. Fresh inputs each session: the seed is printed by pytest on a failure."""

import gc
import os
import secrets

import numpy as np
import pytest
from devices import gpu_or_skip
from step_case import NAMES, Case, assert_close, assert_same

from verifylab.device.base import DeviceError
from verifylab.device.cuda_info import ask_driver
from verifylab.device.diagnose import diagnose
from verifylab.graph_cache import GraphCache
from verifylab.step_ops import TickLaunch
from verifylab.verify_shape import SHAPES, VerifyShape
from verifylab.verify_step import FORMS, VerifyStep

pytestmark = pytest.mark.gpu

#: Every kernel size, but few layers, so that the float64 reference stays quick.
SIZES = {
    "tiny": SHAPES["tiny"],
    "small": VerifyShape("small2", 2, 4, 12, 64, 64),
    "gdn27b": VerifyShape("gdn27b1", 1, 16, 48, 128, 128),
}
BATCHES = [
    ([0, 1, 2, 3], [4, 4, 4, 4]),
    ([2, 3, 5, 0], [5, 5, 3, 3]),
    ([4], [8]),
    ([4, 1, 2], [2, 1, 1]),
]


@pytest.fixture(scope="module")
def device():
    made = gpu_or_skip()
    yield made
    made.close()


@pytest.fixture(scope="module", params=SIZES)
def case(request, device):
    seed = secrets.randbits(32)
    print(f"inputs from seed {seed}")
    return Case(VerifyStep(device, SIZES[request.param], pool_slots=6, max_rows=20), 20, seed)


@pytest.mark.parametrize(("slots", "depths"), BATCHES)
@pytest.mark.parametrize("form", FORMS)
def test_matches_the_float64_reference(case, slots, depths, form):
    assert_close(case.run(slots, depths, form), case.expected(slots, depths))


@pytest.mark.parametrize(("slots", "depths"), BATCHES)
def test_every_form_is_the_same_to_the_bit(case, slots, depths):
    direct = case.run(slots, depths, "direct")
    assert_same(case.run(slots, depths, "declined"), direct)
    assert_same(case.run(slots, depths, "indirect"), direct)


@pytest.mark.parametrize("rows", range(1, 9))
def test_every_row_count(case, rows):
    assert_close(case.run([1, 2], [rows, rows]), case.expected([1, 2], [rows, rows]))


@pytest.mark.parametrize("form", FORMS)
def test_replay_equals_eager_to_the_bit(case, form):
    slots, depths = BATCHES[1]
    eager = case.run(slots, depths, form)
    device = case.step.device
    graph = device.capture(case.step.body(slots, depths, form))
    case.reset()
    device.launch(graph)
    assert_same(case.results(), eager)
    device.destroy(graph)


def test_rollback(case):
    slots, depths, accepted = [2, 3], [4, 4], [1, 3]
    got = case.run(slots, depths)
    case.step.accept(slots, depths, accepted)
    after = case.results()
    for slot, row in ((2, 0), (3, 4 + 2)):
        np.testing.assert_array_equal(after["h_state"][:, slot], got["h_snap"][:, row])
        np.testing.assert_array_equal(after["conv_state"][:, slot], got["conv_snap"][:, row])


def test_a_key_without_slots_poisons_states(case):
    device = case.step.device
    expected = case.run([4, 5], [3, 3])
    graph = device.capture(case.step.body([0, 1], [3, 3]))
    case.reset()
    device.launch(graph)
    got = case.results()
    device.destroy(graph)
    assert not all(np.array_equal(got[n], expected[n], equal_nan=True) for n in NAMES)


def test_failures_under_capture_leave_the_stream_clean(device):
    counter = device.allocate((1,), np.int32)
    launch = TickLaunch(counter)
    device.prepare(SHAPES["tiny"])

    def raises(on):
        on.issue(launch)
        raise KeyError("mine")

    def synchronises(on):
        on.issue(launch)
        try:
            on.stream.synchronize()
        except Exception:
            return

    with pytest.raises(KeyError, match="mine"):
        device.capture(raises)
    with pytest.raises(DeviceError, match="invalidated"):
        device.capture(synchronises)
    with pytest.raises(DeviceError, match="allocate while a capture"):
        device.capture(lambda on: on.allocate((4,), np.float32))
    graph = device.capture(lambda on: on.issue(launch))
    device.launch(graph)
    assert device.download(counter)[0] == 1, "nothing that was captured has run but this"
    device.destroy(graph)


def test_ten_thousand_captures_leak_no_memory(device):
    counter = device.allocate((1,), np.int32)
    device.prepare(SHAPES["tiny"])
    launch = TickLaunch(counter)
    cache = GraphCache(device, capacity=8)

    def free():
        device.synchronise()
        gc.collect()
        return device._cupy.cuda.runtime.memGetInfo()[0]

    for key in range(10_500):
        cache.step(key, lambda on: [on.issue(launch) for _ in range(20)] and None)
        if key == 500:
            before = free()
    lost = before - free()
    cache.clear()
    assert lost < 8 * 2**20, f"{lost} bytes of GPU memory went in 10,000 captures"
    assert device.live_graphs == 0


def test_the_doctor_is_content(device):
    rehearsed = os.environ.get("VERIFYLAB_GPU") == "rehearse"
    driver = (lambda: "a stand-in") if rehearsed else ask_driver
    checks = list(diagnose(device._cupy, driver))
    assert all(check.ok for check in checks), checks
