"""A real stream of steps through any key policy and any cache, on a machine profile.

A step trace replays exactly: every step's slots and planned rows go through the policy and its
graph cache on the machine model, counted by what counts an experiment. Two things a trace does
not say are taken from it: the drafts that each sequence of a step had are the most planned rows
of the step less one, and acceptance beyond the rows that were verified stays open, so that
tokens are bounds. An engine log names only the keys that were captured: from it come bounds
(`verifylab.log_bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verifylab.caches import CacheRule, simulate
from verifylab.counters import Counters, StepTimes, times
from verifylab.dcut import ROW_BUDGET
from verifylab.device.model import ModelDevice
from verifylab.experiment import (
    add_step,
    cache_for,
    evicted_nodes,
    executor,
    model_body,
    nodes_of,
)
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.key_trace import KeyTrace, KeyTracer
from verifylab.machine import MachineProfile
from verifylab.ordering import NO_SLOT
from verifylab.policy import POLICIES, GatedPolicy, KeyPolicy, Policy, StepPlan, policy
from verifylab.step_trace import NO_SLOT_WORD
from verifylab.trace_file import Notes, Trace, TraceError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Replay",
    "logged_keys",
    "replayable",
    "replay",
    "replay_cache",
    "traced",
]


#: Plans kept for batches that come again.
_PLANS = 100_000

AnyPolicy = KeyPolicy | GatedPolicy


@dataclass(frozen=True, slots=True)
class Replay:
    """What a policy and a cache would have done with the logged steps.

    Attributes
    ----------
    policy, cache : str
    counters : Counters
        Cold start; no step is left out. `tokens` is the lower bound.
    tokens_low, tokens_high : int or None
        None: the trace does not say what was accepted. They differ where the policy verifies
        deeper than was logged and all that was logged had been accepted.
    times : StepTimes
        Milliseconds, modelled.
    """

    policy: str
    cache: str
    counters: Counters
    tokens_low: int | None
    tokens_high: int | None
    times: StepTimes

    @property
    def hit_ratio(self) -> float:
        """Share of dispatches that replayed their own graph as it was; NaN without any."""
        c = self.counters
        return c.hits / c.dispatches if c.dispatches else float("nan")

    def as_row(self) -> dict[str, Any]:
        """Return it as a row of a table."""
        c, total = self.counters, float(self.times.total_ms)

        def rate(tokens: int | None) -> float:
            return float("nan") if tokens is None or not total else tokens / total * 1e3

        return {
            "policy": self.policy,
            "cache": self.cache,
            "steps": c.steps,
            "keys": c.keys_seen,
            "hits": c.hits,
            "captures": c.captures,
            "updates": c.updates,
            "borrowed": c.borrowed,
            "evictions": c.evictions,
            "eager": c.eager,
            "hit_ratio": self.hit_ratio,
            "capture_fraction": c.capture_fraction,
            "launches_per_layer": c.launches_per_layer,
            "rows": c.rows,
            "filler_rows": c.filler_rows,
            "captures_ms": float(self.times.captures_ms),
            "total_ms": total,
            "step_ms": total / c.steps if c.steps else float("nan"),
            "tok_s_low": rate(self.tokens_low),
            "tok_s_high": rate(self.tokens_high),
        }


def replayable(trace: Trace) -> Trace:
    """Return a step trace without the steps that no dispatch can hold, with a warning for each.

    A sequence of more than `ROW_BUDGET` rows fits none.
    """
    steps = trace.table("steps")
    deepest = np.array([d.max() if len(d) else 0 for d in steps.depths], np.int64)
    fits = deepest <= ROW_BUDGET
    if fits.all():
        return trace
    notes = Notes()
    for step, rows in zip(steps.step[~fits], deepest[~fits], strict=True):
        notes.add(
            "too deep",
            f"step {step}: a sequence of {rows:,} rows, a dispatch holds {ROW_BUDGET}: left out",
        )
    left = steps[fits].reset_index(drop=True)
    warnings = (*trace.warnings, *notes.texts())
    return replace(trace, tables={**trace.tables, "steps": left}, warnings=warnings)


def _batches(trace: Trace) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Any, Any]]:
    """(slots, planned rows, accepted or None, verified or None) of every step with sequences."""
    if trace.format != "step_trace":
        raise TraceError(
            f"{trace.source} ({trace.format}) does not hold every step, so it cannot be replayed"
            + ("; bounds come from `log_bounds.bounds`" if trace.format == "atlas_log" else "")
        )
    steps = replayable(trace).table("steps")
    columns = (steps.slots, steps.depths, steps.accepted, steps.verified)
    for slots, depths, accepted, verified in zip(*columns, strict=True):
        if len(slots):
            where = np.asarray(slots, np.int64)
            if (where == NO_SLOT_WORD).any():
                where = np.where(where == NO_SLOT_WORD, NO_SLOT, where)
            yield where, np.asarray(depths, np.int64), accepted, verified


class _Walk:
    """The plans that a policy makes of the logged steps, and the tokens that follow."""

    def __init__(self, trace: Trace, key_policy: AnyPolicy) -> None:
        self.trace, self.key_policy = trace, key_policy
        self.low = self.high = 0
        self.known = True

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], StepPlan]]:
        plan_of = _planner(self.key_policy)
        for slots, rows, accepted, verified in _batches(self.trace):
            plan = plan_of(slots, rows)
            yield slots, plan
            if accepted is None:
                self.known = False
                continue
            mine = np.empty(len(slots), np.int64)
            mine[plan.order] = plan.depths
            least, most = _tokens(mine, np.array(accepted), rows if verified is None else verified)
            self.low, self.high = self.low + least, self.high + most

    def done(self, cache: str, counters: Counters, profile: MachineProfile) -> Replay:
        """Price the counts, once every step was seen."""
        low, high = (self.low, self.high) if self.known else (None, None)
        counters.tokens = low or 0
        spent = times(counters, profile)
        return Replay(self.key_policy.name, cache, counters, low, high, spent)


def _planner(key_policy: AnyPolicy) -> Callable[[NDArray[Any], NDArray[Any]], StepPlan]:
    """Return the policy's `step`; where it has no memory, equal batches are planned once."""
    plans: dict[tuple[bytes, bytes], StepPlan] = {}

    def plan_of(slots: NDArray[np.int64], rows: NDArray[np.int64]) -> StepPlan:
        same = slots.tobytes(), rows.tobytes()
        plan = plans.get(same)
        if plan is None:
            plan = key_policy.step(slots, rows, int(rows.max()) - 1)
            if isinstance(key_policy, GatedPolicy) and len(plans) < _PLANS:
                plans[same] = plan
        return plan

    return plan_of


def _rules(key_policy: AnyPolicy) -> Policy:
    return key_policy.rules if isinstance(key_policy, GatedPolicy) else POLICIES["arrangement"]


def _tokens(rows: NDArray[np.int64], accepted: ArrayLike, verified: ArrayLike) -> tuple[int, int]:
    """Fewest and most tokens that a step emits when sequence i verifies ``rows[i]`` rows."""
    accepted, drafts = np.asarray(accepted), rows - 1
    unknown = accepted < 0
    # All of what was verified was accepted: how far it would have gone on is not known.
    open_ended = unknown | (accepted >= np.asarray(verified) - 1)
    least = np.minimum(np.where(unknown, 0, accepted), drafts)
    most = np.where(open_ended, drafts, least)
    return int(least.sum()) + len(rows), int(most.sum()) + len(rows)


def replay(
    trace: Trace,
    key_policy: AnyPolicy,
    profile: MachineProfile,
    capacity: int = VERIFY_BATCHED_GRAPH_CAP,
) -> Replay:
    """Replay a step trace through a policy and the LRU graph cache that it asks for.

    Parameters
    ----------
    trace : Trace
        Of format ``step_trace``.
    key_policy : KeyPolicy
        Asked for every step: ``step(slots, rows, drafts)``. One without `rules` is taken to
        capture the (slot, rows) pairs, as ``arrangement`` does.
    profile : MachineProfile
    capacity : int
        Graphs that the cache holds; 1 or more. A replay starts cold.

    Raises
    ------
    TraceError
        When the trace is of another format.
    """
    rules, counters = _rules(key_policy), Counters()
    device = ModelDevice(profile)
    count = nodes_of(rules, profile.gdn_layers, profile.other_nodes)
    cache = cache_for(device, rules, capacity)
    execute = executor(cache, rules, model_body(device, count))
    seen: set[bytes | None] = {None}
    walk = _Walk(trace, key_policy)
    with evicted_nodes(device) as evicted:
        for slots, plan in walk:
            done = [execute(dispatch, slots) for dispatch in plan.dispatches]
            add_step(counters, plan.dispatches, done, count)
            seen.update(dispatch.key for dispatch in plan.dispatches)
    counters.evictions, counters.nodes_evicted = cache.stats.evictions, sum(evicted)
    counters.keys_seen = len(seen) - 1
    return walk.done(f"lru({capacity})", counters, profile)


def traced(
    trace: Trace, key_policy: AnyPolicy, profile: MachineProfile
) -> tuple[KeyTrace, Callable[[str, Counters], Replay]]:
    """Return the keys of a step trace under a policy, for any cache or miss-ratio curve.

    Returns
    -------
    keys : KeyTrace
    replayed : callable
        ``replayed(cache_name, keys.counters(counts))`` is the `Replay`.

    Raises
    ------
    TraceError
        When the trace is of another format.
    ValueError
        When the policy is a cache of its own: it borrows, updates, or waits for a sighting.
    """
    rules = _rules(key_policy)
    if rules.borrow or rules.update or rules.sightings > 1:
        raise ValueError(
            f"policy {key_policy.name!r} has a cache of its own: key_policy must capture on a "
            "plain miss to be played on another cache; `replay` does this one"
        )
    tracer, walk = KeyTracer(rules, profile), _Walk(trace, key_policy)
    for _, plan in walk:
        tracer.add(plan.dispatches)
    keys = tracer.trace(key_policy.name)
    return keys, lambda cache, counters: walk.done(cache, counters, profile)


def replay_cache(
    trace: Trace, key_policy: AnyPolicy, profile: MachineProfile, rule: CacheRule, name: str = ""
) -> Replay:
    """Replay a step trace through a policy and any cache of `verifylab.caches`.

    `capture_fraction` is at most what is given where a step is several dispatches.
    """
    keys, replayed = traced(trace, key_policy, profile)
    return replayed(name or rule.eviction, keys.counters(simulate(keys.ids, rule, keys.nodes)))


def logged_keys(trace: Trace) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Keys of a step trace in the arrangement form, and the key id of every keyed dispatch.

    Returns
    -------
    keys : DataFrame
        As the ``keys`` of an engine log: ``key_id, key, n, rows, slots, depths, canonical``.
    stream : ndarray of int64, shape (keyed dispatches,)
    """
    from verifylab.engine_log_messages import key_table

    ids: dict[bytes, int] = {}
    stream = []
    for _, plan in _Walk(trace, policy("arrangement")):
        for dispatch in plan.dispatches:
            if dispatch.key is not None:
                stream.append(ids.setdefault(dispatch.key, len(ids)))
    return key_table(list(ids)), np.array(stream, np.int64)
