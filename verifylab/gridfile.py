"""Grid files: which runs a sweep consists of, checked in full before anything starts.

A grid file is TOML::

    name = "width_gate"                      # folder under runs/; default: the file's name
    notebook = "notebooks/02_width_gate.ipynb"
    timeout_s = 900                          # for each run

    [parameters]                             # the same for every run
    steps = 2000

    [axes]                                   # every combination, the last axis fastest ...
    dcut_ratio = [0.5, 0.75]
    graph_capacity = [16, 32]

    [[rows]]                                 # ... or, instead of axes, one table a run
    dcut_ratio = 0.5

A relative `notebook` is looked for in the grid file's folder, then in each folder above it up to
the first that holds a ``pyproject.toml``. Relative paths inside parameters are the notebook's own
business: it runs in its own folder, as it does in JupyterLab.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifylab.notebook import Notebook, NotebookError, read_notebook
from verifylab.parameters import fit, show
from verifylab.paths import shown

__all__ = ["DEFAULT_TIMEOUT_S", "MAX_RUNS", "OUT", "Grid", "GridError", "Row", "read_grid"]

#: Seconds a run may take where the grid file says nothing: a choice of this module.
DEFAULT_TIMEOUT_S = 900.0
#: Runs that one grid may have: a choice of this module, so that a typo cannot fill a disk.
MAX_RUNS = 100_000
#: The parameter through which a notebook is told where to write.
OUT = "out"

_KEYS = ("name", "notebook", "timeout_s", "parameters", "axes", "rows")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


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
    """

    name: str
    given: dict[str, Any]
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Grid:
    """A checked grid file.

    Attributes
    ----------
    path : Path
    name : str
    notebook : Notebook
    rows : tuple of Row
        In running order; no two have the same parameters.
    timeout_s : float
        Wall seconds that each run may take.
    """

    path: Path
    name: str
    notebook: Notebook
    rows: tuple[Row, ...]
    timeout_s: float


def read_grid(path: str | Path) -> Grid:
    """Read and check a grid file and the notebook that it names.

    Raises
    ------
    GridError
        When anything in it is unknown, missing, mistyped or contradictory.
    """
    path = Path(path)
    body = _parse(path)
    for key in body:
        if key not in _KEYS:
            raise GridError(f"{path}: unknown key {key!r}{_meant(key, _KEYS)}")
    name = body.get("name", path.stem)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise GridError(
            f"{path}: name must be a plain folder name (letters, digits, '.', '_', '-'), "
            f"got {name!r}"
        )
    timeout_s = body.get("timeout_s", DEFAULT_TIMEOUT_S)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)):
        raise GridError(f"{path}: timeout_s must be a number of seconds, got {timeout_s!r}")
    if not 0 < timeout_s <= 1e9:
        raise GridError(f"{path}: timeout_s must be above 0 and at most 1e9, got {timeout_s}")
    notebook = _notebook(path, body.get("notebook"))
    if OUT not in notebook.defaults:
        raise GridError(
            f"{path}: notebook {shown(notebook.path)} has no parameter {OUT!r}: a notebook for "
            "sweeps needs one, the folder into which it writes result.parquet, summary.txt and "
            "figures/"
        )
    return Grid(path, name, notebook, _rows(path, body, notebook.defaults), float(timeout_s))


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GridError(f"grid file {path} does not exist") from None
    except OSError as error:
        raise GridError(f"grid file {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GridError(f"grid file {path} is not TOML: {error}") from None


def _notebook(path: Path, named: Any) -> Notebook:
    if not isinstance(named, str) or not named:
        raise GridError(f"{path}: notebook must be the path of a notebook, got {named!r}")
    try:
        return read_notebook(_find(path, named))
    except NotebookError as error:
        raise GridError(f"{path}: {error}") from None


def _find(path: Path, named: str) -> Path:
    """Apply the rule of the module's text."""
    home = path.resolve().parent
    above = [home, *home.parents]
    root = next((at for at, folder in enumerate(above) if (folder / "pyproject.toml").is_file()), 0)
    for folder in above[: root + 1]:
        if (folder / named).is_file():
            return folder / named
    raise GridError(
        f"{path}: notebook {named!r} does not exist, neither beside the grid file nor in a folder "
        "above it up to the project's root"
    )


def _rows(path: Path, body: Mapping[str, Any], defaults: dict[str, Any]) -> tuple[Row, ...]:
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
            {k: given.get(k, v) for k, v in defaults.items() if k != OUT},
        )
        same = json.dumps(row.parameters, sort_keys=True, default=repr)
        if same in rows:
            raise GridError(f"{path}: {where} repeats an earlier run: {show(varied)}")
        rows[same] = row
    return tuple(rows.values())


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


def _known(path: Path, where: str, name: str, defaults: dict[str, Any]) -> None:
    if name == OUT:
        raise GridError(f"{path}: {where} sets {OUT!r}, which the sweep sets itself: leave it out")
    if name in _KEYS and name not in defaults:
        raise GridError(
            f"{path}: {where} sets {name!r}, a key of the file itself: move it above the first "
            "[table]"
        )
    if name not in defaults:
        known = [n for n in defaults if n != OUT]
        raise GridError(
            f"{path}: {where} sets {name!r}, which the notebook does not have{_meant(name, known)}"
        )


def _meant(name: str, known: Iterable[str]) -> str:
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
    digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:8]
    return f"{slug}-{digest}"
