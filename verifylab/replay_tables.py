"""Tables of a replayed step trace: every policy, every cache, every threshold of the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from verifylab.caches import CacheRule, simulate
from verifylab.gate import Gate
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.machine import MachineProfile
from verifylab.policy import POLICIES, GatedPolicy, policy
from verifylab.replay import AnyPolicy, replay, traced
from verifylab.trace_file import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cache_table", "every_policy", "gate_table", "replay_table"]


def every_policy(gate: Gate | None = None) -> list[GatedPolicy]:
    """Return every key policy, then those that take a gate with one in front.

    Parameters
    ----------
    gate : Gate, optional
        Default: the engine's.
    """
    gate = gate if gate is not None else Gate()
    out = [policy(name, gate if name == "gated" else None) for name in POLICIES]
    for name in POLICIES:
        fronted = policy(name, gate)
        if fronted.rules.gated and not POLICIES[name].gated:
            out.append(replace(fronted, name=f"{name} + gate"))
    return out


def replay_table(
    trace: Trace,
    policies: Sequence[AnyPolicy],
    profile: MachineProfile,
    capacity: int = VERIFY_BATCHED_GRAPH_CAP,
) -> pd.DataFrame:
    """Replay a step trace through every policy, each with its own LRU cache.

    Returns
    -------
    DataFrame
        `Replay.as_row` of each, with ``captures_saved``: of the first policy's captures.
    """
    import pandas as pd

    rows = [replay(trace, p, profile, capacity).as_row() for p in policies]
    for row in rows:
        row["captures_saved"] = rows[0]["captures"] - row["captures"]
    return pd.DataFrame(rows)


def cache_table(
    trace: Trace,
    policies: Sequence[AnyPolicy],
    profile: MachineProfile,
    rules: Mapping[str, CacheRule],
) -> pd.DataFrame:
    """Replay a step trace through every policy and cache.

    Parameters
    ----------
    trace, policies, profile
        As in `replay_table`; policies with a cache of their own are refused (`traced`).
    rules : mapping of str to CacheRule
        Caches by the name that the table shows.

    Returns
    -------
    DataFrame
        `Replay.as_row` of each, with ``captures_saved``: of the first cache's captures under the
        same policy.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for key_policy in policies:
        keys, replayed = traced(trace, key_policy, profile)
        first = len(rows)
        for name, rule in rules.items():
            counters = keys.counters(simulate(keys.ids, rule, keys.nodes))
            rows.append(replayed(name, counters).as_row())
            rows[-1]["captures_saved"] = rows[first]["captures"] - rows[-1]["captures"]
    return pd.DataFrame(rows)


def gate_table(
    trace: Trace,
    min_widths: Sequence[int],
    profile: MachineProfile,
    capacity: int = VERIFY_BATCHED_GRAPH_CAP,
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
        return replay(trace, policy("gated", gate), profile, capacity).as_row()

    never = row(Gate(enabled=False))
    rows = []
    for threshold in min_widths:
        at = row(Gate(threshold))
        at["gain_low"] = 100 * (at["tok_s_low"] / never["tok_s_high"] - 1)
        at["gain_high"] = 100 * (at["tok_s_high"] / never["tok_s_low"] - 1)
        rows.append({"min_width": threshold} | at)
    return pd.DataFrame(rows)
