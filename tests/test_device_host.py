import gc
import weakref

import numpy as np
import pytest
from step_case import NAMES, Case, assert_close, assert_same

from verifylab.device.base import Device, DeviceError, StepDevice
from verifylab.device.host import HostDevice
from verifylab.graph_cache import GraphCache
from verifylab.step_ops import TickLaunch
from verifylab.verify_step import FORMS, VerifyStep


@pytest.fixture
def case():
    return Case(VerifyStep(HostDevice(), "tiny", pool_slots=8, max_rows=24), 24)


def test_keeps_both_contracts_and_says_what_it_is():
    device = HostDevice()
    assert isinstance(device, Device) and isinstance(device, StepDevice)
    assert device.name == "host" and device.measured


@pytest.mark.parametrize("form", FORMS)
def test_replay_equals_eager_to_the_bit(case, form):
    slots, depths = [2, 3, 4, 7], [4, 4, 3, 2]
    eager = case.run(slots, depths, form)
    device = case.step.device
    case.reset()
    graph = device.capture(case.step.body(slots, depths, form))
    untouched = case.results()
    np.testing.assert_array_equal(untouched["h_state"], case.h0)
    assert np.isnan(untouched["out"]).all(), "a capture records, it does not compute"
    for _ in range(2):
        case.reset()
        device.launch(graph)
        assert_same(case.results(), eager)


def replay(case, graph):
    case.reset()
    case.step.device.launch(graph)
    return case.results()


def damage(got, want):
    return {n for n in NAMES if not np.array_equal(got[n], want[n], equal_nan=True)}


def step_under(case, cache, key, slots, depths):
    case.reset()
    cache.step(key, case.step.body(slots, depths))
    return case.results()


@pytest.mark.parametrize(
    ("first", "second", "wrong_key"),
    [
        # Keyed by depths alone: the second batch replays onto the first one's slots.
        (([0, 1], [3, 3]), ([4, 5], [3, 3]), lambda slots, depths: tuple(depths)),
        # Keyed by slots alone: the second batch replays the first one's rows.
        (([0, 1], [3, 3]), ([0, 1], [4, 2]), lambda slots, depths: tuple(slots)),
    ],
)
def test_a_key_without_slots_or_depths_poisons_states(case, first, second, wrong_key):
    expected = case.run(*second)
    poisoned = GraphCache(case.step.device)
    step_under(case, poisoned, wrong_key(*first), *first)
    got = step_under(case, poisoned, wrong_key(*second), *second)
    assert poisoned.stats.hits == 1, "the wrong key hits"
    assert {"h_state", "conv_state"} <= damage(got, expected)

    sound = GraphCache(case.step.device)
    step_under(case, sound, (tuple(first[0]), tuple(first[1])), *first)
    got = step_under(case, sound, (tuple(second[0]), tuple(second[1])), *second)
    assert sound.stats.captures == 2
    assert not damage(got, expected)


def test_the_damage_is_where_the_wrong_key_says(case):
    graph = case.step.device.capture(case.step.body([0, 1], [3, 3]))
    # Slots 4 and 5 were meant: they are stale, and somebody else's 0 and 1 are overwritten.
    got = replay(case, graph)
    np.testing.assert_array_equal(got["h_state"][:, [4, 5]], case.h0[:, [4, 5]])
    assert not np.array_equal(got["h_state"][:, [0, 1]], case.h0[:, [0, 1]])


def test_an_indirect_graph_serves_any_slots(case):
    device, cache = case.step.device, GraphCache(case.step.device)
    depths = [4, 4, 2]
    for slots in ([0, 1, 2], [5, 3, 7], [6, 0, 4]):
        expected = case.run(slots, depths)
        case.reset()
        case.step.set_slots(slots)
        cache.step(tuple(depths), case.step.body(slots, depths, "indirect"))
        assert_close(case.results(), expected)
    assert cache.stats.captures == 1 and cache.stats.hits == 2 and device.live_graphs == 1


def test_an_indirect_graph_with_a_stale_table_poisons_states(case):
    slots, depths = [5, 3], [3, 3]
    expected = case.run(slots, depths, "indirect")
    graph = case.step.device.capture(case.step.body(slots, depths, "indirect"))
    case.step.set_slots([1, 2])
    assert "h_state" in damage(replay(case, graph), expected)


def test_more_memory_than_there_is_is_a_sentence():
    # More than an address space holds, whatever the machine overcommits.
    with pytest.raises(DeviceError, match=r"allocating 1,073,741,824.00 GiB: .* use a smaller"):
        HostDevice().allocate((2**29, 2**29), np.float32)


def test_evicted_graphs_leak_nothing_and_let_go_of_buffers():
    device = HostDevice()
    step = VerifyStep(device, "tiny", pool_slots=4, max_rows=4)
    buffer = weakref.ref(step.h_state)
    cache = GraphCache(device, capacity=3)
    for key in range(200):
        cache.step(key, step.body([0, 1], [2, 2]))
    assert device.live_graphs == 3
    del step
    gc.collect()
    assert buffer() is not None, "the graphs own what they baked"
    cache.clear()
    gc.collect()
    assert device.live_graphs == 0 and buffer() is None


@pytest.mark.parametrize("verb", ["run", "capture", "upload", "download", "assign"])
def test_only_launches_are_captured(verb):
    device = HostDevice()
    array = device.allocate((2,), np.float32)
    arguments = {
        "run": (lambda on: None,), "capture": (lambda on: None,), "upload": (array, 1.0),
        "download": (array,), "assign": (array, array),
    }[verb]  # fmt: skip
    with pytest.raises(DeviceError, match=f"{verb} while a capture is running"):
        device.capture(lambda on: getattr(on, verb)(*arguments))
    assert device.live_graphs == 0
    device.destroy(device.capture(lambda on: None))


def test_marks_are_times():
    device = HostDevice()
    first = device.mark()
    device.run(lambda on: on.issue(TickLaunch(on.allocate((1,), np.int32))))
    assert device.elapsed_ms(first, device.mark()) > 0.0
