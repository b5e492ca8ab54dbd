"""Why canonical costs below width 8: the difference split by cause, and the guess tested.

The spread of confidences comes from the ratio sweep (`fit`), never from the canonical A/B; the A/B
is predicted, and the spread that it would imply is worked out apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from verifylab.advise import policy_gains, policy_map, policy_runs
from verifylab.checks import fraction, whole, whole_list
from verifylab.dcut import DraftLadder
from verifylab.draft_calibration import shuffled
from verifylab.draft_trace import DraftTrace
from verifylab.experiment import MAX_WIDTH, UNPRUNED, AnyWorkload, Settings, grid
from verifylab.graph_price import graph_ms_of, profile_at
from verifylab.machine import MachineProfile
from verifylab.published import figure, table
from verifylab.stats import paired, with_times
from verifylab.trace_workload import TraceWorkload
from verifylab.validation import PUBLISHED_OUTPUT_TOKENS
from verifylab.workload import calibrated, spread_nodes

__all__ = [
    "CALIBRATIONS",
    "KERNELS_KEPT",
    "PolicyMaps",
    "Why",
    "against_published",
    "both_workloads",
    "break_even",
    "calibrations",
    "depths",
    "guess",
    "implied_spreads",
    "over_spread",
    "policy_maps",
    "splits",
]

#: Ways in which reported confidences relate to acceptance: (informativeness, sharpness).
CALIBRATIONS = {
    "well calibrated": (1.0, 1.0),
    "over-confident (odds squared)": (1.0, 2.0),
    "half informative": (0.5, 1.0),
    "uninformative": (0.0, 1.0),
}
#: Share of a loss below which a cause explains nothing of it.
NEGLIGIBLE = 0.02
#: Spreads over which the sensitivity band is drawn.
SPREADS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Why:
    """Parameters of `03_why_it_costs.ipynb`, checked at once.

    Parameters
    ----------
    widths : list of int
        Batch widths, each once.
    ratios : list of float
        D-Cut ratios, 0 to 1.
    focus : list of int
        Widths for the curves over spread, calibration and depth.
    seeds, steps : int
        Paired seeds (2 or more), steps counted for each.
    graph_capacity : int
    machine : str
    trace : str
        Recorded drafts.
    own_graph_ms : float or None
        As `graph_ms` of `verifylab.width_gate.Config`.
    """

    widths: list[int] = field(default_factory=lambda: list(range(1, 17)))
    ratios: list[float] = field(default_factory=lambda: [0.25, 0.5, 0.75])
    focus: list[int] = field(default_factory=lambda: [2, 4, 8])
    seeds: int = 12
    steps: int = 1500
    graph_capacity: int = 32
    machine: str = "gb10-published"
    trace: str = "mtp_drafts"
    own_graph_ms: float | None = None

    def __post_init__(self) -> None:
        for name in ("widths", "focus"):
            object.__setattr__(self, name, whole_list(name, getattr(self, name), 1, MAX_WIDTH))
        if isinstance(self.ratios, str) or not isinstance(self.ratios, Iterable):
            raise ValueError(f"ratios must be a list of numbers from 0 to 1, got {self.ratios!r}")
        object.__setattr__(self, "ratios", [fraction("ratios", ratio) for ratio in self.ratios])
        if not self.ratios or len(set(self.ratios)) != len(self.ratios):
            raise ValueError(f"ratios must list each number once, at least one, got {self.ratios}")
        whole("seeds", self.seeds, 2, 10_000)
        whole("steps", self.steps, 1, 10**9)
        self.settings(0.75)
        self.profile()
        self.recorded()

    def settings(self, ratio: float) -> Settings:
        """Return the run settings at one ratio (the width is set by `grid`)."""
        return Settings(1, steps=self.steps, capacity=self.graph_capacity, ratio=float(ratio))

    def profile(self) -> MachineProfile:
        """Return the machine profile, with graphs that cost `own_graph_ms`."""
        return profile_at(self.machine, self.own_graph_ms)

    def recorded(self) -> TraceWorkload:
        """Return the recorded drafts as a workload."""
        return TraceWorkload(DraftTrace.load(self.trace))

    def paired(
        self, workload: AnyWorkload, widths: Sequence[int], ratio: float, **more: Any
    ) -> pd.DataFrame:
        """Return canonical minus arrangement on the same draws, split by cause."""
        profile = self.profile()
        runs = grid(
            workload, widths, profile, self.settings(ratio), seeds=range(self.seeds), **more
        )
        return paired(runs, profile)


def splits(config: Why, workload: AnyWorkload | None = None) -> pd.DataFrame:
    """Return the split at every width and ratio, at the fitted spread (or of another workload).

    Returns
    -------
    DataFrame
        The columns of `stats.paired` and ``ratio``.
    """
    load = calibrated() if workload is None else workload
    return pd.concat(
        [config.paired(load, config.widths, r).assign(ratio=r) for r in config.ratios],
        ignore_index=True,
    )


def both_workloads(config: Why, ratio: float = 0.75) -> pd.DataFrame:
    """Return the split under the calibrated draws and under recorded drafts (column ``drafts``).

    Recorded drafts come four ways: as they are; with confidences shuffled among the rows, which
    makes them uninformative, so that only what ties neighbouring tokens together can be left (a
    lane that always verifies deep meets other positions of the text); with every position drawn by
    itself, which cuts those ties; and with both, where the token part must vanish.
    """
    recorded = config.recorded()
    mixed = shuffled(recorded.trace)
    kinds: dict[str, AnyWorkload] = {
        "calibrated draws": calibrated(),
        "recorded drafts": recorded,
        "recorded, confidences shuffled": replace(recorded, trace=mixed),
        "recorded, positions independent": replace(recorded, stretch=1),
        "positions independent, shuffled": replace(recorded, trace=mixed, stretch=1),
    }
    widths = [w for w in config.widths if w <= 8]
    parts = [config.paired(w, widths, ratio).assign(drafts=kind) for kind, w in kinds.items()]
    return pd.concat(parts, ignore_index=True)


def over_spread(config: Why, ratio: float = 0.75) -> pd.DataFrame:
    """Return the split over the spread of confidences, at the widths of `focus`.

    Returns
    -------
    DataFrame
        The columns of `stats.paired`, one row a width and spread; ``fitted`` marks the spread of
        the calibration, ``node`` its equal-probability nodes.
    """
    workload = calibrated()
    fitted, nodes = workload.confidence_spread, spread_nodes()
    wanted = sorted({*SPREADS, fitted, *nodes})
    out = config.paired(workload, config.focus, ratio, spreads=wanted)
    return out.assign(
        fitted=np.isclose(out.spread, fitted), node=[any(np.isclose(s, nodes)) for s in out.spread]
    )


def calibrations(config: Why, ratio: float = 0.75) -> pd.DataFrame:
    """Return the split at the fitted spread under each of `CALIBRATIONS` (column ``kind``)."""
    workload = calibrated()
    parts = []
    for kind, (informativeness, sharpness) in CALIBRATIONS.items():
        changed = replace(workload, informativeness=informativeness, sharpness=sharpness)
        parts.append(config.paired(changed, config.focus, ratio).assign(kind=kind))
    return pd.concat(parts, ignore_index=True)


def depths(config: Why, ratio: float = 0.75, drafts: Sequence[int] = (2, 3, 4, 6)) -> pd.DataFrame:
    """Return the split by draft depth (column ``drafts``), at the widths of `focus`."""
    parts = []
    for d in drafts:
        workload = calibrated(ladder=DraftLadder(((1, d),)))
        parts.append(config.paired(workload, config.focus, ratio).assign(drafts=d))
    return pd.concat(parts, ignore_index=True)


def guess(split: pd.DataFrame) -> pd.DataFrame:
    """Test the recorded guess: that canonical loses because it declines more fast paths.

    It would have to show as a negative launches part where canonical loses.

    Returns
    -------
    DataFrame
        For every width and ratio with a loss: ``width, ratio, delta_pct, tokens_pct,
        launches_pct, launches_low, launches_high, verdict``: ``rejected`` where the launches part
        cannot make up even `NEGLIGIBLE` of the loss (its whole interval lies above that),
        ``supported`` where it makes up more, else ``open``.
    """
    lost = split[split.delta_high < 0].copy()
    share = NEGLIGIBLE * lost.delta_pct
    verdict = np.where(
        lost.launches_low >= share,
        "rejected",
        np.where(lost.launches_high < share, "supported", "open"),
    )
    columns = [
        "width", "ratio", "delta_pct", "tokens_pct", "launches_pct", "launches_low",
        "launches_high",
    ]  # fmt: skip
    return lost[columns].assign(verdict=verdict).reset_index(drop=True)


def against_published(config: Why, ratio: float = 0.75) -> pd.DataFrame:
    """Set the published A/B beside the prediction, steady and as the drain that its client ran.

    Returns
    -------
    DataFrame
        ``width, published_pct, steady_pct, steady_low, steady_high, drain_pct, drain_low,
        drain_high, published_over_steady``. The steady interval redraws seeds, spread and machine;
        the drain's (requests of 1,024 tokens) is over seeds.
    """
    published = table("canonical_ab").set_index("concurrency").delta_pct
    widths = [w for w in config.focus if w in published.index]
    if not widths:
        return pd.DataFrame()
    workload, profile = calibrated(), config.profile()
    runs = policy_runs(
        workload, widths, profile, config.settings(ratio), policies=("arrangement", "canonical"),
        seeds=config.seeds, spreads=[workload.confidence_spread, *spread_nodes()],
    )  # fmt: skip
    gains = policy_gains(runs, profile, "arrangement")
    drain = replace(workload, mode="drain", output_tokens=PUBLISHED_OUTPUT_TOKENS)
    settings = replace(config.settings(ratio), steps=10**7, warmup_steps=0)
    drained = paired(
        grid(drain, widths, profile, settings, seeds=range(config.seeds)), profile
    ).set_index("width")
    rows = []
    for w in widths:
        steady, at = gains[w, "canonical"], drained.loc[w]
        rows.append(
            {"width": w, "published_pct": float(published[w]), "steady_pct": steady.pct,
             "steady_low": steady.low, "steady_high": steady.high, "drain_pct": at.delta_pct,
             "drain_low": at.delta_low, "drain_high": at.delta_high,
             "published_over_steady": float(published[w]) / steady.pct}
        )  # fmt: skip
    return pd.DataFrame(rows)


def implied_spreads(band: pd.DataFrame) -> pd.DataFrame:
    """Return the spread at which the predicted difference equals the published A/B.

    Only a comparison: it went into nothing. The width's own prediction at the fitted spread
    stands beside.

    Returns
    -------
    DataFrame
        ``width, published_pct, predicted_pct, implied_spread`` (NaN where no spread gives it).
    """
    published = table("canonical_ab").set_index("concurrency").delta_pct
    rows = []
    for width, at in band.groupby("width"):
        if width not in published.index:
            continue
        at = at.sort_values("spread")
        wanted = float(published[width])
        gap = at.delta_pct.to_numpy() - wanted
        spread = at.spread.to_numpy()
        crossing = np.flatnonzero(np.sign(gap[:-1]) != np.sign(gap[1:]))
        implied = float("nan")
        if len(crossing):
            i = int(crossing[0])
            implied = float(
                spread[i] - gap[i] * (spread[i + 1] - spread[i]) / (gap[i + 1] - gap[i])
            )
        rows.append(
            {"width": int(width), "published_pct": wanted,
             "predicted_pct": float(at[at.fitted].delta_pct.iloc[0]), "implied_spread": implied}
        )  # fmt: skip
    return pd.DataFrame(rows)


#: Policies that leave the kernels as they are: slots stay baked.
KERNELS_KEPT = (
    "arrangement", "canonical", UNPRUNED, "exec_update", "eager", "capture_on_second_use", "padded",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PolicyMaps:
    """Which policy wins: by graph cost, by ratio, and by graph cost without new kernels.

    Attributes
    ----------
    by_cost, by_ratio, kept : DataFrame
        As `advise.policy_map`; `by_ratio` at the machine's own graph cost, with ``ratio``.
    seeds : int
        Paired seeds behind each.
    """

    by_cost: pd.DataFrame
    by_ratio: pd.DataFrame
    kept: pd.DataFrame
    seeds: int

    def figures(self) -> list[tuple[pd.DataFrame, str, str]]:
        """Return what `plots_why.policy_map_figure` takes."""
        return [
            (self.by_cost, "graph_ms", "All policies, by graph cost"),
            (self.by_ratio, "ratio", "All policies, by D-Cut ratio"),
            (self.kept, "graph_ms", "Kernels left alone (slots stay baked)"),
        ]

    @property
    def table(self) -> pd.DataFrame:
        """All three, with ``map`` naming which, and the paired ``seeds`` behind them."""
        named = (("cost", self.by_cost), ("ratio", self.by_ratio), ("kernels kept", self.kept))
        table = pd.concat([frame.assign(map=name) for name, frame in named], ignore_index=True)
        return table.assign(seeds=self.seeds)


def break_even(config: Why, ratio: float = 0.75) -> pd.DataFrame:
    """Return how much slower the GDN kernels may become before `indirect` loses its lead.

    `indirect` is modelled with kernels as fast as before. Its lead over the better arm, as time
    a step, is set against the published time of the recurrent kernels
    (`step_breakdown.csv`, ``gdn_recurrent``, a sequence).

    Returns
    -------
    DataFrame
        ``width, better_arm, lead_pct, slack_ms, gdn_ms, slower_pct``: the last is the slow-down
        of those kernels at which the lead is gone.
    """
    profile = config.profile()
    widths = [w for w in config.widths if w <= 8]
    policies = ("arrangement", "canonical", "indirect")
    runs = policy_runs(
        calibrated(), widths, profile, config.settings(ratio), policies=policies, seeds=config.seeds
    )
    total = with_times(runs, profile).groupby(["width", "policy"])[["tokens", "steps", "total_ms"]]
    at = total.sum()
    gdn = figure("step_breakdown", "gdn_recurrent", "ms_per_added_sequence")
    rows = []
    for w in widths:
        rate = {name: at.loc[w, name].tokens / at.loc[w, name].total_ms for name in policies}
        better = max(("arrangement", "canonical"), key=lambda name: rate[name])
        own = at.loc[w, "indirect"]
        slack = (own.tokens / rate[better] - own.total_ms) / own.steps
        rows.append(
            {"width": w, "better_arm": better,
             "lead_pct": 100 * (rate["indirect"] / rate[better] - 1), "slack_ms": slack,
             "gdn_ms": gdn * w, "slower_pct": 100 * slack / (gdn * w)}
        )  # fmt: skip
    return pd.DataFrame(rows)


def policy_maps(config: Why, graph_ms: Sequence[float], ratio: float = 0.75) -> PolicyMaps:
    """Run every policy at the config's widths up to 8 and 16, and say where each wins.

    Parameters
    ----------
    config : Why
    graph_ms : sequence of float
        Costs of a capture and eviction, ms; the machine's own is added where none is near it.
    ratio : float
        Of the maps over cost.
    """
    profile, workload = config.profile(), calibrated()
    widths = [w for w in config.widths if w <= 8 or w == 16]
    counts = {
        r: policy_runs(workload, widths, profile, config.settings(r), seeds=config.seeds)
        for r in dict.fromkeys([*config.ratios, ratio, 1.0])
    }
    own = [graph_ms_of(profile)]
    if all(abs(cost - own[0]) >= 0.05 for cost in graph_ms):
        graph_ms = sorted([*graph_ms, round(own[0], 1)])
    by_ratio = [policy_map(counts[r], profile, own).assign(ratio=r) for r in sorted(counts)]
    kept = counts[ratio][counts[ratio].policy.isin(KERNELS_KEPT)]
    return PolicyMaps(
        policy_map(counts[ratio], profile, graph_ms),
        pd.concat(by_ratio, ignore_index=True),
        policy_map(kept, profile, graph_ms),
        config.seeds,
    )
