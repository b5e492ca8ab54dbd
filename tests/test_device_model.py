"""The model device: a virtual clock that moves by the profile and by nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifylab.device import OPERATIONS, Device, DeviceError, Graph, choose
from verifylab.device.model import GRAPH_BYTES_PER_NODE, ModelDevice
from verifylab.graph_cache import GraphCache, Outcome
from verifylab.machine import StepWork, load_profile

GB10 = load_profile("gb10-published")
WORK = StepWork(width=8, rows=28, nodes=4500)
OTHER = StepWork(width=2, rows=7, nodes=2433)


@pytest.fixture
def device():
    return ModelDevice(GB10)


def test_it_keeps_the_contract(device):
    assert isinstance(device, Device)
    assert isinstance(device.capture(device.body(WORK)), Graph)
    assert (device.name, device.measured) == ("model", False)
    buffer = device.allocate((2, 3), "float32")
    assert buffer.shape == (2, 3) and not buffer.any()


def test_capture_pays_for_recording_and_instantiating_not_for_the_work(device):
    graph = device.capture(device.body(WORK))
    record = GB10.operation_ms("record", 4500)
    instantiate = GB10.operation_ms("instantiate", 4500)
    assert device.clock() == pytest.approx(record + instantiate)
    assert device.timings.total_ms["record"] == pytest.approx(record)
    assert device.timings.total_ms["instantiate"] == pytest.approx(instantiate)
    assert device.timings.count["record"] == device.timings.count["instantiate"] == 1
    assert graph.nodes == 4500
    assert graph.nbytes == 4500 * GRAPH_BYTES_PER_NODE


def test_launch_pays_for_the_launch_and_the_work(device):
    graph = device.capture(device.body(WORK))
    for _ in range(3):
        before = device.clock()
        device.launch(graph)
        spent = device.clock() - before
        assert spent == pytest.approx(GB10.launch_ms(4500) + GB10.body_ms(WORK))
    assert device.timings.count["launch"] == 3
    # The timing is the launch alone: device time belongs to the work.
    assert device.timings.total_ms["launch"] == pytest.approx(3 * GB10.launch_ms(4500))


def test_destroy_pays_for_both_destroys(device):
    graph = device.capture(device.body(WORK))
    before = device.clock()
    device.destroy(graph)
    parts = [GB10.operation_ms(op, 4500) for op in ("exec_destroy", "graph_destroy")]
    assert device.clock() - before == pytest.approx(sum(parts))
    assert device.timings.count["exec_destroy"] == device.timings.count["graph_destroy"] == 1


def test_eager_pays_for_every_node(device):
    device.run(device.body(WORK))
    expected = GB10.body_ms(WORK) + GB10.eager_ms(4500)
    assert device.clock() == pytest.approx(expected)
    assert device.timings.total_ms["eager"] == pytest.approx(expected)
    assert device.timings.count["eager"] == 1


def test_a_body_of_several_dispatches_is_their_sum(device):
    def body(d):
        d.charge(WORK)
        d.charge(OTHER)

    graph = device.capture(body)
    assert graph.nodes == WORK.nodes + OTHER.nodes
    before = device.clock()
    device.launch(graph)
    expected = GB10.launch_ms(graph.nodes) + GB10.body_ms(WORK) + GB10.body_ms(OTHER)
    assert device.clock() - before == pytest.approx(expected)


def test_a_destroyed_graph_is_refused(device):
    graph = device.capture(device.body(WORK))
    device.destroy(graph)
    before = device.clock()
    with pytest.raises(DeviceError, match="was destroyed: capture it again"):
        device.launch(graph)
    with pytest.raises(DeviceError, match="was destroyed already"):
        device.destroy(graph)
    assert device.clock() == before


def test_an_exception_in_the_body_leaves_the_device_usable(device):
    def broken(d):
        d.charge(WORK)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        device.capture(broken)
    assert device.clock() == 0.0
    assert device.timings.count["record"] == 0
    graph = device.capture(device.body(OTHER))
    assert graph.nodes == OTHER.nodes  # nothing of the broken body is left in it
    device.launch(graph)
    with pytest.raises(KeyError, match="mine"):
        device.run(broken)
    device.launch(graph)


def test_a_capture_within_a_capture_is_refused(device):
    with pytest.raises(DeviceError, match="a capture is already under way"):
        device.capture(lambda d: d.capture(d.body(WORK)))
    device.launch(device.capture(device.body(WORK)))


def test_timings_can_be_reset(device):
    device.run(device.body(WORK))
    clock = device.clock()
    device.timings.reset()
    assert device.clock() == clock  # the clock goes on
    assert list(device.timings.count) == list(OPERATIONS)
    assert not any(device.timings.count.values()) and not any(device.timings.total_ms.values())


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 4))
def test_the_clock_is_the_sum_of_what_the_cache_did(keys, capacity):
    """Through the cache: work of every step, plus captures and destroys as the cache counts."""
    device = ModelDevice(GB10)
    cache = GraphCache(device, capacity)
    expected = 0.0
    work = {k: StepWork(k + 1, 4 * (k + 1), 2000 + 100 * k) for k in range(6)}
    held = []
    for k in keys:
        outcome = cache.step(k, device.body(work[k]))
        expected += GB10.body_ms(work[k]) + GB10.launch_ms(work[k].nodes)
        assert (outcome is Outcome.HIT) == (k in held)
        if outcome is Outcome.CAPTURE:
            for operation in ("record", "instantiate"):
                expected += GB10.operation_ms(operation, work[k].nodes)
            if len(held) == capacity:
                gone = work[held.pop(0)].nodes
                for operation in ("exec_destroy", "graph_destroy"):
                    expected += GB10.operation_ms(operation, gone)
        else:
            held.remove(k)
        held.append(k)
    assert device.clock() == pytest.approx(expected, rel=1e-12)
    assert cache.keys() == held


# --- which device --------------------------------------------------------------------------


def test_what_is_asked_for_is_taken():
    assert choose("model").name == "model"
    assert choose("host").why == "asked for"


@pytest.mark.parametrize("name", ["gpu", "", None, 5, ["model"]])
def test_an_unknown_device_is_one_sentence(name):
    with pytest.raises(ValueError, match="device must be one of auto, model, host, cuda, got"):
        choose(name)


def test_auto_says_what_it_took_and_why(monkeypatch):
    monkeypatch.setattr("verifylab.device.gpu_answers", lambda: (True, "Some GPU"))
    assert (choose("auto").name, choose("cuda").why) == ("cuda", "a GPU answers: Some GPU")
    monkeypatch.setattr("verifylab.device.gpu_answers", lambda: (False, "CuPy finds no GPU"))
    assert choose("auto").name == "model"
    assert choose("auto").why == "no GPU: CuPy finds no GPU"
    with pytest.raises(DeviceError, match=r"'cuda' was asked for, but .*: CuPy finds no GPU"):
        choose("cuda")
