"""Paired differences between arms, split by cause, with intervals.

The split is exact: the logarithmic mean (the LMDI method of index decomposition, Ang 2004) turns a
difference of tokens / time into parts for tokens and for each cause of time that add up to the
whole, whatever their size and order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from verifylab.counters import times
from verifylab.machine import MachineProfile

__all__ = ["PARTS", "interval", "log_mean", "paired", "split", "with_interval", "with_times"]

#: Causes of a difference, in the order in which they are shown. `work` is rows, sequences and
#: dispatches: the same in both arms of a steady run, so 0 there.
PARTS = ("tokens", "captures", "launches", "work")


def log_mean(a: Any, b: Any) -> np.ndarray:
    """Logarithmic mean (a - b) / ln(a / b) of positive numbers; a itself where they are equal."""
    a, b = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float))
    ratio = np.log(a / b)
    near = np.abs(ratio) < 1e-6
    safe = np.where(near, 1.0, ratio)
    # Near equality the quotient loses its digits; the arithmetic mean is off by ratio**2 / 12.
    return np.where(near, (a + b) / 2.0, (a - b) / safe)


def split(
    tokens: tuple[Any, Any], parts_ms: dict[str, tuple[Any, Any]]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Split the throughput difference of two arms by cause.

    Parameters
    ----------
    tokens : (base, other)
        Tokens emitted, numbers or arrays.
    parts_ms : dict of name to (base, other)
        Milliseconds by cause over the same steps.

    Returns
    -------
    delta_pct : ndarray
        100 * (other / base - 1) of tokens over time.
    parts : dict of name to ndarray
        Percentage points of the base by cause, ``tokens`` first; their sum is `delta_pct`.
    """
    base_tokens, other_tokens = (np.asarray(t, float) for t in tokens)
    base_ms = sum(np.asarray(b, float) for b, _ in parts_ms.values())
    other_ms = sum(np.asarray(o, float) for _, o in parts_ms.values())
    base, other = base_tokens / base_ms, other_tokens / other_ms
    scale = 100.0 * log_mean(other, base) / base
    out = {"tokens": scale * np.log(other_tokens / base_tokens)}
    mean_ms = log_mean(other_ms, base_ms)
    for name, (b, o) in parts_ms.items():
        out[name] = -scale * (np.asarray(o, float) - np.asarray(b, float)) / mean_ms
    return 100.0 * (other / base - 1.0), out


def interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean and t interval of independent values; NaN bounds for a single one.

    Returns
    -------
    (mean, low, high)
    """
    from scipy.stats import t

    values = np.asarray(values, float)
    mean = float(values.mean())
    if len(values) < 2:
        return mean, float("nan"), float("nan")
    half = float(
        t.ppf(0.5 + confidence / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    )
    return mean, mean - half, mean + half


def with_interval(percent: float, low: float, high: float, unit: str = " %") -> str:
    """Write a relative difference with its interval, like ``+5.8 % (+5.0 to +7.5)``."""
    return f"{percent:+z.1f}{unit} ({low:+z.1f} to {high:+z.1f})"


def with_times(runs: pd.DataFrame, machine: MachineProfile | dict[str, Any]) -> pd.DataFrame:
    """Add modelled times to a table of counts (as `experiment.grid` returns).

    Adds ``work_ms, launches_ms, captures_ms, total_ms`` (over the run), ``step_ms`` and ``tok_s``.
    """
    modelled = times({name: runs[name] for name in runs.columns}, machine)
    out = runs.copy()
    out["work_ms"] = modelled.work_ms
    out["launches_ms"] = modelled.launches_ms
    out["captures_ms"] = modelled.captures_ms
    out["total_ms"] = modelled.total_ms
    out["step_ms"] = out.total_ms / out.steps
    out["tok_s"] = out.tokens / out.total_ms * 1e3
    return out


def paired(
    runs: pd.DataFrame,
    machine: MachineProfile | dict[str, Any],
    base: str = "arrangement",
    other: str = "canonical",
) -> pd.DataFrame:
    """Paired difference `other` minus `base` at each width and spread, split by cause.

    Parameters
    ----------
    runs : DataFrame
        Counts by ``width, spread, policy, seed`` (as `experiment.grid` returns).
    machine : MachineProfile or dict
    base, other : str
        Policies. Both must have run on the same seeds.

    Returns
    -------
    DataFrame
        By ``width, spread``: ``n`` pairs, and for ``delta`` and each of `PARTS` the mean over
        seeds with its 95 % t interval, in percent of the base (``delta_pct, delta_low,
        delta_high, tokens_pct, ...``). The parts' means add up to ``delta_pct``.

    Raises
    ------
    ValueError
        When an arm is missing, the seeds differ or one comes twice.
    """
    timed = runs if "total_ms" in runs else with_times(runs, machine)
    rows = []
    for (width, spread), cell in timed.groupby(["width", "spread"]):
        a = cell[cell.policy == base].set_index("seed").sort_index()
        b = cell[cell.policy == other].set_index("seed").sort_index()
        if a.empty or not a.index.equals(b.index):
            raise ValueError(f"width {width}: {base} and {other} must have run on the same seeds")
        if a.index.has_duplicates:
            raise ValueError(f"width {width}: {base} and {other} must have run on each seed once")
        delta, parts = split(
            (a.tokens, b.tokens),
            {name: (a[f"{name}_ms"], b[f"{name}_ms"]) for name in ("captures", "launches", "work")},
        )
        row: dict[str, Any] = {"width": width, "spread": spread, "n": len(a)}
        for name, values in (("delta", delta), *((p, parts[p]) for p in PARTS)):
            row[f"{name}_pct"], row[f"{name}_low"], row[f"{name}_high"] = interval(values)
        rows.append(row)
    return pd.DataFrame(rows)
