"""Who wrote a line of a log: what a collector put before it, without the time.

`docker compose logs`, `docker logs -t`, `kubectl logs --prefix --timestamps`, the container
runtime's own files and journald all put a time, a name, or both before each line.
"""

from __future__ import annotations

import re

__all__ = ["collected", "engine_name"]

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_TIME = (
    r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    rf"|(?:\b[A-Z][a-z][a-z] )?\b(?:{_MONTHS})  ?\d{{1,2}} \d\d:\d\d:\d\d(?:\.\d{{1,9}})?"
    r"|(?<![\w.:-])\d{10}(?:\d{3}|\d{6}|\d{9})?(?:\.\d{1,9})?(?![\w.:-])"
    r"|(?<![\w.:-])\d{1,9}\.\d{6}(?![\w.:-])"
    r"|(?<![\w.:-])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?![\w.:-]))"
)
_TIMES = re.compile(rf"\[? {{0,8}}{_TIME}\]?")
#: Which stream a container wrote to, and whether the line is whole.
_STREAM = r"std(?:out|err) [FP]\b"
_STREAMS = re.compile(_STREAM)
_COLLECTED = re.compile(
    rf"(?:(?P<service>[\w.-]{{1,64}}) +\| +)?(?P<pod>\[pod/[\w./-]{{1,200}}\] )?"
    rf"(?:\[? {{0,8}}{_TIME}\]?\s+)?(?:{_STREAM} )?"
    rf"(?P<unit>[\w.-]{{1,64}} [\w.@-]{{1,64}}\[\d{{1,12}}\]: )?(?:{_TIME}\s+)?"
)
#: A level is part of a message: what stands there is half a line.
_LEVEL = re.compile(r"\b(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR)\b")
_MOST = 64


def engine_name(prefix: str) -> str:
    """Return what names an engine in the text before a line's own time; empty: nothing does."""
    name = " ".join(_STREAMS.sub(" ", _TIMES.sub(" ", prefix)).split()).strip(" |:")
    return "" if len(name) > _MOST or _LEVEL.search(name) else name


def collected(line: str) -> tuple[str, str]:
    """Return the name that a collector put before a line, and the line as its engine wrote it."""
    found = _COLLECTED.match(line)
    if not found or not found.end():
        return "", line
    names = (found["service"], found["pod"], found["unit"])
    return " ".join(n.strip(" :") for n in names if n), line[found.end() :]
