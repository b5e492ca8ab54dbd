"""kernels.cu itself, compiled by g++ and run on the CPU, against the references."""

import numpy as np
import pytest
from kernel_build import CpuKernelDevice, build_for_cpu
from step_case import Case, assert_close, assert_same

from verifylab.device.host import HostDevice
from verifylab.gdn_reference import conv_update
from verifylab.step_ops import TickLaunch
from verifylab.verify_shape import SHAPES, VerifyShape
from verifylab.verify_step import FORMS, VerifyStep

SHAPES_HERE = {
    "tiny": SHAPES["tiny"],
    # Fewer threads than a warp; one value head to a key head.
    "narrow": VerifyShape("narrow", 1, key_heads=2, value_heads=2, key_dim=8, value_dim=16),
    # A whole warp to a key head, blocks of several warps, and a last conv block that is part idle.
    "wide": VerifyShape("wide", 1, key_heads=1, value_heads=3, key_dim=128, value_dim=64),
}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    return {name: build_for_cpu(shape, folder) for name, shape in SHAPES_HERE.items()}


@pytest.fixture(scope="module", params=SHAPES_HERE)
def cases(request, libraries):
    """The same batch on the kernels and on the NumPy twin."""
    shape = SHAPES_HERE[request.param]
    return tuple(
        Case(VerifyStep(device, shape, pool_slots=6, max_rows=20), 20)
        for device in (CpuKernelDevice(libraries[request.param]), HostDevice())
    )


BATCHES = [
    ([0, 1], [4, 4]),
    ([3], [8]),
    ([2, 3, 5, 0], [5, 5, 3, 3]),
    ([4, 1, 2], [2, 1, 1]),
]


@pytest.mark.parametrize(("slots", "depths"), BATCHES)
@pytest.mark.parametrize("form", FORMS)
def test_the_kernels_match_reference_and_twin(cases, slots, depths, form):
    kernels, twin = cases
    got = kernels.run(slots, depths, form)
    assert_close(got, kernels.expected(slots, depths))
    assert_close(got, twin.run(slots, depths, form))


@pytest.mark.parametrize(("slots", "depths"), BATCHES)
def test_every_form_of_the_kernels_is_the_same_to_the_bit(cases, slots, depths):
    kernels = cases[0]
    direct = kernels.run(slots, depths, "direct")
    assert_same(kernels.run(slots, depths, "declined"), direct)
    assert_same(kernels.run(slots, depths, "indirect"), direct)


@pytest.mark.parametrize("rows", range(1, 9))
def test_every_row_count(cases, rows):
    kernels = cases[0]
    assert_close(kernels.run([1, 2], [rows, rows]), kernels.expected([1, 2], [rows, rows]))


@pytest.mark.parametrize("size", [0.0, 1e-3])
def test_a_head_of_next_to_nothing_is_not_blown_up(libraries, size):
    """What keeps a norm from 0 counts where inputs are as small: 1e-6 beside its square."""
    devices = (CpuKernelDevice(libraries["tiny"]), HostDevice())
    small = [Case(VerifyStep(d, "tiny", pool_slots=2, max_rows=4), 4) for d in devices]
    for case in small:
        case.x, case.conv0 = np.float32(size) * case.x, np.float32(size) * case.conv0
        case.step.load(case.x, case.g, case.beta)
    expected = small[0].expected([0, 1], [2, 2])
    for case in small:
        assert_close(case.run([0, 1], [2, 2]), expected)
    assert np.isfinite(expected["out"]).all()
    if not size:
        assert not expected["out"].any()
    shape = SHAPES["tiny"]
    inputs = np.full((1, shape.conv_dim), 1e-3)
    weight = np.ones((4, shape.conv_dim))
    qkv, _ = conv_update(shape, inputs, weight, np.zeros((4, shape.conv_dim)))
    # SiLU of 1e-3, in each of 16 channels of a head.
    y = 1e-3 / (1.0 + np.exp(-1e-3))
    assert qkv[0, 0] == pytest.approx(y / np.sqrt(16 * y**2 + 1e-6))


def test_a_tick_adds_one(libraries):
    for device in (CpuKernelDevice(libraries["tiny"]), HostDevice()):
        counter = device.allocate((1,), np.int32)

        def body(on, counter=counter):
            on.issue(TickLaunch(counter))

        device.run(body)
        graph = device.capture(body)
        for _ in range(3):
            device.launch(graph)
        assert device.download(counter).tolist() == [4]


def test_the_stand_in_for_weights(libraries):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(4 * 12_345).astype(np.float32)
    sums = []
    for device in (CpuKernelDevice(libraries["tiny"]), HostDevice()):
        step = VerifyStep(device, "tiny", 1, max_rows=2, weight_bytes=values.nbytes)
        # A grid of a few threads is enough here, and each then reads many vectors.
        step.sink = device.allocate((512,), np.float32)
        device.upload(step.weights, values)
        device.run(step.body([0], [1]))
        sums.append(device.download(step.sink))
    np.testing.assert_allclose(sums[0], sums[1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sums[0].sum(), values.sum(dtype=np.float64), rtol=1e-3, atol=1e-2)
