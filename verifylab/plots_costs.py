"""Figures of graph costs: what an operation, a node, a step and a byte cost on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from verifylab.plots import STYLE, footnote

if TYPE_CHECKING:
    from verifylab.graph_costs import GraphCosts

__all__ = [
    "draw_bandwidth",
    "draw_operations",
    "draw_per_node",
    "draw_steps",
    "graph_costs_figure",
]

#: Colour, marker and line of each operation that is drawn over nodes.
LOOKS: dict[str, tuple[str, str, str]] = {
    "record": ("#D55E00", "o", "-"),
    "instantiate": ("#0072B2", "s", "-"),
    "exec_destroy": ("#009E73", "D", "--"),
    "graph_destroy": ("#000000", "v", ":"),
    "launch": ("#CC79A7", "P", "-."),
}
_PUBLISHED: dict[str, Any] = {"ls": "none", "marker": "^", "mfc": "white", "mew": 2, "ms": 10}
_BELOW: dict[str, Any] = {"ls": "none", "marker": "<", "color": "#0072B2", "ms": 10}
#: Which published rows are the same operation as ours.
_SAME = {
    "instantiate": "instantiate",
    "exec_destroy": "exec_destroy",
    "graph_destroy": "graph_destroy",
    "launch": "replay_enqueue",
}
_NEAR = "#555555"


def _plain(value: float, _: object = None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def draw_operations(
    operations: pd.DataFrame, fits: pd.DataFrame, ax: Axes, *, published: pd.DataFrame, stamp: str
) -> Axes:
    """Draw the cost of each operation over nodes: medians, quartiles, fit, published.

    Parameters
    ----------
    operations, fits : DataFrame
        Of `graph_costs.GraphCosts`.
    ax : Axes
    published : DataFrame
        Of `graph_costs.published_costs`; drawn where the number of nodes is known.
    stamp : str
    """
    by_name = fits.set_index("operation")
    for name, (colour, marker, line) in LOOKS.items():
        micro = operations[operations.operation == name].assign(us=lambda d: 1e3 * d.ms)
        grouped = micro.groupby("nodes").us
        middle, low, high = (grouped.quantile(q) for q in (0.5, 0.25, 0.75))
        fit = by_name.loc[name]
        ax.errorbar(
            middle.index, middle, yerr=[middle - low, high - middle], ls="none", marker=marker,
            color=colour, ms=7, elinewidth=1.4, capsize=0, label=fit.label,
        )  # fmt: skip
        x = np.geomspace(middle.index.min(), middle.index.max(), 60)
        y = fit.base_us + fit.per_node_us * x
        ax.plot(x[y > 0], y[y > 0], color=colour, ls=line, lw=1.8)
        known = published[(published.operation == _SAME.get(name)) & published.nodes.notna()]
        for _, row in known.iterrows():
            ax.plot([row.nodes] * 2, [row.us_low, row.us_high], color=colour, lw=1.4)
            middle_us = np.sqrt(row.us_low * row.us_high)
            ax.plot(row.nodes, middle_us, mec=colour, **_PUBLISHED)
            if name == "launch":
                continue  # in the midst of the lines; its colour says what it is
            ax.annotate(
                fit.label, (row.nodes, middle_us), (-9, 0),
                textcoords="offset points", ha="right", va="center", fontsize=9.5, color=colour,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
            )  # fmt: skip
    ax.plot([], [], mec=_NEAR, label="published, other machines", **_PUBLISHED)
    ax.set_xscale("log")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** 0.32)
    ax.xaxis.set_major_formatter(FuncFormatter(_plain))
    ax.yaxis.set_major_formatter(FuncFormatter(_plain))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(loc="upper left", ncols=2, columnspacing=1.0, handletextpad=0.4)
    ax.set(xlabel="nodes of the graph (log)", ylabel="microseconds (log)")
    ax.set_title("What an operation costs (bars: half the repeats; lines: fit)")
    footnote(ax, stamp)
    return ax


def draw_per_node(
    fits: pd.DataFrame, ax: Axes, *, published: pd.DataFrame, stamp: str, limit: float = 1e-4
) -> Axes:
    """Draw the fitted microseconds a node with their intervals, beside what is published.

    Parameters
    ----------
    fits : DataFrame
    ax : Axes
    published : DataFrame
        Rows a node, and one-number rows divided by their nodes.
    stamp : str
    limit : float
        Smallest microseconds drawn: an interval that reaches below ends there, and a value below
        is an arrow at the edge.
    """
    labels, below = [*fits.label], False
    for i, row in enumerate(fits.itertuples()):
        low, high = max(float(row.per_node_low), limit), max(float(row.per_node_high), limit)
        ax.plot([low, high], [i, i], color="#0072B2", lw=3, solid_capstyle="butt")
        if row.per_node_us > limit:
            ax.plot(row.per_node_us, i, marker="o", color="#0072B2", ms=9, ls="none")
        else:
            ax.plot(limit, i, clip_on=False, **_BELOW)
            below = True
    near = {"instantiate": "instantiate", "exec_destroy": "exec_destroy",
            "graph_destroy": "graph_destroy", "launch_per_node_cuda_11_8": "launch",
            "launch_per_node_cuda_12_6": "launch", "replay_per_node": "replay"}  # fmt: skip
    at = {name: i for i, name in enumerate(fits.operation)}
    for row in published.itertuples():
        if row.operation in near and (row.per_node or row.nodes == row.nodes):
            value = row.us_low / (1 if row.per_node else row.nodes)
            ax.plot(value, at[near[row.operation]] - 0.28, mec="#B34700", **_PUBLISHED)
    ax.plot([], [], marker="o", color="#0072B2", lw=3, label="here, 95 % interval")
    ax.plot([], [], mec="#B34700", label="published, other machines", **_PUBLISHED)
    if below:
        ax.plot([], [], label=f"here, {limit:g} or less", **_BELOW)
    ax.set_xscale("log")
    ax.set_xlim(left=limit)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.4, -1.5)
    ax.xaxis.set_major_formatter(FuncFormatter(_plain))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.grid(axis="y", visible=False)
    ax.legend(loc="upper left", ncols=2, columnspacing=1.0, handletextpad=0.4)
    ax.set(xlabel="microseconds a node (log)")
    ax.set_title("What one more node costs")
    footnote(ax, stamp)
    return ax


def draw_steps(steps: pd.DataFrame, shape: str, ax: Axes, *, stamp: str) -> Axes:
    """Draw the replayed step's time over rows, a line a width: fast path and declined path.

    Parameters
    ----------
    steps : DataFrame
        Of `graph_costs.GraphCosts`.
    shape : str
        For the title.
    ax : Axes
    stamp : str
    """
    middle = steps.groupby(["width", "form", "rows"]).ms.median().reset_index()
    widths = sorted(middle.width.unique())
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.65, len(widths)))
    ends = []
    for colour, width, marker in zip(colours, widths, "osD^v<>Ph*Xpd" * 9, strict=False):
        for form, line, face in (("direct", "-", colour), ("declined", "--", "white")):
            part = middle[(middle.width == width) & (middle.form == form)]
            if part.empty:
                continue
            ax.plot(
                part.rows, part.ms, ls=line, marker=marker, color=colour, mfc=face, mew=1.6, ms=8
            )
            last = part.iloc[-1]
            ends.append((float(last.rows), float(last.ms), f"n = {width}", colour))
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * 3)
    _name_ends(ax, ends)
    ax.plot([], [], color=_NEAR, ls="-", marker="o", label="fast path")
    ax.plot([], [], color=_NEAR, ls="--", marker="o", mfc="white", label="declined path")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(FuncFormatter(_plain))
    ax.yaxis.set_minor_formatter(NullFormatter())
    first, final = middle.rows.min(), middle.rows.max()
    ax.set_xlim(first - 0.15, final + 0.16 * max(1, final - first) + 0.1)
    ax.legend(loc="upper left", ncols=2)
    ax.set(xlabel="rows a sequence", ylabel="milliseconds a replay (log)")
    ax.set_title(f"What a verify step costs, shape {shape!r}")
    footnote(ax, stamp)
    return ax


def _name_ends(ax: Axes, ends: list[tuple[float, float, str, Any]]) -> None:
    """Name lines at their right end, moved apart on the log axis."""
    from verifylab.plots import _spread

    low, high = np.log(ax.get_ylim())
    heights = np.exp(_spread([float(np.log(y)) for _, y, _, _ in ends], 0.055 * (high - low)))
    for (x, y, text, colour), height in zip(ends, heights, strict=True):
        ax.annotate(
            text, (x, y), (x + 0.12, height), va="center", fontsize=11, color=colour,
            arrowprops={"arrowstyle": "-", "color": "#bbbbbb", "lw": 0.8, "shrinkA": 0,
                        "shrinkB": 4},
        )  # fmt: skip


def draw_bandwidth(bandwidth: pd.DataFrame, ax: Axes, *, stamp: str) -> Axes:
    """Draw the state (and weight) bytes a second of the fast path's steps, against a plain copy.

    Parameters
    ----------
    bandwidth : DataFrame
        Of `graph_costs.GraphCosts`.
    ax : Axes
    stamp : str
    """
    copy = float(bandwidth.copy_gb_s.iloc[0])
    widths, rows = sorted(bandwidth.width.unique()), sorted(bandwidth.rows.unique())
    greys = np.linspace(0.25, 0.8, len(rows))
    hatches = ("", "//", "..", "xx", "\\\\", "--", "oo")
    each = 0.8 / len(rows)
    at = {width: i for i, width in enumerate(widths)}
    for j, count in enumerate(rows):
        part = bandwidth[bandwidth.rows == count]
        x = [at[w] + (j - (len(rows) - 1) / 2) * each for w in part.width]
        ax.bar(
            x, part.gb_s, 0.92 * each, color=matplotlib.colormaps["viridis"](greys[j]),
            hatch=hatches[j % len(hatches)], edgecolor="white", lw=0.5, label=f"{count} rows",
        )  # fmt: skip
    ax.axhline(copy, color="#D55E00", ls="--", lw=1.8)
    ax.axhline(0.7 * copy, color="#D55E00", ls=":", lw=1.4)
    top = max(copy, float(bandwidth.gb_s.max()))
    ax.set_ylim(0, 1.38 * top)
    for level, text in ((copy, f"copy: {copy:,.0f} GB/s"), (0.7 * copy, "70 % of it")):
        ax.annotate(
            text, (0.995, level), (0, 3), xycoords=("axes fraction", "data"), ha="right",
            textcoords="offset points", va="bottom", fontsize=11, color="#B34700",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
        )  # fmt: skip
    ax.set_xticks(range(len(widths)), [str(w) for w in widths])
    ax.grid(axis="x", visible=False)
    ax.legend(loc="upper left", ncols=min(4, len(rows)), columnspacing=1.0, handletextpad=0.4)
    ax.set(xlabel="batch width n", ylabel="GB/s of state and weights")
    ax.set_title("How close the fast path comes to a copy")
    footnote(ax, stamp)
    return ax


def graph_costs_figure(costs: GraphCosts, published: pd.DataFrame) -> Figure:
    """Return all four panels of one calibration."""
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(17, 11.6))
        axes = figure.subplots(2, 2)
        stamp = costs.stamp
        draw_operations(costs.operations, costs.fits, axes[0, 0], published=published, stamp=stamp)
        draw_per_node(costs.fits, axes[0, 1], published=published, stamp=stamp)
        draw_steps(costs.steps, costs.shape, axes[1, 0], stamp=stamp)
        draw_bandwidth(costs.bandwidth, axes[1, 1], stamp=stamp)
        where = "" if costs.where != "host CPU" else ": a rehearsal, these are no GPU's numbers"
        figure.suptitle(
            f"Graph costs, measured on {costs.where}{where}", x=0.012, ha="left", fontsize=18,
            fontweight="bold",
        )  # fmt: skip
        figure.subplots_adjust(
            left=0.072, right=0.985, top=0.905, bottom=0.1, wspace=0.36, hspace=0.42
        )
    return figure
