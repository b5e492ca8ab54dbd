"""The explorer's static figures: the same as its tabs show, for a notebook that is re-opened."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from verifylab.plots import CANONICAL, STYLE, draw_difference, footnote
from verifylab.plots_batch import batch_figure

if TYPE_CHECKING:
    from verifylab.cache_player import Playback
    from verifylab.exploration import Exploration
    from verifylab.live_throughput import Curves

__all__ = [
    "batch_figure",
    "cache_figure",
    "draw_gains",
    "draw_player",
    "throughput_figure",
]

#: Sizes of a pair that must be read at half the width of a page.
LARGE: dict[str, Any] = {
    "font.size": 14, "axes.titlesize": 17, "axes.labelsize": 15, "legend.fontsize": 15,
    "xtick.labelsize": 15, "ytick.labelsize": 15,
}  # fmt: skip


def stamped(shown: Curves, settings: Exploration) -> pd.DataFrame:
    """Return the differences with the columns of a stamp."""
    return shown.differences.assign(
        seeds=shown.runs.seeds, time="modelled", machine=settings.machine,
        date=dt.date.today().isoformat(),
    )  # fmt: skip


def draw_gains(shown: Curves, threshold: int, ax: Axes) -> Axes:
    """Draw what canonical and the further policy gain over arrangement, and the open gate.

    Parameters
    ----------
    shown : Curves
    threshold : int
        Gate that is shaded.
    ax : Axes
    """
    widths = [int(w) for w in shown.gate.width]
    x = np.arange(len(widths))
    for table, look in (
        (shown.policy_differences, {"marker": "v", "color": "#009E73", "ls": "--",
                                    "label": shown.runs.policy}),
        (shown.differences, {**CANONICAL, "label": "canonical"}),
    ):  # fmt: skip
        middle = table.delta_pct
        ax.errorbar(
            x, middle, yerr=[middle - table.delta_low, table.delta_high - middle], capsize=4,
            **look,
        )  # fmt: skip
    gated = [i for i, w in enumerate(widths) if w >= threshold]
    if gated:
        ax.axvspan(
            gated[0] - 0.5, gated[-1] + 0.5, color="#E69F00", alpha=0.2, lw=0,
            label=f"your gate, open: n of {threshold} and up",
        )  # fmt: skip
    ax.axhline(0, color="black", lw=1)
    ax.set_xlim(-0.6, len(widths) - 0.4)
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.35 * (high - low))
    ax.set_xticks(x, [str(w) for w in widths])
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="batch width n (sequences)", ylabel="against arrangement, % tok/s, modelled")
    ax.set_title("Gain over arrangement, by width")
    ax.legend(loc="upper left", ncols=2)
    return ax


def throughput_figure(shown: Curves, settings: Exploration) -> Figure:
    """Return gains above, and their split below."""
    table = stamped(shown, settings)
    with matplotlib.style.context([STYLE, LARGE]):
        figure = Figure(figsize=(11, 12))
        upper, lower = figure.subplots(2, 1)
        draw_gains(shown, settings.threshold, upper)
        draw_difference(table, lower)
        footnote(
            upper, f"{settings.shown_graph_ms():.1f} ms a graph, {settings.graph_capacity} graphs, "
            f"{shown.runs.steps} steps a seed",
        )  # fmt: skip
        for small in (*upper.texts, *lower.texts):
            small.set_fontsize(LARGE["font.size"])
        figure.subplots_adjust(left=0.1, right=0.985, top=0.965, bottom=0.1, hspace=0.36)
    return figure


def draw_player(played: Playback, ax: Axes) -> Axes:
    """Draw which place every step used: replayed there, or captured into it.

    Parameters
    ----------
    played : Playback
    ax : Axes
    """
    looks: dict[str, dict[str, Any]] = {
        "hit": {"marker": "o", "color": "#0072B2", "ms": 5},
        "capture": {"marker": "x", "color": "#D55E00", "ms": 7, "mew": 1.8},
    }
    for outcome, look in looks.items():
        at = [f for f in played.frames if f.outcome == outcome]
        ax.plot(
            [f.step + 1 for f in at], [f.place + 1 for f in at], ls="none",
            label=f"{outcome} ({len(at)})", **look,
        )  # fmt: skip
    last = played.frames[-1]
    ax.set_ylim(0, played.capacity + 1)
    ax.set(xlabel="step", ylabel="place in the cache")
    ax.set_title(
        f"{last.hits} hits, {last.captures} captures, {last.evictions} evictions in "
        f"{last.step + 1} steps"
    )
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def cache_figure(played: Playback) -> Figure:
    """Return the whole of a played run."""
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(12, 5.4), layout="constrained")
        draw_player(played, figure.subplots())
    return figure
