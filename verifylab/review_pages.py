"""The design-review set on disk: every figure in four forms, a page and a hand-out."""

from __future__ import annotations

import base64
import io
import textwrap
from html import escape
from pathlib import Path

import matplotlib.style
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from verifylab.dark import darken
from verifylab.paths import write_files
from verifylab.plots import STYLE
from verifylab.review import Drawn, Review

__all__ = ["save_review"]

#: Metadata without a date, so that the same runs give the same bytes.
_UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Design review: the width gate</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 sans-serif; max-width: 1500px; margin: 0 auto; padding: 16px;
  color: #111; background: #fff; }}
figure {{ margin: 0; }}
main {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr));
  gap: 28px; }}
h1 {{ font-size: 24px; }} h2 {{ font-size: 17px; margin: 0 0 4px; }}
.verdict {{ border-left: 4px solid #0072B2; padding-left: 14px; }}
img {{ width: 100%; height: auto; }}
@media (prefers-color-scheme: dark) {{ body {{ color: #eee; background: #111418; }} }}
@media print {{ main {{ grid-template-columns: 1fr 1fr; }} }}
</style></head><body>
<h1>Design review: where should the width gate sit?</h1>
<div class="verdict">{verdict}</div>
<main>
{figures}
</main>{missing}
</body></html>
"""


def save_review(review: Review, folder: str | Path) -> list[Path]:
    """Write the set into a folder.

    Each figure as ``NAME.svg``, ``NAME.png`` (at 2x), ``NAME.pdf`` and the same with ``-dark``,
    with ``NAME.TABLE.csv`` for every table behind it; ``index.html``, one page that needs no other
    file; ``handout.pdf``, the verdict and then a figure a page.

    Returns
    -------
    list of Path
        The page and the hand-out first.
    """
    contents: dict[str, str | bytes] = {}
    images: dict[str, tuple[bytes, bytes]] = {}
    for drawn in review.drawn:
        name = drawn.panel.name
        for ending, figure in (("", drawn.figure()), ("-dark", darken(drawn.figure()))):
            for kind in ("svg", "png", "pdf"):
                contents[f"{name}{ending}.{kind}"] = _bytes(figure, kind)
        pair = (contents[f"{name}.png"], contents[f"{name}-dark.png"])
        images[name] = (_as_bytes(pair[0]), _as_bytes(pair[1]))
        for table, frame in drawn.tables.items():
            contents[f"{name}.{table}.csv"] = frame.to_csv(index=False)
    front: dict[str, str | bytes] = {
        "index.html": _html(review, images),
        "handout.pdf": _handout(review),
    }
    return write_files(folder, {**front, **contents})


def _bytes(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    with matplotlib.style.context(STYLE):
        options = {"metadata": _UNDATED[kind]} if _UNDATED[kind] else {}
        figure.savefig(buffer, format=kind, facecolor=figure.get_facecolor(), **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def _as_bytes(content: str | bytes) -> bytes:
    assert isinstance(content, bytes)
    return content


def _html(review: Review, images: dict[str, tuple[bytes, bytes]]) -> str:
    figures = "\n".join(_figure(drawn, *images[drawn.panel.name]) for drawn in review.drawn)
    verdict = "".join(f"<p>{escape(line)}</p>" for line in review.verdict)
    missing = "".join(
        f"<p>Not in these runs: {escape(p.title)} (verifylab sweep data/sweeps/{p.sweep}.toml).</p>"
        for p in review.missing
    )
    return _PAGE.format(verdict=verdict, figures=figures, missing=missing)


def _figure(drawn: Drawn, light: bytes, dark: bytes) -> str:
    data = [f"data:image/png;base64,{base64.b64encode(b).decode()}" for b in (light, dark)]
    title = escape(drawn.panel.title)
    return (
        f"<figure><h2>{title}</h2><picture>"
        f'<source media="(prefers-color-scheme: dark)" srcset="{data[1]}">'
        f'<img src="{data[0]}" alt="{title}. {escape(drawn.caption)}"></picture></figure>'
    )


def _handout(review: Review) -> bytes:
    buffer = io.BytesIO()
    with (
        matplotlib.style.context(STYLE),
        PdfPages(buffer, metadata={"CreationDate": None, "Title": "Design review"}) as pages,
    ):
        pages.savefig(_front(review))
        for drawn in review.drawn:
            figure = drawn.figure()
            figure.suptitle(drawn.panel.title, x=0.015, ha="left", fontsize=16, fontweight="bold")
            width, tall = figure.get_size_inches()
            figure.set_size_inches(width, tall + 0.5)
            figure.subplots_adjust(top=1 - 1.05 / (tall + 0.5))
            pages.savefig(figure)
    return buffer.getvalue()


def _front(review: Review) -> Figure:
    figure = Figure(figsize=(9.6, 6.6))
    figure.text(0.06, 0.9, "Where should the width gate sit?", fontsize=20, fontweight="bold")
    y = 0.82
    for line in review.verdict:
        text = textwrap.fill(line, 88)
        figure.text(0.06, y, text, fontsize=12.5, va="top", linespacing=1.4)
        y -= 0.045 * (text.count("\n") + 1) + 0.035
    y -= 0.02
    for i, drawn in enumerate(review.drawn, 2):
        figure.text(0.06, y, f"page {i}: {drawn.panel.title}", fontsize=11, va="top")
        y -= 0.042
    for panel in review.missing:
        figure.text(
            0.06, y, f"not in these runs: {panel.title} (sweep {panel.sweep})", fontsize=11,
            va="top", color="#555555",
        )  # fmt: skip
        y -= 0.042
    return figure
