"""The runs of a grid file: axes or rows made into parameter sets, each value held to its type."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifylab.notebook import UNKNOWN
from verifylab.parameters import fit, show

__all__ = ["KEYS", "MAX_RUNS", "OUT", "GridError", "Row", "meant", "rows_of"]

#: Runs that one grid may have: a choice of this module, so that a typo cannot fill a disk.
MAX_RUNS = 100_000
#: The parameter through which a notebook is told where to write.
OUT = "out"
#: What a grid file may hold.
KEYS = (
    "name",
    "notebook",
    "timeout_s",
    "memory_mb",
    "repeats",
    "order_seed",
    "parameters",
    "axes",
    "rows",
)


class GridError(ValueError):
    """A grid file does not say what to run; the message names the entry and what would be right."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run of a grid.

    Attributes
    ----------
    name : str
        Folder name: what varies, readable, and a hash of what the grid file sets.
    given : dict of str to object
        What the grid file sets for this run.
    parameters : dict of str to object
        All the notebook's parameters but `OUT`: its defaults, overridden by `given`.
    repeat : int
        Which repeat of these parameters it is, from 0.
    """

    name: str
    given: dict[str, Any]
    parameters: dict[str, Any]
    repeat: int = 0


def rows_of(path: Path, body: Mapping[str, Any], defaults: dict[str, Any]) -> tuple[Row, ...]:
    """Return the runs of a parsed grid file, each once.

    Parameters
    ----------
    path : Path
        For messages.
    body : mapping
        The file.
    defaults : dict
        The notebook's parameters.

    Raises
    ------
    GridError
        When a parameter is unknown, mistyped or set twice, or a run comes twice.
    """
    if "axes" in body and "rows" in body:
        raise GridError(f"{path}: give [axes] or [[rows]], not both")
    fixed = _checked(path, "[parameters]", body.get("parameters", {}), defaults)
    rows: dict[str, Row] = {}
    for where, varied in _varied(path, body, defaults):
        if both := sorted(fixed.keys() & varied.keys()):
            raise GridError(f"{path}: {both[0]!r} is set in [parameters] and again in {where}")
        given = {**fixed, **varied}
        row = Row(
            _run_name(varied, given),
            given,
            _values(given, defaults),
        )
        same = json.dumps(_as_one(row.parameters), sort_keys=True, default=repr)
        if same in rows:
            raise GridError(f"{path}: {where} repeats an earlier run: {show(varied)}")
        rows[same] = row
    return tuple(rows.values())


def _as_one(value: Any) -> Any:
    """Write ``1.0`` as ``1``: a default that is None does not say which of the two is meant."""
    if isinstance(value, dict):
        return {name: _as_one(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_one(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _varied(
    path: Path, body: Mapping[str, Any], defaults: dict[str, Any]
) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield where it stands and what it sets, for each run."""
    if "rows" in body:
        rows = body["rows"]
        if not isinstance(rows, list) or not rows:
            raise GridError(f"{path}: rows must be one or more [[rows]] tables, got {rows!r}")
        return [
            (f"row {at}", _checked(path, f"row {at}", row, defaults))
            for at, row in enumerate(rows, 1)
        ]
    axes = body.get("axes", {})
    if not isinstance(axes, dict):
        raise GridError(f"{path}: [axes] must be a table of lists, got {axes!r}")
    for axis, values in axes.items():
        _known(path, "[axes]", axis, defaults)
        if not isinstance(values, list) or not values:
            raise GridError(f"{path}: axis {axis!r} must be a list of values, got {show(values)}")
    runs = math.prod(len(values) for values in axes.values())
    if runs > MAX_RUNS:
        raise GridError(f"{path}: [axes] make {runs} runs, at most {MAX_RUNS} are allowed")
    checked = {
        axis: [_typed(path, "[axes]", axis, value, defaults[axis]) for value in values]
        for axis, values in axes.items()
    }
    return [
        ("[axes]", dict(zip(checked, values, strict=True)))
        for values in itertools.product(*checked.values())
    ]


def _checked(path: Path, where: str, table: Any, defaults: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise GridError(f"{path}: {where} must be a table of parameters, got {table!r}")
    for name in table:
        _known(path, where, name, defaults)
    return {name: _typed(path, where, name, v, defaults[name]) for name, v in table.items()}


def _values(given: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Every parameter's value; one that only its cell knows is left to the cell."""
    values = {name: given.get(name, default) for name, default in defaults.items() if name != OUT}
    return {name: value for name, value in values.items() if value is not UNKNOWN}


def _known(path: Path, where: str, name: str, defaults: dict[str, Any]) -> None:
    if name == OUT:
        raise GridError(f"{path}: {where} sets {OUT!r}, which the sweep sets itself: leave it out")
    if name in KEYS and name not in defaults:
        raise GridError(
            f"{path}: {where} sets {name!r}, a key of the file itself: move it above the first "
            "[table]"
        )
    if name not in defaults:
        known = [n for n in defaults if n != OUT]
        raise GridError(
            f"{path}: {where} sets {name!r}, which the notebook does not have{meant(name, known)}"
        )


def meant(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest of the known names, or list them all."""
    known = list(known)
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else f" (there are: {', '.join(known)})"


def _typed(path: Path, where: str, name: str, value: Any, default: Any) -> Any:
    """Return `value` as the notebook's default has it: an int becomes a float where that is one."""
    problem, value = fit(value, default)
    if problem:
        raise GridError(
            f"{path}: {where} {name} must be {problem}, like the notebook's default "
            f"{show(default)}, got {show(value)}"
        )
    return value


def _run_name(varied: dict[str, Any], given: dict[str, Any]) -> str:
    if not given:
        return "default"
    words = "_".join(f"{name}-{show(value)}" for name, value in varied.items()) or "fixed"
    slug = re.sub(r"[^A-Za-z0-9.,_-]+", "", words).strip(".-")[:60]
    digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]
    return f"{slug}-{digest}"
