"""Figures of a draft trace: calibration, autocorrelation, spread between sequences.

As in `verifylab.plots`: a function takes a table and an axes, draws what it is given and returns
the axes. The tables come from `draft_calibration` and `draft_sequences`.
"""

from __future__ import annotations

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from verifylab.plots import STYLE, footnote

__all__ = ["draft_figure", "draw_autocorrelation", "draw_calibration", "draw_sequence_spread"]

_DEPTHS = {1: ("#000000", "o"), 2: ("#0072B2", "s"), 3: ("#D55E00", "^")}
_SERIES = {
    "confidence": ("#0072B2", "s", "confidence"),
    "accepted": ("#000000", "o", "accepted"),
    "residual": ("#D55E00", "^", "accepted less its\nrecalibrated confidence"),
}


def draw_calibration(curve: pd.DataFrame, ax: Axes, *, stamp_text: str = "") -> Axes:
    """Reliability of the drafts' confidences, a line a depth.

    Parameters
    ----------
    curve : DataFrame
        ``depth, n, predicted, observed, low, high``, as `draft_calibration.calibration` returns.
    ax : Axes
    stamp_text : str
        Where the numbers come from.
    """
    ax.plot([0, 1], [0, 1], color="#777777", ls="--", lw=1.6, label="says what it means")
    for depth, rows in curve.groupby("depth"):
        colour, marker = _DEPTHS[depth]
        rows = rows.sort_values("predicted")
        ax.errorbar(
            rows.predicted, rows.observed,
            yerr=[rows.observed - rows.low, rows.high - rows.observed], color=colour,
            marker=marker, ms=7, capsize=0, elinewidth=1.5,
            label=f"draft {depth} (n = {rows.n.sum():,})",
        )  # fmt: skip
    ax.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="confidence that the head reports")
    ax.set_ylabel("accepted, of those reached")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    ax.set_title("Calibration of the drafts")
    ax.legend(loc="lower right")
    footnote(ax, stamp_text)
    return ax


def draw_autocorrelation(table: pd.DataFrame, ax: Axes, *, stamp_text: str = "") -> Axes:
    """How alike neighbouring positions are, by the tokens between them.

    Parameters
    ----------
    table : DataFrame
        ``series, lag, correlation``, as `draft_sequences.autocorrelation` returns.
    ax : Axes
    stamp_text : str
    """
    for name, (colour, marker, label) in _SERIES.items():
        rows = table[table.series == name].sort_values("lag")
        if len(rows):
            ax.plot(
                rows.lag, rows.correlation, color=colour, marker=marker, ms=5, lw=1.6, label=label
            )
    ax.axhline(0, color="black", lw=1)
    ax.set_xlim(0, table.lag.max() + 1)
    # Noise around zero must look like noise, and the legend stands above the points.
    low, high = min(table.correlation.min(), -0.02), max(table.correlation.max(), 0.1)
    ax.set_ylim(low - 0.1 * (high - low), high + 0.45 * (high - low))
    ax.set(xlabel="tokens between two positions of a sequence", ylabel="correlation, draft 1")
    ax.set_title("Neighbouring positions")
    ax.legend(loc="upper right")
    footnote(ax, stamp_text)
    return ax


def draw_sequence_spread(table: pd.DataFrame, ax: Axes, *, stamp_text: str = "") -> Axes:
    """Show the acceptance of every sequence, by rank, against what chance alone would spread.

    Parameters
    ----------
    table : DataFrame
        ``rank, acceptance, chance, n``, as `draft_sequences.sequence_spread` returns.
    ax : Axes
    stamp_text : str
    """
    ax.plot(table["rank"], table.chance, color="#777777", ls="--", lw=2, label="by chance alone")
    ax.plot(
        table["rank"], table.acceptance, color="#0072B2", lw=2.6,
        label=f"{len(table)} sequences of {_range(table.n)} positions",
    )  # fmt: skip
    low = min(table.acceptance.min(), table.chance.min())
    high = max(table.acceptance.max(), table.chance.max())
    room = max(high - low, 0.02)
    ax.set(xlim=(0, 1), ylim=(low - 0.08 * room, high + 0.25 * room))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    ax.set(xlabel="sequences, by rising acceptance", ylabel="draft 1 accepted")
    ax.set_title("Spread between sequences")
    ax.legend(loc="upper left")
    footnote(ax, stamp_text)
    return ax


def _range(n: pd.Series) -> str:
    low, high = int(n.min()), int(n.max())
    return f"{low}" if low == high else f"{low} to {high}"


def draft_figure(
    curve: pd.DataFrame, neighbours: pd.DataFrame, sequences: pd.DataFrame, stamp_text: str = ""
) -> Figure:
    """Return the three panels side by side; `stamp_text` stands below the last."""
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(17, 5.6))
        axes: np.ndarray = figure.subplots(1, 3)
        draw_calibration(curve, axes[0])
        draw_autocorrelation(neighbours, axes[1])
        draw_sequence_spread(sequences, axes[2], stamp_text=stamp_text)
        figure.subplots_adjust(left=0.05, right=0.978, top=0.91, bottom=0.21, wspace=0.22)
    return figure
