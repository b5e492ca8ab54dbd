"""What the explorer shows of one batch and of a key space, as HTML: pure functions of results."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from verifylab.svg import FONT, INK, Chart, legend, picture

if TYPE_CHECKING:
    from verifylab.explain import ArmExplained
    from verifylab.key_choices import Choices
    from verifylab.sharing import Sharing

__all__ = ["batch_view", "html_table", "side_by_side", "space_view", "wrong"]

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#777777"
#: Band over a chart.
BAND = "#E69F00"
#: Ink of what matters less, on a light page or a dark one.
DIM = "var(--jp-ui-font-color2, #666)"
#: Fill of a sequence by its rows, light to dark; text on it black or white.
ROWS_FILL = ("#f0f0f0", "#d3e4f3", "#a8cee4", "#6aaed6", "#3787c0", "#1864aa", "#0b4083")


def wrong(message: str) -> str:
    """Return a mistake in what was typed, marked."""
    return (
        f'<div role="alert" style="{FONT};color:#b00020;background:#fdecea;padding:4px 8px;'
        f'border-left:4px solid #b00020">&#9888; {escape(message)}</div>'
    )


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", *, wrap: bool = False
) -> str:
    """Return a table; cells are HTML already, and take more than one line only with `wrap`."""
    cell = "padding:2px 12px 2px 0;text-align:left;vertical-align:bottom"
    look = ";vertical-align:top;border-top:1px solid #9a9a9a55" if wrap else ";white-space:nowrap"
    lines = "".join(
        "<tr>" + "".join(f'<td style="{cell}{look}">{c}</td>' for c in row) + "</tr>"
        for row in rows
    )
    names = "".join(f'<th style="{cell}" scope="col">{escape(h)}</th>' for h in head)
    named = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    return (
        # No width of its own: a wide table scrolls rather than widening what it stands in.
        f'<div style="width:0;min-width:100%;overflow-x:auto">'
        f'<table style="{FONT};border-collapse:collapse;color:{INK}">'
        f"{named}<thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _fill(rows: int) -> tuple[str, str]:
    at = min(rows, len(ROWS_FILL)) - 1
    return ROWS_FILL[at], "#fff" if at >= 4 else "#000"


def _mono(text: str) -> str:
    return (
        '<code style="white-space:normal;overflow-wrap:anywhere;font-size:12px">'
        f"{escape(text)}</code>"
    )


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    body = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:normal;padding:2px 14px 2px 0;'
        f'vertical-align:top;white-space:nowrap">{escape(name)}</th>'
        f'<td style="padding:2px 0">{value}</td></tr>'
        for name, value in facts
    )
    return f'<table style="{FONT};border-collapse:collapse;color:{INK}">{body}</table>'


def batch_picture(arm: ArmExplained, slots: Sequence[int]) -> str:
    """Draw the dispatch order: a box a sequence with its slot and rows, a bracket a run."""
    width, n = 860.0, len(arm.order)
    step = min(88.0, (width - 70) / n)
    parts = []
    for p, (i, rows) in enumerate(zip(arm.order, arm.depths, strict=True)):
        fill, ink = _fill(rows)
        x = 66 + p * step
        parts.append(
            f'<rect x="{x + 1:.1f}" y="26" width="{step - 2:.1f}" height="40" fill="{fill}" '
            f'stroke="#555"/><text x="{x + step / 2:.1f}" y="52" text-anchor="middle" '
            f'fill="{ink}" style="font-size:16px">{rows}</text>'
            f'<text x="{x + step / 2:.1f}" y="18" text-anchor="middle" fill="{INK}">'
            f"{slots[i]}</text>"
        )
    for y, name in ((18, "slot"), (51, "rows"), (92, "runs")):
        parts.append(f'<text x="0" y="{y}" fill="{INK}">{name}</text>')
    for run in arm.runs:
        a, b = 66 + run.start * step + 3, 66 + (run.start + run.length) * step - 3
        colour = BLUE if run.fast else ORANGE
        dash = "" if run.fast else ' stroke-dasharray="4 3"'
        name = ("fast" if run.fast else "declined") if b - a > 58 else "F" if run.fast else "D"
        parts.append(
            f'<path d="M{a:.1f} 72v6H{b:.1f}v-6" stroke="{colour}" stroke-width="2.4" '
            f'fill="none"{dash}/><text x="{(a + b) / 2:.1f}" y="93" text-anchor="middle" '
            f'fill="{INK}">{name}</text><text x="{(a + b) / 2:.1f}" y="108" '
            f'text-anchor="middle" fill="{INK}">{run.launches}</text>'
        )
    parts.append(f'<text x="0" y="108" fill="{INK}">launches</text>')
    said = ", ".join(f"{'fast' if r.fast else 'declined'} run of {r.length}" for r in arm.runs)
    return picture("".join(parts), width, 116, f"Dispatch order of the {arm.arm} arm: {said}")


def batch_view(arm: ArmExplained, slots: Sequence[int], shared: Sharing | None) -> str:
    """Show one batch in one arm, and what shares its key."""
    taken = "taken by the gate" if arm.gate else "not what the gate takes"
    keys = [
        _mono(part.key.hex(" ", 4)) if part.key is not None else "none" for part in arm.dispatches
    ]
    facts = [
        ("arm", f"<b>{arm.arm}</b> ({taken})"),
        ("order (input index)", " ".join(map(str, arm.order))),
        ("assigned depths (rows)", " ".join(map(str, arm.depths))),
        ("launches a layer", f'<b class="vl-launches">{arm.launches_per_layer}</b>'),
        ("key, hex", "<br>".join(keys)),
    ]
    head = batch_picture(arm, slots) + _facts(facts)
    if shared is None:
        return head + f'<p style="{FONT}">Several dispatches: each has a key of its own.</p>'
    said = (
        f'<p style="{FONT};margin:8px 0 2px">These depths have <b class="vl-shared">'
        f"{shared.count:,}</b> arrangements over these slots: "
        f"<b>{shared.count:,}</b> arrangement key{'s' * (shared.count > 1)}, "
        "<b>1</b> canonical key.</p>"
    )
    rows = []
    for depths, launches in zip(shared.listed, shared.launches, strict=True):
        mine = " &larr; this batch" if depths == shared.own else ""
        rows.append((" ".join(map(str, depths)) + mine, str(launches)))
    more = shared.count - len(rows)
    table = html_table(
        ("rows by slot", "launches a layer, arrangement arm"),
        [*rows, *([(f"and {more:,} more", "")] if more > 0 else [])],
    )
    return head + said + table


def space_view(choices: Choices) -> str:
    """Show the key space around one width."""
    spaces, at = choices.spaces, choices.chosen
    top = float(max(*spaces.arrangement_keys, choices.capacity)) * 4
    names = [str(w) for w in spaces.width]
    chart = Chart(
        names, 0.7, top, log=True, title="Reachable keys by batch width (counted)",
        x_label="batch width n (sequences)", y_label="keys (log)",
    )  # fmt: skip
    here = names.index(str(at.width))
    chart.band(here, here, BAND)
    chart.level(choices.capacity, ORANGE)
    dealt = [float(v) for v in spaces.canonical_keys]
    own = [float(v) for v in spaces.arrangement_keys]
    chart.line(own, GREY)
    chart.line(dealt, BLUE)
    chart.marks(range(len(own)), own, INK, "o", hollow=True)
    chart.marks(range(len(dealt)), dealt, BLUE, "s")
    key = legend(
        [("o", INK, True, "arrangement"), ("s", BLUE, False, "canonical"),
         ("--", ORANGE, False, f"cache: {choices.capacity:,} graphs"),
         ("band", BAND, False, f"width {at.width}")]
    )  # fmt: skip
    fits = "all fit" if at.arrangement_keys <= choices.capacity else "<b>do not fit</b>"
    facts = [
        ("arrangement keys", f'<b class="vl-arrangement">{at.arrangement_keys:,}</b> ({fits})'),
        ("canonical keys = multisets", f'<b class="vl-canonical">{at.canonical_keys:,}</b>'),
        ("rows of a step", f"{at.rows:,}"),
        ("drafts kept beyond the first", f"{at.keep:,}"),
    ]
    rows = [(escape(text), f"{count:,}") for text, count in choices.listed]
    if choices.unlisted:
        rows.append((f"and {choices.unlisted:,} more", ""))
    table = html_table(("multiset of rows", "arrangements"), rows)
    said = f"{at.arrangement_keys} arrangement and {at.canonical_keys} canonical keys"
    return side_by_side(chart.render(said) + key, _facts(facts) + table)


def side_by_side(left: str, right: str) -> str:
    """Put two pieces beside each other, or below where the page is narrow."""
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:18px;align-items:flex-start">'
        f'<div style="flex:1 1 440px;min-width:0;max-width:600px">{left}</div>'
        f'<div style="flex:1 1 440px;min-width:0;max-width:600px">{right}</div></div>'
    )
