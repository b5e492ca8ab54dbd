"""Figures of real files: a function draws tables that it is given. No arithmetic of the study."""

from __future__ import annotations

import textwrap
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from verifylab.plots import ARRANGEMENT, CANONICAL, STYLE, draw_key_counts
from verifylab.plots_replay import draw_caches, draw_gates, draw_miss_ratio, draw_policies
from verifylab.published import table
from verifylab.trace_file import plain
from verifylab.trace_report import Report

__all__ = ["report_figure"]

_FOUND: dict[str, Any] = {"marker": "^", "ms": 10, "mfc": "white", "mec": "#CC79A7", "mew": 2.2,
                          "ls": "none"}  # fmt: skip
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#999999"
#: Bars, or labels of bars, that fit a panel.
_BARS = 12
_OTHERS = "others"
#: Rounds of the published ladder that are drawn beside a bench file.
_ROUNDS = ("r7", "r11", "vllm_no_spec")


def draw_keys_found(keys: pd.DataFrame, spaces: pd.DataFrame, capacity: int, ax: Axes) -> Axes:
    """Keys found by width, over the exact counts of one slot set.

    `keys` as `answers_keys.keys_per_width`, `spaces` with ``width, dcut_ratio, drafts,
    arrangement_keys, canonical_keys``.
    """
    draw_key_counts(spaces, capacity, ax)
    at = {w: i for i, w in enumerate(sorted(spaces.width))}
    ax.plot([at[n] + 0.12 for n in keys.n], keys["keys"], label="found in this file", **_FOUND)
    ax.set_ylim(top=max(ax.get_ylim()[1], 4 * keys["keys"].max()))
    ax.legend(loc="best")
    drafts = " or ".join(map(str, spaces.drafts.unique()))
    setting = f"counted for D-Cut ratio {spaces.dcut_ratio[0]:g}, {drafts} drafts"
    ax.set_xlabel(f"sequences of a dispatch, n\n{setting}")
    ax.set_title("Keys found, and what one slot set gives")
    if len(at) == 1:
        ax.set_xlim(-0.8, 0.8)
    return ax


def draw_bounds(bounds: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the captures that each policy would have made, as intervals, with those logged."""
    shown = bounds.dropna(subset=["captures_low", "captures_high"]).iloc[::-1]
    for i, row in enumerate(shown.itertuples()):
        look = CANONICAL if row.policy == "canonical" else ARRANGEMENT
        ax.plot([row.captures_low, row.captures_high], [i, i], color="black", lw=3)
        for end in {row.captures_low, row.captures_high}:
            ax.plot(end, i, **look)
        ax.plot([row.captures_logged] * 2, [i - 0.5, i + 0.5], color=_ORANGE, lw=1.6, zorder=1,
                label=None if i else "logged")  # fmt: skip
    names = [f"{r.policy}{f' ({r.engine})' if r.engine else ''}" for r in shown.itertuples()]
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(-0.6, max(len(names), 1) - 0.3)
    ax.set_xlim(left=-0.03 * ax.get_xlim()[1])
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="captures on the logged steps: between the ends")
    ax.set_title("What the log bounds (orange: logged)")
    if not len(shown):
        ax.annotate("nothing can be said", (0.5, 0.5), xycoords="axes fraction", ha="center")
    return ax


def draw_windows(windows: pd.DataFrame, ax: Axes) -> Axes:
    """Capture fraction of each window of steps that says both."""
    shown = windows[windows.counted]
    steps = shown.steps.astype(float).cumsum()
    ax.stairs(shown.capture_fraction, np.append(0, steps), color=_BLUE, lw=2, baseline=None)
    ax.set_ylim(0, 1.02)
    ax.set_xlim(left=0)
    ax.set(xlabel="steps", ylabel="share of steps that captured")
    left = len(windows) - len(shown)
    ax.set_title("Captures as logged" + (f" (left out: {left:,})" if left else ""))
    return ax


def draw_graph_api(api: pd.DataFrame, ax: Axes) -> Axes:
    """Host time by kind of graph call."""
    api = api.iloc[::-1]
    ax.barh(np.arange(len(api)), api.total_ms, color=_BLUE, height=0.5)
    names = [
        f"{r.kind}\n{r.calls:,} x {r.mean_us:,.0f} us\n{r.wall_pct:.1f} % of the wall"
        for r in api.itertuples()
    ]
    ax.set_yticks(range(len(api)), names)
    ax.set_ylim(-0.6, max(len(api), 1) - 0.4)
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="host time, ms (measured)")
    ax.set_title("Graph calls")
    return ax


def draw_steps(steps: pd.DataFrame, ax: Axes) -> Axes:
    """Duration of each step, and its time in graph calls."""
    x = np.arange(len(steps))
    ax.bar(x, steps.dur_us / 1e3, 0.7, color="#cccccc", edgecolor="black", lw=0.6, label="step")
    ax.bar(x, steps.graph_ms, 0.7, color=_ORANGE, hatch="//", edgecolor="white",
           label="making and ending graphs")  # fmt: skip
    ax.grid(axis="x", visible=False)
    ax.margins(y=0.22)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="step", ylabel="ms (measured)")
    ax.set_title("Steps of the profile")
    ax.legend(loc="upper right", ncols=2)
    return ax


def draw_padding(padding: pd.DataFrame, ax: Axes) -> Axes:
    """Rows run by graph size: tokens and padding; the smallest of many sizes are one bar."""
    padding = _most(padding)
    names = [
        f"others\n({r.padded})" if r.runtime_mode == _OTHERS else f"{r.padded}\n{r.runtime_mode}"
        for r in padding.itertuples()
    ]
    x = np.arange(len(padding))
    ax.bar(x, padding.tokens, 0.6, color=_BLUE, label="tokens")
    ax.bar(x, padding.padding, 0.6, bottom=padding.tokens, color=_ORANGE, hatch="//",
           edgecolor="white", label="padding")  # fmt: skip
    for i, row in enumerate(padding.itertuples()):
        ax.annotate(f"{row.waste_pct:.1f} %", (i, row.tokens + row.padding), xytext=(0, 5),
                    textcoords="offset points", ha="center",
                    fontsize=9 if len(x) > 8 else None)  # fmt: skip
    ax.set_xticks(x, names)
    run = padding.tokens.astype(float) + padding.padding.astype(float)
    ax.set_ylim(0, 1.15 * max(run.max(), 1) if len(run) else 1)
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="padded tokens and runtime mode", ylabel="token rows run (measured)")
    ax.set_title("Padding waste by graph size")
    ax.legend(loc="best")
    return ax


def _most(padding: pd.DataFrame) -> pd.DataFrame:
    """Return the `_BARS` rows of most token rows, in their order, and the others as one."""
    if len(padding) <= _BARS + 1:
        return padding
    run = padding.tokens.astype(float) + padding.padding.astype(float)
    first = np.argsort(-run.to_numpy(), kind="stable")[:_BARS]
    top, rest = padding.iloc[np.sort(first)], padding.drop(index=padding.index[first])
    sums = {name: rest[name].sum() for name in ("steps", "tokens", "padding")}
    total = sums["tokens"] + sums["padding"]
    others = {"runtime_mode": _OTHERS, "padded": len(rest), **sums,
              "waste_pct": 100 * sums["padding"] / max(total, 1)}  # fmt: skip
    return pd.concat([top, pd.DataFrame([others])], ignore_index=True)


def draw_sizes(sizes: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the steps of each captured size, all engines together; unused ones are marked."""
    engines = sizes.engine.nunique()
    by_size = sizes.groupby("size")
    steps, never = by_size.steps.sum(), by_size.never_used.all()
    x = np.arange(len(steps))
    ax.bar(x, steps.astype(float), 0.6, color=_BLUE)
    unused = np.flatnonzero(never)
    ax.plot(unused, np.full(len(unused), 0.035), ls="none", marker="x",
            ms=10 if len(x) <= _BARS else 5, mew=2.5 if len(x) <= _BARS else 1.5,
            color=_ORANGE, label="never used", transform=ax.get_xaxis_transform())  # fmt: skip
    ticks = x[:: -(-len(x) // _BARS) or 1]
    ax.set_xticks(ticks, steps.index[ticks].astype(str))
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="captured size, tokens", ylabel="steps (measured)")
    ax.set_title("Captured sizes, used and not" + (f": {engines} engines" * (engines > 1)))
    ax.margins(y=0.2)
    if len(unused):
        ax.legend(loc="upper right")
    return ax


def draw_throughput(found: pd.DataFrame, name: str, ax: Axes) -> Axes:
    """tok/s by concurrency with its spread, beside published rounds."""
    published = table("ladder_rounds").set_index("round")
    columns = [c for c in published.columns if c[0] == "C" and c[1:].isdigit()]
    widths = [int(c[1:]) for c in columns]
    for row, style in zip(_ROUNDS, ("-", "--", ":"), strict=True):
        ax.plot(widths, published.loc[row, columns].astype(float), color=_GREY, ls=style, lw=1.6,
                label=f"published, {row}")  # fmt: skip
    ax.errorbar(
        found.concurrency, found.tok_s_mean,
        yerr=[found.tok_s_mean - found.tok_s_min, found.tok_s_max - found.tok_s_mean],
        fmt="o", ms=8, color=_BLUE, capsize=5, elinewidth=2, label=f"{name}: mean, min to max",
    )  # fmt: skip
    short = found[found.short_tokens > 0]
    ax.plot(short.concurrency, short.tok_s_mean, ls="none", marker="s", ms=14, mfc="none",
            mec=_ORANGE, mew=2, label="fewer tokens than asked for")  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.set_xticks(widths, [str(w) for w in widths])
    ax.set_ylim(bottom=0)
    ax.set(xlabel="requests at once (log)", ylabel="tok/s, prefill included (measured)")
    ax.set_title("Throughput by concurrency")
    ax.legend(loc="upper left")
    return ax


def report_figure(report: Report) -> Figure:
    """Return the figure of a report: one to three panels, as the source allows."""
    tables, capacity = report.tables, report.config.graph_capacity
    machine = f"modelled | {report.config.machine}"
    panels: list[Any]
    if report.trace.format == "atlas_log":
        panels = [
            lambda ax: draw_keys_found(tables["keys"], tables["spaces"], capacity, ax),
            lambda ax: draw_bounds(tables["bounds"], ax),
        ]
        if "windows" in tables:
            panels.insert(1, lambda ax: draw_windows(tables["windows"], ax))
    elif report.trace.format == "step_trace":
        panels = [
            lambda ax: draw_keys_found(tables["keys"], tables["spaces"], capacity, ax),
            lambda ax: draw_miss_ratio(tables["curves"], capacity, ax),
            lambda ax: draw_policies(tables["replay"], machine, ax),
            lambda ax: draw_caches(tables["caches"], machine, ax),
        ]
        if tables["gates"].gain_low.notna().any():
            panels.insert(2, lambda ax: draw_gates(tables["gates"], machine, ax))
    elif report.trace.format == "vllm_log":
        panels = [
            lambda ax: draw_padding(tables["padding"], ax),
            lambda ax: draw_sizes(tables["sizes"], ax),
        ]
    elif "throughput" in tables:
        panels = [lambda ax: draw_throughput(tables["throughput"], plain(report.trace.source), ax)]
    else:
        panels = [
            lambda ax: draw_graph_api(tables["graph_api"], ax),
            lambda ax: draw_steps(tables["steps"], ax),
        ]
    if "keys" in tables and tables["keys"].empty:
        panels = panels[1:]
    # Policies and caches have a row of their own, under what leads to them.
    below = 2 if report.trace.format == "step_trace" and len(panels) > 3 else 0
    above = len(panels) - below
    with matplotlib.style.context(STYLE):
        width = {1: 11.0, 2: 15.0, 3: 19.0}[above]
        figure = Figure(figsize=(width, 13.0 if below else 5.6), layout="constrained")
        rows: Any = figure.subfigures(2, 1, height_ratios=(5, 7)) if below else [figure]
        axes = [*np.atleast_1d(rows[0].subplots(1, above))]
        if below:
            axes += [*rows[1].subplots(1, below)]
        for draw, ax in zip(panels, axes, strict=True):
            draw(ax)
        title = textwrap.fill(
            f"{plain(report.trace.source)}: {report.sentences[0]}", int(width * 7)
        )
        figure.suptitle(title, x=0.008, ha="left", fontsize=14, fontweight="bold")
    return figure
