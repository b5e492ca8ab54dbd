"""Files from real engines in: find the format from the content, read it, say what it holds.

`read` takes any file that a reader here knows and returns a `Trace`; `inspect` sums one up;
`import_files` stores it like a run. What a source can and cannot say: `verifylab.trace_answers`.
"""

from __future__ import annotations

import codecs
import datetime as dt
import hashlib
import json
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import verifylab
from verifylab import read_bench as _bench
from verifylab import read_chrome as _chrome
from verifylab import read_engine_log as _engine
from verifylab import read_nsys as _nsys
from verifylab import read_step_trace as _read_step
from verifylab import read_vllm_log as _vllm
from verifylab import step_trace as _step
from verifylab.paths import shown
from verifylab.records import Record, write_records
from verifylab.trace_file import Notes, Trace, TraceError, blocks, head

__all__ = ["FORMATS", "Trace", "TraceError", "detect", "import_files", "inspect", "load", "read"]

#: Format: what it is.
FORMATS = {
    _engine.FORMAT: "Atlas engine log",
    _vllm.FORMAT: "vLLM log",
    _chrome.FORMAT: "Chrome or Kineto trace",
    _nsys.FORMAT: "Nsight Systems SQLite export",
    _bench.FORMAT_LADDER: "concurrency ladder JSON",
    _bench.FORMAT_SERVE: "vllm bench serve JSON",
    _step.FORMAT: "step trace (Parquet)",
}
_READERS: dict[str, Callable[[str | Path], Trace]] = {
    _engine.FORMAT: _engine.read_engine_log,
    _vllm.FORMAT: _vllm.read_vllm_log,
    _chrome.FORMAT: _chrome.read_chrome,
    _nsys.FORMAT: _nsys.read_nsys,
    _bench.FORMAT_LADDER: _bench.read_bench,
    _bench.FORMAT_SERVE: _bench.read_bench,
    _step.FORMAT: _read_step.read_step_trace,
}
_LOGS = {_engine.FORMAT: _engine.NEEDLES, _vllm.FORMAT: _vllm.NEEDLES}
_READABLE = {_engine.FORMAT: _engine.readable, _vllm.FORMAT: _vllm.readable}
#: A trace that is an array of events, by its beginning.
_EVENTS = re.compile(rb'[\s\xef\xbb\xbf]*\[\s*\{[^{}]{0,4096}"ph"')
#: Names that tell JSON formats apart, in the order in which they are tried.
_JSON = (
    (b'"traceEvents"', _chrome.FORMAT),
    (b'"rungs"', _bench.FORMAT_LADDER),
    (b'"output_throughput"', _bench.FORMAT_SERVE),
)
_OVERLAP = 1 << 13


def detect(path: str | Path) -> str:
    """Tell the format of a file from its content.

    Returns
    -------
    str
        One of `FORMATS`.

    Raises
    ------
    TraceError
        When it is none of them, or cannot be opened; the message says what it looks like.
    """
    return _detect(Path(path))[0]


def _detect(path: Path) -> tuple[str, str]:
    """Return the format, and a warning when the file has messages of another one too."""
    notes = Notes()
    start = head(path, notes=notes)
    if not start:
        if trouble := "; ".join(notes.texts()):
            raise TraceError(f"{path.name}: nothing can be decompressed from it ({trouble})")
        raise TraceError(f"{path.name} is empty")
    if start.startswith(_nsys.MAGIC):
        return _nsys.FORMAT, ""
    if start.startswith(_step.MAGIC):
        return _step.FORMAT, ""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise TraceError(f"{path.name} is UTF-16 text: convert it to UTF-8 first")
    looks_json = start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    if looks_json and _EVENTS.match(start):
        return _chrome.FORMAT, ""
    doubtful = ""
    carry = b""
    for block in blocks(path, Notes()):
        data = carry + block
        if looks_json:
            for word, name in _JSON:
                # A search for the bare word is fast, and settles most blocks.
                if word in data and re.search(rb"(?<!\\)" + word + rb"\s*:", data):
                    return name, ""
        # A needle may stand in any text: a message that can be read tells the format.
        needles = {n: sum(map(data.count, some)) for n, some in _LOGS.items()}
        found = {n: _READABLE[n](data) for n, count in needles.items() if count}
        if any(found.values()):
            chosen = max(found, key=lambda name: found[name])
            others = [FORMATS[n] for n, count in found.items() if count and n != chosen]
            also = f"has messages of another format too ({', '.join(others)}): not read here"
            return chosen, also if others else ""
        if found and not doubtful:
            doubtful = max(found, key=lambda name: needles[name])
        carry = data[-_OVERLAP:]
    if doubtful:
        return doubtful, ""
    what = "JSON or text" if looks_json else "text" if _is_text(start) else "binary data"
    raise TraceError(
        f"{path.name} is {what} of no known format; known are: {', '.join(FORMATS.values())}"
    )


def _is_text(start: bytes) -> bool:
    return b"\0" not in start and sum(b < 9 for b in start) * 100 <= len(start)


def read(path: str | Path, format: str | None = None) -> Trace:
    """Read a file of any known format.

    Parameters
    ----------
    path : path
    format : str, optional
        One of `FORMATS`; None finds it from the content.

    Raises
    ------
    TraceError
        When nothing can be read; the message is one sentence. What is wrong with a part of a
        file is a warning of the `Trace`, and the rest is kept.
    """
    if format is not None and format not in FORMATS:
        raise TraceError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    if format is not None:
        return _READERS[format](path)
    found, also = _detect(Path(path))
    trace = _READERS[found](path)
    return replace(trace, warnings=(*trace.warnings, also)) if also else trace


def inspect(path: str | Path) -> dict[str, Any]:
    """Say what is in a file.

    Returns
    -------
    dict
        ``file, format, what, steps, events, counts`` (by kind), ``about, warnings, gives,
        cannot``: JSON-able.

    Raises
    ------
    TraceError
        As `read`.
    """
    from verifylab.trace_answers import CANNOT, GIVES

    trace = read(path)
    return {
        "file": trace.source,
        "format": trace.format,
        "what": FORMATS[trace.format],
        "steps": trace.steps,
        "events": trace.events,
        "counts": dict(trace.counts),
        "about": dict(trace.about),
        "warnings": list(trace.warnings),
        "gives": list(GIVES[trace.format]),
        "cannot": list(CANNOT[trace.format]),
    }


def import_files(
    files: Sequence[str | Path],
    out: str | Path,
    *,
    on_bad: Callable[[Path, TraceError], None] | None = None,
) -> Path:
    """Read files and store them as one run folder.

    The folder has ``params.json``, ``status.json``, ``provenance.json``, ``result.parquet`` (a row
    a file and kind: ``file, format, kind, count``), ``summary.txt`` and
    ``tables/<number>_<table>.parquet``. It is written aside and renamed when whole.

    Parameters
    ----------
    files : sequence of path
    out : path
    on_bad : callable, optional
        Called with each file that cannot be read, and why; the others are stored.

    Raises
    ------
    TraceError
        When a file cannot be read (with `on_bad`: when none can), none is given, or `out` exists.
    """
    import pandas as pd

    out = Path(out)
    if not files:
        raise TraceError("no file to import")
    if out.exists():
        raise TraceError(f"{shown(out)} exists already: name a folder that does not")
    started, clock = _now(), time.monotonic()
    aside = out.with_name(f".part-{out.name}-{secrets.token_hex(6)}")
    try:
        (aside / "tables").mkdir(parents=True)
        described: list[dict[str, Any]] = []
        rows, hashes = [], {}
        for path in map(Path, files):
            try:
                trace = read(path)
            except TraceError as error:
                if on_bad is None:
                    raise
                on_bad(path, error)
                continue
            number = len(described)
            hashes[f"{number}_{trace.source}"] = _sha256(path)
            described.append(_store(trace, aside / "tables", number))
            rows += [
                {"file": trace.source, "format": trace.format, "kind": kind, "count": count}
                for kind, count in trace.counts.items()
            ]
        if not described:
            raise TraceError("no file could be read")
        pd.DataFrame(rows).to_parquet(aside / "result.parquet", index=False)
        text = "\n".join(
            f"{d['source']}: {FORMATS[d['format']]}, {d['steps']:,} steps, {d['events']:,} events"
            for d in described
        )
        (aside / "summary.txt").write_text(text + "\n", encoding="utf-8")
        record = Record(
            run=out.name,
            status="ok",
            error="",
            seconds=round(time.monotonic() - clock, 3),
            started=started,
            ended=_now(),
            identity="",
        )
        parameters = {"command": "import", "files": [d["source"] for d in described]}
        origin = {"verifylab": verifylab.__version__, "sha256": hashes, "traces": described}
        write_records(aside, record, parameters, origin)
        aside.rename(out)
    except OSError as error:
        raise TraceError(f"{out.name} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return out


def load(folder: str | Path) -> list[Trace]:
    """Read back the traces of a folder that `import_files` wrote.

    Raises
    ------
    TraceError
        When it is no such folder.
    """
    import pandas as pd

    folder = Path(folder)
    try:
        body = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
        return [
            Trace(
                d["format"],
                d["source"],
                {
                    name: pd.read_parquet(folder / "tables" / f"{number}_{name}.parquet")
                    for name in d["tables"]
                },
                d["counts"],
                d["steps"],
                d["events"],
                tuple(d["warnings"]),
                d["about"],
            )
            for number, d in enumerate(body["traces"])
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{folder.name} is no folder of imported traces: {error}") from None


def _store(trace: Trace, folder: Path, number: int) -> dict[str, Any]:
    import pandas as pd

    for name, frame in trace.tables.items():
        # Pandas writes lists of Arrow's, but does not know their type again when it reads them.
        lists = [c for c in frame if str(frame[c].dtype).startswith("list<")]
        plain = {c: pd.Series(frame[c].array.__arrow_array__().to_pandas()) for c in lists}
        frame = frame.assign(**plain)
        frame.to_parquet(folder / f"{number}_{name}.parquet", index=False)
    return {
        "source": trace.source,
        "format": trace.format,
        "tables": list(trace.tables),
        "counts": dict(trace.counts),
        "steps": trace.steps,
        "events": trace.events,
        "warnings": list(trace.warnings),
        "about": dict(trace.about),
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
