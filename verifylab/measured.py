"""The width-gate study with a real step and a real clock.

Each dispatch runs through `GraphCache` on a GPU (or on the host, in NumPy) and is timed by the
stopwatch of `verifylab.device.arm`: host clock from its first device call to the end of a wait, and
device time by events. Drawing, planning, counting and putting rejected states back are outside.
Recording runs the library's Python: an engine in a compiled language records faster, and
`verifylab calibrate` gives the parts.

All arms share one device and one set of buffers; each has its own cache, workload and clocks. At
every (width, seed), in random order, the arms take turns, `BLOCK` steps at a time, in a new random
order each round: a GPU that warms up or slows down meets all of them. Only the arms of one (width,
seed) hold graphs at a time.

Not counted: a throw-away capture of each form at the start, which loads kernels and fills pools,
and an arm's warm-up steps, which fill its cache. `warmup_steps` 0 counts the first captures.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from verifylab.dcut import MAX_VERIFY_WIDTH
from verifylab.device import open_device
from verifylab.device.arm import ArmDevice
from verifylab.device.base import Body, StepDevice
from verifylab.experiment import Run, Settings, Step, running
from verifylab.gate import Gate
from verifylab.policy import Dispatch, policy
from verifylab.recommend import NEVER
from verifylab.verify_shape import MAX_ROWS, SHAPES
from verifylab.verify_step import VerifyStep

if TYPE_CHECKING:
    from verifylab.width_gate import Config

__all__ = ["BLOCK", "Measured", "measure"]

#: Steps of one arm before the next one's turn.
BLOCK = 50


@dataclass(frozen=True, slots=True)
class Measured:
    """Runs of a measured study.

    Attributes
    ----------
    runs : DataFrame
        By ``width, min_width, seed``: what `stats.with_times` returns, and ``device_ms`` (between
        the events). ``captures_ms`` and ``launches_ms`` are the host times of those calls,
        ``work_ms`` the rest: the step on the device, as far as the host waits for it.
        `recommend.NEVER` is the base. Thresholds that decide alike at a width share their runs.
    arms : DataFrame
        The same for the two arms, by ``width, policy, seed``.
    machine : str
        The GPU's name, or ``host CPU``.
    ran : str
        What was measured, on what: the start of a provenance sentence.
    """

    runs: pd.DataFrame
    arms: pd.DataFrame
    machine: str
    ran: str


def measure(config: Config, device: str | StepDevice, *, order_seed: int = 0) -> Measured:
    """Run every arm that the study needs, at its central confidence spread.

    Parameters
    ----------
    config : Config
    device : {"host", "cuda"} or StepDevice
    order_seed : int
        Of the order in which arms take turns, and of the step's inputs.

    Raises
    ------
    ValueError
        When a sequence has more rows than the kernels take.
    DeviceError
        When the device cannot run it.
    """
    widest = max(config.widths)
    ladder = config.workload().ladder
    rows = {width: ladder.drafts(width) + 1 for width in range(1, widest + 1)}
    if max(rows.values()) > MAX_ROWS:
        raise ValueError(
            f"drafts must be at most {MAX_ROWS - 1} where the step really runs, "
            f"got {max(rows.values()) - 1}"
        )
    opened = open_device(device) if isinstance(device, str) else device
    rng = np.random.default_rng(order_seed)
    layers = SHAPES[config.shape].layers
    most = max(min(width, MAX_VERIFY_WIDTH) * count for width, count in rows.items())
    step = VerifyStep(
        opened,
        config.shape,
        pool_slots=widest,
        max_rows=min(most, config.row_budget),
        max_width=min(widest, MAX_VERIFY_WIDTH),
        weight_bytes=SHAPES[config.shape].weights_per_layer(config.weight_bytes),
    )
    _load(step, rng)
    _warm_up(step, rows[widest])
    thresholds = {str(m): m for m in config.min_widths}
    arms, runs = [], []
    cells = [(width, seed) for width in config.widths for seed in config.all_seeds()]
    for index in rng.permutation(len(cells)).tolist():
        width, seed = cells[index]
        gates = {"arrangement": Gate(enabled=False), "canonical": Gate(0)}
        gates |= {name: Gate(m) for name, m in thresholds.items()}
        decided = {name: _decisions(config, gate, width) for name, gate in gates.items()}
        unique = {decisions: gates[name] for name, decisions in reversed(decided.items())}
        timed = _take_turns(config, step, width, seed, unique, rng)
        base = {"width": width, "spread": config.spreads()[0], "seed": seed}
        for name, decisions in decided.items():
            row = {**base, "policy": name, "min_width": NEVER, **timed[decisions]}
            if name in ("arrangement", "canonical"):
                arms.append(row)
            if name != "canonical":
                changes = (
                    {}
                    if name == "arrangement"
                    else {"policy": "gated", "min_width": thresholds[name]}
                )
                runs.append(row | changes)
    order = ["width", "min_width", "policy", "seed"]
    about = opened.describe()
    machine = str(about["gpu"]) if about.get("gpu") else "host CPU"
    return Measured(
        pd.DataFrame(runs).sort_values(order, ignore_index=True),
        pd.DataFrame(arms).sort_values(order, ignore_index=True),
        machine,
        f"Measured on {machine} ({_versions(about)}), verify step {config.shape!r} alone, "
        f"{step.weight_bytes * layers:,} weight bytes a dispatch",
    )


def _decisions(config: Config, gate: Gate, width: int) -> tuple[bool, ...]:
    """Return the gate's answers that a run at `width` asks for: a drain asks at every width."""
    first = 1 if config.mode == "drain" else width
    return tuple(gate.canonical(w) for w in range(first, width + 1))


def _take_turns(
    config: Config,
    step: VerifyStep,
    width: int,
    seed: int,
    gates: dict[tuple[bool, ...], Gate],
    rng: np.random.Generator,
) -> dict[tuple[bool, ...], dict[str, Any]]:
    """Run one arm for each gate, in turns; return their counts and times by the same keys."""
    settings = replace(config.settings(width), seed=seed)
    other_nodes = step.shape.layers if step.weight_bytes else 0

    def body(dispatch: Dispatch) -> Body:
        return step.body(dispatch.slots, dispatch.depths)

    devices = {key: ArmDevice(step.device) for key in gates}
    arms: dict[tuple[bool, ...], Generator[Step, None, Run]] = {
        key: running(
            devices[key], config.workload(),
            policy("gated", gate, row_budget=config.row_budget, max_width=MAX_VERIFY_WIDTH),
            settings, body, gdn_layers=step.shape.layers, other_nodes=other_nodes,
        )
        for key, gate in gates.items()
    }  # fmt: skip
    out: dict[tuple[bool, ...], dict[str, Any]] = {}
    with ExitStack() as stack:
        for arm in arms.values():
            stack.enter_context(closing(arm))
        keys = list(gates)
        while len(out) < len(keys):
            for index in rng.permutation(len(keys)).tolist():
                key = keys[index]
                if key not in out and (run := _block(arms[key], devices[key], settings)):
                    out[key] = _row(run, devices[key])
    return out


def _block(arm: Generator[Step, None, Run], device: ArmDevice, settings: Settings) -> Run | None:
    """Run one block of an arm; return its `Run` once it is through."""
    try:
        for _ in range(BLOCK):
            if next(arm).index == settings.warmup_steps - 1:
                device.device_ms = 0.0
    except StopIteration as end:
        done: Run = end.value
        return done
    return None


def _row(run: Run, device: ArmDevice) -> dict[str, Any]:
    total_ms, captures_ms = run.times.total_ms, run.times.captures_ms
    launches_ms = run.times.launches_ms
    if device.name == "host":
        # There the launch call itself computes: what is left of it is the cost of launching.
        launches_ms = max(0.0, launches_ms - device.device_ms)
    return {
        **run.counters.as_dict(),
        "work_ms": total_ms - captures_ms - launches_ms,
        "launches_ms": launches_ms,
        "captures_ms": captures_ms,
        "total_ms": total_ms,
        "device_ms": device.device_ms,
        "step_ms": run.step_ms,
        "tok_s": run.tok_s,
    }


def _load(step: VerifyStep, rng: np.random.Generator) -> None:
    layers, rows, heads = step.shape.layers, step.max_rows, step.shape.value_heads
    step.load(
        rng.standard_normal((layers, rows, step.shape.conv_dim), np.float32),
        -rng.random((layers, rows, heads), np.float32),
        rng.random((layers, rows, heads), np.float32),
    )


def _warm_up(step: VerifyStep, rows: int) -> None:
    width = max(1, min(step.max_width, step.max_rows // rows))
    for form in ("direct", "declined"):
        graph = step.device.capture(step.body(range(width), [rows] * width, form))
        step.device.launch(graph)
        step.device.synchronise()
        step.device.destroy(graph)


def _versions(about: dict[str, Any]) -> str:
    """Name what a measured number depends on: driver and libraries."""
    smi = about.get("nvidia_smi") or {}
    known = {
        "driver": smi.get("driver_version", about.get("driver_cuda")),
        "CuPy": about.get("cupy"),
        "NumPy": None if about.get("cupy") else about.get("numpy"),
    }
    return ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
