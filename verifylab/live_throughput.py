"""The throughput curves of the explorer: simulated in pieces, then priced without a simulation.

`simulate` counts; `curves` turns counts into tok/s, differences and a recommended gate under a
graph cost and a threshold. All arms share their draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from verifylab.counters import SCALARS, times
from verifylab.dcut import DEFAULT_LADDER, DEFAULT_RATIO, snap_ratio
from verifylab.experiment import Settings, grid
from verifylab.exploration import Exploration
from verifylab.gate import Gate
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.machine import MachineProfile, load_profile
from verifylab.published import table
from verifylab.recommend import Recommendation, chosen, log_gains
from verifylab.stats import split

__all__ = ["QUICK", "Curves", "Runs", "curves", "published_here", "simulate"]

#: Seeds and steps of the look that follows every control; a full run has those of `Exploration`.
QUICK = (4, 250)
WARMUP_STEPS = 100
#: Redraws behind the quick and the full probability.
DRAWS = {False: 200, True: 2000}


@dataclass(frozen=True, slots=True)
class Runs:
    """Counts of the two arms and one further policy, and how they were made."""

    table: pd.DataFrame
    policy: str
    seeds: int
    steps: int
    full: bool


def simulate(
    settings: Exploration,
    *,
    full: bool = False,
    progress: Callable[[int, int], bool] | None = None,
) -> Runs | None:
    """Run both arms and `settings.policy` at every width.

    Parameters
    ----------
    settings : Exploration
    full : bool
        The seeds and steps of `settings`; else `QUICK`.
    progress : callable, optional
        Called as ``progress(done, total)`` between the pieces of a full run; False stops it.

    Returns
    -------
    Runs or None
        None when it was stopped.
    """
    seeds, steps = (settings.seeds, settings.steps) if full else QUICK
    names = ("arrangement", "canonical", settings.policy)
    if not full:
        parts = [_counts(settings, name, tuple(settings.widths), seeds, steps) for name in names]
    else:
        parts = []
        pieces = [(width, name) for width in settings.widths for name in names]
        for done, (width, name) in enumerate(pieces):
            if progress is not None and not progress(done, len(pieces)):
                return None
            parts.append(_counts(settings, name, (width,), seeds, steps))
        if progress is not None:
            progress(len(pieces), len(pieces))
    return Runs(pd.concat(parts, ignore_index=True), settings.policy, seeds, steps, full)


def _counts(
    settings: Exploration, name: str, widths: tuple[int, ...], seeds: int, steps: int
) -> pd.DataFrame:
    """Run one policy, or take what was run: another policy beside them leaves the arms alone."""
    spread = settings.workload().confidence_spread
    drafts, capacity, ratio = settings.drafts, settings.graph_capacity, settings.dcut_ratio
    return _kept(
        settings.machine, name, widths, seeds, steps, spread, drafts, capacity, float(ratio)
    )


@lru_cache(maxsize=256)
def _kept(
    machine: str, name: str, widths: tuple[int, ...], seeds: int, steps: int, spread: float,
    drafts: int, capacity: int, ratio: float,
) -> pd.DataFrame:  # fmt: skip
    asked = Exploration(confidence_spread=spread, drafts=drafts)
    chosen = Settings(
        widths[0], steps=steps, warmup_steps=WARMUP_STEPS, capacity=capacity, ratio=ratio
    )
    return grid(
        asked.workload(), widths, load_profile(machine), chosen, seeds=range(seeds),
        arms=[(name, None)],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Curves:
    """What the throughput tab shows; every time in it is modelled.

    Attributes
    ----------
    rates : DataFrame
        ``width, policy, tok_s, low, high``, as `advise.policy_table` gives them.
    differences, policy_differences : DataFrame
        As `stats.paired` gives them: canonical minus arrangement, and the further policy minus
        arrangement.
    gate : DataFrame
        By width: what the gate at the threshold gains over arrangement, ``delta_pct`` with its
        interval (zero where it leaves the arrangement alone), and ``canonical``.
    over_better : DataFrame
        By width: what the further policy gains over the better of the two arms, ``delta_pct`` with
        its interval, and ``better``: that arm.
    recommendation : Recommendation
        Among every width shown and one above them all.
    runs : Runs
    """

    rates: pd.DataFrame
    differences: pd.DataFrame
    policy_differences: pd.DataFrame
    gate: pd.DataFrame
    over_better: pd.DataFrame
    recommendation: Recommendation
    runs: Runs


def curves(runs: Runs, machine: MachineProfile, threshold: int) -> Curves:
    """Price counts on a machine and gate them.

    The same numbers as `stats.paired` and `advise.policy_table`, on arrays: quick enough to follow
    a slider.
    """
    names = ("arrangement", "canonical", runs.policy)
    widths = sorted(int(w) for w in runs.table.width.unique())
    ordered = runs.table.set_index(["policy", "width", "seed"])[list(SCALARS)].sort_index()
    shape = (len(names), len(widths), runs.seeds, len(SCALARS))
    counts = np.stack([ordered.loc[name].to_numpy(float) for name in names]).reshape(shape)
    named = {name: counts[..., i] for i, name in enumerate(SCALARS)}
    spent = times(named, machine)
    tok_s = named["tokens"] / spent.total_ms * 1e3
    rates = pd.concat(
        [
            pd.DataFrame({"width": widths, "policy": name, **_intervals(tok_s[i], "tok_s", "")})
            for i, name in enumerate(names)
        ],
        ignore_index=True,
    )
    causes = {
        "captures": spent.captures_ms, "launches": spent.launches_ms, "work": spent.work_ms,
    }  # fmt: skip

    def minus(base: int, i: int) -> pd.DataFrame:
        delta, parts = split(
            (named["tokens"][base], named["tokens"][i]),
            {name: (ms[base], ms[i]) for name, ms in causes.items()},
        )
        out: dict[str, Any] = {"width": widths, "n": runs.seeds}
        for name, values in (("delta", delta), *parts.items()):
            out |= _intervals(values, f"{name}_pct", f"{name}_")
        return pd.DataFrame(out)

    differences, policy_differences = minus(0, 1), minus(0, 2)
    wins = differences.delta_pct > 0
    over_better = policy_differences.where(~wins, minus(1, 2))
    over_better["better"] = np.where(wins, "canonical", "arrangement")
    gate = differences[["width", "delta_pct", "delta_low", "delta_high"]].copy()
    gate["canonical"] = [Gate(threshold).canonical(w) for w in widths]
    gate.loc[~gate.canonical, ["delta_pct", "delta_low", "delta_high"]] = 0.0
    return Curves(
        rates,
        differences,
        policy_differences,
        gate,
        over_better[["width", "better", "delta_pct", "delta_low", "delta_high"]],
        _recommendation(runs, machine, widths),
        runs,
    )


def _intervals(values: np.ndarray, mean: str, prefix: str) -> dict[str, np.ndarray]:
    """Means over the last axis with 95 % t intervals, by column name."""
    n = values.shape[-1]
    middle = values.mean(axis=-1)
    half = float(student_t.ppf(0.975, n - 1)) * values.std(axis=-1, ddof=1) / np.sqrt(n)
    return {mean: middle, f"{prefix}low": middle - half, f"{prefix}high": middle + half}


def _recommendation(runs: Runs, machine: MachineProfile, widths: list[int]) -> Recommendation:
    """Recommend among every width and one above, as `recommend.recommend` does.

    A steady run takes at each width one arm or the other, so the arms' gains are all it needs.
    """
    arms = runs.table[runs.table.policy != runs.policy]
    central, drawn, given, _ = log_gains(
        arms, machine, by="policy", base="arrangement", draws=DRAWS[runs.full]
    )
    candidates = [*widths, widths[-1] + 1]
    open_at = np.array([[Gate(m).canonical(w) for m in candidates] for w in given])
    return chosen(
        np.where(open_at, central[:, :1], 0.0), np.where(open_at, drawn[..., :1], 0.0), candidates
    )


def published_here(settings: Exploration) -> pd.DataFrame:
    """Return the published A/B at the widths shown; empty where it was measured otherwise.

    Columns ``width, delta_pct``. It holds for the published ratio, drafts and cache alone.
    """
    shown = table("canonical_ab").rename(columns={"concurrency": "width"})[["width", "delta_pct"]]
    same = (
        snap_ratio(settings.dcut_ratio) == DEFAULT_RATIO
        and settings.graph_capacity == VERIFY_BATCHED_GRAPH_CAP
        and all(settings.ladder().drafts(w) == DEFAULT_LADDER.drafts(w) for w in settings.widths)
    )
    return shown[shown.width.isin(settings.widths)] if same else shown.iloc[:0]
