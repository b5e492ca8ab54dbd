"""The throughput curves of the explorer: simulated in pieces, then priced without a simulation.

`simulate` counts; `curves` turns counts into tok/s, differences and a recommended gate under a
graph cost and a threshold. All arms share their draws.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from verifylab.counters import SCALARS, times
from verifylab.dcut import DEFAULT_LADDER, DEFAULT_RATIO, snap_ratio
from verifylab.experiment import ARMS, Settings, grid
from verifylab.exploration import WARMUP_STEPS, Exploration
from verifylab.gate import Gate
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.graph_price import graph_ms_of
from verifylab.machine import MachineProfile, load_profile
from verifylab.published import table
from verifylab.recommend import Recommendation, recommend_arms
from verifylab.stats import split
from verifylab.workload import spread_nodes

__all__ = ["QUICK", "Curves", "Runs", "curves", "published_here", "quick", "simulate"]

#: Seeds, steps and warm-up of the look that follows every control, up to `FEW` widths; a full run
#: has those of `Exploration`.
QUICK = (4, 250, WARMUP_STEPS)
#: Widths up to which a quick look has all its steps: more of them share as many, so that it stays
#: under 100 ms; and up to which it has all its seeds, since a run costs something of its own.
FEW, SOME = 6, 10
#: Simulated pieces that are kept. A choice: a full run at the default widths has 78.
KEPT = 256
#: Redraws behind the quick and the full probability.
DRAWS = {False: 200, True: 2000}


@dataclass(frozen=True, slots=True)
class Runs:
    """Counts of the two arms and one further policy, and how they were made.

    The first spread in `table` is the central one; of a full run the arms have also those of its
    uncertainty, where it was not given.
    """

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
    halt: Event | None = None,
) -> Runs | None:
    """Run both arms and `settings.policy` at every width.

    Parameters
    ----------
    settings : Exploration
    full : bool
        The seeds and steps of `settings`; else `QUICK`.
    progress : callable, optional
        Called as ``progress(done, total)`` between the pieces of a full run; False stops it.
    halt : threading.Event, optional
        Another thread sets it to stop a full run, also within a piece.

    Returns
    -------
    Runs or None
        None when it was stopped.
    """
    many = (settings.seeds, settings.steps, WARMUP_STEPS)
    seeds, steps, warmup = many if full else quick(len(settings.widths))
    names = (*ARMS, settings.policy)
    spread = settings.workload().confidence_spread
    if not full:
        widths = tuple(settings.widths)
        parts = [_counts(settings, name, widths, seeds, steps, warmup, spread) for name in names]
    else:
        parts = []
        pieces = [(width, name, spread) for width in settings.widths for name in names]
        if settings.confidence_spread is None:
            nodes = [node for node in dict.fromkeys(spread_nodes()) if node != spread]
            pieces += [(w, name, node) for node in nodes for w in settings.widths for name in ARMS]
        for done, (width, name, at) in enumerate(pieces):
            if progress is not None and not progress(done, len(pieces)):
                return None
            try:
                parts.append(_counts(settings, name, (width,), seeds, steps, warmup, at, halt))
            except CancelledError:
                return None
        if progress is not None:
            progress(len(pieces), len(pieces))
    return Runs(pd.concat(parts, ignore_index=True), settings.policy, seeds, steps, full)


def quick(widths: int) -> tuple[int, int, int]:
    """Return seeds, steps and warm-up of a quick look at so many widths."""
    seeds, steps, warmup = QUICK
    fewer = seeds if widths <= SOME else seeds - 1
    return fewer, min(steps, FEW * steps // widths), warmup if widths <= FEW else warmup // 2


_kept: dict[tuple[Any, ...], pd.DataFrame] = {}
_keeping = Lock()


def _counts(
    settings: Exploration,
    name: str,
    widths: tuple[int, ...],
    seeds: int,
    steps: int,
    warmup: int,
    spread: float,
    halt: Event | None = None,
) -> pd.DataFrame:
    """Run one policy, or take what was run: another policy beside them leaves the arms alone."""
    drafts, capacity, ratio = settings.drafts, settings.graph_capacity, float(settings.dcut_ratio)
    key = (settings.machine, name, widths, seeds, steps, warmup, spread, drafts, capacity, ratio)
    if (known := _kept.get(key)) is not None:
        return known
    asked = Exploration(confidence_spread=spread, drafts=drafts)
    chosen = Settings(widths[0], steps=steps, warmup_steps=warmup, capacity=capacity, ratio=ratio)
    found = grid(
        asked.workload(), widths, load_profile(settings.machine), chosen, seeds=range(seeds),
        arms=[(name, None)], halt=halt,
        jobs=1 if steps <= QUICK[1] else None,  # threads cost more than such short runs
    )  # fmt: skip
    with _keeping:
        while len(_kept) >= KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[key] = found
    return found


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
        Among every threshold from the narrowest width to above the widest.
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
    names = (*ARMS, runs.policy)
    widths = sorted(int(w) for w in runs.table.width.unique())
    middle = runs.table[runs.table.spread == runs.table.spread.iloc[0]]
    ordered = middle.set_index(["policy", "width", "seed"])[list(SCALARS)].sort_index()
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
    arms = runs.table[runs.table.policy.isin(ARMS)]
    return Curves(
        rates,
        differences,
        policy_differences,
        gate,
        over_better[["width", "better", "delta_pct", "delta_low", "delta_high"]],
        recommend_arms(arms, machine, draws=DRAWS[runs.full]),
        runs,
    )


def _intervals(values: np.ndarray, mean: str, prefix: str) -> dict[str, np.ndarray]:
    """Means over the last axis with 95 % t intervals, by column name."""
    n = values.shape[-1]
    middle = values.mean(axis=-1)
    half = float(student_t.ppf(0.975, n - 1)) * values.std(axis=-1, ddof=1) / np.sqrt(n)
    return {mean: middle, f"{prefix}low": middle - half, f"{prefix}high": middle + half}


def published_here(settings: Exploration) -> pd.DataFrame:
    """Return the published A/B at the widths shown; empty where it was measured otherwise.

    Columns ``width, delta_pct``. It holds for the published ratio, drafts, cache and graph cost
    alone.
    """
    shown = table("canonical_ab").rename(columns={"concurrency": "width"})[["width", "delta_pct"]]
    same = (
        snap_ratio(settings.dcut_ratio) == DEFAULT_RATIO
        and settings.graph_capacity == VERIFY_BATCHED_GRAPH_CAP
        and all(settings.ladder().drafts(w) == DEFAULT_LADDER.drafts(w) for w in settings.widths)
        and abs(settings.shown_graph_ms() - graph_ms_of(load_profile("gb10-published"))) < 0.5
    )
    return shown[shown.width.isin(settings.widths)] if same else shown.iloc[:0]
