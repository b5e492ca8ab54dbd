"""The CUDA device against a CuPy that counts handles and fails on demand. No GPU here: see
tests/gpu for what needs one."""

import gc
import shutil
import sys
import weakref

import numpy as np
import pytest
from fake_cupy import EXECUTABLE_BYTES, FakeCupy
from step_case import Case, assert_close, assert_same

from verifylab.device.base import DeviceError, StepDevice
from verifylab.device.cuda import CudaDevice
from verifylab.device.cuda_errors import import_cupy
from verifylab.device.host import HostDevice
from verifylab.graph_cache import GraphCache, Outcome
from verifylab.step_ops import TickLaunch
from verifylab.verify_shape import SHAPES, VerifyShape
from verifylab.verify_step import FORMS, VerifyStep


@pytest.fixture
def fake():
    return FakeCupy()


@pytest.fixture
def device(fake):
    made = CudaDevice(cupy=fake)
    made.prepare(SHAPES["tiny"])
    return made


@pytest.fixture
def body(device):
    counter = device.allocate((1,), np.int32)
    return lambda on: on.issue(TickLaunch(counter))


def raising(error):
    def body(on):
        raise error

    return body


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """One device for every shape: each launch must find the kernel of its own."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to run kernels.cu on the CPU; none on PATH")
    return CudaDevice(cupy=FakeCupy(tmp_path_factory.mktemp("fake")))


@pytest.fixture(
    scope="module",
    params=[SHAPES["tiny"], VerifyShape("other", 1, 1, 2, key_dim=32, value_dim=8)],
    ids=lambda shape: shape.name,
)
def cases(request, compiled):
    return tuple(
        Case(VerifyStep(device, request.param, pool_slots=8, max_rows=24, weight_bytes=64), 24)
        for device in (compiled, HostDevice())
    )


@pytest.mark.parametrize("form", FORMS)
def test_the_step_matches_the_host_twin_eager_and_replayed(cases, form):
    cuda, host = cases
    slots, depths = [2, 3, 4, 7], [4, 4, 3, 2]
    eager = cuda.run(slots, depths, form)
    assert_close(eager, host.run(slots, depths, form))
    device = cuda.step.device
    graph = device.capture(cuda.step.body(slots, depths, form))
    cuda.reset()
    device.launch(graph)
    assert_same(cuda.results(), eager)
    cuda.step.accept(slots, depths, [1, 4, 2, 1])
    host.step.accept(slots, depths, [1, 4, 2, 1])
    assert_close(cuda.results(), host.results())
    device.destroy(graph)


def test_keeps_the_contract(device):
    assert isinstance(device, StepDevice)
    assert device.name == "cuda" and device.measured


def test_a_body_that_raises_ends_the_capture_and_leaves_no_handle(fake, device, body):
    for error in (KeyError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught:
            device.capture(raising(error))
        assert caught.value is error
        assert fake.recorded is None and not fake.live and not fake.current
    device.launch(device.capture(body))


def test_a_body_that_raises_after_an_invalidation_keeps_its_own_error(fake, device, body):
    with pytest.raises(fake.cuda.runtime.CUDARuntimeError) as caught:
        device.capture(lambda on: on.stream.synchronize())
    assert caught.value.status == 900
    assert fake.recorded is None and not fake.live
    device.destroy(device.capture(body))


def test_a_swallowed_invalidation_is_an_error_that_says_what_to_do(fake, device, body):
    def swallows(on):
        body(on)
        with pytest.raises(RuntimeError):
            on.stream.synchronize()

    with pytest.raises(DeviceError, match="invalidated.*issue launches only"):
        device.capture(swallows)
    assert fake.recorded is None and not fake.live and device.live_graphs == 0
    device.destroy(device.capture(body))


def test_a_null_graph_is_an_invalidated_capture(fake, device, body, monkeypatch):
    monkeypatch.setattr(fake, "_own", lambda value: 0)
    with pytest.raises(DeviceError, match="invalidated"):
        device.capture(body)


def test_out_of_memory_at_instantiate(fake, device, body):
    cache = GraphCache(device, capacity=2)
    cache.step("A", body)
    fake.fail["graphInstantiate"] = 2
    with pytest.raises(DeviceError, match="instantiating a graph of 1 nodes.*cache's capacity"):
        cache.step("B", body)
    assert len(fake.live) == 2, "A's graph and executable; B's graph is gone"
    assert cache.keys() == ["A"] and cache.step("A", body) is Outcome.HIT
    fake.fail.clear()
    assert cache.step("B", body) is Outcome.CAPTURE
    cache.clear()
    assert not fake.live


@pytest.mark.parametrize("call", ["streamBeginCapture", "graphLaunch", "streamSynchronize"])
def test_each_runtime_failure_is_explained_and_passes(fake, device, body, call):
    graph = device.capture(body)
    fake.fail[call] = 700
    act = {
        "streamBeginCapture": lambda: device.capture(body),
        "graphLaunch": lambda: device.launch(graph),
        "streamSynchronize": device.synchronise,
    }[call]
    with pytest.raises(DeviceError, match="restart the process"):
        act()
    fake.fail.clear()
    device.launch(graph)
    device.destroy(graph)
    assert not fake.live


def test_a_launch_that_fails_under_capture_names_the_kernel(fake, device, body):
    fake.fail["launch_kernel"] = 900
    with pytest.raises(DeviceError, match="launching vl_tick.*issue launches only"):
        device.capture(body)
    assert fake.recorded is None and not fake.live


def test_a_failed_exec_destroy_still_destroys_the_graph(fake, device, body):
    graph = device.capture(body)
    fake.fail["graphExecDestroy"] = 1
    with pytest.raises(DeviceError, match="exec destroy failed"):
        device.destroy(graph)
    assert fake.calls.count("graphDestroy") == 1
    assert device.live_graphs == 0 and graph.destroyed


def test_a_running_graph_is_waited_for_before_it_is_destroyed(fake, device, body):
    graph, other = device.capture(body), device.capture(body)
    device.launch(graph)
    device.destroy(other)
    assert "streamSynchronize" not in fake.calls, "never launched: nothing to wait for"
    device.destroy(graph)
    assert fake.calls.index("streamSynchronize") < len(fake.calls) - 2
    again = device.capture(body)
    device.launch(again)
    device.synchronise()
    waits = fake.calls.count("streamSynchronize")
    device.destroy(again)
    assert fake.calls.count("streamSynchronize") == waits, "already waited for"


def test_a_graph_owns_the_buffers_that_it_baked(device):
    counter = device.allocate((1,), np.int32)
    buffer = weakref.ref(counter)
    launches = [TickLaunch(counter)]
    graph = device.capture(lambda on: on.issue(launches.pop()))
    del counter
    gc.collect()
    assert buffer() is not None
    device.destroy(graph)
    gc.collect()
    assert buffer() is None


def test_close_destroys_what_is_left(fake, device, body):
    for _ in range(3):
        device.capture(body)
    device.close()
    assert not fake.live and device.live_graphs == 0


def test_memory_is_measured_when_asked(fake):
    device = CudaDevice(cupy=fake, measure_memory=True)
    device.prepare(SHAPES["tiny"])
    counter = device.allocate((1,), np.int32)
    graph = device.capture(lambda on: on.issue(TickLaunch(counter)))
    assert graph.measured_bytes == EXECUTABLE_BYTES and graph.nbytes > 0


@pytest.mark.parametrize(
    ("driver", "status", "words"),
    [
        (12020, 35, "supports CUDA 12.2 and this CuPy needs 13.0.*cupy-cuda12x"),
        (0, 35, "no NVIDIA driver"),
        (13000, 100, "no GPU that CUDA can see.*CUDA_VISIBLE_DEVICES"),
        (13000, 999, "runtime's error list"),
    ],
)
def test_a_gpu_that_does_not_open_says_why(driver, status, words):
    fake = FakeCupy(driver=driver)
    fake.fail["getDeviceCount"] = status
    with pytest.raises(DeviceError, match=words):
        CudaDevice(cupy=fake)


def test_an_index_out_of_range_is_named():
    with pytest.raises(DeviceError, match="one of 1 GPUs, 0 first; got 3"):
        CudaDevice(3, cupy=FakeCupy())


def test_out_of_memory_at_allocate_names_the_size(fake, device):
    fake.fail["zeros"] = 2
    with pytest.raises(DeviceError, match=r"allocating 4.00 GiB failed.*fewer pool slots"):
        device.allocate((1 << 30,), np.float32)


def test_a_compile_error_is_explained(fake):
    class CompileException(Exception):
        pass

    def refuse(**_):
        raise CompileException("line 1: no")

    fake.RawModule = refuse
    with pytest.raises(DeviceError, match="shape 'tiny' failed: NVRTC refused.*line 1"):
        CudaDevice(cupy=fake).prepare(SHAPES["tiny"])


def test_kernels_are_compiled_once_a_shape_and_never_under_capture(fake):
    device = CudaDevice(cupy=fake)
    counter = device.allocate((1,), np.int32)
    launch = TickLaunch(counter)
    with pytest.raises(DeviceError, match="call prepare"):
        device.capture(lambda on: on.issue(launch))
    assert fake.recorded is None and not fake.live
    device.run(lambda on: on.issue(launch))
    device.prepare(SHAPES["tiny"])
    assert fake.calls.count("compile") == 1


def test_a_launch_outside_a_body_is_refused(device):
    with pytest.raises(DeviceError, match="outside a body"):
        device.issue(TickLaunch(device.allocate((1,), np.int32)))


@pytest.mark.parametrize(
    "verb", ["run", "capture", "allocate", "upload", "download", "assign", "mark"]
)
def test_only_launches_are_captured(fake, device, verb):
    array = device.allocate((2,), np.float32)
    arguments = {
        "run": (lambda on: None,), "capture": (lambda on: None,), "upload": (array, 1.0),
        "allocate": ((1,), np.float32), "download": (array,), "assign": (array, array), "mark": (),
    }[verb]  # fmt: skip
    with pytest.raises(DeviceError, match=f"{verb} while a capture is running"):
        device.capture(lambda on: getattr(on, verb)(*arguments))
    assert fake.recorded is None and not fake.live


def test_a_download_is_waited_for(device):
    array = device.allocate((3,), np.float32)
    device.upload(array, [1.0, 2.0, 3.0])
    assert device.download(array).tolist() == [1.0, 2.0, 3.0]


def test_marks_are_events(device):
    first = device.mark()
    assert device.elapsed_ms(first, device.mark()) == 0.0


def test_other_errors_pass_unchanged(device):
    with pytest.raises(ZeroDivisionError):
        device.run(raising(ZeroDivisionError()))


def test_a_missing_cupy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"pip install 'verifylab\[cuda13\]'"):
        import_cupy()


def test_the_real_cupy_has_every_name_in_use():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    runtime = cupy.cuda.runtime
    names = set(vars(FakeCupy().cuda.runtime)) - {"CUDARuntimeError"}
    assert not [name for name in names if not hasattr(runtime, name)]
    for name in ("Device", "Stream", "Event", "get_elapsed_time"):
        assert hasattr(cupy.cuda, name)
    assert runtime.CUDARuntimeError(2).status == 2
    for name in ("zeros", "asarray", "RawModule"):
        assert hasattr(cupy, name)
