"""Texts and JSON objects of the commands about stored runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from verifylab.paths import shown
from verifylab.run_files import headline

if TYPE_CHECKING:
    from verifylab.comparing import Delta
    from verifylab.loading import Stored

__all__ = [
    "delta_object",
    "delta_row",
    "run_details",
    "run_object",
    "run_text",
]

_FILES = {"data": "result.parquet", "notebook": "notebook.ipynb"}


def run_object(run: Stored) -> dict[str, Any]:
    """Return a run for ``runs --json``."""
    record = run.record
    return {
        "sweep": run.sweep,
        "run": run.run,
        "status": run.status,
        "seconds": record.seconds if record else None,
        "started": record.started if record else None,
        "ended": record.ended if record else None,
        "repeat": record.repeat if record else None,
        "attempts": record.attempts if record else None,
        "parameters": run.parameters,
        "error": run.error or None,
        "folder": shown(run.folder),
    }


def run_details(run: Stored) -> dict[str, Any]:
    """Return what ``runs --show --json`` says more about a run."""
    from verifylab.loading import origin_of

    files = {name: run.folder / file for name, file in _FILES.items()}
    return {
        "headline": headline(run.folder) or None,
        "provenance": origin_of(run),
        "notes": list(run.record.notes) if run.record else [],
        "figures": [shown(path) for path in sorted((run.folder / "figures").glob("*"))],
        **{name: shown(path) if path.is_file() else None for name, path in files.items()},
    }


def run_text(run: Stored) -> str:
    """Return all about a run as an indented block."""
    body = {**run_object(run), **run_details(run)}
    lines = [f"{body.pop('sweep')}/{body.pop('run')}: {body.pop('status')}"]
    for name, value in body.items():
        if isinstance(value, dict):
            lines.append(name)
            lines += [f"  {key:<16}  {_text(item)}" for key, item in value.items()]
        elif value not in (None, []):
            lines.append(f"{name:<18}  {_text(value)}")
    return "\n  ".join(lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def delta_object(delta: Delta) -> dict[str, Any]:
    """Return a line of a comparison for ``compare --json``."""
    body = asdict(delta)
    return {"class": body.pop("kind"), **body}


def delta_row(delta: Delta) -> dict[str, Any]:
    """Return a line of a comparison as cells of a table."""
    sides = (delta.low_pct, delta.high_pct)
    between = "" if None in sides else "[{:+z.2f}, {:+z.2f}]".format(*sides)
    return {
        "class": delta.kind,
        "metric": delta.metric,
        "where": " ".join(f"{name}={_text(value)}" for name, value in delta.where.items()) or "all",
        "a": delta.a,
        "b": delta.b,
        "delta %": "" if delta.delta_pct is None else f"{delta.delta_pct:+z.2f}",
        "95 %": between,
        "n": delta.n,
    }
