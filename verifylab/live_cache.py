"""What the explorer shows of a cache at work, as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifylab.cache_player import EMPTY
from verifylab.live_views import BLUE, GREY, ORANGE
from verifylab.svg import FONT, INK, legend, picture

if TYPE_CHECKING:
    from verifylab.cache_player import Playback

__all__ = ["MAX_PLACES", "cache_view"]

#: Places of a cache that are drawn.
MAX_PLACES = 64


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
        f"{len(played.held(at))}.</p>"
    )
    key = legend(
        [("#", BLUE, False, "hit"), ("#", ORANGE, False, "capture"), ("#", GREY, False, "eager"),
         ("#", "#9ecae1", False, "used lately (pale: long ago)")]
    )  # fmt: skip
    bars = f'<span style="{FONT}">Bars: rows of each sequence, by slot.</span>'
    return said + _places(played, at) + _strip(played, at) + key + bars


def _places(played: Playback, at: int) -> str:
    frame, capacity = played.frames[at], min(played.capacity, MAX_PLACES)
    held = played.held(at)
    across, wide, high = 8, 106.0, 54.0
    parts = []
    for p in range(capacity):
        x, y = (p % across) * wide, (p // across) * high
        key, used = held.get(p, (EMPTY, EMPTY))
        age = at - used
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
    more = played.capacity + played.beyond - capacity
    unseen = sum(place >= capacity for place in held)
    word = "place is" if more == 1 else "places are"
    note = f"{more:,} further {word} not drawn; {unseen:,} of them in use." if more else ""
    if note:
        note = f'<p class="vl-undrawn" style="{FONT}">{note}</p>'
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
