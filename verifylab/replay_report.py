"""What a step trace says: the gate, the policies and the caches on the logged steps, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from verifylab.answers_keys import keys_per_width
from verifylab.cache_study import RULES
from verifylab.caches import CacheRule
from verifylab.gate import CANONICAL_KEY_MIN_WIDTH, Gate
from verifylab.machine import MachineProfile
from verifylab.miss_curves import miss_ratio_curve
from verifylab.policy import POLICIES, policy
from verifylab.replay import replayable, traced
from verifylab.replay_tables import cache_table, every_policy, gate_table, replay_table
from verifylab.trace_file import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["step_trace_report"]

#: Policies whose miss-ratio curves and caches are shown.
SHOWN = ("arrangement", "canonical", "indirect")
_ALIKE = 1e-9
#: Share of tok/s below which a modelled lead is named a tie.
_CLOSE = 0.005


def step_trace_report(
    trace: Trace, machine: MachineProfile, capacity: int, min_widths: Sequence[int]
) -> tuple[list[str], dict[str, Any]]:
    """Replay a step trace under thresholds, policies and caches.

    Returns
    -------
    sentences : list of str
        The verdict first.
    tables : dict of str to DataFrame
        ``replay`` (`replay_table` of every policy, the gate's at the threshold of the verdict),
        ``gates``, ``caches``, ``curves`` (`MissCurve.frame` with ``policy``), ``keys``.
    """
    import pandas as pd

    gates = gate_table(trace, min_widths, machine, capacity)
    known = gates.gain_low.notna().any()
    at = _threshold(gates) if known else CANONICAL_KEY_MIN_WIDTH
    gate = Gate(enabled=False) if at is None else Gate(at)
    table = replay_table(trace, every_policy(gate), machine, capacity)
    curves = []
    for name in SHOWN:
        keys, _ = traced(trace, policy(name), machine)
        curve = miss_ratio_curve(keys.ids, keys.nodes).frame()
        curves.append(curve.assign(policy=name))
    rules = {name: CacheRule(capacity=capacity, **rule) for name, rule in RULES.items()}
    caches = cache_table(trace, [policy(name) for name in SHOWN], machine, rules)
    tables = {
        "replay": table,
        "gates": gates,
        "caches": caches,
        "curves": pd.concat(curves, ignore_index=True),
        "keys": keys_per_width(trace),
    }
    widths = {len(slots) for slots in replayable(trace).table("steps").slots} - {0}
    words = [_gate_words(gates, at, widths)] if known else []
    words.append(_policy_words(table))
    if not table.steps[0]:
        return words, tables
    words[0] = f"{_key_words(table)} {words[0]}"
    words += [_capture_words(table, capacity), _cache_words(caches, capacity)]
    if known:
        words.append(
            "An interval is what the trace leaves open: where a policy verifies deeper than the "
            "engine did, the acceptance there was not seen."
        )
    else:
        words.append("The trace does not say what was accepted, so not what re-pairing costs.")
    words.append(
        "The batches are taken as logged: under another policy requests would have ended at other "
        "steps. The cache starts cold, and every logged step counts."
    )
    return words, tables


def _alike(gates: pd.DataFrame) -> list[int]:
    """Thresholds that could be the best one."""
    best = gates.gain_low.max()
    return sorted(int(w) for w in gates.min_width[gates.gain_high >= best - _ALIKE])


def _threshold(gates: pd.DataFrame) -> int | None:
    """Threshold that these steps speak for; None where none is sure to gain."""
    if gates.gain_low.max() <= 0:
        return None
    alike = _alike(gates)
    return CANONICAL_KEY_MIN_WIDTH if CANONICAL_KEY_MIN_WIDTH in alike else max(alike)


def _key_words(table: pd.DataFrame) -> str:
    keys = table.set_index("policy")["keys"]
    return (
        f"{keys.arrangement:,} different keys as arranged; canonical at every width would leave "
        f"{keys.canonical:,}."
    )


def _gate_words(gates: pd.DataFrame, at: int | None, widths: set[int]) -> str:
    """Say which threshold these steps speak for, and which they do not tell apart from it."""
    if at is None:
        return "No threshold is sure to gain on this trace: leave the canonical assignment off."
    row, alike = gates[gates.min_width == at].iloc[0], _alike(gates)
    words = (
        f"Gate at {at}: {between(row.gain_low, row.gain_high, '+.1f')} % tok/s against never "
        "canonical on these steps (modelled time)"
    )
    if len(widths) == 1 and len(alike) > 1 and max(alike) <= max(widths):
        words += f"; the trace has one width, so thresholds up to {max(widths)} are the same to it"
    elif len(alike) > 1:
        words += f"; thresholds {', '.join(map(str, alike))} cannot be told apart"
    return words + "."


def _policy_words(table: pd.DataFrame) -> str:
    """Say which policy wins, and which cannot be told apart from it."""
    if not table.steps[0]:
        return "No logged step has a sequence: there is nothing to replay."
    if table.tok_s_low.isna().all():
        best = table.loc[table.step_ms.idxmin()]
        return (
            f"Shortest steps: {best.policy}, {best.step_ms:.1f} ms modelled (arrangement "
            f"{table.step_ms[0]:.1f} ms)."
        )
    best = table.loc[table.tok_s_low.idxmax()]
    over = 100 * (best.tok_s_low / table.tok_s_high[0] - 1)
    over_most = 100 * (best.tok_s_high / table.tok_s_low[0] - 1)
    others = table[table.policy != best.policy]
    rivals = others[others.tok_s_high > best.tok_s_low]
    close = others[others.tok_s_low > (1 - _CLOSE) * best.tok_s_low]
    words = (
        f"Best policy: {best.policy}, {between(best.tok_s_low, best.tok_s_high, '.1f')} tok/s "
        f"modelled, {between(over, over_most, '+.1f')} % over arrangement"
    )
    rules = POLICIES[best.policy.partition(" + ")[0]]
    if rules.data != "none":
        words += f" (its kernels must read {rules.data} from device data)"
    if len(close):
        words += f"; {', '.join(close.policy)} within {100 * _CLOSE:g} %"
    if len(rivals):
        words += f"; {', '.join(rivals.policy)} could be as good or better: their tokens are open"
    return words + "."


def _capture_words(table: pd.DataFrame, capacity: int) -> str:
    first, other = table.iloc[0], table[table.policy == "canonical"].iloc[0]
    saved = first.captures - other.captures
    return (
        f"With {capacity} graphs the arrangement captures {first.captures:,} times in "
        f"{first.steps:,} steps{_split(first)}, canonical {other.captures:,} times "
        f"({saved:,} captures saved)."
    )


def _split(row: Any) -> str:
    dispatches = row.hits + row.captures + row.updates + row.borrowed + row.eager
    return "" if dispatches == row.steps else f" ({dispatches:,} dispatches)"


def _cache_words(caches: pd.DataFrame, capacity: int) -> str:
    """Say what the best cache rule would do for the arrangement."""
    own = caches[caches.policy == "arrangement"].reset_index(drop=True)
    lru = own.iloc[0]
    online = own[~own.cache.str.startswith("MIN")]
    best, bound = online.loc[online.hits.idxmax()], own.loc[own.hits.idxmax()]
    if not lru.hits + lru.captures:
        return "No logged step has a key: every one ran eager, whatever the cache."
    dispatches = lru.hits + lru.captures + lru.eager
    of_all = 100 / dispatches
    what = "steps" if dispatches == lru.steps else "dispatches"
    return (
        f"Under the arrangement {capacity} graphs hit {of_all * lru.hits:.1f} of 100 {what} with "
        f"LRU, {of_all * best.hits:.1f} with the best rule here ({best.cache}), and "
        f"{of_all * bound.hits:.1f} at most, knowing the future."
    )


def between(low: float, high: float, form: str = ",.0f") -> str:
    """Write a number, or the two that it lies between."""
    if math.isnan(low) or math.isnan(high):
        return "an unknown number"
    a, b = format(low, form), format(high, form)
    return a if a == b else f"between {a} and {b}"
