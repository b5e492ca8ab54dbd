"""Figures of the cache study's churn: fast path, keys, cache, and two rounds of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from verifylab.plots import STYLE, _spread, footnote, stamp
from verifylab.plots_caches import BLUE, GREEN, GREY, OPAQUE, RED, capacity_axis, mark_cache

if TYPE_CHECKING:
    from verifylab.cache_study import CacheStudy

__all__ = ["churn_figure", "draw_churn_curves", "draw_churn_keys", "draw_fast_runs", "draw_rounds"]


def draw_fast_runs(pools: pd.DataFrame, ax: Axes) -> Axes:
    """Share of depth runs that find consecutive slots, by dispatch order and pool.

    Parameters
    ----------
    pools : DataFrame
        Table of `verifylab.churn_study.ChurnStudy`.
    ax : Axes
    """
    x = np.arange(len(pools))
    for i, (order, colour, hatch, label) in enumerate((
        ("arrival", GREY, "..", "arrival order"),
        ("depth", "#000000", "", "depth order (arrangement)"),
        ("slot", BLUE, "//", "slot order (canonical)"),
    )):  # fmt: skip
        share = 100 * pools[f"{order}_fast"]
        ax.bar(x + (i - 1) * 0.27, share, 0.25, color=colour, hatch=hatch, edgecolor="white",
               lw=0.5, label=label)  # fmt: skip
        for at, value in zip(x, share, strict=True):
            ax.annotate(f"{value:.0f}", (at + (i - 1) * 0.27, value), (0, 3), ha="center",
                        textcoords="offset points", fontsize=11)  # fmt: skip
    ax.set_xticks(x, [name.replace(", ", ",\n") for name in pools.pool])
    ax.set_ylim(0, 138)
    ax.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
    ax.grid(axis="x", visible=False)
    ax.set_ylabel("% of depth runs on\nconsecutive slots, counted")
    ax.set_title("Which order finds the fast path")
    ax.legend(loc="upper right", ncols=3, columnspacing=1.0, fontsize=10.5)
    footnote(ax, stamp(pools))
    return ax


def draw_churn_keys(pools: pd.DataFrame, capacity: int, ax: Axes) -> Axes:
    """Slot sets and keys that churn visits, by pool.

    Parameters
    ----------
    pools : DataFrame
    capacity : int
        Graphs that the cache holds; drawn as a level.
    ax : Axes
    """
    x = np.arange(len(pools))
    for i, (column, colour, hatch, label) in enumerate((
        ("slot_sets", GREEN, "..", "slot sets"),
        ("canonical_keys", BLUE, "//", "canonical keys"),
        ("arrangement_keys", "#000000", "", "arrangement keys"),
    )):  # fmt: skip
        ax.bar(x + (i - 1) * 0.27, pools[column], 0.25, color=colour, hatch=hatch,
               edgecolor="white", lw=0.5, label=label)  # fmt: skip
        for at, value in zip(x, pools[column], strict=True):
            ax.annotate(
                f"{value:,}", (at + (i - 1) * 0.27, value), (0, 4), ha="center",
                textcoords="offset points", fontsize=11, zorder=6,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip
    ax.axhline(capacity, color=RED, ls="--", lw=1.8, label=f"cache: {capacity} graphs")
    ax.set_yscale("log")
    ax.set_ylim(1, pools.arrangement_keys.max() * 12)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    ax.set_xticks(x, [name.replace(", ", ",\n") for name in pools.pool])
    ax.grid(axis="x", visible=False)
    ax.set_ylabel("visited in the time (log), counted")
    ax.set_title("Slot sets multiply the keys of both arms")
    ax.legend(loc="upper left", ncols=2, columnspacing=1.0)
    footnote(ax, stamp(pools))
    return ax


def draw_churn_curves(curves: pd.DataFrame, capacity: int, ax: Axes) -> Axes:
    """Share of steps that capture over capacity, LRU, both arms, LIFO with and without compaction.

    Parameters
    ----------
    curves : DataFrame
        Table of `verifylab.churn_study.ChurnStudy`.
    capacity : int
    ax : Axes
    """
    ends = []
    for pool, line in (("LIFO, compaction", "-"), ("LIFO, no compaction", "--")):
        for policy, colour in (("arrangement", "#000000"), ("canonical", BLUE)):
            part = curves[(curves.pool == pool) & (curves.policy == policy)]
            ax.plot(part.capacity, 100 * part.miss_ratio, color=colour, ls=line,
                    label=f"{policy}, {'' if line == '-' else 'no '}compaction")  # fmt: skip
            at = part[part.capacity == capacity]
            if len(at):
                ends.append((100 * at.miss_ratio.iloc[0], colour))
    heights = _spread([value for value, _ in ends], 6.5)
    for (value, colour), y in zip(ends, heights, strict=True):
        ax.annotate(
            f"{value:.1f} %", (capacity, value), (capacity * 1.12, y), fontsize=11, color=colour,
            va="center", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
    capacity_axis(ax, int(curves.capacity.max()))
    mark_cache(ax, capacity, y=0.93)
    ax.set_ylim(-4, 105)
    ax.set_ylabel("% of steps that capture,\nLRU, counted")
    ax.set_title("What a cache makes of them")
    ax.legend(loc="upper right")
    footnote(ax, stamp(curves))
    return ax


def draw_rounds(rounds: pd.DataFrame, ax: Axes) -> Axes:
    """Share of steps that decline in arrival order, by round of 16 requests.

    Parameters
    ----------
    rounds : DataFrame
        Table of `verifylab.churn_study.ChurnStudy`.
    ax : Axes
    """
    names = list(dict.fromkeys(rounds.scenario))[::-1]
    for i, name in enumerate(names):
        part = rounds[rounds.scenario == name]
        share = 100 * part.arrival_declined / part.pair_steps
        both = 100 * part.arrival_declined.sum() / part.pair_steps.sum()
        for value, at, colour, hatch in zip(
            share, (i + 0.2, i - 0.2), ("#56B4E9", BLUE), ("..", ""), strict=True
        ):
            ax.barh(at, value, 0.36, color=colour, hatch=hatch, edgecolor="white", lw=0.5)
            ax.annotate(f"{value:.0f}", (value, at), (4, 0), textcoords="offset points",
                        va="center", fontsize=11)  # fmt: skip
        ax.plot([both], [i], "D", color="black", ms=8, zorder=5)
        ax.annotate(f"{both:.0f}", (119, i), va="center", ha="center", fontsize=12,
                    fontweight="bold")  # fmt: skip
    ax.barh(0, 0, color="#56B4E9", hatch="..", edgecolor="white", label="first round")
    ax.barh(0, 0, color=BLUE, label="second round")
    ax.plot([], [], "D", color="black", ms=8, ls="none", label="of both rounds")
    ax.axvline(47, color="#CC79A7", lw=2, ls="--", label="published: about 47, of both*")
    ax.annotate("both", (119, len(names) - 0.45), ha="center", fontsize=11, color="#555555")
    ax.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    ax.set_xlim(0, 126)
    ax.set_ylim(-0.6, len(names) + 0.75)
    ax.xaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("% of steps of two or more sequences that decline in arrival order, counted")
    ax.set_title("Two rounds of 16 requests, LIFO slots")
    ax.legend(loc="upper left", ncols=2, columnspacing=1.0, **OPAQUE)
    footnote(ax, "* Atlas pull request 844, 2026-09; a comment in its code has 47 % engaged",
              right=True)  # fmt: skip
    return ax


def churn_figure(study: CacheStudy) -> Figure:
    """Return fast path, keys, cache and rounds under churn."""
    churn, capacity = study.churn, study.config.graph_capacity
    first = churn.pools.iloc[0]
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(17, 12.8))
        axes = figure.subplots(2, 2)
        draw_fast_runs(churn.pools, axes[0, 0])
        draw_churn_keys(churn.pools, capacity, axes[0, 1])
        draw_churn_curves(churn.curves, capacity, axes[1, 0])
        draw_rounds(churn.rounds, axes[1, 1])
        figure.suptitle(
            f"{first.hours:.1f} h of churn (modelled step time on {first.machine}): "
            f"{study.config.churn_slots} slots, {first.mean_width:.1f} sequences on average",
            x=0.012, ha="left", fontsize=18, fontweight="bold",
        )  # fmt: skip
        figure.subplots_adjust(
            left=0.065, right=0.985, top=0.905, bottom=0.095, wspace=0.30, hspace=0.44
        )
    return figure
