"""The keys that an arm meets, as a trace of numbers: one run, then any cache.

What a step verifies and emits does not depend on the graph cache. So the keys are traced once, and
`verifylab.caches` or `verifylab.miss_curves` say what each cache would have done with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifylab.caches import CacheCounts
from verifylab.counters import Counters
from verifylab.experiment import Executed, Settings, nodes_of, steps_of
from verifylab.graph_cache import Outcome
from verifylab.key import verify_graph_key
from verifylab.machine import MachineProfile
from verifylab.policy import POLICIES, Baked, Dispatch, GatedPolicy, KeyPolicy
from verifylab.workload import Workload

__all__ = ["KeyTrace", "key_trace"]


@dataclass(frozen=True, slots=True, eq=False)
class KeyTrace:
    """The keys of one run.

    Attributes
    ----------
    policy : str
    ids : ndarray of int32, shape (N,)
        Key of each dispatch, numbered in order of first appearance; warm-up included.
    nodes : ndarray of int64, shape (U,)
        Graph nodes of each key.
    skip : int
        Dispatches of the warm-up, which no count includes.
    keys : tuple of bytes
        The keys themselves, by number.
    base : Counters
        What no cache changes, over the counted steps: steps, dispatches, tokens, sequences, rows,
        launches in a layer, moves, finished requests, and the keys seen.
    """

    policy: str
    ids: NDArray[np.int32]
    nodes: NDArray[np.int64]
    skip: int
    keys: tuple[bytes, ...]
    base: Counters

    def counters(self, cache: CacheCounts) -> Counters:
        """Return the counts of the run with that cache, for `verifylab.counters.times`.

        `capture_steps` is exact where a step is one dispatch, and else what is known: at most the
        captures.

        Raises
        ------
        ValueError
            When the cache did not count the dispatches of this trace after its warm-up.
        """
        if cache.requests != self.base.dispatches:
            raise ValueError(
                f"cache must have counted this trace's {self.base.dispatches} dispatches after "
                f"skip={self.skip}, it counted {cache.requests}"
            )
        out = Counters(**self.base.as_dict())
        for name in (
            "hits", "captures", "evictions", "eager", "nodes_launched", "nodes_captured",
            "nodes_evicted", "nodes_eager",
        ):  # fmt: skip
            setattr(out, name, getattr(cache, name))
        out.graph_launches = cache.hits + cache.captures
        out.capture_steps = min(cache.captures, out.steps)
        return out


def key_trace(
    workload: Workload,
    key_policy: GatedPolicy | KeyPolicy,
    settings: Settings,
    profile: MachineProfile,
    *,
    path: str = "fast",
) -> KeyTrace:
    """Trace the keys of one arm.

    Parameters
    ----------
    workload : Workload
    key_policy : GatedPolicy or KeyPolicy
        `verifylab.policy.policy` gives it by name. The compiled loop knows those whose key is the
        (slot, rows) pairs; others are traced step by step, some thousand steps a second.
    settings : Settings
        `capacity` plays no part.
    profile : MachineProfile
        Gives the graph nodes of a key.
    path : {"fast", "readable"}

    Raises
    ------
    ValueError
        When a drain has a warm-up, `path` is unknown, or a batch has no key.
    """
    if workload.mode == "drain" and settings.warmup_steps:
        raise ValueError(
            f"warmup_steps must be 0 in mode 'drain' (there is no warm state), "
            f"got {settings.warmup_steps}"
        )
    if path not in ("fast", "readable"):
        raise ValueError(f"path must be 'fast' or 'readable', got {path!r}")
    if path == "readable" or not _compiled(key_policy):
        return _readable(workload, key_policy, settings, profile)
    assert isinstance(key_policy, GatedPolicy)
    from verifylab import _fast_trace as fast

    n = settings.width
    drafts, keep = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    for width in range(1, n + 1):
        drafts[width], keep[width] = settings.drafts_and_keep(workload, width)
    gated = key_policy.rules.gated
    canonical = np.array([gated and key_policy.gate.canonical(w) for w in range(n + 1)])
    tables = workload.tables()
    ids, words, lengths, launches, skip, counts = fast.trace(
        np.uint64(settings.seed), n, settings.steps, settings.warmup_steps,
        workload.mode == "steady", workload.output_tokens, drafts, keep, canonical,
        key_policy.row_budget, key_policy.max_width, tables.log_reported, tables.accept_below,
    )  # fmt: skip
    keys = tuple(
        _key_bytes(row[:length], key_policy.wy_tables_null)
        for row, length in zip(words, lengths, strict=True)
    )
    base = Counters(**dict(zip(fast.COUNTED, counts.tolist(), strict=True)), keys_seen=len(keys))
    return KeyTrace(
        key_policy.name, ids, profile.gdn_layers * launches + profile.other_nodes, int(skip), keys,
        base,
    )  # fmt: skip


def _compiled(key_policy: GatedPolicy | KeyPolicy) -> bool:
    """Say whether the compiled loop traces this policy: its key is the (slot, rows) pairs."""
    return (
        isinstance(key_policy, GatedPolicy)
        and key_policy.rules.baked is Baked.PAIRS
        and key_policy.rules.sightings > 0
    )


def _key_bytes(words: NDArray[np.int32], wy_tables_null: bool) -> bytes:
    """Key of a dispatch traced as ``slot << 8 | rows``."""
    key = verify_graph_key([(int(w) >> 8, int(w) & 255) for w in words], wy_tables_null)
    if key is None:
        raise ValueError(f"a traced dispatch must have a slot for each sequence, got {words}")
    return key


def _readable(
    workload: Workload,
    key_policy: GatedPolicy | KeyPolicy,
    settings: Settings,
    profile: MachineProfile,
) -> KeyTrace:
    """Trace through the readable step of `verifylab.experiment`."""
    known: dict[bytes, int] = {}
    ids: list[int] = []
    nodes: list[int] = []
    dispatched: list[Dispatch] = []

    rules = key_policy.rules if isinstance(key_policy, GatedPolicy) else POLICIES["arrangement"]
    count = nodes_of(rules, profile.gdn_layers, profile.other_nodes)

    def note(dispatch: Dispatch, slots: NDArray[np.int64]) -> Executed:
        if dispatch.key is None:
            raise ValueError(f"a batch must have a key to be traced, slots {dispatch.slots} "
                             "give none")  # fmt: skip
        number = known.setdefault(dispatch.key, len(known))
        if number == len(nodes):
            nodes.append(count(dispatch)[0])
        ids.append(number)
        dispatched.append(dispatch)
        return Executed(Outcome.HIT, nodes[number])

    base, skip = Counters(), 0
    for step in steps_of(workload, key_policy, settings, note):  # type: ignore[arg-type]
        if step.index < settings.warmup_steps:
            skip = len(ids)
        else:
            base.steps += 1
            base.dispatches += len(step.dispatches)
            base.tokens += int(step.emitted.sum())
            base.sequences += len(step.order)
            base.rows += sum(d.rows for d in dispatched)
            base.filler_rows += sum(d.rows - int(d.depths.sum()) for d in dispatched)
            base.layer_launches += sum(d.launches_per_layer for d in dispatched)
            base.moves += step.moves
            base.finished_requests += step.finished
        dispatched.clear()
    base.keys_seen = len(known)
    return KeyTrace(
        key_policy.name, np.array(ids, np.int32), np.array(nodes, np.int64), skip, tuple(known),
        base,
    )  # fmt: skip
