"""A real stream of steps through any key policy and any cache, on a machine profile.

A step trace replays exactly: every step's slots and depths go through the policy, its keys
through the cache, its counts through the profile. An engine log names only the keys that were
captured, so from it come bounds (`bounds`), each of which is proven below it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verifylab.counters import Counters, StepTimes, times
from verifylab.gate import Gate
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.machine import MachineProfile
from verifylab.ordering import NO_SLOT
from verifylab.policy import GatedPolicy, KeyPolicy, StepPlan
from verifylab.step_trace import NO_SLOT_WORD
from verifylab.trace_file import Trace, TraceError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "KeyCache",
    "LruKeys",
    "Replay",
    "gate_table",
    "logged_keys",
    "policy_keys",
    "replay",
    "replay_table",
]


#: A sequence without a slot, as a step trace writes it.
_WITHOUT = NO_SLOT_WORD
#: Plans kept for batches that come again.
_PLANS = 100_000


class KeyCache(Protocol):
    """What a replay asks of a cache; any object with this one method will do."""

    def touch(self, key: Hashable) -> tuple[bool, Sequence[Hashable]]:
        """Use `key`: whether it was there, and the keys that went to make room for it."""


class LruKeys:
    """Keys in a cache that evicts the one used longest ago.

    Parameters
    ----------
    capacity : int
        1 or more.
    """

    def __init__(self, capacity: int = VERIFY_BATCHED_GRAPH_CAP) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be 1 or more graphs, got {capacity}")
        self.capacity = capacity
        self.name = f"lru({capacity})"
        self._keys: OrderedDict[Hashable, None] = OrderedDict()

    def touch(self, key: Hashable) -> tuple[bool, Sequence[Hashable]]:
        """See `KeyCache`."""
        if key in self._keys:
            self._keys.move_to_end(key)
            return True, ()
        evicted = []
        if len(self._keys) >= self.capacity:
            evicted.append(self._keys.popitem(last=False)[0])
        self._keys[key] = None
        return False, evicted


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
        """Hits of all keyed dispatches; NaN when there are none."""
        keyed = self.counters.hits + self.counters.captures
        return self.counters.hits / keyed if keyed else float("nan")

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
            "evictions": c.evictions,
            "eager": c.eager,
            "hit_ratio": self.hit_ratio,
            "capture_fraction": c.capture_fraction,
            "launches_per_layer": c.launches_per_layer,
            "captures_ms": float(self.times.captures_ms),
            "total_ms": total,
            "tok_s_low": rate(self.tokens_low),
            "tok_s_high": rate(self.tokens_high),
        }


def _batches(trace: Trace) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Any, Any]]:
    """(slots, planned rows, accepted or None, verified or None) of every step with sequences."""
    if trace.format != "step_trace":
        raise TraceError(
            f"{trace.source} ({trace.format}) does not hold every step, so it cannot be replayed"
            + ("; bounds come from `log_bounds.bounds`" if trace.format == "atlas_log" else "")
        )
    steps = trace.table("steps")
    columns = (steps.slots, steps.depths, steps.accepted, steps.verified)
    for slots, depths, accepted, verified in zip(*columns, strict=True):
        if len(slots):
            where = np.asarray(slots, np.int64)
            if (where == _WITHOUT).any():
                where = np.where(where == _WITHOUT, NO_SLOT, where)
            yield where, np.asarray(depths, np.int64), accepted, verified


def _planner(key_policy: KeyPolicy | GatedPolicy) -> Callable[..., StepPlan]:
    """Return the policy's `step`; where it has no memory, equal batches are planned once."""
    if not isinstance(key_policy, GatedPolicy):
        return key_policy.step
    plans: dict[tuple[bytes, bytes], StepPlan] = {}

    def plan_of(slots: NDArray[np.int64], rows: NDArray[np.int64]) -> StepPlan:
        same = slots.tobytes(), rows.tobytes()
        plan = plans.get(same)
        if plan is None:
            plan = key_policy.step(slots, rows)
            if len(plans) < _PLANS:
                plans[same] = plan
        return plan

    return plan_of


def replay(
    trace: Trace,
    key_policy: KeyPolicy | GatedPolicy,
    cache: KeyCache,
    profile: MachineProfile,
) -> Replay:
    """Replay a step trace.

    Parameters
    ----------
    trace : Trace
        Of format ``step_trace``.
    key_policy : KeyPolicy
        Asked for every step: ``step(slots, rows)``.
    cache : KeyCache
        Fresh: a replay starts cold.
    profile : MachineProfile

    Raises
    ------
    TraceError
        When the trace is of another format.
    """
    counters = Counters()
    nodes_of: dict[Hashable, int] = {}
    seen: set[Hashable] = set()
    low = high = 0
    known = True
    plan_of = _planner(key_policy)
    for slots, rows, accepted, verified in _batches(trace):
        plan = plan_of(slots, rows)
        counters.steps += 1
        counters.sequences += len(slots)
        counters.rows += int(plan.depths.sum())
        captured = False
        for dispatch in plan.dispatches:
            nodes = profile.nodes(dispatch.launches_per_layer)
            counters.dispatches += 1
            counters.layer_launches += dispatch.launches_per_layer
            if dispatch.key is None:
                counters.eager += 1
                counters.nodes_eager += nodes
                continue
            seen.add(dispatch.key)
            hit, evicted = cache.touch(dispatch.key)
            counters.nodes_launched += nodes
            counters.hits += hit
            if not hit:
                captured = True
                counters.captures += 1
                counters.nodes_captured += nodes
                nodes_of[dispatch.key] = nodes
            counters.evictions += len(evicted)
            counters.nodes_evicted += sum(nodes_of[key] for key in evicted)
        counters.capture_steps += captured
        if accepted is None:
            known = False
            continue
        mine = np.empty(len(slots), np.int64)
        mine[plan.order] = plan.depths
        least, most = _tokens(mine, np.array(accepted), rows if verified is None else verified)
        low, high = low + least, high + most
    counters.keys_seen = len(seen)
    counters.tokens = low if known else 0
    return Replay(
        key_policy.name,
        getattr(cache, "name", type(cache).__name__),
        counters,
        low if known else None,
        high if known else None,
        times(counters, profile),
    )


def _tokens(rows: NDArray[np.int64], accepted: ArrayLike, verified: ArrayLike) -> tuple[int, int]:
    """Fewest and most tokens that a step emits when sequence i verifies ``rows[i]`` rows."""
    accepted, drafts = np.asarray(accepted), rows - 1
    unknown = accepted < 0
    # All of what was verified was accepted: how far it would have gone on is not known.
    open_ended = unknown | (accepted >= np.asarray(verified) - 1)
    least = np.minimum(np.where(unknown, 0, accepted), drafts)
    most = np.where(open_ended, drafts, least)
    return int(least.sum()) + len(rows), int(most.sum()) + len(rows)


def replay_table(
    trace: Trace,
    policies: Sequence[KeyPolicy | GatedPolicy],
    caches: Sequence[Callable[[], KeyCache]],
    profile: MachineProfile,
) -> pd.DataFrame:
    """Replay a step trace through every policy and cache.

    Parameters
    ----------
    trace, profile
        As in `replay`.
    policies : sequence of KeyPolicy
    caches : sequence of callable
        Each makes a fresh cache, such as ``lambda: LruKeys(32)``.

    Returns
    -------
    DataFrame
        `Replay.as_row` of each, with ``captures_saved``: of the first policy's captures, in the
        same cache.
    """
    import pandas as pd

    rows = []
    for make in caches:
        of_cache = [replay(trace, p, make(), profile).as_row() for p in policies]
        for row in of_cache:
            row["captures_saved"] = of_cache[0]["captures"] - row["captures"]
        rows += of_cache
    return pd.DataFrame(rows)


def gate_table(
    trace: Trace,
    min_widths: Sequence[int],
    make_cache: Callable[[], KeyCache],
    profile: MachineProfile,
) -> pd.DataFrame:
    """Replay a step trace under every threshold of the gate.

    Returns
    -------
    DataFrame
        `Replay.as_row` of each with ``min_width``, and its gain over never canonical in percent
        of tok/s, ``gain_low, gain_high`` (NaN without acceptance in the trace).
    """
    import pandas as pd

    def row(gate: Gate) -> dict[str, Any]:
        return replay(trace, GatedPolicy(gate, name="gated"), make_cache(), profile).as_row()

    never = row(Gate(enabled=False))
    rows = []
    for threshold in min_widths:
        at = row(Gate(threshold))
        at["gain_low"] = 100 * (at["tok_s_low"] / never["tok_s_high"] - 1)
        at["gain_high"] = 100 * (at["tok_s_high"] / never["tok_s_low"] - 1)
        rows.append({"min_width": threshold} | at)
    return pd.DataFrame(rows)


def logged_keys(trace: Trace) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Keys of a step trace in the arrangement form, and the key id of every keyed step.

    Returns
    -------
    keys : DataFrame
        As the ``keys`` of an engine log: ``key_id, key, n, rows, slots, depths, canonical``.
    stream : ndarray of int64, shape (keyed steps,)
    """
    from verifylab.engine_log_messages import key_table

    plan_of = _planner(GatedPolicy(Gate(enabled=False), name="arrangement"))
    ids: dict[bytes, int] = {}
    stream = []
    for slots, rows, _, _ in _batches(trace):
        for dispatch in plan_of(slots, rows).dispatches:
            if dispatch.key is not None:
                stream.append(ids.setdefault(dispatch.key, len(ids)))
    return key_table(list(ids)), np.array(stream, np.int64)


def policy_keys(trace: Trace, key_policy: KeyPolicy | GatedPolicy) -> NDArray[np.int64]:
    """Give the number, by first use, of the key of every keyed dispatch under a policy."""
    ids: dict[Hashable, int] = {}
    plan_of = _planner(key_policy)
    return np.array(
        [
            ids.setdefault(dispatch.key, len(ids))
            for slots, rows, _, _ in _batches(trace)
            for dispatch in plan_of(slots, rows).dispatches
            if dispatch.key is not None
        ],
        np.int64,
    )
