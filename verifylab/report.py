"""A sweep as one HTML file: figures, tables, provenance and failures, all inside it.

Nothing in it asks the network or runs a script, and its content security policy holds it to that.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from verifylab.loading import COLUMNS, Stored, load, origin_of, scan
from verifylab.paths import shown, write_aside
from verifylab.records import GOOD, SEEN, StoreError
from verifylab.run_files import content, headline, text

__all__ = ["ROWS", "render", "write_report"]

#: Rows of a result that are shown; the file has them all.
ROWS = 200
#: Characters of a failed run's log that are shown, its end.
_LOG = 4000
_IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def write_report(sweep: str | Path, output: str | Path | None = None) -> Path:
    """Write the report of a sweep.

    Parameters
    ----------
    sweep : path
        Folder of a sweep.
    output : path, optional
        Default: ``report.html`` in that folder.

    Raises
    ------
    StoreError
        When there is no stored run, or `output` is a folder.
    """
    sweep = Path(sweep)
    path = Path(output) if output else sweep / "report.html"
    if path.is_dir():
        raise StoreError(f"{shown(path)} is a folder: name a file as --output")
    # A folder's name need not be text.
    return write_aside(path, render(sweep).encode("utf-8", "backslashreplace"))


def render(sweep: str | Path) -> str:
    """Return the report of a sweep as HTML."""
    runs = scan(sweep, deep=True)
    if not runs:
        raise StoreError(f"{shown(sweep)} has no stored run to report")
    good = [run for run in runs if run.status in GOOD]
    bad = [run for run in runs if run.status not in GOOD]
    name = runs[0].sweep
    varied = _varied(runs)
    counts = Counter(run.status for run in runs)
    number = f"{len(runs)} run{'s' * (len(runs) != 1)}"
    tally = ", ".join(f"{counts[s]} {s}" for s in SEEN if counts[s])
    parts = [
        f"<h1>{escape(name)}</h1>",
        f"<p class=tally>{number}: {escape(tally)}</p>",
        _overview(runs, varied),
    ]
    if bad:
        parts += ["<h2>Not ok</h2>", *map(_failure, bad)]
    if good:
        parts += ["<h2>Results</h2>"]
        parts += [_run(run, varied, opened=len(good) <= 3) for run in good]
    return (
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)}: {number}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _varied(runs: Sequence[Stored]) -> list[str]:
    """Parameters that are not the same in all runs."""
    names = dict.fromkeys(name for run in runs for name in run.parameters)
    texts = {n: {json.dumps(r.parameters.get(n), default=str) for r in runs} for n in names}
    return [name for name in names if len(texts[name]) > 1]


def _overview(runs: Sequence[Stored], varied: list[str]) -> str:
    head = ["run", "status", "note, headline", *varied, "repeat", "seconds", "started"]
    rows = []
    for run in runs:
        record = run.record
        values = [json.dumps(run.parameters.get(name), default=str) for name in varied]
        about = [record.repeat, f"{record.seconds:.1f}", record.started] if record else ["", "", ""]
        note = "; ".join(filter(None, (run.error, *(record.notes if record else ()))))
        link = f'<a href="#{escape(run.run)}">{escape(run.run)}</a>'
        said = _private("; ".join(filter(None, (note, headline(run.folder)))))
        rows.append(
            f"<tr><td>{link}</td>{_badge(run.status, 'td')}"
            f"<td class=said>{escape(said)}</td>"
            + "".join(f"<td>{escape(str(cell))}</td>" for cell in (*values, *about))
            + "</tr>"
        )
    return _wrapped(head, rows)


def _failure(run: Stored) -> str:
    log = ""
    if tail := _private(_COLOURS.sub("", text(run.folder, "log.txt")))[-_LOG:].strip():
        log = f"<details><summary>end of its log</summary><pre>{escape(tail)}</pre></details>"
    return (
        f'<section id="{escape(run.run)}"><h3>{escape(run.run)} {_badge(run.status)}</h3>'
        f"<p class=error>{escape(_private(run.error))}</p>{log}{_provenance(run)}</section>"
    )


def _run(run: Stored, varied: list[str], opened: bool) -> str:
    values = ", ".join(f"{n} = {json.dumps(run.parameters.get(n), default=str)}" for n in varied)
    body = [_figure(path) for path in _figures(run.folder)]
    if summary := _private(text(run.folder, "summary.txt").strip()):
        body[:0] = _prose_and_tables(summary)
    body += [_result(run), _provenance(run)]
    return (
        f'<section id="{escape(run.run)}"><details{" open" * opened}>'
        f"<summary><b>{escape(run.run)}</b> {_badge(run.status)} <span>{escape(values)}</span>"
        f"</summary>{''.join(body)}</details></section>"
    )


def _prose_and_tables(text: str) -> list[str]:
    """Return a summary's parts: sentences wrap, aligned columns scroll."""
    parts = []
    for block in re.split(r"\n\s*\n", text.rstrip()):
        if re.search(r"\S {2,}\S", block):
            parts.append(f"<pre>{escape(block.rstrip())}</pre>")
        else:
            parts += [f"<p>{escape(line.strip())}</p>" for line in block.splitlines() if line]
    return parts


def _figures(folder: Path) -> list[Path]:
    """Each figure once, as SVG where there is one: it stays sharp."""
    found: dict[str, Path] = {}
    for path in sorted((folder / "figures").glob("*"), key=lambda p: list(_IMAGES).index(p.suffix)
                       if p.suffix in _IMAGES else 9):  # fmt: skip
        if path.suffix in _IMAGES:
            found.setdefault(path.stem, path)
    return [found[stem] for stem in sorted(found)]


def _figure(path: Path) -> str:
    # As an image, not in line: whatever a figure's file holds, it cannot run or load anything.
    try:
        data = base64.b64encode(content(path)).decode("ascii")
    except OSError as error:
        told = f"left out: figures/{path.name}: {error.strerror}"
        return f"<p class=error>{escape(told)}</p>"
    name = escape(path.stem)
    source = f"data:{_IMAGES[path.suffix]};base64,{data}"
    return f'<figure><img alt="{name}" src="{source}"><figcaption>{name}</figcaption></figure>'


def _result(run: Stored) -> str:
    frame = load(run.folder)
    frame = frame.iloc[:, len(COLUMNS) + len(run.parameters) :]
    rows = [
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in frame.head(ROWS).itertuples(index=False)
    ]
    more = f", the first {ROWS} of {len(frame)} rows" if len(frame) > ROWS else ""
    table = _wrapped(list(map(str, frame.columns)), rows)
    return f"<details><summary>result.parquet{more}</summary>{table}</details>"


def _provenance(run: Stored) -> str:
    rows = [
        f"<tr><th>{escape(key)}</th><td>{escape(_private(_flat(value)))}</td></tr>"
        for key, value in ({"parameters": run.parameters} | origin_of(run)).items()
        if key != "schema"
    ]
    table = f"<table class=facts>{''.join(rows)}</table>"
    return f"<details><summary>parameters and provenance</summary>{table}</details>"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_flat(v)}" for k, v in value.items())
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:,.6g}"
    missing = value is None or str(value) in ("<NA>", "NaT")
    return "" if missing else str(value)


def _badge(status: str, tag: str = "span") -> str:
    return f'<{tag} class="status {escape(status)}">{escape(status)}</{tag}>'


def _wrapped(head: Iterable[str], rows: Iterable[str]) -> str:
    titles = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<div class=wide><table><tr>{titles}</tr>{''.join(rows)}</table></div>"


def _private(text: str) -> str:
    """Without the reader's home folder, which logs and errors may name."""
    home = os.path.expanduser("~")
    return text.replace(home, "~") if len(home) > 1 else text


_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,sans-serif;margin:0}
main{max-width:1200px;margin:auto;padding:1.5rem}
h1{margin:0}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
.tally{font-size:1.1rem}.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
th{background:var(--soft)}td{white-space:nowrap}
.facts td,.said{white-space:normal;overflow-wrap:anywhere}.said{min-width:20em}
section{margin:1rem 0}summary{cursor:pointer;padding:.3rem 0}
pre{overflow-x:auto;background:var(--soft);padding:.8rem;font-size:12.5px;line-height:1.35}
figure{margin:1rem 0}img{max-width:100%;background:#fff}figcaption{color:#888}
.status{font-weight:600;font-size:13px}.ok{color:#1a7f37}.stale{color:#9a6700}
.failed,.died,.timeout,.corrupt,.interrupted,.error{color:#c33}
"""
