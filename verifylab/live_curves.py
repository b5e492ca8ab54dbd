"""What the explorer shows of throughput and of a cache at work, as HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from verifylab.cache_player import EMPTY
from verifylab.live_views import BLUE, GREEN, GREY, ORANGE, PURPLE, html_table, side_by_side
from verifylab.svg import FONT, INK, Chart, legend, picture

if TYPE_CHECKING:
    import pandas as pd

    from verifylab.cache_player import Playback
    from verifylab.live_throughput import Curves

__all__ = ["MAX_PLACES", "cache_view", "throughput_view"]

#: Colour and words of each cause of a difference.
CAUSES = {
    "tokens": (ORANGE, "tokens"),
    "captures": (BLUE, "captures"),
    "launches": ("#56B4E9", "launches"),
    "work": ("#999999", "more steps"),
}
#: Places of a cache that are drawn.
MAX_PLACES = 64


def throughput_view(
    shown: Curves,
    threshold: int,
    graph_ms: float,
    machine: str,
    published: pd.DataFrame,
    stored: pd.DataFrame,
) -> str:
    """Show the curves, the split and the recommended gate.

    Parameters
    ----------
    shown : Curves
    threshold : int
    graph_ms : float
    machine : str
        Name of the profile.
    published, stored : DataFrame
        ``width, delta_pct`` to lay over; may be empty. `stored` also has ``label``.
    """
    runs = shown.runs
    kind = "full run" if runs.full else "quick look"
    stamp = (
        f"modelled on {machine}, {graph_ms:.1f} ms a graph, {kind}: {runs.seeds} seeds x "
        f"{runs.steps} steps, 95 % intervals over seeds"
    )
    sentence = (
        f'<p style="{FONT};font-size:14px;margin:6px 0"><b class="vl-gate">'
        f"{escape(shown.recommendation.sentence())}</b><br>"
        f'<span style="color:{GREY}">{escape(stamp)}</span></p>'
    )
    return (
        sentence
        + side_by_side(_gains(shown, threshold, published, stored), _split(shown))
        + _rates(shown)
    )


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
        chart.band(gated[0], gated[-1], "#E69F00")
    chart.level(0, INK, dash="")
    chart.line(list(canonical.delta_pct), BLUE)
    chart.line(list(other.delta_pct), GREEN, dash="6 3")
    for table, colour, mark in ((other, GREEN, "v"), (canonical, BLUE, "s")):
        chart.marks(
            range(len(widths)), list(table.delta_pct), colour, mark,
            low=list(table.delta_low), high=list(table.delta_high),
        )  # fmt: skip
    items = [
        ("s", BLUE, False, "canonical"), ("v", GREEN, False, shown.runs.policy),
        ("#", "#F6DCA8", False, f"gate open: n of {threshold} and up"),
    ]  # fmt: skip
    for table, colour, mark, name in (
        (over[0], PURPLE, "^", "published A/B (measured)"),
        (over[1], "#555", "D", f"stored {stored.label.iloc[0]}" if len(stored) else ""),
    ):
        if len(table):
            spots = [at[int(w)] + (0.22 if mark == "^" else -0.22) for w in table.width]
            chart.marks(spots, list(table.delta_pct), colour, mark, hollow=True)
            items.append((mark, colour, True, name))
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
        range(len(table)), list(table.delta_pct), "#000", "D",
        low=list(table.delta_low), high=list(table.delta_high),
    )  # fmt: skip
    items = [("#", CAUSES[c][0], False, CAUSES[c][1]) for c in shown_parts]
    return chart.render("The difference split by cause") + legend(
        [*items, ("D", "#000", False, "whole")]
    )


def _rates(shown: Curves) -> str:
    by = shown.rates.set_index(["policy", "width"])
    other = shown.runs.policy
    rows = []
    for gate in shown.gate.itertuples():
        cells = [f"{by.loc[(p, gate.width)].tok_s:.1f}" for p in ("arrangement", "canonical")]
        taken = cells[1] if gate.canonical else cells[0]
        third = by.loc[(other, gate.width)]
        delta, low, high = (
            x + 0.0 for x in (gate.delta_pct, gate.delta_low, gate.delta_high)
        )  # no -0.0
        said = f"{delta:+.1f} ({low:+.1f} to {high:+.1f})"
        rows.append(
            (
                f"<b>{gate.width}</b>",
                *cells,
                f"<b>{taken}</b>",
                said if gate.canonical else "closed: as never",
                f"{third.tok_s:.1f}",
            )  # fmt: skip
        )
    return '<div class="vl-rates" style="margin-top:8px">' + html_table(
        ("width n", "arrangement, tok/s", "canonical, tok/s", "with the gate, tok/s",
         "gate against never, %", f"{other}, tok/s"),
        rows,
    ) + "</div>"  # fmt: skip


def cache_view(played: Playback, at: int, reachable: int) -> str:
    """Show the places of the cache after one frame, and the run so far as a strip.

    Parameters
    ----------
    played : Playback
    at : int
        Frame, from 0.
    reachable : int
        Keys that the arm can produce at this width.
    """
    frame = played.frames[at]
    met = int(max(f.key for f in played.frames[: at + 1])) + 1
    words = {
        "hit": f"<b>hit</b>: key #{frame.key} lies in place {frame.place + 1}, replayed",
        "capture": f"<b>capture</b>: key #{frame.key} is new here, into place {frame.place + 1}",
        "eager": "<b>eager</b>: no graph for this key, launched one by one",
    }[frame.outcome]
    if frame.evicted != EMPTY:
        words += f"; key #{frame.evicted}, unused for {frame.idle} steps, is destroyed"
    said = (
        f'<p class="vl-frame" style="{FONT};margin:6px 0">Step {frame.step + 1} of '
        f"{played.frames[-1].step + 1}: {words}.<br>"
        f"So far <b>{frame.hits}</b> hits, <b>{frame.captures}</b> captures, "
        f"<b>{frame.evictions}</b> evictions, <b>{frame.eager}</b> eager; {met} of "
        f"{reachable:,} keys met. Graphs held: "
        f"{int((played.places[at] != EMPTY).sum())}.</p>"
    )
    key = legend(
        [("#", BLUE, False, "hit"), ("#", ORANGE, False, "capture"), ("#", GREY, False, "eager"),
         ("#", "#9ecae1", False, "used lately (pale: long ago)")]
    )  # fmt: skip
    bars = f'<span style="{FONT}">Bars: rows of each sequence, by slot.</span>'
    return said + _places(played, at) + _strip(played, at) + key + bars


def _places(played: Playback, at: int) -> str:
    frame, capacity = played.frames[at], min(played.places.shape[1], MAX_PLACES)
    across, wide, high = 8, 106.0, 54.0
    parts = []
    for p in range(capacity):
        x, y = (p % across) * wide, (p // across) * high
        key = int(played.places[at, p])
        age = at - int(played.used[at, p])
        here = p == frame.place
        edge = (BLUE if frame.outcome == "hit" else ORANGE) if here else "#9a9a9a"
        fill = "none"
        if key != EMPTY:
            # Recent: blue. Long unused: white.
            share = max(0.0, 1.0 - age / max(capacity, 1))
            fill = f"rgb({255 - 97 * share:.0f},{255 - 53 * share:.0f},{255 - 30 * share:.0f})"
        parts.append(
            f'<rect x="{x + 2:.0f}" y="{y + 2:.0f}" width="{wide - 4:.0f}" '
            f'height="{high - 4:.0f}" rx="3" fill="{fill}" stroke="{edge}" '
            f'stroke-width="{4 if here else 1}"/>'
        )
        if key == EMPTY:
            continue
        parts.append(f'<text x="{x + 8:.0f}" y="{y + 18:.0f}" fill="#000">#{key}</text>')
        if here:
            word = frame.outcome
            parts.append(
                f'<text x="{x + wide - 8:.0f}" y="{y + 18:.0f}" text-anchor="end" fill="#000" '
                f'font-weight="bold">{word}</text>'
            )
        rows = played.rows[key]
        step = min(10.0, (wide - 18) / len(rows))
        for i, r in enumerate(rows):
            tall = 24.0 * r / max(max(rows), 4)
            parts.append(
                f'<rect x="{x + 9 + i * step:.1f}" y="{y + high - 7 - tall:.1f}" '
                f'width="{max(step - 2, 1):.1f}" height="{tall:.1f}" fill="#333"/>'
            )
    tall = high * -(-capacity // across)
    more = played.places.shape[1] - capacity
    note = f'<p style="{FONT}">{more:,} further places are not drawn.</p>' if more > 0 else ""
    return picture("".join(parts), across * wide, tall, "Places of the graph cache") + note


def _strip(played: Playback, at: int) -> str:
    n = len(played.frames)
    wide = 848.0 / n
    colours = {"hit": BLUE, "capture": ORANGE, "eager": GREY}
    # A hit is low, a capture high: told apart without colour.
    tall = {"hit": 9.0, "capture": 22.0, "eager": 15.0}
    bar = max(wide - 0.6, 0.6)
    parts = [
        f'<rect x="{i * wide:.2f}" y="{26 - tall[f.outcome]:.0f}" width="{bar:.2f}"'
        f' height="{tall[f.outcome]:.0f}" fill="{colours[f.outcome]}" '
        f'opacity="{1 if i <= at else 0.25}"/>'
        for i, f in enumerate(played.frames)
    ]
    x = (at + 0.5) * wide
    parts.append(f'<path d="M{x:.1f} 28l-5 7h10z" fill="{INK}"/>')
    return picture("".join(parts), 848, 38, "Hits (low) and captures (high) by step")
