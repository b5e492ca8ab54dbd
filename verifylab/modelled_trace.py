"""Traces that the model writes: a step trace, and an engine log in the form of `formats.md`.

They show the whole path from a file to the verdict without a GPU, and give the readers inputs
whose counts are known another way. They are modelled, and say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from verifylab.device.model import ModelDevice
from verifylab.experiment import (
    AnyWorkload,
    Settings,
    Step,
    cache_for,
    executor,
    model_body,
    nodes_of,
    steps_of,
)
from verifylab.graph_cache import GraphCache, Outcome
from verifylab.machine import MachineProfile
from verifylab.policy import Baked, GatedPolicy
from verifylab.step_trace import StepTraceWriter

__all__ = ["engine_log_lines", "write_step_trace"]

#: Steps between two lines of counters, as the engine writes them.
WINDOW_STEPS = 200
_START = np.datetime64("2026-08-17T05:46:12", "us")


def _steps(
    workload: AnyWorkload, key_policy: GatedPolicy, settings: Settings, profile: MachineProfile
) -> Iterator[tuple[Step, GraphCache, float]]:
    device, rules = ModelDevice(profile), key_policy.rules
    cache = cache_for(device, rules, settings.capacity)
    count = nodes_of(rules, profile.gdn_layers, profile.other_nodes)
    execute = executor(cache, rules, model_body(device, count))
    for step in steps_of(workload, key_policy, settings, execute):
        yield step, cache, device.clock()


def write_step_trace(
    path: str | Path,
    workload: AnyWorkload,
    key_policy: GatedPolicy,
    settings: Settings,
    profile: MachineProfile,
) -> None:
    """Write the step trace of a modelled run, warm-up included."""
    with StepTraceWriter(path) as trace:
        for step, _, clock_ms in _steps(workload, key_policy, settings, profile):
            outcomes = [done.outcome for done in step.outcomes]
            verified = np.empty_like(step.depths)
            verified[step.order] = step.depths
            trace.step(
                step.slots,
                step.retained + 1,
                verified=verified,
                accepted=step.emitted - 1,  # a request's end cuts its last step
                confidences=step.log_confidences,
                outcome=Outcome.CAPTURE if Outcome.CAPTURE in outcomes else outcomes[0],
                time_us=int(clock_ms * 1e3),
            )


def engine_log_lines(
    workload: AnyWorkload, key_policy: GatedPolicy, settings: Settings, profile: MachineProfile
) -> Iterator[str]:
    """Yield the lines that an engine would log of a modelled run, without line feeds.

    Raises
    ------
    ValueError
        When the policy's keys are no (slot, rows) pairs, or graphs are updated: the log's form
        has no words for either.
    """
    rules = key_policy.rules
    if rules.baked not in (Baked.PAIRS, Baked.PADDED) or rules.update:
        raise ValueError(
            "key_policy must be one that captures under (slot, rows) pairs and updates nothing, "
            f"got {key_policy.name!r}"
        )
    counts = dict.fromkeys(Outcome, 0)
    for number, (step, cache, clock_ms) in enumerate(
        _steps(workload, key_policy, settings, profile), 1
    ):
        head = f"{_START + np.timedelta64(int(clock_ms * 1e3), 'us')}Z  INFO model::verify: "
        for dispatch, done in zip(step.dispatches, step.outcomes, strict=True):
            counts[done.outcome] += 1
            if done.outcome is Outcome.CAPTURE and dispatch.key is not None:
                words = np.frombuffer(dispatch.key, "<u4").tolist()
                yield (
                    f"{head}Captured CUDA graph for batched verify ks={dispatch.depths.tolist()} "
                    f"(n={dispatch.width}, key=Some({words}))"
                )
        if number % WINDOW_STEPS == 0:
            total = max(sum(counts.values()), 1)
            yield (
                f"{head}batched-verify graphs [{total} steps, last n={len(step.order)}]: "
                f"replay={counts[Outcome.HIT]} "
                f"borrow={counts[Outcome.BORROW]} CAPTURE={counts[Outcome.CAPTURE]} "
                f"eager={counts[Outcome.EAGER]} "
                f"capture_frac={counts[Outcome.CAPTURE] / total:.3f} "
                f"live_keys={len(cache)}/{cache.capacity}"
            )
            counts = dict.fromkeys(Outcome, 0)
