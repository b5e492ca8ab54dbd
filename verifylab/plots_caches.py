"""Figures of the cache study: capacity and cache rules; `verifylab.plots_churn` has churn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from verifylab.plots import OUTLINE, STYLE, footnote, stamp

if TYPE_CHECKING:
    from verifylab.cache_study import CacheStudy

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "OPAQUE",
    "RED",
    "capacity_axis",
    "capacity_figure",
    "draw_capacity",
    "draw_memory",
    "draw_outcomes",
    "draw_rules",
    "mark_cache",
    "policies_figure",
]

GREY, BLUE, RED, GREEN = "#777777", "#0072B2", "#D55E00", "#009E73"
#: A legend that hides what runs behind it.
OPAQUE: dict[str, Any] = {
    "frameon": True, "facecolor": "white", "edgecolor": "none", "framealpha": 1.0,
}  # fmt: skip
#: Colour and line of each cache rule, in the order of the legend.
LOOKS = {
    "MIN, may run eager": (GREEN, "-"),
    "MIN (offline)": (GREEN, "--"),
    "no eviction, else eager": ("#CC79A7", "-"),
    "LFU": (BLUE, "-"),
    "segmented LRU": ("#56B4E9", "-"),
    "LRU": ("#000000", "-"),
    "LRU, admit on 2nd": ("#E69F00", "--"),
    "LRU, admit on 3rd": ("#E69F00", ":"),
    "LRU, idle 500 steps": (RED, "-."),
}


def capacity_axis(ax: Axes, largest: int, label: str = "graphs held at most (log)") -> None:
    """Make x a capacity in graphs, in powers of two."""
    ax.set_xscale("log", base=2)
    ticks = [2**i for i in range(0, 13, 2) if 2**i <= largest]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(0.9, largest * 1.1)
    ax.set_xlabel(label)


def mark_cache(ax: Axes, capacity: int, y: float = 0.02) -> None:
    """Draw the published cache as a line."""
    ax.axvline(capacity, color=RED, ls="--", lw=1.8, zorder=1)
    ax.annotate(
        f"cache: {capacity}", (capacity, y), xycoords=("data", "axes fraction"), xytext=(4, 0),
        textcoords="offset points", color="#B34700", va="bottom", fontsize=11,
    )  # fmt: skip


def draw_capacity(
    capacity: pd.DataFrame, harmless: pd.DataFrame, width: int, marked: int, ax: Axes
) -> Axes:
    """tok/s over the cache's capacity, both arms, at one width.

    Parameters
    ----------
    capacity, harmless : DataFrame
        Tables of `verifylab.cache_study.CacheStudy`.
    width, marked : int
        Width shown; capacity to mark.
    ax : Axes
    """
    shown = capacity[capacity.width == width]
    row = harmless[harmless.width == width].iloc[0]
    for policy, eviction, colour, line, label in (
        ("arrangement", "min", GREEN, "--", "arrangement, MIN (offline bound)"),
        ("arrangement", "lru", "#000000", "-", "arrangement, LRU"),
        ("canonical", "lru", BLUE, "-", "canonical, LRU"),
    ):
        part = shown[(shown.policy == policy) & (shown.eviction == eviction)]
        ax.plot(part.capacity, part.tok_s, color=colour, ls=line, label=label)
        ax.fill_between(
            part.capacity, part.tok_s_low, part.tok_s_high, color=colour, alpha=0.15, lw=0
        )
    low, high = shown.tok_s.min(), shown.tok_s.max()
    ax.set_ylim(low - 0.07 * (high - low), high + 0.5 * (high - low))
    lru = shown[(shown.policy == "arrangement") & (shown.eviction == "lru")]
    lru = lru.set_index("capacity").tok_s
    for name, text, place in (
        ("lru_breaks_even", "even with\ncanonical", (72, -34)),
        ("lru_harmless", "harmless\n(99 %)", (4, 48)),
    ):
        if pd.notna(row[name]):
            at = int(row[name])
            if at > shown.capacity.max() ** 0.8:  # no room to the right
                place = (28, place[1] * 3 // 2)
            elif at < 4:  # below it runs the canonical curve
                place = (place[0], abs(place[1]))
            ax.plot([at], [lru[at]], "o", mfc="white", mec="black", mew=2, zorder=5)
            ax.annotate(
                f"{at}: {text}", (at, lru[at]), place, textcoords="offset points", ha="center",
                va="center", fontsize=11, arrowprops={"arrowstyle": "-", "color": "#bbbbbb"},
                path_effects=[patheffects.withStroke(linewidth=OUTLINE, foreground="white")],
            )  # fmt: skip
    capacity_axis(ax, int(shown.capacity.max()))
    mark_cache(ax, marked)
    ax.set_ylabel(f"tok/s, {capacity.time.iloc[0]}")
    ax.set_title(f"Capacity against throughput at width {width}")
    ax.legend(loc="upper left")
    footnote(ax, stamp(capacity))
    return ax


def draw_memory(capacity: pd.DataFrame, harmless: pd.DataFrame, ax: Axes) -> Axes:
    """Share of the throughput with free captures over the memory of the graphs, by width.

    Parameters
    ----------
    capacity, harmless : DataFrame
        Tables of `verifylab.cache_study.CacheStudy`.
    ax : Axes
    """
    looks = (
        (GREY, "o", "-"), (BLUE, "s", "--"), ("#000000", "D", "-."), (RED, "^", ":"),
        (GREEN, "v", (0, (5, 1))),
    )  # fmt: skip
    widths = list(capacity.groupby("width").groups)
    for i, (width, part) in enumerate(capacity[capacity.eviction == "lru"].groupby("width")):
        row = harmless[harmless.width == width].iloc[0]
        colour, marker, line = looks[i % len(looks)]
        own = part[(part.policy == "arrangement") & (part.capacity <= row.arrangement_keys)]
        ax.plot(own.memory_gb, 100 * own.share, color=colour, ls=line)
        last = own.iloc[-1]
        ax.plot([last.memory_gb], [100 * last.share], marker, color=colour)
        ax.annotate(
            f"n = {width}\n{int(row.arrangement_keys)} graphs\n{last.memory_gb:.1f} GB",
            (last.memory_gb, 100 * last.share), (0, 10), textcoords="offset points",
            ha="center", va="bottom", fontsize=11, color=colour,
        )  # fmt: skip
        ax.plot([row.canonical_gb], [100], marker, color=colour, mfc="none", mew=2)
        beside, ha = ((-9, 0), "right") if i == 0 else ((9, 0), "left")
        below = 0 < i < len(widths) - 1
        ax.annotate(
            f"{width}" if below else f"n = {width}", (row.canonical_gb, 100),
            (0, -9) if below else beside, textcoords="offset points",
            ha="center" if below else ha, va="top" if below else "center", fontsize=11,
            color=colour,
        )  # fmt: skip
    low = 100 * capacity[capacity.eviction == "lru"].share.min()
    ax.plot([], [], color="#000000", label="arrangement, LRU (filled mark: every key held)")
    ax.plot([], [], "o", color="#000000", mfc="none", mew=2, ls="none",
            label="canonical, every key held (open mark)")  # fmt: skip
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(0.015, capacity.memory_gb.max() * 2.2)
    ax.set_ylim(low - 0.05 * (100 - low), 100 + 0.55 * (100 - low))
    ax.yaxis.set_major_locator(FixedLocator(list(range(int(low // 5) * 5, 101, 5))))
    ax.legend(loc="upper left")
    ax.set(xlabel="GPU memory of the graphs, GB (log), 10 KB a node",
           ylabel=f"% of own tok/s\nwith captures free, {capacity.time.iloc[0]}")  # fmt: skip
    ax.set_title("What it costs in memory to make captures harmless")
    footnote(ax, stamp(capacity))
    return ax


def capacity_figure(study: CacheStudy) -> Figure:
    """Return capacity against throughput and against memory."""
    width = study.config.widths[-1]
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(17, 6.4))
        left, right = figure.subplots(1, 2)
        draw_capacity(study.capacity, study.harmless, width, study.config.graph_capacity, left)
        draw_memory(study.capacity, study.harmless, right)
        figure.subplots_adjust(left=0.06, right=0.985, top=0.93, bottom=0.18, wspace=0.2)
    return figure


def draw_rules(policies: pd.DataFrame, marked: int, canonical_tok_s: float, ax: Axes) -> Axes:
    """tok/s over capacity for every cache rule, arrangement arm.

    Parameters
    ----------
    policies : DataFrame
        Table of `verifylab.cache_study.CacheStudy`.
    marked : int
        Capacity to mark.
    canonical_tok_s : float
        Drawn as a level.
    ax : Axes
    """
    for rule, (colour, line) in LOOKS.items():
        part = policies[policies.rule == rule]
        ax.plot(part.capacity, part.tok_s, color=colour, ls=line, label=rule)
    ax.axhline(canonical_tok_s, color=BLUE, lw=1.2, ls=(0, (1, 1)))
    ax.annotate(
        "canonical, any of them", (1, canonical_tok_s), (0, 4), textcoords="offset points",
        color=BLUE, fontsize=11, va="bottom",
    )  # fmt: skip
    low, high = policies.tok_s.min(), policies.tok_s.max()
    ax.set_ylim(low - 0.07 * (high - low), high + 0.62 * (high - low))
    capacity_axis(ax, int(policies.capacity.max()))
    mark_cache(ax, marked)
    ax.set_ylabel(f"tok/s, {policies.time.iloc[0]}")
    ax.set_title("Cache rules on the arrangement arm")
    ax.legend(loc="upper left", ncols=2, columnspacing=1.2, **OPAQUE)
    footnote(ax, stamp(policies))
    return ax


def draw_outcomes(policies: pd.DataFrame, capacity: int, ax: Axes) -> Axes:
    """Shares of what the steps did under every rule at one capacity.

    Parameters
    ----------
    policies : DataFrame
    capacity : int
    ax : Axes
    """
    shown = policies[policies.capacity == capacity].set_index("rule").loc[list(LOOKS)[::-1]]
    left = np.zeros(len(shown))
    for name, colour, hatch in (
        ("hit", BLUE, ""), ("eager", "#E69F00", ".."), ("capture", RED, "//"),
    ):  # fmt: skip
        part = 100 * shown[f"{name}_fraction"].to_numpy()
        ax.barh(range(len(shown)), part, 0.66, left=left, color=colour, hatch=hatch,
                edgecolor="white", lw=0.5, label=name)  # fmt: skip
        left += part
    for i, row in enumerate(shown.itertuples()):
        ax.annotate(
            f"{row.tok_s:.1f}", (102, i), va="center", fontsize=11, annotation_clip=False,
        )  # fmt: skip
    ax.annotate("tok/s", (102, len(shown) - 0.35), va="bottom", fontsize=11, color="#555555",
                annotation_clip=False)  # fmt: skip
    ax.set_yticks(range(len(shown)), list(shown.index))
    ax.set_xlim(0, 100)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("% of steps")
    ax.set_title(f"With {capacity} graphs", pad=30)
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, borderaxespad=0.2)
    footnote(ax, stamp(policies))
    return ax


def policies_figure(study: CacheStudy) -> Figure:
    """Return the comparison of cache rules."""
    canonical = study.harmless.iloc[-1].canonical_tok_s
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(17, 6.4))
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        draw_rules(study.policies, study.config.graph_capacity, canonical, left)
        draw_outcomes(study.policies, study.config.graph_capacity, right)
        figure.subplots_adjust(left=0.06, right=0.95, top=0.88, bottom=0.18, wspace=0.36)
    return figure
