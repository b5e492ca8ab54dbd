"""Figures. A function takes tables and an axes, draws what it is given and returns the axes.

No arithmetic of the study happens here. Every panel carries its stamp: modelled or measured,
machine, date, n. `save_figure` writes SVG, PNG and the CSV of every table behind the figure.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from verifylab.dcut import (
    DCUT_WIDTH_CAP,
    DEFAULT_LADDER,
    DEFAULT_RATIO,
    DraftLadder,
    snap_ratio,
)
from verifylab.experiment import UNPRUNED
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.paths import write_files

if TYPE_CHECKING:
    from verifylab.width_gate import WidthGate

__all__ = [
    "OUTLINE",
    "STYLE",
    "draw_collapse",
    "draw_difference",
    "draw_key_counts",
    "draw_probability",
    "draw_thresholds",
    "footnote",
    "key_space_figure",
    "png",
    "share_text",
    "save_figure",
    "stamp",
    "width_gate_figure",
]

STYLE = Path(__file__).with_name("verifylab.mplstyle")
#: Points of the page's colour around a mark that stands on a bar, the mark included.
OUTLINE = 5.0

#: Colour, hatch and label of each cause of a difference.
CAUSES = {
    "tokens": ("#D55E00", "//", "tokens (re-pairing)"),
    "captures": ("#0072B2", "", "captures"),
    "launches": ("#56B4E9", "..", "launches"),
    "work": ("#999999", "xx", "more steps"),
}
ARRANGEMENT: dict[str, Any] = {
    "marker": "o",
    "mfc": "white",
    "mec": "#000000",
    "mew": 2.0,
    "color": "#000000",
}
CANONICAL: dict[str, Any] = {"marker": "s", "mfc": "#0072B2", "mec": "#0072B2", "color": "#0072B2"}


def stamp(table: pd.DataFrame) -> str:
    """Return the provenance of a table that has ``time, machine, date, seeds`` columns."""
    row = table.iloc[0]
    where = " on " if row.time == "measured" else " | "
    return f"{row.time}{where}{row.machine} | {row.date} | n = {row.seeds} seeds"


def share_text(share: float) -> str:
    """Return a share in whole percent; what is nearly all, or all, is ">99%"."""
    if share >= 0.995:
        return ">99%"
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def _widths_text(widths: Sequence[int]) -> str:
    if len(widths) > 3:
        return f"{len(widths)} widths, {min(widths)} to {max(widths)}"
    return f"width{'s' * (len(widths) > 1)} {', '.join(map(str, sorted(widths)))}"


def footnote(ax: Axes, text: str, *, line: int = 0, right: bool = True) -> None:
    """Write small text below the axis labels, `line` lines further down."""
    ax.annotate(
        text, (1.0 if right else 0.0, 0.0), (0, -62 - 13 * line), xycoords="axes fraction",
        textcoords="offset points", ha="right" if right else "left", va="top", fontsize=9,
        color="#555555", annotation_clip=False,
    )  # fmt: skip


def _spread(values: Sequence[float], gap: float) -> np.ndarray:
    """Move labels apart so that neighbours stand at least `gap` from each other, order kept."""
    order = np.argsort(values, kind="stable")
    placed = np.asarray(values, float)[order].copy()
    for _ in range(200):
        close = np.flatnonzero(np.diff(placed) < gap - 1e-9)
        if not len(close):
            break
        for i in close:
            push = (gap - (placed[i + 1] - placed[i])) / 2
            placed[i] -= push
            placed[i + 1] += push
    out = np.empty(len(placed))
    out[order] = placed
    return out


def draw_collapse(arms: pd.DataFrame, capacity: int, ax: Axes) -> Axes:
    """Key-space collapse against throughput: both arms of each width, joined.

    Parameters
    ----------
    arms : DataFrame
        ``width, policy, reachable_keys, tok_s, tok_s_low, tok_s_high`` and the stamp's columns.
    capacity : int
        Graphs that the cache holds; drawn as a line.
    ax : Axes
    """
    ends = []
    for width, pair in arms.groupby("width"):
        by = pair.set_index("policy")
        a, c = by.loc["arrangement"], by.loc["canonical"]
        if a.reachable_keys != c.reachable_keys:
            ax.annotate(
                "", (c.reachable_keys, c.tok_s), (a.reachable_keys, a.tok_s),
                arrowprops={"arrowstyle": "-|>", "color": "#777777", "lw": 1.6, "shrinkA": 7,
                            "shrinkB": 7},
            )  # fmt: skip
        for row, look in ((c, CANONICAL), (a, ARRANGEMENT)):
            ax.errorbar(
                row.reachable_keys, row.tok_s,
                yerr=[[row.tok_s - row.tok_s_low], [row.tok_s_high - row.tok_s]],
                linestyle="none", capsize=0, elinewidth=1.5, **look,
            )  # fmt: skip
        ends.append(
            (width, a.reachable_keys, a.tok_s, c.reachable_keys, c.tok_s,
             bool(a.get("extrapolated", False)))
        )  # fmt: skip
    ax.set_xscale("log")
    biggest = max(max(e[1] for e in ends), capacity)
    ax.set_xlim(0.4, biggest * 2.5)
    low, high = ax.get_ylim()
    ax.set_ylim(max(low - 0.05 * (high - low), 0.0), high + 0.10 * (high - low))  # a rate
    gap = 0.062 * (ax.get_ylim()[1] - ax.get_ylim()[0])
    # Joined widths are named at their canonical end, on the left; the rest on the right.
    for joined in (True, False):
        group = [e for e in ends if (e[1] != e[3]) == joined]
        heights = _spread([e[4] for e in group], gap) if group else ()
        for (width, _, _, keys, tok_s, beyond), y in zip(group, heights, strict=True):
            ax.annotate(
                f"n = {width}" + (" (extrapolated)" if beyond else ""), (keys, tok_s),
                (keys / 1.25 if joined else keys * 1.25, y),
                va="center", ha="right" if joined else "left", fontsize=11,
            )  # fmt: skip
    ax.axvline(capacity, color="#D55E00", ls="--", lw=1.8)
    left, right = np.log(ax.get_xlim())
    beyond = np.log(capacity) > left + 0.7 * (right - left)  # no room to the right of the line
    ax.annotate(
        f"cache: {capacity} graphs", (capacity, 0.985), xycoords=("data", "axes fraction"),
        xytext=(-5 if beyond else 5, 0), textcoords="offset points", color="#B34700", va="top",
        ha="right" if beyond else "left", fontsize=11,
    )  # fmt: skip
    ax.plot([], [], ls="none", label="arrangement", **ARRANGEMENT)
    ax.plot([], [], ls="none", label="canonical", **CANONICAL)
    # Where captures are dear, the widest arrangement stands in the corner that is free elsewhere.
    fraction = ax.transData + ax.transAxes.inverted()
    ends_at = fraction.transform([(e[1], e[2]) for e in ends])
    crowded = bool(((ends_at[:, 0] > 0.7) & (ends_at[:, 1] < 0.25)).any())
    ax.legend(
        loc="center right" if crowded else "lower right", frameon=True, edgecolor="none",
        framealpha=1.0,
    )  # fmt: skip
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 1 else ""))
    ax.set(xlabel="reachable keys (log)", ylabel=f"tok/s, {arms.iloc[0].time}")
    ax.set_title("Key-space collapse against throughput")
    footnote(ax, stamp(arms))
    return ax


def draw_difference(
    differences: pd.DataFrame,
    ax: Axes,
    *,
    published: pd.DataFrame | None = None,
    arms: pd.DataFrame | None = None,
    note: str | None = None,
) -> Axes:
    """Canonical minus arrangement at each width: the parts as bars, the whole with its interval.

    Parameters
    ----------
    differences : DataFrame
        As `stats.paired` returns, with the stamp's columns; one spread.
    ax : Axes
    published : DataFrame, optional
        ``canonical_ab.csv``: drawn beside where the width is shown.
    arms : DataFrame, optional
        With ``bound_tok_s``: what keeping every own depth with free captures would reach.
    note : str, optional
        Small print; default: the stamp of `differences`.
    """
    table = differences.sort_values("width").reset_index(drop=True)
    at = {w: i for i, w in enumerate(table.width)}
    x = np.arange(len(table))
    up, down = np.zeros(len(table)), np.zeros(len(table))
    for cause, (colour, hatch, label) in CAUSES.items():
        part = table[f"{cause}_pct"].to_numpy()
        if np.abs(part).max() < 0.005:
            continue
        if cause == "work" and table.time[0] == "measured":
            label = "the step on the device"
        bottom = np.where(part >= 0, up, down)
        ax.bar(
            x, part, 0.5, bottom=bottom, color=colour, hatch=hatch, edgecolor="white", lw=0.5,
            label=label,
        )  # fmt: skip
        up, down = up + np.maximum(part, 0), down + np.minimum(part, 0)
    ax.axhline(0, color="black", lw=1)
    ax.errorbar(
        x, table.delta_pct,
        yerr=[table.delta_pct - table.delta_low, table.delta_high - table.delta_pct],
        fmt="D", color="black", mfc="black", ms=8, capsize=5, elinewidth=2,
        label="whole (95 % over seeds)", zorder=5,
    )  # fmt: skip
    if arms is not None:
        own = arms[arms.policy == "arrangement"].set_index("width")
        free = arms[arms.policy == UNPRUNED].set_index("width")
        outline = [patheffects.withStroke(linewidth=OUTLINE, foreground="white")]
        uncharged = [100 * (own.bound_tok_s[w] / own.tok_s[w] - 1) for w in table.width]
        ax.plot(
            x, uncharged, ls="none", marker="_", ms=26, mew=3, color="#009E73", zorder=4,
            path_effects=outline, label="own depths kept, captures free",
        )  # fmt: skip
        if len(free):
            ax.plot(
                x - 0.34, [100 * (free.tok_s[w] / own.tok_s[w] - 1) for w in table.width],
                ls="none", marker="x", ms=8, mew=2.2, color="#000000", zorder=6,
                label="D-Cut off (every draft verified)",
            )  # fmt: skip
    if published is not None:
        shown = published[published.concurrency.isin(at)]
        ax.plot(
            [at[w] + 0.36 for w in shown.concurrency], shown.delta_pct, ls="none", marker="^",
            ms=9, mfc="white", mec="#CC79A7", mew=2, zorder=6,
            label="published A/B (measured, GB10)*",
        )  # fmt: skip
        footnote(
            ax,
            "* prefill and drain included; only n = 2 is a true pair, the other legs mix builds",
            line=1,
            right=False,
        )
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.42 * (high - low))
    ax.set_xticks(x, [str(w) for w in table.width])
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="batch width n", ylabel=f"canonical minus arrangement,\n% tok/s, {table.time[0]}")
    ax.set_title("What canonical costs and what it saves")
    ax.legend(loc="upper left", ncols=2, columnspacing=1.2, handletextpad=0.6)
    footnote(ax, stamp(table) if note is None else note)
    return ax


def _threshold_names(min_widths: Sequence[int], widest: int) -> list[str]:
    return [f"{m}*" if m > widest else str(m) for m in min_widths]


def draw_thresholds(gates: pd.DataFrame, recommended: int | None, ax: Axes) -> Axes:
    """tok/s over the threshold, for each width, as change against never canonical.

    Parameters
    ----------
    gates : DataFrame
        ``width, min_width, tok_s, gain_pct, gain_low, gain_high`` and the stamp's columns.
    recommended : int or None
        Threshold to mark; None where none stands out.
    ax : Axes
    """
    candidates = sorted(gates.min_width.unique())
    at = {m: i for i, m in enumerate(candidates)}
    if recommended is not None:
        middle = at[recommended]
        ax.axvspan(middle - 0.42, middle + 0.42, color="#F0E442", alpha=0.45, lw=0)
        ax.annotate(
            "recommended", (middle, 0.985), xycoords=("data", "axes fraction"), ha="center",
            va="top", fontsize=11, fontweight="bold",
        )  # fmt: skip
    ends, flat = [], []
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.82, gates.width.nunique()))
    markers = "osD^v<>Ph*Xpd"
    for i, (width, rows) in enumerate(gates.groupby("width")):
        rows = rows.sort_values("min_width")
        if np.abs(rows.gain_pct).max() < 0.005:
            flat.append(width)
            continue
        x = [at[m] for m in rows.min_width]
        ax.fill_between(x, rows.gain_low, rows.gain_high, color=colours[i], alpha=0.2, lw=0)
        ax.plot(x, rows.gain_pct, color=colours[i], marker=markers[i % len(markers)], ms=7)
        first = rows.iloc[0]
        ends.append((first.gain_pct, f"n = {width}: {first.gain_pct:+z.1f} %", colours[i]))
    ax.axhline(0, color="black", lw=1)
    ax.set_xticks(range(len(candidates)), _threshold_names(candidates, gates.width.max()))
    ax.set_xlim(-2.9 if ends else -0.6, len(candidates) - 0.4)
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.04 * (high - low), high + 0.16 * (high - low))
    gap = 0.075 * (ax.get_ylim()[1] - ax.get_ylim()[0])
    for (value, text, colour), y in zip(ends, _spread([e[0] for e in ends], gap), strict=True):
        ax.annotate(
            text, (-0.15, value), (-0.45, y), va="center", ha="right", fontsize=11, color=colour,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            arrowprops={"arrowstyle": "-", "color": "#bbbbbb", "lw": 0.8, "shrinkA": 0,
                        "shrinkB": 0},
        )  # fmt: skip
    if flat:
        some = f"no difference at n = {', '.join(map(str, flat))}"
        ax.annotate(
            some if ends else "no difference at any of these widths",
            (0.012, 0.97 if ends else 0.6), xycoords="axes fraction", ha="left", va="top",
            fontsize=11, color="#555555",
        )  # fmt: skip
    ax.grid(axis="x", visible=False)
    ax.set(
        xlabel="threshold: canonical from this width up"
        + (" (* above every width: never)" if candidates[-1] > gates.width.max() else ""),
        ylabel=f"tok/s against never\ncanonical, %, {gates.iloc[0].time}",
    )
    ax.set_title("Throughput over the threshold (labels: always against never)")
    footnote(ax, stamp(gates))
    return ax


def draw_probability(
    table: pd.DataFrame,
    recommended: int | None,
    widths: Sequence[int],
    ax: Axes,
    stamp_text: str = "",
    redrawn: str = "seeds, spread, machine",
) -> Axes:
    """How sure the recommendation is: probability of every threshold, and its mean gain.

    Parameters
    ----------
    table : DataFrame
        ``min_width, gain_pct, gain_low, gain_high, probability``, as `recommend` returns.
    recommended : int or None
        Threshold to mark.
    widths : sequence of int
        That the gain is a mean over; a threshold above them all means never.
    ax : Axes
    stamp_text : str
    redrawn : str
        What the probability is over, for the title.
    """
    table = table.sort_values("min_width").reset_index(drop=True)
    x = np.arange(len(table))
    chosen = table.min_width == recommended
    ax.bar(
        x, 100 * table.probability, 0.6, color=np.where(chosen, "#F0E442", "#d5d5d5"),
        edgecolor="black", lw=np.where(chosen, 2.5, 1), hatch=["//" if c else "" for c in chosen],
    )  # fmt: skip
    for i, p in enumerate(table.probability):
        ax.annotate(
            share_text(p), (i, 100 * p), xytext=(0, 4), textcoords="offset points", ha="center",
            fontsize=11, fontweight="bold" if chosen[i] else "normal",
        )  # fmt: skip
    for at in np.flatnonzero(chosen):
        tallest = 100 * table.probability[max(at - 1, 0) : at + 2].max()  # it is wider than its bar
        ax.annotate(
            "recommended", (at, tallest), xytext=(0, 20), ha="center",
            textcoords="offset points", fontsize=11, fontweight="bold",
        )  # fmt: skip
    names = [
        f"{name}\n{gain:+z.1f} %" for name, gain in
        zip(_threshold_names(table.min_width, max(widths)), table.gain_pct, strict=True)
    ]  # fmt: skip
    ax.set_xticks(x, names)
    ax.set_ylim(0, 120)
    ax.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
    ax.grid(axis="x", visible=False)
    ax.set(
        xlabel="threshold"
        + (" (* above every width: never)" if table.min_width.max() > max(widths) else "")
        + ", and its gain in tok/s against never canonical:\n"
        f"mean over {_widths_text(widths)}, each counted the same",
        ylabel="share of redraws in which it is\nbest or level with the best, %",
    )
    ax.set_title(f"How sure within what is redrawn: {redrawn}")
    footnote(ax, stamp_text, line=1)
    return ax


def draw_key_counts(
    spaces: pd.DataFrame,
    capacity: int,
    ax: Axes,
    *,
    measured: pd.DataFrame | None = None,
    setting: str = "",
) -> Axes:
    """Reachable keys by width, both arms, with the cache and the published counts.

    The lines break where D-Cut stops: the widths between are not on them.

    Parameters
    ----------
    spaces : DataFrame
        ``width, arrangement_keys, canonical_keys``.
    capacity : int
    ax : Axes
    measured : DataFrame, optional
        ``width, low, high``: published counts.
    setting : str
        Ratio and drafts, said under the widths.
    """
    spaces = spaces.sort_values("width").reset_index(drop=True)
    x = np.arange(len(spaces))
    pruned = int((spaces.width <= DCUT_WIDTH_CAP).sum())
    broken = 0 < pruned < len(spaces)
    for counts, label, look in (
        (spaces.arrangement_keys, "arrangement (counted)", ARRANGEMENT),
        (spaces.canonical_keys, "canonical (counted)", CANONICAL),
    ):
        at_x, y = x.astype(float), counts.to_numpy(float)
        if broken:
            at_x, y = np.insert(at_x, pruned, pruned - 0.5), np.insert(y, pruned, np.nan)
        ax.plot(at_x, y, label=label, **look)
    if broken:
        ax.axvline(pruned - 0.5, color="#777777", ls=":", lw=1.6)
        ax.annotate(
            f"D-Cut off\nabove {DCUT_WIDTH_CAP}", (pruned - 0.5, 0.985),
            xycoords=("data", "axes fraction"), xytext=(5, 0), textcoords="offset points",
            va="top", fontsize=11, color="#555555",
        )  # fmt: skip
    if measured is not None:
        at = {w: i for i, w in enumerate(spaces.width)}
        known = measured[measured.width.isin(at)]
        middle = (known.low + known.high) / 2
        ax.errorbar(
            [at[w] + 0.18 for w in known.width], middle,
            yerr=[middle - known.low, known.high - middle], fmt="^", mfc="white", mec="#CC79A7",
            mew=2, color="#CC79A7", capsize=5, label="published, measured",
        )  # fmt: skip
    ax.axhline(capacity, color="#D55E00", ls="--", lw=1.8, label=f"cache: {capacity} graphs")
    ax.set_yscale("log")
    for i, (a, c) in enumerate(zip(spaces.arrangement_keys, spaces.canonical_keys, strict=True)):
        if a != c:
            ax.annotate(
                f"{a:,}", (i, float(a)), xytext=(0, 9), textcoords="offset points", ha="center",
                fontsize=11,
            )  # fmt: skip
        ax.annotate(
            f"{c:,}", (i, float(c)), xytext=(0, -9), textcoords="offset points", ha="center",
            va="top", fontsize=11, color=CANONICAL["color"],
        )  # fmt: skip
    top = float(max(spaces.arrangement_keys.max(), capacity))
    ax.set_ylim(0.45, top * 4)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 1 else ""))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xticks(x, [str(w) for w in spaces.width])
    ax.grid(axis="x", visible=False)
    ax.set(
        xlabel="batch width n" + (f"\n{setting}" if setting else ""), ylabel="reachable keys (log)"
    )
    ax.set_title("Reachable keys by batch width")
    ax.legend(loc="upper left")
    return ax


def key_space_figure(
    spaces: pd.DataFrame,
    capacity: int,
    measured: pd.DataFrame | None = None,
    setting: str = "",
) -> Figure:
    """Return `draw_key_counts` as a figure of its own."""
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(11, 6.2), layout="constrained")
        draw_key_counts(spaces, capacity, figure.subplots(), measured=measured, setting=setting)
    return figure


def width_gate_figure(result: WidthGate, published: pd.DataFrame | None = None) -> Figure:
    """Return the main figure: collapse, difference, thresholds, probability.

    `published` (``canonical_ab.csv``) is drawn only for the ratio, drafts and cache that it was
    measured with.
    """
    config = result.config
    same = (
        snap_ratio(config.dcut_ratio) == DEFAULT_RATIO
        and config.graph_capacity == VERIFY_BATCHED_GRAPH_CAP
        and all(
            DraftLadder.parse(config.drafts).drafts(w) == DEFAULT_LADDER.drafts(w)
            for w in config.widths
        )
    )
    if not same:
        published = None
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(17, 11.2))
        axes = figure.subplots(2, 2)
        draw_collapse(result.arms, result.config.graph_capacity, axes[0, 0])
        draw_difference(result.differences, axes[0, 1], published=published, arms=result.arms)
        best = result.recommendation
        marked = None if best.indifferent else best.min_width
        draw_thresholds(result.gates, marked, axes[1, 0])
        measured = result.gates.time.iloc[0] == "measured"
        draw_probability(
            best.table, marked, result.config.widths, axes[1, 1], stamp(result.gates),
            "seeds" if measured else "seeds, spread, machine",
        )  # fmt: skip
        figure.suptitle(_headline(result), x=0.012, ha="left", fontsize=18, fontweight="bold")
        figure.subplots_adjust(
            left=0.065, right=0.985, top=0.91, bottom=0.115, wspace=0.19, hspace=0.42
        )
    return figure


def _headline(result: WidthGate) -> str:
    best = result.recommendation
    if best.indifferent:
        return "No difference: both arms are the same run at these widths"
    sure = share_text(best.probability)
    time = result.gates.time.iloc[0]
    if best.never:
        return f"Keep canonical off at these widths (best in {sure} of redraws, {time})"
    if best.gain_pct < 0:
        return f"No threshold that was tried pays: never canonical is better ({time})"
    return (
        f"Canonical on from width {best.min_width}: best in {sure} of redraws, "
        f"{best.gain_pct:+z.1f} % tok/s (mean over {_widths_text(result.config.widths)}, {time})"
    )


def png(figure: Figure) -> bytes:
    """Return the figure as PNG bytes, at screen resolution (for a notebook's output)."""
    buffer = io.BytesIO()
    with matplotlib.style.context(STYLE):
        figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def save_figure(
    figure: Figure, folder: str | Path, name: str, tables: Mapping[str, pd.DataFrame]
) -> list[Path]:
    """Write ``name.svg``, ``name.png`` and one ``name.<table>.csv`` for every table behind it.

    Raises
    ------
    ValueError
        When the name is not made of letters, digits, ``-`` and ``_``.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError(f"a figure's name must be letters, digits, - and _, got {name!r}")
    contents: dict[str, str | bytes] = {}
    with matplotlib.style.context(STYLE):
        for kind, extra in (("svg", {"metadata": {"Date": None}}), ("png", {})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, **_as_any(extra))
            contents[f"{name}.{kind}"] = buffer.getvalue()
    for table, frame in tables.items():
        contents[f"{name}.{table}.csv"] = frame.to_csv(index=False)
    return write_files(folder, contents)


def _as_any(options: Mapping[str, Any]) -> dict[str, Any]:
    return dict(options)
