"""The design-review set on disk: every figure in four forms, a page and a hand-out."""

from __future__ import annotations

import base64
import io
import textwrap
from html import escape
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from verifylab.dark import darken
from verifylab.paths import shown, write_files
from verifylab.plots import STYLE
from verifylab.review import PANELS, Drawn, Panel, Review, as_stored

__all__ = ["paragraph", "save_review"]

#: Kinds of figure file; metadata without a date, so that the same runs give the same bytes.
_UNDATED = {"svg": {"Date": None}, "png": {}, "pdf": {"CreationDate": None}}
#: Of a figure's files: light and dark.
_ENDINGS = ("", "-dark")
#: Inches of every page of the hand-out: fits Letter and A4 across, the margin inside.
PAGE, MARGIN = (10.6, 8.2), 0.5
#: What tells a page of this module from another.
_MARK = "<title>Design review: the width gate</title>"
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{mark}
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 sans-serif; max-width: 1500px; margin: 0 auto; padding: 16px;
  color: #111; background: #fff; }}
figure {{ margin: 0; break-inside: avoid; }} figcaption {{ font-size: 14px; }}
.runs {{ font-size: 13px; }}
main {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr));
  gap: 28px; }}
h1 {{ font-size: 24px; }} h2 {{ font-size: 17px; margin: 0 0 4px; }}
.verdict {{ border-left: 4px solid #0072B2; padding-left: 14px; }}
.verdict p {{ margin: 8px 0; }} .verdict p:first-child {{ font-size: 19px; font-weight: bold; }}
img {{ width: 100%; height: auto; }}
@media (prefers-color-scheme: dark) {{ body {{ color: #eee; background: #111418; }} }}
@media print {{ main {{ grid-template-columns: 1fr 1fr; }} }}
</style></head><body>
<h1>Design review: where should the width gate sit?</h1>
<div class="verdict">{verdict}</div>
<main>
{figures}
</main>{missing}{runs}
</body></html>
"""


def save_review(review: Review, folder: str | Path) -> list[Path]:
    """Write the set into a folder.

    Each figure as ``NAME.svg``, ``NAME.png`` (at 2x), ``NAME.pdf`` and the same with ``-dark``,
    with ``NAME.TABLE.csv`` for every table behind it; ``index.html``, one page that needs no other
    file; ``handout.pdf``, the verdict and then a figure a page. Figures that an earlier set left
    there and this one does not have are taken away.

    Returns
    -------
    list of Path
        The page and the hand-out first.

    Raises
    ------
    ValueError
        When the folder holds a page or hand-out of something else.
    """
    again = _refuse_foreign(Path(folder), review)
    contents: dict[str, str | bytes] = {}
    images: dict[str, tuple[bytes, bytes]] = {}
    for drawn in review.drawn:
        name = drawn.panel.name
        with as_stored(drawn.run):
            looks = (drawn.figure(), darken(drawn.figure()))
            for ending, figure in zip(_ENDINGS, looks, strict=True):
                for kind in _UNDATED:
                    contents[f"{name}{ending}.{kind}"] = _bytes(figure, kind)
            plain = (drawn.figure(reading=False), darken(drawn.figure(reading=False)))
            images[name] = (_bytes(plain[0], "png"), _bytes(plain[1], "png"))
        for table, frame in drawn.tables.items():
            contents[f"{name}.{table}.csv"] = frame.to_csv(index=False)
    front: dict[str, str | bytes] = {
        "index.html": _html(review, images),
        "handout.pdf": _handout(review),
    }
    written = write_files(folder, {**front, **contents})
    if again:
        _clear(Path(folder), kept=set(contents))
    return written


def _clear(folder: Path, kept: set[str]) -> None:
    """Take away the figures that an earlier set left here and this one does not have."""
    for name in {name for panel in PANELS for name in _files(panel)} - kept:
        (folder / name).unlink(missing_ok=True)


def _files(panel: Panel) -> list[str]:
    """Return the files of a figure, and of the tables behind it."""
    pictures = [f"{panel.name}{ending}.{kind}" for ending in _ENDINGS for kind in _UNDATED]
    return pictures + [f"{panel.name}.{table}.csv" for table in panel.needs]


def paragraph(text: str) -> str:
    """Return a text as HTML that shows it as it is spelled, formulas in a name included."""
    return f'<p class="tex2jax_ignore mathjax_ignore">{escape(text)}</p>'


def _refuse_foreign(folder: Path, review: Review) -> bool:
    """Refuse to write into a stored run, or over what is not an earlier set; return if one is."""
    for parent in (folder.absolute(), *folder.absolute().parents):
        if (parent / "status.json").is_file():
            raise ValueError(f"{shown(parent)} is a stored run: name a folder outside it")
    every = {name: panel for panel in PANELS for name in _files(panel)}
    drawn = {d.panel for d in review.drawn}
    page = folder / "index.html"  # written before all else
    own = page.is_file() and _MARK.encode() in page.read_bytes()
    for name in ("index.html", "handout.pdf", *every):
        path = folder / name
        written = every.get(name) in {None, *drawn}
        if path.is_dir() or (written and path.exists() and not own):
            raise ValueError(
                f"{shown(path)} is there already, and not of a design review: name another folder"
            )
    return own


def _bytes(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    with matplotlib.style.context(STYLE):
        options = {"metadata": _UNDATED[kind]} if _UNDATED[kind] else {}
        figure.savefig(buffer, format=kind, facecolor=figure.get_facecolor(), **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def _html(review: Review, images: dict[str, tuple[bytes, bytes]]) -> str:
    figures = "\n".join(_figure(drawn, *images[drawn.panel.name]) for drawn in review.drawn)
    verdict = "".join(map(paragraph, review.verdict))
    missing = "".join(
        f"<p>Not in these runs: {escape(p.title)} (verifylab sweep data/sweeps/{p.sweep}.toml).</p>"
        for p in review.missing
    )
    runs = "".join(f"<p class=runs>{escape(line)}</p>" for line in _runs(review))
    return _PAGE.format(mark=_MARK, verdict=verdict, figures=figures, missing=missing, runs=runs)


def _runs(review: Review) -> list[str]:
    used = dict.fromkeys(f"{d.run.label} ({d.run.ended or 'no date'})" for d in review.drawn)
    said = [f"Drawn from {', '.join(used)}."]
    return said + [f"Passed over: {line}." for line in review.passed_over]


def _figure(drawn: Drawn, light: bytes, dark: bytes) -> str:
    data = [f"data:image/png;base64,{base64.b64encode(b).decode()}" for b in (light, dark)]
    title = escape(drawn.panel.title)
    return (
        f"<figure><h2>{title}</h2><picture>"
        f'<source media="(prefers-color-scheme: dark)" srcset="{data[1]}">'
        f'<img src="{data[0]}" alt="{title}. {escape(drawn.caption)}"></picture>'
        f"<figcaption>{escape(drawn.reading)}</figcaption></figure>"
    )


def _handout(review: Review) -> bytes:
    buffer = io.BytesIO()
    panels = [page for drawn in review.drawn for page in _figure_pages(drawn)]
    with (
        matplotlib.style.context(STYLE),
        PdfPages(buffer, metadata={"CreationDate": None, "Title": "Design review"}) as pages,
    ):
        for figure in (*_front(review), *panels):
            pages.savefig(figure)
    return buffer.getvalue()


def _figure_pages(drawn: Drawn) -> list[Figure]:
    """Return a page for each part of a figure, one above the other on screen."""
    pages = []
    for part in range(len(drawn.figure().axes)):
        figure = drawn.figure()
        figure.set_size_inches(*PAGE)
        for text in list(figure.texts):
            text.remove()
        reading = textwrap.fill(drawn.reading, 116)
        foot = MARGIN + 0.35 + 0.21 * (reading.count("\n") + 1)
        for i, ax in enumerate(list(figure.axes)):
            if i != part:
                ax.remove()
            else:
                ax.set_position(_share(1.4, foot + 1.0, PAGE[0] - 0.6, PAGE[1] - 1.3))
        _write(figure, drawn.panel.title, PAGE[1] - MARGIN, fontsize=16, fontweight="bold")
        _write(figure, reading, foot, fontsize=10.5)
        _write(figure, drawn.caption, MARGIN + 0.2, fontsize=9.5, color="#555555")
        pages.append(figure)
    return pages


def _share(left: float, bottom: float, right: float, top: float) -> Bbox:
    """Return a box in inches as shares of the page."""
    return Bbox([[left / PAGE[0], bottom / PAGE[1]], [right / PAGE[0], top / PAGE[1]]])


def _write(figure: Figure, text: str, y: float, **look: Any) -> None:
    """Write below `y` inches from the foot of the page, at its left margin."""
    at = MARGIN / PAGE[0], y / PAGE[1]
    figure.text(*at, text, va="top", linespacing=1.35, parse_math=False, **look)


def _front(review: Review) -> list[Figure]:
    """Return the verdict and the list of figures, on as many pages as they take."""
    lines = [*review.verdict, f"Figures: {', '.join(d.panel.title for d in review.drawn)}."]
    lines += [f"Not in these runs: {p.title} (sweep {p.sweep})." for p in review.missing]
    blocks = [textwrap.fill(line, 124) for line in (*lines, *_runs(review))]
    pages: list[Figure] = []
    y = 0.0
    for block in blocks:
        tall = 0.186 * (block.count("\n") + 1)
        if not pages or y - tall < MARGIN:
            pages.append(Figure(figsize=PAGE))
            y = PAGE[1] - MARGIN
            title = "Where should the width gate sit?"
            _write(pages[-1], title, y, fontsize=20, fontweight="bold")
            y -= 0.55
        _write(pages[-1], block, y, fontsize=10)
        y -= tall + 0.12
    return pages
