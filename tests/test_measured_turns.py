"""Who runs when in a measured sweep, and what its stopwatch counts: seen from the device."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from verifylab import measured
from verifylab.device.arm import ArmDevice
from verifylab.device.base import Timings
from verifylab.device.host import HostDevice
from verifylab.measured import measure
from verifylab.width_gate import Config

BLOCK, ROUNDS = 5, 6
CONFIG = Config(
    widths=[2, 3, 4], min_widths=[0, 33], seeds=3, steps=BLOCK * ROUNDS - 4, warmup_steps=4,
    graph_capacity=3, output_tokens=12, device="host", shape="tiny",
)  # fmt: skip


class RecordingDevice(HostDevice):
    """Says which call came when, on whose books."""

    def __init__(self):
        super().__init__()
        self.log = []
        self.own = self.timings

    def _note(self, call, what=None):
        # The books themselves are kept, so that no two have one id.
        self.log.append((call, self.timings, what))

    def capture(self, body):
        graph = super().capture(body)
        self._note("capture", graph.nodes)
        return graph

    def launch(self, graph):
        super().launch(graph)
        self._note("launch", graph.nodes)

    def run(self, body):
        super().run(body)
        self._note("launch")

    def synchronise(self):
        self._note("synchronise")

    def destroy(self, graph):
        self._note("destroy", graph.nodes)
        super().destroy(graph)


@pytest.fixture
def played(monkeypatch):
    """The device's log, and (width, seed) and arms of each cell in the order they were run."""
    monkeypatch.setattr(measured, "BLOCK", BLOCK)
    device, cells = RecordingDevice(), []
    turns = measured._take_turns

    def noted(config, step, width, seed, gates, rng):
        cells.append((width, seed, len(gates)))
        return turns(config, step, width, seed, gates, rng)

    monkeypatch.setattr(measured, "_take_turns", noted)
    measure(CONFIG, device)
    return device, cells


def test_arms_take_turns_in_a_new_order_each_round(played):
    device, cells = played
    by = [id(books) for call, books, _ in device.log if call == "launch" and (
        books is not device.own)]  # fmt: skip
    orders = Counter()
    for _, _, arms in cells:
        assert arms == 2
        own, by = by[: arms * ROUNDS * BLOCK], by[arms * ROUNDS * BLOCK :]
        blocks = [own[i : i + BLOCK] for i in range(0, len(own), BLOCK)]
        assert all(len(set(block)) == 1 for block in blocks)
        turns = [block[0] for block in blocks]
        rounds = [tuple(turns[i : i + arms]) for i in range(0, len(turns), arms)]
        # Every arm once a round: a device that slows down meets all of them.
        assert len(rounds) == ROUNDS and all(len(set(one)) == arms for one in rounds)
        orders[len(set(rounds))] += 1
        # Only the arms of one cell: no two share books.
        assert not set(own) & set(by)
    assert not by
    assert orders[2] > len(cells) / 2, "hardly ever the same order in all six rounds"


def test_cells_come_in_random_order(played):
    _, cells = played
    order = [(width, seed) for width, seed, _ in cells]
    given = [(width, seed) for width in CONFIG.widths for seed in range(3)]
    assert sorted(order) == given != order
    assert order != sorted(order, key=lambda cell: cell[::-1])


def test_another_order_seed_gives_another_order(monkeypatch):
    config = replace(CONFIG, steps=2, warmup_steps=0)
    orders = []
    turns = measured._take_turns

    def noted(config, step, width, seed, gates, rng):
        orders[-1].append((width, seed))
        return turns(config, step, width, seed, gates, rng)

    monkeypatch.setattr(measured, "_take_turns", noted)
    for order_seed in (0, 1):
        orders.append([])
        measure(config, "host", order_seed=order_seed)
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])


def test_both_forms_are_warmed_up_on_nobodys_books(played):
    device, _ = played
    first = next(i for i, (_, books, _) in enumerate(device.log) if books is not device.own)
    warm = [(call, nodes) for call, _, nodes in device.log[:first]]
    calls = ["capture", "launch", "synchronise", "destroy"]
    assert [call for call, _ in warm] == [*calls, *calls]
    # Two launches a layer on the fast path; more on the declined one.
    assert warm[0][1] == warm[1][1] == 2 * 2 < warm[4][1] == warm[5][1]


class Stopwatch:
    """A GPU by the clock: calls return at once, work ends later, an event takes long to record."""

    name, measured = "cuda", True

    def __init__(self):
        self.now, self.done, self.timings = 0.0, 0.0, Timings()
        self.mark_ms = 1000.0

    def clock(self):
        return self.now

    def capture(self, body):
        self.now += 7.0

    def destroy(self, graph):
        self.now += 4.0

    def launch(self, graph):
        self.now += 2.0
        self.done = self.now + 40.0

    def run(self, body):
        self.launch(None)

    def mark(self):
        # The first is recorded before the step, the second while it runs.
        busy = self.done > self.now
        at = self.done if busy else self.now
        self.now += 3.0 if busy else self.mark_ms
        return at

    def synchronise(self):
        self.now = max(self.now, self.done)

    def elapsed_ms(self, first, last):
        return last - first


@pytest.mark.parametrize("call", ["launch", "run"])
def test_the_stopwatch_runs_to_the_end_of_the_wait_and_not_between(call):
    device = Stopwatch()
    arm, other = ArmDevice(device), ArmDevice(device)
    for n in (1, 2):
        arm.capture(None)
        arm.destroy(None)
        assert device.timings is arm.timings
        getattr(arm, call)(None)
        # Capture, eviction, the call and the wait for its work; no event.
        assert arm.clock() == n * (7.0 + 4.0 + 2.0 + 40.0)
        assert device.now >= device.done
        # Recording the first event falls between the events, and so do the call and the work.
        assert arm.device_ms == n * (1000.0 + 2.0 + 40.0)
        device.now += 500.0
        getattr(other, call)(None)
        assert device.timings is other.timings and other.clock() == n * 42.0
        assert arm.clock() == n * 53.0
