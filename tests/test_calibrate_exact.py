"""`calibrate` on a device whose costs are known: it must find exactly those."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCupy

from verifylab import calibrate as measuring
from verifylab.calibrate import Plan, calibrate
from verifylab.device import cuda, host
from verifylab.device.base import OPERATIONS, Timings
from verifylab.machine import StepWork
from verifylab.measured_profile import to_profile
from verifylab.step_ops import CopyLaunch, TickLaunch
from verifylab.verify_shape import SHAPES

#: Milliseconds: a base, and one more node.
COSTS = {
    "record": (0.5, 0.01), "instantiate": (0.25, 0.02), "launch": (0.03, 0.0001),
    "exec_destroy": (0.06, 0.003), "graph_destroy": (0.07, 0.004), "eager": (0.9, 0.05),
}  # fmt: skip
REPLAY = (0.4, 0.002)
#: Milliseconds: a step, a row, a sequence, a node.
STEP = (0.2, 0.03, 0.11, 0.005)
COPY_MS = 0.125
#: Of the occurrences of one setting: a warm-up that must not count, and an outlier (a median's).
OFTEN = (1000.0, 1.0, 70.0, 1.0)
PLAN = Plan(
    shape="tiny", node_counts=(3, 10, 40, 200), widths=(1, 2, 3, 5), rows=(2, 3, 4), repeats=3,
    replays=4, copy_bytes=4096, weight_bytes=64,
)  # fmt: skip


@dataclass(frozen=True)
class StepLaunch:
    """A node of a made-up verify step."""

    width: int
    rows: int


@dataclass
class Graph:
    launches: list[Any]
    factor: float
    launched: int = 0

    @property
    def nodes(self):
        return len(self.launches)


class ScriptedDevice:
    """Keeps the books of a device whose every cost is given; nothing takes real time."""

    name, measured = "host", True

    def __init__(self, step=STEP):
        self.timings, self.step = Timings(), step
        self.stream_ms, self.busy, self.log = 0.0, False, []
        self._seen: dict[Any, int] = {}
        self._issued: list[Any] = []

    def prepare(self, shape):
        self.log.append("prepare")

    def describe(self):
        return {"device": "host", "gpu": None}

    def allocate(self, shape, dtype):
        return np.zeros(shape, dtype)

    def upload(self, target, values):
        target[...] = values

    def issue(self, launch):
        self._issued.append(launch)

    def synchronise(self):
        self.busy = False

    def mark(self):
        return self.stream_ms

    def elapsed_ms(self, first, last):
        return last - first

    def _factor(self, setting):
        seen = self._seen.get(setting, 0)
        self._seen[setting] = seen + 1
        return OFTEN[seen]

    def _book(self, operation, nodes, factor):
        base, node = COSTS[operation]
        self.timings.add(operation, factor * (base + node * nodes))

    def run(self, body):
        body(self)
        issued, self._issued = self._issued, []
        if isinstance(issued[0], CopyLaunch):
            self.stream_ms += COPY_MS * self._factor("copy")
            return
        factor = self._factor(("eager", len(issued)))
        self._book("eager", len(issued), factor)
        self.busy = True

    def capture(self, body):
        assert not self.busy, "an eager run still on the device"
        body(self)
        issued, self._issued = self._issued, []
        what = (type(issued[0]), len(issued), getattr(issued[0], "rows", 0))
        what += (getattr(issued[0], "width", 0),)
        graph = Graph(issued, self._factor(what))
        self.log.append(what)
        self._book("record", graph.nodes, graph.factor)
        self._book("instantiate", graph.nodes, graph.factor)
        return graph

    def launch(self, graph):
        graph.launched += 1
        first = 5000.0 if graph.launched == 1 else 0.0
        self._book("launch", graph.nodes, graph.factor)
        self.timings.total_ms["launch"] += first
        one = graph.launches[0]
        if isinstance(one, TickLaunch):
            ms = REPLAY[0] + REPLAY[1] * graph.nodes
        else:
            terms = (1, one.width * one.rows, one.width, graph.nodes)
            ms = float(np.dot(self.step, terms))
        self.stream_ms += graph.factor * ms + first

    def destroy(self, graph):
        assert not self.busy
        self._book("exec_destroy", graph.nodes, graph.factor)
        self._book("graph_destroy", graph.nodes, graph.factor)


class MadeUpStep:
    def __init__(self, device, shape, pool_slots, max_rows, max_width, weight_bytes, seed):
        self.layers = shape.layers

    def load(self, x, g, beta):
        pass

    def body(self, slots, depths, form):
        # Not proportional to rows, so that rows and nodes are told apart.
        each = 3 if form == "direct" else 3 + 2 * sum(depths) + len(depths) ** 2

        def issue(on):
            for _ in range(self.layers * each):
                on.issue(StepLaunch(len(slots), depths[0]))

        return issue


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    monkeypatch.setattr(measuring, "VerifyStep", MadeUpStep)


@pytest.fixture
def device():
    return ScriptedDevice()


@pytest.fixture
def result(device):
    return calibrate(device, PLAN)


def test_operations_are_found_in_their_units(result):
    found = {name: c["value"] for name, c in result["coefficients"].items()}
    for operation, (base, node) in {**COSTS, "replay": REPLAY}.items():
        if operation == "launch":
            assert found["launch_base_us"] == pytest.approx(1e3 * base)
        else:
            assert found[f"{operation}_base_ms"] == pytest.approx(base)
        assert found[f"{operation}_per_node_us"] == pytest.approx(1e3 * node)
    for c in result["coefficients"].values():
        assert c["low"] == pytest.approx(c["value"]) == c["high"]


def test_a_steps_parts_are_found_in_their_units(result):
    found = {name: c["value"] for name, c in result["coefficients"].items()}
    names = ("step_base_ms", "per_row_ms", "per_sequence_ms", "per_node_us")
    assert [found[n] for n in names] == pytest.approx([*STEP[:3], 1e3 * STEP[3]])


def test_bandwidth_counts_what_is_read_and_written(result):
    assert result["bandwidth"]["copy_gb_s"] == pytest.approx(2 * 4096 / COPY_MS * 1e-6)
    # A layer and sequence of `tiny`: 12,288 and 4,096 bytes of states, read once, written a row.
    assert SHAPES["tiny"].step_state_bytes(3) == (1 + 3) * (12_288 + 4_096)
    (step,) = (r for r in result["bandwidth"]["steps"] if (r["width"], r["rows"]) == (5, 3))
    moved = 2 * (5 * 4 * 16_384 + 64)
    ms = np.dot(STEP, (1, 15, 5, 2 * 3))
    assert step["gb_s"] == pytest.approx(moved / ms * 1e-6)
    assert step["of_copy"] == pytest.approx(step["gb_s"] / result["bandwidth"]["copy_gb_s"])


def test_settings_come_in_another_order_each_repeat(device, result):
    for kind in (TickLaunch, StepLaunch):
        order = [what for what in device.log if what[0] is kind]
        settings = len(set(order))
        rounds = [tuple(order[i : i + settings]) for i in range(0, len(order), settings)]
        assert len(rounds) == PLAN.repeats + 1
        assert all(sorted(r, key=str) == sorted(set(order), key=str) for r in rounds)
        assert len(set(rounds)) == len(rounds)
    assert device.log[0] == "prepare"


def test_a_profile_tells_the_samples_where_a_cost_is_nothing():
    # The samples want a negative cost a sequence, as those of a host do.
    device = ScriptedDevice(step=(0.3, 0.03, -0.02, 0.005))
    result = calibrate(device, PLAN)
    profile = to_profile(result, "here")
    sequence = profile.coefficients["per_sequence_ms"]
    assert (sequence.value, sequence.low) == (0.0, 0.0) < (sequence.high, 1.0)
    wrong = []
    for row in result["samples"]["steps"]:
        if row["repeat"] == 2:  # the outlier
            continue
        work = StepWork(width=row["width"], rows=row["width"] * row["rows"], nodes=row["nodes"])
        wrong.append(profile.body_ms(work) / row["ms"] - 1.0)
    assert np.abs(wrong).max() < 0.08 and abs(np.mean(wrong)) < 0.01


@pytest.mark.parametrize("kind", ["host", "cuda"])
def test_a_second_of_the_host_clock_is_a_thousand_milliseconds(monkeypatch, kind):
    device = host.HostDevice() if kind == "host" else cuda.CudaDevice(cupy=FakeCupy())
    device.prepare(SHAPES["tiny"])
    counter = device.allocate((1,), np.int32)
    seconds = count(1)
    module = host if kind == "host" else cuda
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(seconds)))

    def body(on):
        on.issue(TickLaunch(counter))

    device.run(body)
    graph = device.capture(body)
    device.launch(graph)
    device.destroy(graph)
    booked = {o: device.timings.total_ms[o] for o in OPERATIONS if o != "update"}
    # Whole seconds, one or few: how many times a device reads its clock is its own business.
    for operation, ms in booked.items():
        assert ms >= 1e3 and ms % 1e3 == 0.0, (operation, ms)
    assert booked["launch"] == 1e3


def test_a_plan_of_one_repeat_leaves_the_warm_up_out():
    result = calibrate(ScriptedDevice(), replace(PLAN, repeats=1))
    assert result["coefficients"]["record_base_ms"]["value"] == pytest.approx(0.5)
    assert len(result["samples"]["copy"]) == 1
