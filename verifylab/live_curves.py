"""What the explorer shows of throughput, as HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from verifylab.experiment import UNPRUNED, in_words
from verifylab.live_views import (
    BAND,
    BLUE,
    DIM,
    GREEN,
    ORANGE,
    PURPLE,
    html_table,
    side_by_side,
)
from verifylab.stats import with_interval
from verifylab.svg import FONT, INK, Chart, legend

if TYPE_CHECKING:
    import pandas as pd

    from verifylab.live_throughput import Curves

__all__ = ["throughput_view"]

#: Colour and words of each cause of a difference.
CAUSES = {
    "tokens": (ORANGE, "tokens"),
    "captures": (BLUE, "captures"),
    "launches": ("#56B4E9", "launches"),
    "work": ("#999999", "more steps"),
}


def throughput_view(
    shown: Curves,
    threshold: int,
    graph_ms: float,
    machine: str,
    published: pd.DataFrame,
    stored: pd.DataFrame,
) -> str:
    """Show the recommended gate, what the policy beside the arms gains, the curves and the split.

    Parameters
    ----------
    shown : Curves
    threshold : int
    graph_ms : float
    machine : str
        Name of the profile.
    published, stored : DataFrame
        ``width, delta_pct`` to lay over; may be empty. `stored` also has ``label``, and ``other``:
        at which other settings it was run.
    """
    runs = shown.runs
    kind = "full run" if runs.full else "quick look"
    stamp = (
        f"modelled on {machine}, {graph_ms:.1f} ms a graph, {kind}: {runs.seeds} seeds x "
        f"{runs.steps} steps; 95 % intervals of curves and table over seeds"
    )
    said = "".join(
        f'<br><span class="{name}"{look}>{escape(text)}</span>'
        for name, look, text in (
            ("vl-instead", "", _instead(shown)),
            ("vl-yours", "", _yours(shown, threshold)),
            ("vl-stored", "", _stored(stored)),
            ("vl-stamp", f' style="color:{DIM}"', stamp),
        )
        if text
    )
    sentence = (
        f'<p style="{FONT};font-size:14px;margin:6px 0"><b class="vl-gate">'
        f"{escape(_recommended(shown))}</b>{said}</p>"
    )
    return (
        sentence
        + side_by_side(_gains(shown, threshold, published, stored), _split(shown))
        + _rates(shown)
    )


def _recommended(shown: Curves) -> str:
    said = shown.recommendation.sentence()
    if shown.recommendation.indifferent:
        return said
    look = "" if shown.runs.full else " (quick look)"
    return f"Recommended{look}: {said[0].lower()}{said[1:]}"


def _instead(shown: Curves) -> str:
    name = shown.runs.policy
    what = {
        "indirect": "an indirection table (indirect)",
        UNPRUNED: "D-Cut off (unpruned: every draft verified)",
    }.get(name, name)
    gains = ", ".join(
        f"{_gain(row, ' %')} at {row.width}" for row in shown.over_better.itertuples()
    )
    return f"Instead, {what} would gain over the better arm (95 % over seeds alone): {gains}."


def _stored(stored: pd.DataFrame) -> str:
    other = stored.other.iloc[0] if len(stored) else ""
    return f"The stored run is not at these settings: {other}." if other else ""


def _yours(shown: Curves, threshold: int) -> str:
    if not shown.gate.canonical.any():
        return f"Your gate (the slider): at {threshold}, closed at all of these widths."
    return f"Your gate (the slider): at {threshold}, shaded where it is open."


def _gain(row: Any, unit: str = "") -> str:
    return with_interval(row.delta_pct, row.delta_low, row.delta_high, unit)


def _gains(shown: Curves, threshold: int, published: pd.DataFrame, stored: pd.DataFrame) -> str:
    widths = [int(w) for w in shown.gate.width]
    at = {w: i for i, w in enumerate(widths)}
    canonical, other = shown.differences, shown.policy_differences
    over = [published[published.width.isin(at)], stored[stored.width.isin(at)]]
    values = [canonical.delta_low, canonical.delta_high, other.delta_low, other.delta_high]
    reach = np.concatenate([np.zeros(1), *values, *(o.delta_pct for o in over)])
    room = 0.08 * (reach.max() - reach.min() + 1)
    chart = Chart(
        [str(w) for w in widths], reach.min() - room, reach.max() + room,
        title="Against arrangement, by width", x_label="batch width n (sequences)",
        y_label="% tok/s, modelled",
    )  # fmt: skip
    gated = [i for i, w in enumerate(widths) if w >= threshold]
    if gated:
        chart.band(gated[0], gated[-1], BAND)
    chart.level(0, INK, dash="")
    chart.line(list(canonical.delta_pct), BLUE)
    chart.line(list(other.delta_pct), GREEN, dash="6 3")
    for table, colour, mark in ((other, GREEN, "v"), (canonical, BLUE, "s")):
        chart.marks(
            range(len(widths)), list(table.delta_pct), colour, mark,
            low=list(table.delta_low), high=list(table.delta_high),
        )  # fmt: skip
    items = [
        ("s", BLUE, False, "canonical"), ("v", GREEN, False, in_words(shown.runs.policy)),
    ]  # fmt: skip
    if gated:
        items.append(("band", BAND, False, f"your gate, open: n of {threshold} and up"))
    for table, colour, mark, name in (
        (over[0], PURPLE, "^", "published A/B (measured)"),
        (over[1], DIM, "D", f"stored {stored.label.iloc[0]}" if len(stored) else ""),
    ):
        if len(table):
            spots = [at[int(w)] + (0.22 if mark == "^" else -0.22) for w in table.width]
            chart.marks(spots, list(table.delta_pct), colour, mark, hollow=True)
            items.append((mark, colour, True, name))
        elif table is over[1] and name:
            items.append((mark, colour, True, f"{name}: none of these widths"))
    return chart.render("Gain over arrangement by width") + legend(items)


def _split(shown: Curves) -> str:
    table = shown.differences
    parts = {c: table[f"{c}_pct"].to_numpy() for c in CAUSES}
    shown_parts = {c: v for c, v in parts.items() if np.abs(v).max() >= 0.005}
    stack = np.array(list(shown_parts.values()) or [np.zeros(len(table))])
    up, down = np.maximum(stack, 0).sum(axis=0), np.minimum(stack, 0).sum(axis=0)
    room = 0.08 * (up.max() - down.min() + 1)
    chart = Chart(
        [str(int(w)) for w in table.width], down.min() - room, up.max() + room,
        title="Canonical minus arrangement, by cause", x_label="batch width n (sequences)",
        y_label="% tok/s, modelled",
    )  # fmt: skip
    tops, bottoms = np.zeros(len(table)), np.zeros(len(table))
    for cause, values in shown_parts.items():
        start = np.where(values >= 0, tops, bottoms)
        for i, value in enumerate(values):
            chart.bar(i, start[i], start[i] + value, CAUSES[cause][0])
        tops, bottoms = tops + np.maximum(values, 0), bottoms + np.minimum(values, 0)
    chart.level(0, INK, dash="")
    chart.marks(
        range(len(table)), list(table.delta_pct), INK, "D",
        low=list(table.delta_low), high=list(table.delta_high),
    )  # fmt: skip
    items = [("#", CAUSES[c][0], False, CAUSES[c][1]) for c in shown_parts]
    return chart.render("The difference split by cause") + legend(
        [*items, ("D", INK, False, "whole")]
    )


def _rates(shown: Curves) -> str:
    by = shown.rates.set_index(["policy", "width"])
    other = shown.runs.policy
    rows = []
    for gate, over in zip(shown.gate.itertuples(), shown.over_better.itertuples(), strict=True):
        cells = [f"{by.loc[(p, gate.width)].tok_s:.1f}" for p in ("arrangement", "canonical")]
        taken = cells[1] if gate.canonical else cells[0]
        rows.append(
            (
                f"<b>{gate.width}</b>",
                *cells,
                f"<b>{taken}</b>",
                _gain(gate) if gate.canonical else "closed",
                f"{by.loc[(other, gate.width)].tok_s:.1f}",
                f"{_gain(over)}, {over.better}",
            )
        )
    return '<div class="vl-rates" style="margin-top:8px">' + html_table(
        ("width n", "arrangement, tok/s", "canonical, tok/s", "with your gate, tok/s",
         "your gate against never, %", f"{in_words(other)}, tok/s",
         f"{in_words(other)} over the better arm, %"),
        rows, wrap=True,
    ) + "</div>"  # fmt: skip
