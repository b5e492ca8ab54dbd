"""Figures of notebook 03: why canonical costs, and the policy map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from verifylab.draft_calibration import calibration
from verifylab.draft_sequences import autocorrelation, sequence_spread
from verifylab.draft_trace import DraftTrace
from verifylab.experiment import UNPRUNED, in_words
from verifylab.plots import STYLE, draw_difference, footnote
from verifylab.plots_drafts import draw_autocorrelation, draw_calibration, draw_sequence_spread

__all__ = [
    "both_figure",
    "draw_both_workloads",
    "draw_calibrations",
    "draw_guess",
    "draw_over_spread",
    "draw_policy_map",
    "policy_map_figure",
    "why_figure",
]

#: Line looks by position: told apart in grey by marker and dash.
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "marker": "o", "ls": "-"},
    {"color": "#0072B2", "marker": "s", "ls": "--"},
    {"color": "#D55E00", "marker": "D", "ls": ":"},
    {"color": "#009E73", "marker": "^", "ls": "-."},
    {"color": "#CC79A7", "marker": "v", "ls": (0, (1, 3))},
)
#: A winner's lead over the runner-up, in percent, below which a map calls it a tie.
TIE_PCT = 0.5
#: Names that fit a cell.
POLICY_NAMES = {
    "arrangement": "arrange-\nment",
    "exec_update": "exec\nupdate",
    "capture_on_second_use": "second\nuse",
    "sglang_ragged": "sglang\nragged",
    "vllm_piecewise": "vllm\npiecewise",
    UNPRUNED: "D-Cut\noff",
}
#: Face colour and text colour of each policy on the map; the name is written in the cell as well.
POLICY_COLOURS = {
    "arrangement": ("#ffffff", "#000000"),
    "canonical": ("#0072B2", "#ffffff"),
    "indirect": ("#F0E442", "#000000"),
    "exec_update": ("#CC79A7", "#000000"),
    "eager": ("#D55E00", "#000000"),
    "capture_on_second_use": ("#999999", "#000000"),
    UNPRUNED: ("#56B4E9", "#000000"),
    "padded": ("#b9d9ee", "#000000"),
    "borrow": ("#cccccc", "#000000"),
    "sglang_ragged": ("#009E73", "#ffffff"),
    "vllm_piecewise": ("#E69F00", "#000000"),
    "trtllm": ("#b3de69", "#000000"),
}


def draw_over_spread(band: pd.DataFrame, implied: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the token part over the spread of confidences, a line a width.

    Parameters
    ----------
    band : DataFrame
        As `why.over_spread`.
    implied : DataFrame
        As `why.implied_spreads`: drawn apart, as open triangles on the axis's floor.
    ax : Axes
    """
    nodes = band[band.node].spread
    if len(nodes):
        ax.axvspan(nodes.min(), nodes.max(), color="#F0E442", alpha=0.4, lw=0)
    fitted = float(band[band.fitted].spread.iloc[0])
    ax.axvline(fitted, color="black", lw=1.2)
    ends = []
    for look, (width, rows) in zip(LOOKS, band.groupby("width"), strict=False):
        rows = rows.sort_values("spread")
        ax.fill_between(
            rows.spread, rows.tokens_low, rows.tokens_high, color=look["color"], alpha=0.2, lw=0
        )
        ax.plot(rows.spread, rows.tokens_pct, ms=5, label=f"n = {width}", **look)
        ends.append(rows.tokens_pct.min())
    floor = min(ends) * 1.16
    known = implied[np.isfinite(implied.implied_spread)].sort_values("implied_spread")
    # marks that fall together share one label
    together = (known.implied_spread.diff() > 0.06).cumsum()
    for _, near in known.groupby(together):
        ax.plot(
            near.implied_spread, np.full(len(near), floor), marker="^", ms=11, mfc="white",
            mec="#CC79A7", mew=2, ls="none", zorder=5,
        )  # fmt: skip
        ax.annotate(
            f"n = {', '.join(map(str, sorted(near.width)))}", (near.implied_spread.mean(), floor),
            xytext=(0, 9), textcoords="offset points", ha="center", fontsize=10,
        )  # fmt: skip
    ax.annotate(
        f"fitted to the\nratio sweep: {fitted:.2f}\n(80 % band)", (fitted, 0.0),
        xycoords=("data", "axes fraction"), xytext=(5, 4), textcoords="offset points",
        va="bottom", fontsize=10,
    )  # fmt: skip
    ax.axhline(0, color="black", lw=1)
    ax.set_ylim(floor * 1.1, max(0.9, -0.12 * floor))
    ax.set(
        xlabel="confidence spread (0: all alike, 1: the drafter knows)\n"
        "triangles: the spread that the published A/B would imply (not used)",
        ylabel="tokens part, % tok/s, modelled",
    )
    ax.set_title("The loss is the re-pairing: no information, no loss")
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 0.16))
    return ax


def draw_calibrations(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the token part by how confidences relate to acceptance, bars by width.

    Parameters
    ----------
    table : DataFrame
        As `why.calibrations`.
    ax : Axes
    """
    kinds = list(dict.fromkeys(table.kind))
    widths = sorted(table.width.unique())
    step = 0.8 / len(widths)
    hatches = ("", "//", "..", "xx")
    for i, width in enumerate(widths):
        rows = table[table.width == width].set_index("kind").loc[kinds]
        x = np.arange(len(kinds)) + (i - (len(widths) - 1) / 2) * step
        ax.bar(
            x, rows.tokens_pct, step * 0.92, color=LOOKS[i % len(LOOKS)]["color"],
            hatch=hatches[i % len(hatches)], edgecolor="white", label=f"n = {width}",
            yerr=[rows.tokens_pct - rows.tokens_low, rows.tokens_high - rows.tokens_pct],
            error_kw={"capsize": 3, "ecolor": "#555555"},
        )  # fmt: skip
    ax.axhline(0, color="black", lw=1)
    ax.set_xticks(range(len(kinds)), [k.replace(" (", "\n(") for k in kinds])
    ax.grid(axis="x", visible=False)
    ax.set(ylabel="tokens part, % tok/s, modelled")
    ax.set_title("With uninformative confidences it vanishes")
    ax.legend(loc="lower right")
    return ax


def draw_guess(split: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the launches part by width and ratio: the guess needs it below zero.

    Parameters
    ----------
    split : DataFrame
        As `why.splits`.
    ax : Axes
    """
    low = min(-0.6, 1.3 * float(split.launches_low.min()))
    high = max(0.3, float(split.launches_high.max()))
    ax.axhspan(low, 0, color="#D55E00", alpha=0.12, lw=0)
    ax.annotate(
        "the guess (\"more declined fast paths\") would put canonical here",
        (0.5, 0.03), xycoords="axes fraction", ha="center", fontsize=10, color="#8a3500",
    )  # fmt: skip
    for look, (ratio, rows) in zip(LOOKS, split.groupby("ratio"), strict=False):
        rows = rows.sort_values("width")
        ax.plot(rows.width, rows.launches_pct, ms=6, label=f"ratio {ratio:g}", **look)
        ax.fill_between(
            rows.width, rows.launches_low, rows.launches_high, color=look["color"], alpha=0.2, lw=0
        )
    ax.axhline(0, color="black", lw=1)
    ax.set_ylim(low, high * 1.25)
    ax.set_xticks(sorted(split.width.unique()))
    ax.set(xlabel="batch width n", ylabel="launches part, % tok/s, modelled")
    ax.set_title("The recorded guess fails: canonical launches no more")
    ax.legend(loc="upper right")
    return ax


def draw_both_workloads(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the token part by width, calibrated draws beside recorded drafts.

    Parameters
    ----------
    table : DataFrame
        As `why.both_workloads`.
    ax : Axes
    """
    for look, (kind, rows) in zip(LOOKS, table.groupby("drafts", sort=False), strict=False):
        rows = rows.sort_values("width")
        ax.plot(rows.width, rows.tokens_pct, ms=7, label=kind, **look)
        ax.fill_between(
            rows.width, rows.tokens_low, rows.tokens_high, color=look["color"], alpha=0.2, lw=0
        )
    ax.axhline(0, color="black", lw=1)
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.42 * (high - low), high)
    ax.set_xticks(sorted(table.width.unique()))
    ax.set(xlabel="batch width n", ylabel="tokens part, % tok/s, modelled")
    ax.set_title("Recorded drafts of a small model: same sign, same size")
    ax.legend(loc="lower left")
    return ax


def why_figure(
    split: pd.DataFrame,
    band: pd.DataFrame,
    implied: pd.DataFrame,
    calibration: pd.DataFrame,
    published: pd.DataFrame,
    *,
    ratio: float = 0.75,
    stamp: str = "",
) -> Figure:
    """Return the figure of notebook 03: what a reviewer reads in ten seconds, then why."""
    shown = split[np.isclose(split.ratio, ratio)] if ratio in set(split.ratio) else split
    if len(set(shown.ratio)) > 1:
        shown = split[split.ratio == split.ratio.max()]
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(17, 11.2))
        axes = figure.subplots(2, 2)
        draw_difference(
            shown.assign(time="modelled"), axes[0, 0],
            published=published if float(shown.ratio.iloc[0]) == 0.75 else None, note="",
        )  # fmt: skip
        axes[0, 0].set_title(
            f"Canonical minus arrangement, by cause (ratio {shown.ratio.iloc[0]:g})"
        )
        draw_over_spread(band, implied, axes[0, 1])
        draw_calibrations(calibration, axes[1, 0])
        draw_guess(split, axes[1, 1])
        for ax in axes.flat:
            footnote(ax, stamp)
        figure.suptitle(
            "What canonical costs is tokens, not launches: "
            "the deepest verify goes to the lowest slot (modelled)",
            x=0.012, ha="left", fontsize=18, fontweight="bold",
        )  # fmt: skip
        figure.subplots_adjust(
            left=0.065, right=0.985, top=0.90, bottom=0.10, wspace=0.19, hspace=0.46
        )
    return figure


def both_figure(both: pd.DataFrame, trace: DraftTrace, stamp: str = "") -> Figure:
    """Return recorded drafts beside calibrated draws: token part, and how the trace behaves."""
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(17, 11.0))
        axes = figure.subplots(2, 2)
        draw_both_workloads(both, axes[0, 0])
        footnote(axes[0, 0], stamp)
        draw_calibration(calibration(trace), axes[0, 1])
        draw_autocorrelation(autocorrelation(trace), axes[1, 0])
        draw_sequence_spread(sequence_spread(trace), axes[1, 1])
        figure.subplots_adjust(
            left=0.06, right=0.985, top=0.95, bottom=0.10, wspace=0.19, hspace=0.42
        )
    return figure


def draw_policy_map(table: pd.DataFrame, column: str, ax: Axes, *, title: str = "") -> Axes:
    """Draw which policy wins in each cell of width by `column`, and its gain over arrangement.

    Parameters
    ----------
    table : DataFrame
        ``width``, `column`, ``policy, gain_pct`` and, where known, ``second, lead_pct``: with a
        lead below `TIE_PCT` the runner-up is named too, and nobody, without a number, where the
        gain is as small.
    column : str
        ``graph_ms`` or ``ratio``.
    ax : Axes
    """
    widths = sorted(table.width.unique())
    levels = sorted(table[column].unique())
    for row in table.itertuples():
        x, y = widths.index(row.width), levels.index(getattr(row, column))
        face, ink = POLICY_COLOURS.get(row.policy, ("#eeeeee", "#000000"))
        # Rounded as they are shown, here and wherever else a gain is named.
        tie = round(getattr(row, "lead_pct", TIE_PCT), 1) < TIE_PCT
        name = POLICY_NAMES.get(row.policy, row.policy)
        gain = f"\n{row.gain_pct:+z.1f} %"
        if tie and round(row.gain_pct, 1) < TIE_PCT:
            face, ink, name, gain = "#ffffff", "#000000", "no clear\nwinner", ""
        elif tie:
            name = f"{in_words(row.policy)}\n= {in_words(row.second)}"
            name = name.replace("_ragged", "").replace("_update", "")
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fc=face, ec="#777777", lw=0.8))
        ax.annotate(
            f"{name}{gain}", (x, y), ha="center", va="center", fontsize=9, color=ink,
        )  # fmt: skip
    ax.set_xlim(-0.5, len(widths) - 0.5)
    ax.set_ylim(-0.5, len(levels) - 0.5)
    ax.set_xticks(range(len(widths)), [str(w) for w in widths])
    ax.set_yticks(range(len(levels)), [f"{level:g}" for level in levels])
    ax.grid(visible=False)
    label = {"graph_ms": "capture and eviction, ms a graph", "ratio": "D-Cut ratio"}[column]
    ax.set(ylabel=label)
    ax.set_xlabel(
        "batch width n; percent: gain over arrangement, tok/s, modelled\n"
        f"no clear winner: nobody gains {TIE_PCT} %; a = b: b is second, under {TIE_PCT} % behind",
        fontsize=11,
    )
    ax.set_title(title)
    return ax


def policy_map_figure(
    maps: Sequence[tuple[pd.DataFrame, str, str]], stamp: str = "", columns: int = 2
) -> Figure:
    """Return several policy maps side by side: (table, column, title) each."""
    rows = -(-len(maps) // columns)
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(8.6 * columns, 6.0 * rows))
        axes = figure.subplots(rows, columns, squeeze=False)
        for (table, column, title), ax in zip(maps, axes.flat, strict=False):
            draw_policy_map(table, column, ax, title=title)
            footnote(ax, stamp)
        for ax in list(axes.flat)[len(maps) :]:
            ax.set_visible(False)
        figure.subplots_adjust(
            left=0.06, right=0.985, top=0.93, bottom=0.2 / rows, wspace=0.16, hspace=0.42
        )
    return figure
