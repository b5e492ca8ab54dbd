"""Measure what graph operations and verify steps cost on the device at hand.

Four measurements, each after a warm-up, settings in random order, a new order each repeat: copy
bandwidth; record, instantiate, launch and destroy over the number of nodes; eager launches; the
replayed verify step over width and rows, on the fast and on the declined path. Costs are fitted as
``a + b * nodes`` and ``base + rows + sequences + nodes`` with 95 % intervals. On the host device
everything runs as well; its numbers are the host's and say so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from verifylab.calibration_plan import Plan
from verifylab.cost_fit import Coefficient, fit_costs
from verifylab.device.base import StepDevice
from verifylab.paths import write_aside
from verifylab.step_ops import CopyLaunch, TickLaunch
from verifylab.verify_shape import SHAPES, VerifyShape
from verifylab.verify_step import Form, VerifyStep

__all__ = ["Plan", "calibrate", "write_calibration"]

#: Operations fitted over nodes; ``launch`` is of a graph launched before, in microseconds.
_GRAPH_OPERATIONS = ("record", "instantiate", "launch", "exec_destroy", "graph_destroy")


def calibrate(
    device: StepDevice, plan: Plan | None = None, progress: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Measure the costs of `device` and fit them.

    Parameters
    ----------
    device : StepDevice
        ``cuda`` or ``host``.
    plan : Plan, optional
    progress : callable, optional
        Told the name of each measurement as it starts.

    Returns
    -------
    dict
        JSON-able: ``plan``, ``machine`` (what it ran on), ``date`` (UTC), ``coefficients`` (name
        to value, low, high, unit, source), ``bandwidth`` (copies, and state and weight bytes of
        each fast-path step against them) and ``samples`` (every raw number).
    """
    plan = Plan() if plan is None else plan
    say = progress or (lambda _: None)
    rng = np.random.default_rng(plan.seed)
    # Everything after this may be captured: the kernels are compiled and loaded.
    shape = SHAPES[plan.shape]
    device.prepare(shape)
    say("copy bandwidth")
    copies = _copies(device, plan)
    say("graph operations over nodes")
    operations = _graph_operations(device, plan, rng)
    say(f"verify steps at {plan.shape}")
    steps = _steps(device, plan, shape, rng)
    copy_gb_s = float(np.median([row["gb_s"] for row in copies]))
    coefficients = _fit_operations(operations, plan) | _fit_steps(steps, plan)
    source = f"calibrate on {device.name}"
    return {
        "format": 1,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": device.describe(),
        "plan": asdict(plan),
        "coefficients": {
            name: {**asdict(fitted), "unit": name.rsplit("_", 1)[1], "source": source}
            for name, fitted in coefficients.items()
        },
        "bandwidth": {"copy_gb_s": copy_gb_s, "steps": _step_bandwidth(steps, copy_gb_s)},
        "samples": {"copy": copies, "graph_operations": operations, "steps": steps},
    }


def write_calibration(result: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write what `calibrate` returned as JSON: aside first, then renamed."""
    return write_aside(path, json.dumps(result, indent=1, allow_nan=False) + "\n")


def _copies(device: StepDevice, plan: Plan) -> list[dict[str, float]]:
    source, target = (device.allocate((plan.copy_bytes // 4,), np.float32) for _ in range(2))
    # Zeros copy faster than data on some memories.
    pattern = np.random.default_rng(plan.seed).random(2**16, np.float32)
    device.upload(source, np.resize(pattern, source.shape))
    samples = []
    for repeat in range(plan.repeats + 1):
        first = device.mark()
        device.run(lambda on: on.issue(CopyLaunch(target, source)))
        ms = device.elapsed_ms(first, device.mark())
        if repeat:  # the first one warms up
            samples.append({"ms": ms, "gb_s": 2e-6 * plan.copy_bytes / ms})
    return samples


def _graph_operations(
    device: StepDevice, plan: Plan, rng: np.random.Generator
) -> list[dict[str, Any]]:
    counter = device.allocate((1,), np.int32)
    samples: list[dict[str, Any]] = []
    for repeat in range(plan.repeats + 1):
        for nodes in rng.permutation(plan.node_counts).tolist():
            row = {
                "nodes": nodes,
                "repeat": repeat,
                **_one_graph(device, counter, nodes, plan.replays),
            }
            if repeat:
                samples.append(row)
    return samples


def _one_graph(device: StepDevice, counter: Any, nodes: int, replays: int) -> dict[str, Any]:
    """Take one graph of `nodes` nodes through its life; milliseconds by operation."""

    def body(on: Any) -> None:
        launch = TickLaunch(counter)
        for _ in range(nodes):
            on.issue(launch)

    device.synchronise()
    before = dict(device.timings.total_ms)

    def took(operation: str) -> float:
        return device.timings.total_ms[operation] - before[operation]

    device.run(body)
    device.synchronise()
    graph = device.capture(body)
    row: dict[str, Any] = {"eager": took("eager")}
    row |= {"record": took("record"), "instantiate": took("instantiate")}
    device.launch(graph)
    row["first_launch"] = took("launch")
    device.synchronise()
    before["launch"] = device.timings.total_ms["launch"]
    device.launch(graph)
    row["launch"] = took("launch")
    row["replay"] = _replay_ms(device, graph, replays)
    # In chunks, and only where the device was asked to measure it.
    row["graph_bytes"] = getattr(graph, "measured_bytes", None)
    device.synchronise()
    device.destroy(graph)
    return row | {"exec_destroy": took("exec_destroy"), "graph_destroy": took("graph_destroy")}


def _steps(
    device: StepDevice, plan: Plan, shape: VerifyShape, rng: np.random.Generator
) -> list[dict[str, Any]]:
    most = max(plan.widths) * max(plan.rows)
    step = VerifyStep(
        device, shape, max(plan.widths), most, max(plan.widths), plan.weight_bytes, plan.seed
    )
    scalars = (shape.layers, most, shape.value_heads)
    step.load(
        rng.standard_normal((shape.layers, most, shape.conv_dim), np.float32),
        -rng.random(scalars, np.float32),
        rng.random(scalars, np.float32),
    )
    settings: list[tuple[int, int, Form]] = [
        (width, rows, form)
        for width in plan.widths
        for rows in plan.rows
        for form in ("direct", "declined")
        # A single sequence never takes the fast path: its two forms are one.
        if form == "declined" or width > 1
    ]  # fmt: skip
    samples: list[dict[str, Any]] = []
    for repeat in range(plan.repeats + 1):
        for index in rng.permutation(len(settings)).tolist():
            width, rows, form = settings[index]
            graph = device.capture(step.body(range(width), [rows] * width, form))
            device.launch(graph)  # the first launch uploads the graph
            ms = _replay_ms(device, graph, plan.replays)
            row = {"width": width, "rows": rows, "form": form, "nodes": graph.nodes, "ms": ms}
            device.destroy(graph)
            if repeat:
                moved = shape.layers * (width * shape.step_state_bytes(rows) + plan.weight_bytes)
                row |= {"repeat": repeat, "moved_bytes": moved}
                samples.append(row)
    return samples


def _replay_ms(device: StepDevice, graph: Any, replays: int) -> float:
    """Return device time of one replay: several in a row, so that the host is never waited for."""
    device.synchronise()
    first = device.mark()
    for _ in range(replays):
        device.launch(graph)
    return device.elapsed_ms(first, device.mark()) / replays


def _medians(
    samples: Iterable[dict[str, Any]], by: Sequence[str], value: str
) -> tuple[list[tuple[Any, ...]], list[float]]:
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in samples:
        groups.setdefault(tuple(row[name] for name in by), []).append(row[value])
    return list(groups), [float(np.median(values)) for values in groups.values()]


def _fit_operations(samples: list[dict[str, Any]], plan: Plan) -> dict[str, Coefficient]:
    fitted: dict[str, Coefficient] = {}
    for operation in (*_GRAPH_OPERATIONS, "replay", "eager"):
        groups, costs = _medians(samples, ["nodes"], operation)
        # A clock may read 0 for what takes less than its tick.
        costs = [max(cost, 1e-6) for cost in costs]
        base, node = fit_costs([(1.0, nodes) for (nodes,) in groups], costs)
        if operation == "launch":
            fitted["launch_base_us"] = base.scaled(1e3)
        else:
            fitted[f"{operation}_base_ms"] = base
        fitted[f"{operation}_per_node_us"] = node.scaled(1e3)
    return fitted


def _fit_steps(samples: list[dict[str, Any]], plan: Plan) -> dict[str, Coefficient]:
    # The declined path verifies the same rows with more nodes: that difference is per_node_us,
    # smaller kernels included.
    groups, costs = _medians(samples, ["width", "rows", "nodes"], "ms")
    regressors = [(1.0, width * rows, width, nodes) for width, rows, nodes in groups]
    base, row, sequence, node = fit_costs(regressors, costs)
    return {
        "step_base_ms": base,
        "per_row_ms": row,
        "per_sequence_ms": sequence,
        "per_node_us": node.scaled(1e3),
    }


def _step_bandwidth(samples: list[dict[str, Any]], copy_gb_s: float) -> list[dict[str, Any]]:
    direct = [row for row in samples if row["form"] == "direct"]
    groups, costs = _medians(direct, ["width", "rows", "moved_bytes"], "ms")
    rows = []
    for (width, depth, moved_bytes), ms in zip(groups, costs, strict=True):
        gb_s = 1e-6 * moved_bytes / ms
        rows.append({"width": width, "rows": depth, "gb_s": gb_s, "of_copy": gb_s / copy_gb_s})
    return sorted(rows, key=lambda row: (row["width"], row["rows"]))
