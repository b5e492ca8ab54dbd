"""Capacity against throughput and memory, and cache policies compared, on the machine model.

`Config` holds the parameters of `05_cache_policies.ipynb`. `cache_study` returns tables; the
notebook shows them. Each run is traced once (`verifylab.key_trace`); every cache is played on it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

from verifylab.caches import CacheRule, simulate
from verifylab.checks import is_number, whole, whole_list
from verifylab.churn_study import ChurnStudy, churn_study
from verifylab.counters import StepTimes, times
from verifylab.dcut import DEFAULT_LADDER, DEFAULT_RATIO, DraftLadder
from verifylab.device.model import GRAPH_BYTES_PER_NODE
from verifylab.experiment import MAX_WIDTH, Settings
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.graph_price import profile_at
from verifylab.key_trace import KeyTrace, key_trace
from verifylab.machine import MachineProfile
from verifylab.miss_curves import miss_ratio_curve
from verifylab.policy import policy
from verifylab.workload import OUTPUT_TOKENS, Workload, calibrated

__all__ = ["RULES", "CacheStudy", "Config", "cache_study"]

ARMS = ("arrangement", "canonical")
#: Share of the throughput with free captures from which the captures count as harmless.
HARMLESS = 0.99
#: Cache rules compared, by the name that figures show.
RULES: dict[str, dict[str, Any]] = {
    "LRU": {"eviction": "lru"},
    "LFU": {"eviction": "lfu"},
    "segmented LRU": {"eviction": "slru"},
    "LRU, admit on 2nd": {"eviction": "lru", "admit_on": 2},
    "LRU, admit on 3rd": {"eviction": "lru", "admit_on": 3},
    "LRU, idle 500 steps": {"eviction": "lru", "idle_steps": 500},
    "no eviction, else eager": {"eviction": "none"},
    "MIN (offline)": {"eviction": "min"},
    "MIN, may run eager": {"eviction": "min_bypass"},
}


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters of `05_cache_policies.ipynb`.

    Parameters
    ----------
    widths : list of int
        Batch widths whose capacity curves are drawn; the last is the one that policies are
        compared at.
    graph_capacity : int
        Graphs that the published cache holds: marked in the figures.
    max_capacity : int
        Largest cache tried, in graphs.
    dcut_ratio, drafts, output_tokens, machine, graph_ms
        As in `verifylab.width_gate.Config`.
    seeds, steps, warmup_steps : int
        Seeds (2 or more) behind every interval, steps counted for each, steps before those.
    churn_slots, churn_load, prefill_steps, churn_hours
        See `verifylab.churn_study.churn_study`.
    """

    widths: list[int] = dataclasses.field(default_factory=lambda: [4, 6, 8])
    graph_capacity: int = VERIFY_BATCHED_GRAPH_CAP
    max_capacity: int = 1024
    dcut_ratio: float = DEFAULT_RATIO
    drafts: str | int = str(DEFAULT_LADDER)
    seeds: int = 8
    steps: int = 10_000
    warmup_steps: int = 2_000
    machine: str = "gb10-published"
    output_tokens: int = OUTPUT_TOKENS
    churn_slots: int = 8
    churn_load: float = 0.8
    prefill_steps: int = 4
    churn_hours: float = 1.0
    graph_ms: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", whole_list("widths", self.widths, 1, MAX_WIDTH))
        for name, low, high in (
            ("graph_capacity", 1, 65536), ("max_capacity", 1, 65536), ("seeds", 2, 1000),
            ("prefill_steps", 0, 10**6), ("churn_slots", 2, 32), ("steps", 1, 10**7),
            ("warmup_steps", 0, 10**7),
        ):  # fmt: skip
            whole(name, getattr(self, name), low, high)
        if not is_number(self.churn_load) or not 0 < self.churn_load < 1:
            raise ValueError(f"churn_load must be between 0 and 1, got {self.churn_load!r}")
        if not is_number(self.churn_hours) or not 0 < self.churn_hours <= 24:
            raise ValueError(f"churn_hours must be above 0, up to 24, got {self.churn_hours!r}")
        self.workload(), self.profile()
        for width in self.widths:
            self.settings(width, 0).drafts_and_keep(self.workload(), width)

    def profile(self) -> MachineProfile:
        """Return the machine profile, with graphs that cost `graph_ms`."""
        return profile_at(self.machine, self.graph_ms)

    def workload(self) -> Workload:
        """Return the calibrated workload with this configuration's changes."""
        ladder = DraftLadder.parse(self.drafts)
        return calibrated(output_tokens=self.output_tokens, ladder=ladder)

    def settings(self, width: int, seed: int) -> Settings:
        """Return the run settings at one width."""
        return Settings(
            width, steps=self.steps, warmup_steps=self.warmup_steps, seed=seed,
            ratio=self.dcut_ratio,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CacheStudy:
    """What the study found; every time in it is modelled.

    Attributes
    ----------
    config : Config
    capacity : DataFrame
        One row a width, arm, eviction (lru, min) and capacity: ``keys, tok_s, tok_s_low,
        tok_s_high, capture_fraction, memory_gb`` (at most: that many of the largest graphs) and
        ``share`` of the throughput that the arm would have with captures free.
    harmless : DataFrame
        One row a width: how many graphs make the arrangement arm harmless, and break even with
        canonical, under LRU and MIN, and their memory.
    policies : DataFrame
        One row a rule and capacity, arrangement arm at the last width: counts, tok/s, memory held
        on average.
    churn : ChurnStudy
    """

    config: Config
    capacity: pd.DataFrame
    harmless: pd.DataFrame
    policies: pd.DataFrame
    churn: ChurnStudy

    def sentence(self) -> str:
        """Return the answer for the widest batch in a sentence."""
        row = self.harmless.iloc[-1]
        cost = self.config.graph_ms
        modelled = "modelled" if cost is None else f"modelled at {cost:g} ms a graph"
        if pd.isna(row.lru_harmless):
            return (
                f"At width {row.width:.0f} no cache of up to {self.config.max_capacity} graphs "
                f"makes the arrangement arm's captures harmless ({modelled})."
            )
        held = self.capacity[
            (self.capacity.width == row.width) & (self.capacity.policy == "arrangement")
            & (self.capacity.eviction == "lru") & (self.capacity.capacity == row.lru_harmless)
        ].iloc[0]  # fmt: skip
        return (
            f"At width {row.width:.0f}, {row.lru_harmless:.0f} graphs "
            f"({row.lru_harmless_gb:.1f} GB) make the arrangement arm's captures harmless under "
            f"LRU: {held.tok_s:.1f} tok/s, {held.share:.0%} of the {row.arrangement_tok_s:.1f} "
            f"with captures free. Canonical needs {row.canonical_keys:.0f} "
            f"({row.canonical_gb:.2f} GB) and gives {row.canonical_tok_s:.1f} ({modelled})."
        )


def cache_study(config: Config) -> CacheStudy:
    """Run the study."""
    machine = config.profile()
    stamp = {
        "seeds": config.seeds,
        "time": "modelled",
        "machine": machine.name,
        "date": dt.date.today().isoformat(),
    }
    traces = {
        (width, arm): [
            key_trace(config.workload(), policy(arm), config.settings(width, seed), machine)
            for seed in range(config.seeds)
        ]
        for width in config.widths
        for arm in ARMS
    }
    capacity = pd.concat(
        [
            _capacity_rows(runs, width, arm, eviction, config.max_capacity, machine)
            for (width, arm), runs in traces.items()
            for eviction in ("lru", "min")
        ],
        ignore_index=True,
    )
    policies = _policy_rows(traces[config.widths[-1], "arrangement"], config, machine)
    churn = churn_study(
        config.workload(), machine, slots=config.churn_slots, load=config.churn_load,
        prefill_steps=config.prefill_steps, hours=config.churn_hours, ratio=config.dcut_ratio,
    )  # fmt: skip
    return CacheStudy(
        config, capacity.assign(**stamp), _harmless(capacity), policies.assign(**stamp), churn
    )


def _capacity_rows(
    runs: list[KeyTrace],
    width: int,
    arm: str,
    eviction: str,
    largest: int,
    machine: MachineProfile,
) -> pd.DataFrame:
    """Price a curve at every capacity, with intervals over the seeds."""
    capacities = np.arange(1, largest + 1)
    tok_s, share, misses = [], [], []
    for run in runs:
        curve = miss_ratio_curve(run.ids, run.nodes, eviction=eviction, skip=run.skip)
        at = np.minimum(capacities, len(curve.hits)) - 1
        counts: dict[str, Any] = run.base.as_dict() | {
            "nodes_launched": curve.nodes_launched, "nodes_eager": 0,
            "graph_launches": curve.hits[at] + curve.captures[at],
        }  # fmt: skip
        for name in ("hits", "captures", "evictions", "nodes_captured", "nodes_evicted"):
            counts[name] = getattr(curve, name)[at]
        spent: StepTimes = times(counts, machine)
        tok_s.append(run.base.tokens / spent.total_ms * 1e3)
        share.append(1 - spent.captures_ms / spent.total_ms)
        misses.append(curve.miss_ratio[at])
    mean, low, high = _intervals(np.array(tok_s))
    largest_first = np.sort(max((run.nodes for run in runs), key=len))[::-1]
    held = np.cumsum(largest_first)[np.minimum(capacities, len(largest_first)) - 1]
    return pd.DataFrame(
        {
            "width": width, "policy": arm, "eviction": eviction, "capacity": capacities,
            "keys": len(largest_first), "tok_s": mean, "tok_s_low": low, "tok_s_high": high,
            "capture_fraction": np.mean(misses, axis=0), "share": np.mean(share, axis=0),
            "memory_gb": held * GRAPH_BYTES_PER_NODE / 1e9,
        }
    )  # fmt: skip


def _intervals(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the first axis, and its 95 % t interval."""
    mean = values.mean(axis=0)
    half = scipy_stats.t.ppf(0.975, len(values) - 1) * values.std(axis=0, ddof=1)
    half = half / np.sqrt(len(values))
    return mean, mean - half, mean + half


def _harmless(capacity: pd.DataFrame) -> pd.DataFrame:
    """Smallest capacities of the arrangement arm that lose nothing, or no more than canonical."""
    rows = []
    for width, table in capacity.groupby("width"):
        canonical = table[(table.policy == "canonical") & (table.eviction == "lru")].iloc[-1]
        row: dict[str, Any] = {"width": width, "canonical_keys": canonical["keys"]}
        row |= {"canonical_gb": canonical.memory_gb, "canonical_tok_s": canonical.tok_s}
        own = table[table.policy == "arrangement"]
        row["arrangement_keys"] = own["keys"].iloc[0]
        row["arrangement_gb"] = own.memory_gb.max()
        row["arrangement_tok_s"] = own.tok_s.max()
        for eviction in ("lru", "min"):
            line = own[own.eviction == eviction]
            for name, enough in (
                ("harmless", line[line.share >= HARMLESS]),
                ("breaks_even", line[line.tok_s >= canonical.tok_s]),
            ):
                found = len(enough) > 0
                row[f"{eviction}_{name}"] = int(enough.capacity.iloc[0]) if found else None
                row[f"{eviction}_{name}_gb"] = enough.memory_gb.iloc[0] if found else np.nan
        rows.append(row)
    return pd.DataFrame(rows)


def _policy_rows(runs: list[KeyTrace], config: Config, machine: MachineProfile) -> pd.DataFrame:
    """Every rule at capacities up to the largest."""
    steps = sorted(
        {c for c in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 288, 384, 512)
         if c < config.max_capacity} | {config.graph_capacity, config.max_capacity}
    )  # fmt: skip
    rows = []
    for name, rule in RULES.items():
        for capacity in steps:
            counts = [
                simulate(run.ids, CacheRule(capacity=capacity, **rule), run.nodes, skip=run.skip)
                for run in runs
            ]
            tok_s = np.array([
                run.base.tokens / times(run.counters(c), machine).total_ms * 1e3
                for run, c in zip(runs, counts, strict=True)
            ])  # fmt: skip
            mean, low, high = _intervals(tok_s[:, None])
            requests = sum(c.requests for c in counts)
            held = sum(c.node_steps or 0 for c in counts) / requests
            rows.append(
                {
                    "rule": name, "capacity": capacity, "tok_s": mean[0], "tok_s_low": low[0],
                    "tok_s_high": high[0],
                    **{
                        f"{what}_fraction": sum(getattr(c, field) for c in counts) / requests
                        for what, field in (
                            ("hit", "hits"), ("capture", "captures"), ("eager", "eager"),
                        )
                    },
                    "memory_gb": held * GRAPH_BYTES_PER_NODE / 1e9,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)
