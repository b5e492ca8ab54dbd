"""Texts and JSON objects of the commands: from our objects to what is printed."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from verifylab._console import table
from verifylab.paths import shown

if TYPE_CHECKING:
    import pandas as pd

    from verifylab.explain import ArmExplained
    from verifylab.gate import Gate
    from verifylab.sweep import Outcome, Plan

__all__ = [
    "arm_object",
    "arm_text",
    "command_line",
    "ending",
    "outcome_object",
    "plain_rows",
    "plan_object",
    "plan_text",
    "validation_text",
    "written",
]


#: Arguments of a sweep that are paths.
_PATHS = ("grid_file", "out")


def command_line(context: click.Context) -> str:
    """Return a sweep's command line with the options that were typed, and nothing personal.

    Paths are as `shown` shows them; a cluster's address, which may name a host, is ``ADDRESS``.
    """
    words = ["verifylab", "sweep"]
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) != ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        if isinstance(parameter, click.Option):
            words.append(parameter.opts[0])
            if parameter.is_flag:
                continue
        if name == "dask":
            value = shown(value) if Path(value).is_file() else "ADDRESS"
        words.append(shown(value) if name in _PATHS else str(value))
    return shlex.join(words)


def arm_object(arm: ArmExplained) -> dict[str, Any]:
    """Return an arm for ``explain --json``."""
    return {
        "arm": arm.arm,
        "gate": arm.gate,
        "order": arm.order,
        "depths": arm.depths,
        "runs": [asdict(run) for run in arm.runs],
        "launches_per_layer": arm.launches_per_layer,
        "key_hex": _hex(arm.key),
        "dispatches": [
            {
                "start": part.start,
                "stop": part.stop,
                "launches_per_layer": part.launches_per_layer,
                "key_hex": _hex(part.key),
            }
            for part in arm.dispatches
        ],
    }


def arm_text(arm: ArmExplained, slots: Sequence[int], gate: Gate) -> str:
    """Return an arm as an indented block, for ``explain``."""
    why = f"canonical from width {gate.min_width} up" if gate.enabled else "its kill switch is set"
    runs = [
        {
            "run at": run.start,
            "sequences": run.length,
            "rows each": run.depth,
            "path": "fast" if run.fast else "declined",
            "launches": run.launches,
        }
        for run in arm.runs
    ]
    lines = [
        f"order     {' '.join(map(str, arm.order))}   (input index at each position)",
        f"slots     {' '.join(str(slots[index]) for index in arm.order)}",
        f"depths    {' '.join(map(str, arm.depths))}   (rows verified there)",
        *table(runs, list(runs[0])).splitlines(),
        f"launches  {arm.launches_per_layer} a layer",
        *(f"key       {_hex(part.key)}" for part in arm.dispatches),
    ]
    head = f"{arm.arm}   <- taken by the gate: {why}" if arm.gate else arm.arm
    return "\n  ".join([head, *lines])


def _hex(key: bytes | None) -> str | None:
    return None if key is None else key.hex()


def plan_object(todo: Plan) -> dict[str, Any]:
    """Return a planned run for ``sweep --dry-run --json``: the keys of `outcome_object`."""
    return {
        "run": todo.row.name,
        "status": "run" if todo.run else "stored",
        "seconds": None,
        "parameters": todo.row.parameters,
        "figures": [],
        "data": None,
        "notebook": None,
        "summary": None,
        "error": None,
    }


def plan_text(todo: Plan) -> str:
    """Return a planned run on one line."""
    given = ", ".join(f"{name} = {value!r}" for name, value in todo.row.given.items())
    what = "would run" if todo.run else "would not run"
    return f"{todo.row.name}: {what} ({todo.why}): {given or 'all defaults'}"


def outcome_object(outcome: Outcome) -> dict[str, Any]:
    """Return a run for ``sweep --json``."""
    return {
        "run": outcome.row.name,
        "status": outcome.record.status,
        "seconds": outcome.record.seconds,
        "parameters": outcome.row.parameters,
        "figures": [shown(path) for path in outcome.figures],
        "data": shown(outcome.data) if outcome.data else None,
        "notebook": shown(outcome.notebook) if outcome.notebook else None,
        "summary": outcome.summary or None,
        "error": outcome.record.error or None,
    }


def ending(outcome: Outcome) -> str:
    """Say on one line how a run ended."""
    record = outcome.record
    if outcome.stored:
        return (
            f"{record.run}: stored, done {record.ended} with the same parameters, notebook and "
            "library (--force runs it again)"
        )
    error = f": {record.error}" if record.error else ""
    return f"{record.run}: {record.status} after {record.seconds:.1f} s{error}"


def written(outcome: Outcome) -> str:
    """List what a run wrote, one path a line."""
    named = [
        *(("figure", path) for path in outcome.figures),
        ("data", outcome.data),
        ("notebook", outcome.notebook),
    ]
    lines = [f"{outcome.row.name}: {outcome.record.status}"]
    if outcome.record.error:
        lines.append(f"error     {outcome.record.error}")
    lines += [f"{name:<8}  {shown(path)}" for name, path in named if path]
    return "\n  ".join(lines)


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows with Python's own numbers, and None where a value is missing."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(k): v.item() if hasattr(v, "item") else v for k, v in row.items()} for row in rows]


def validation_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of `verifylab.validation` as a table, and under it what is to be noted."""
    notes = [
        textwrap.fill(
            f"- {row['figure']} ({row['source']}): {row['note']}", 100, subsequent_indent="  "
        )
        for row in rows
        if row["note"]
    ]
    columns = ["figure", "published", "ours", "role", "verdict"]
    return "\n\n".join([table(rows, columns, wrap=36), "\n".join(notes)]).rstrip()
