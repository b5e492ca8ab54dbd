"""Figures of a replayed step trace: the gate, the policies, the caches, the miss-ratio curve."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from verifylab.plots import ARRANGEMENT, CANONICAL, footnote
from verifylab.plots_caches import BLUE, GREEN, GREY, OPAQUE, RED, capacity_axis, mark_cache

__all__ = ["draw_caches", "draw_gates", "draw_miss_ratio", "draw_policies"]

#: Colour and line of the policies whose miss-ratio curves and caches are drawn.
LOOKS = {
    "arrangement": ("#000000", "-", 2.2),
    "canonical": (BLUE, "-", 4.5),
    "indirect": (GREEN, "--", 2.0),
}
_SHAPES = {"arrangement": ARRANGEMENT, "canonical": CANONICAL}


def draw_miss_ratio(curves: pd.DataFrame, capacity: int, ax: Axes) -> Axes:
    """Miss ratio of an LRU cache over its capacity, for each policy.

    `curves` as `MissCurve.frame`, with ``policy``.
    """
    largest = max(int(curves.capacity.max()) if len(curves) else 1, capacity)
    for name, (colour, line, thick) in LOOKS.items():
        curve = curves[curves.policy == name]
        if len(curve):
            x, y = curve.capacity.to_numpy(), curve.miss_ratio.to_numpy()
            ax.plot(np.append(x, largest), np.append(y, y[-1]), color=colour, ls=line, lw=thick,
                    label=name)  # fmt: skip
    capacity_axis(ax, largest)
    mark_cache(ax, capacity, 0.9)
    ax.set_ylim(0, 1.02)
    ax.set_ylabel("share of dispatches that capture")
    ax.set_title("LRU miss-ratio curve of the logged steps")
    if len(curves):
        ax.legend(loc="best", **OPAQUE)
    return ax


def draw_gates(gates: pd.DataFrame, stamp: str, ax: Axes) -> Axes:
    """Gain of each threshold over never canonical, as an interval."""
    x = np.arange(len(gates))
    middle = (gates.gain_low + gates.gain_high) / 2
    ax.errorbar(x, middle, yerr=[middle - gates.gain_low, gates.gain_high - middle], fmt="none",
                color="black", capsize=7, elinewidth=2.5)  # fmt: skip
    exact = gates.gain_high - gates.gain_low < 0.05
    ax.plot(x[exact], middle[exact], "D", color="black")
    ax.axhline(0, color="black", lw=1)
    ax.set_xticks(x, gates.min_width.astype(str))
    ax.set_xlim(-0.6, len(gates) - 0.4)
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="threshold: canonical from this width up",
           ylabel="% tok/s against never canonical")  # fmt: skip
    ax.set_title("The gate on these steps, and what is open")
    footnote(ax, stamp)
    return ax


def draw_policies(table: pd.DataFrame, stamp: str, ax: Axes) -> Axes:
    """Throughput of every policy as an interval, best lower end first; ms a step without tokens.

    `table` as `replay_tables.replay_table`; its first row is the one that a line marks.
    """
    with_tokens = bool(table.tok_s_low.notna().any())
    low, high = ("tok_s_low", "tok_s_high") if with_tokens else ("step_ms", "step_ms")
    order = table.sort_values(low, ascending=with_tokens, kind="stable")
    _intervals(order, low, high, order.policy.tolist(), ax)
    first = table.iloc[0]
    ax.axvline(first[low], color=RED, ls="--", lw=1.6, zorder=1)
    notes = [_what(row) for row in order.itertuples()]
    span = ax.get_xlim()
    ax.set_xlim(span[0], span[1] + 0.42 * (span[1] - span[0]))
    for i, note in enumerate(notes):
        ax.annotate(note, (0.995, i), xycoords=("axes fraction", "data"), ha="right", va="center",
                    fontsize=10, color="#444444")  # fmt: skip
    ax.set_xlabel("tok/s (a bar: acceptance not seen)" if with_tokens else "ms a step")
    ax.set_title(f"Every key policy on these steps, {first.cache} (dashed: {first.policy})")
    footnote(ax, stamp)
    return ax


def _what(row: object) -> str:
    """Write what a policy's cache did, of 100 dispatches."""
    total = sum(getattr(row, n) for n in ("hits", "captures", "updates", "borrowed", "eager"))
    parts = [
        f"{_share(getattr(row, name), total)} {word}"
        for name, word in (("captures", "captures"), ("updates", "updates"),
                           ("borrowed", "borrowed"), ("eager", "eager"))
        if getattr(row, name)
    ]  # fmt: skip
    return f"{', '.join(parts) or 'all hits'} in 100"


def _share(part: int, total: int) -> str:
    """Write a part above 0 in percent."""
    return f"{100 * part / total:.0f}" if 200 * part >= total else "<1"


def draw_caches(caches: pd.DataFrame, stamp: str, ax: Axes) -> Axes:
    """Throughput (ms a step without tokens) of every cache under the policies shown."""
    with_tokens = bool(caches.tok_s_low.notna().any())
    low, high = ("tok_s_low", "tok_s_high") if with_tokens else ("step_ms", "step_ms")
    names = caches.cache.drop_duplicates().tolist()[::-1]
    for k, (name, (colour, *_)) in enumerate(LOOKS.items()):
        mine = caches[caches.policy == name].set_index("cache").loc[names]
        look = _SHAPES.get(name, {"marker": "^", "mfc": "white", "mec": colour, "color": colour})
        y = np.arange(len(names)) + 0.22 * (1 - k)
        ax.hlines(y, mine[low], mine[high], color=colour, lw=3, zorder=2)
        for end, label in ((low, name), (high, None)):
            ax.plot(mine[end], y, ls="none", ms=8, label=label, zorder=3, **look)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.grid(axis="y", visible=False)
    ax.margins(x=0.08)
    ax.set_xlabel("tok/s (a bar: acceptance not seen)" if with_tokens else "ms a step")
    ax.set_title("Caches on these steps")
    ax.legend(loc="upper center", bbox_to_anchor=(0.4, -0.12), ncols=3)
    footnote(ax, stamp)
    return ax


def _intervals(rows: pd.DataFrame, low: str, high: str, names: list[str], ax: Axes) -> None:
    y = np.arange(len(rows))
    exact = (rows[high] - rows[low] < 1e-9).to_numpy()
    ax.hlines(y[~exact], rows[low][~exact], rows[high][~exact], color=GREY, lw=7, zorder=2)
    for row, at, point in zip(rows.itertuples(), y, exact, strict=True):
        look = _SHAPES.get(str(row.policy), {"marker": "D", "mfc": GREY, "mec": GREY})
        ends = [getattr(row, low)] if point else [getattr(row, low), getattr(row, high)]
        ax.plot(ends, [at] * len(ends), ls="none", ms=7, zorder=3, **{**look, "color": None})
    ax.set_yticks(y, names)
    ax.set_ylim(-0.7, len(rows) - 0.3)
    ax.grid(axis="y", visible=False)
