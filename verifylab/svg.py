"""A small chart as SVG text: what a widget can redraw in a few milliseconds.

Colours of text and axes follow the page (light or dark). Figures for reports are Matplotlib's, in
`verifylab.plots`; nothing here computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["GLYPHS", "Chart", "legend", "picture"]

INK = "var(--jp-ui-font-color1, #222)"
PAPER = "var(--jp-layout-color1, #fff)"
FAINT = "var(--jp-border-color2, #d5d5d5)"
FONT = "font-family:var(--jp-ui-font-family, sans-serif);font-size:13px;line-height:1.45"
BAND_OPACITY = 0.22

#: Shapes of a mark, as polygon points around (0, 0); "o" is a circle.
GLYPHS = {
    "o": "",
    "s": "-5,-5 5,-5 5,5 -5,5",
    "D": "0,-6.5 6.5,0 0,6.5 -6.5,0",
    "^": "0,-6 6,5 -6,5",
    "v": "0,6 6,-5 -6,-5",
}


def picture(body: str, width: float, height: float, label: str) -> str:
    """Wrap SVG elements so that they scale with the page; `label` is read to who cannot see."""
    size = f"width:calc(100% - 6px);max-width:{width:g}px;height:auto;display:block"
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}" '
        f'style="{size};{FONT}">{body}</svg>'
    )


def glyph(kind: str, x: float, y: float, colour: str, hollow: bool = False) -> str:
    """Return one mark."""
    look = f'fill="{PAPER if hollow else colour}" stroke="{colour}" stroke-width="2"'
    if kind == "o":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {look}/>'
    return f'<polygon points="{GLYPHS[kind]}" transform="translate({x:.1f},{y:.1f})" {look}/>'


def legend(items: Iterable[tuple[str, str, bool, str]]) -> str:
    """Return a wrapping line of (glyph or "-", "--", "#" or "band", colour, hollow, text)."""
    out = []
    for kind, colour, hollow, text in items:
        if kind in ("-", "--"):
            dash = ' stroke-dasharray="5 3"' if kind == "--" else ""
            mark = f'<path d="M0 8H22" stroke="{colour}" stroke-width="3"{dash}/>'
        elif kind in ("#", "band"):
            faint = f' opacity="{BAND_OPACITY}"' if kind == "band" else ""
            mark = f'<rect x="4" y="2" width="13" height="12" fill="{colour}"{faint}/>'
        else:
            mark = glyph(kind, 11, 8, colour, hollow)
        out.append(
            f'<span style="white-space:nowrap;margin-right:14px"><svg width="22" height="16" '
            f'style="vertical-align:-3px">{mark}</svg> {escape(text)}</span>'
        )
    return f'<div style="{FONT};line-height:22px">{"".join(out)}</div>'


class Chart:
    """A chart over categories.

    Parameters
    ----------
    categories : sequence of str
        Names along x.
    low, high : float
        Range of y. On a log axis both are above 0.
    title, x_label, y_label : str
    log : bool
    width, height : float
        Of the drawing, in its own units.
    """

    def __init__(
        self,
        categories: Sequence[str],
        low: float,
        high: float,
        *,
        title: str,
        x_label: str,
        y_label: str,
        log: bool = False,
        width: float = 560,
        height: float = 330,
    ) -> None:
        self.categories, self.log = list(categories), log
        if not high > low:
            low, high = low - 1, high + 1
        self.low, self.high = low, high
        self.width, self.height = width, height
        self.left, self.right, self.top, self.bottom = 72.0, 12.0, 34.0, 50.0
        self.parts: list[str] = []
        self._axes(title, x_label, y_label)

    def x(self, at: float) -> float:
        """Return where category `at` (from 0) stands."""
        span = self.width - self.left - self.right
        return self.left + span * (at + 0.5) / max(1, len(self.categories))

    def y(self, value: float) -> float:
        """Return where a value stands; what lies outside is put on the edge."""
        value = min(max(value, self.low), self.high)
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        span = self.height - self.top - self.bottom
        return self.top + span * (high - value) / (high - low)

    def line(self, values: Sequence[float], colour: str, *, dash: str = "") -> None:
        """Join values by category."""
        points = " ".join(f"{self.x(i):.1f},{self.y(v):.1f}" for i, v in enumerate(values))
        self.parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.2"'
            f' stroke-dasharray="{dash}"/>'
        )

    def marks(
        self,
        at: Sequence[float],
        values: Sequence[float],
        colour: str,
        kind: str,
        *,
        hollow: bool = False,
        low: Sequence[float] | None = None,
        high: Sequence[float] | None = None,
    ) -> None:
        """Draw marks, with intervals where given."""
        if low is not None and high is not None:
            for i, a, b in zip(at, low, high, strict=True):
                x = self.x(i)
                self.parts.append(
                    f'<path d="M{x:.1f} {self.y(a):.1f}V{self.y(b):.1f}M{x - 4:.1f} '
                    f'{self.y(a):.1f}h8M{x - 4:.1f} {self.y(b):.1f}h8" stroke="{colour}" '
                    'stroke-width="1.6" fill="none"/>'
                )
        for i, v in zip(at, values, strict=True):
            self.parts.append(glyph(kind, self.x(i), self.y(v), colour, hollow))

    def bar(self, at: float, start: float, stop: float, colour: str, share: float = 0.5) -> None:
        """Draw a bar from one value to another."""
        a, b = sorted((self.y(start), self.y(stop)))
        wide = share * (self.x(1) - self.x(0))
        self.parts.append(
            f'<rect x="{self.x(at) - wide / 2:.1f}" y="{a:.1f}" width="{wide:.1f}" '
            f'height="{b - a:.1f}" fill="{colour}"/>'
        )

    def band(self, first: float, last: float, colour: str) -> None:
        """Shade the categories from `first` to `last`."""
        half = (self.x(1) - self.x(0)) / 2
        a, b = self.x(first) - half, self.x(last) + half
        self.parts.append(
            f'<rect x="{a:.1f}" y="{self.top:.1f}" width="{b - a:.1f}" '
            f'height="{self.height - self.top - self.bottom:.1f}" fill="{colour}" '
            f'opacity="{BAND_OPACITY}"/>'
        )

    def level(self, value: float, colour: str, *, dash: str = "6 4") -> None:
        """Draw a level across."""
        y = self.y(value)
        self.parts.append(
            f'<path d="M{self.left:g} {y:.1f}H{self.width - self.right:g}" stroke="{colour}" '
            f'stroke-width="1.8" stroke-dasharray="{dash}"/>'
        )

    def text(
        self, x: float, y: float, text: str, colour: str = INK, *, anchor: str = "middle"
    ) -> None:
        """Write at a place of the drawing."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">'
            f"{escape(text)}</text>"
        )

    def render(self, label: str) -> str:
        """Return the picture; `label` says in words what it shows."""
        return picture("".join(self.parts), self.width, self.height, label)

    def _axes(self, title: str, x_label: str, y_label: str) -> None:
        base, end = self.height - self.bottom, self.width - self.right
        self.parts.append(
            f'<text x="2" y="17" font-weight="bold" fill="{INK}" style="font-size:14px">'
            f"{escape(title)}</text>"
        )
        for value in self.ticks():
            y = self.y(value)
            self.parts.append(f'<path d="M{self.left:g} {y:.1f}H{end:g}" stroke="{FAINT}"/>')
            self.text(self.left - 6, y + 4, f"{value:,.10g}", anchor="end")
        for i, name in enumerate(self.categories):
            self.text(self.x(i), base + 18, name)
        self.parts.append(f'<path d="M{self.left:g} {base:g}H{end:g}" stroke="{INK}"/>')
        self.text((self.left + end) / 2, self.height - 8, x_label)
        middle = (self.top + base) / 2
        self.parts.append(
            f'<text transform="translate(14,{middle:.1f}) rotate(-90)" text-anchor="middle" '
            f'fill="{INK}">{escape(y_label)}</text>'
        )

    def ticks(self) -> list[float]:
        """Return where the ticks of y stand: 4 to 7 at round steps; on a log axis decades."""
        if self.log:
            decades = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            return [10.0**d for d in decades][:: max(1, -(-len(decades) // 7))]
        power = 10.0 ** math.floor(math.log10((self.high - self.low) / 7))
        # Round steps first; the others where no round one gives 4 to 7 ticks.
        for of in ((1, 2, 5), (2.5,), (1.5, 4)):
            for step in (m * p for p in (power, 10 * power) for m in of):
                first = math.ceil(self.low / step - 1e-9)
                last = math.floor(self.high / step + 1e-9)
                if 4 <= last - first + 1 <= 7:
                    return [i * step + 0.0 for i in range(first, last + 1)]
        return [self.low, self.high]
