"""A figure for a dark page: what is grey is mirrored, colours are lifted, nothing is moved."""

from __future__ import annotations

from typing import Any

from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation, Text

from verifylab.plots import OUTLINE

__all__ = ["BACKGROUND", "darken"]

BACKGROUND = "#111418"
#: Share of white in a lifted colour: enough for 3 to 1 against the background.
_LIFT = 0.3
#: Red, green and blue closer than this are a grey.
_GREY = 0.04


def darken(figure: Figure) -> Figure:
    """Recolour a figure in place, and return it."""
    for artist in figure.findobj(include_self=True):
        for kind, names in _COLOURS:
            if isinstance(artist, kind):
                _recolour(artist, names)
                break
    figure.set_facecolor(BACKGROUND)
    for ax in figure.axes:
        ax.set_facecolor(BACKGROUND)
        _legible_inside(ax)
    return figure


def _legible_inside(ax: Axes) -> None:
    """Write what stands in a coloured cell in black or white, whichever is told apart better."""
    cells = [p for p in ax.patches if isinstance(p, Rectangle) and not _is_grey(p.get_facecolor())]
    for text in ax.texts:
        if isinstance(text, Annotation) and text.xycoords != "data":
            continue
        x, y = text.xy if isinstance(text, Annotation) else text.get_position()
        for cell in cells:
            left, low = cell.get_xy()
            if left < x < left + cell.get_width() and low < y < low + cell.get_height():
                r, g, b, _ = colors.to_rgba(cell.get_facecolor())
                text.set_color("#000000" if 0.3 * r + 0.59 * g + 0.11 * b > 0.45 else "#ffffff")


_COLOURS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (Line2D, ("color", "markerfacecolor", "markeredgecolor")),
    (Text, ("color",)),
    (Patch, ("facecolor", "edgecolor")),
    (Collection, ("facecolor", "edgecolor")),
)


def _recolour(artist: Any, names: tuple[str, ...]) -> None:
    # All are read before one is set: a marker's colour may follow its line's.
    old = {name: getattr(artist, f"get_{name}")() for name in names}
    for name, value in old.items():
        if isinstance(value, str) and value in ("none", "auto"):
            continue
        rgba = colors.to_rgba_array(value)
        if not len(rgba) or not rgba[:, 3].any():
            continue  # invisible, and to stay so
        turned = [_turn(c) for c in rgba]
        getattr(artist, f"set_{name}")(turned if isinstance(artist, Collection) else turned[0])
    if artist.get_path_effects():  # an outline in the colour of the page
        artist.set_path_effects([withStroke(linewidth=OUTLINE, foreground=BACKGROUND)])


def _is_grey(rgba: Any) -> bool:
    return bool(max(rgba[:3]) - min(rgba[:3]) < _GREY)


def _turn(rgba: Any) -> tuple[float, float, float, float]:
    r, g, b, a = (float(v) for v in rgba)
    if _is_grey((r, g, b)):
        dark = colors.to_rgb(BACKGROUND)
        mirrored = 1.0 - (r + g + b) / 3
        # White becomes the background, black an off-white.
        red, green, blue = (d + (0.93 - d) * mirrored for d in dark)
        return red, green, blue, a
    red, green, blue = (v + (1 - v) * _LIFT for v in (r, g, b))
    return red, green, blue, a
