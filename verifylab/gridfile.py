"""Grid files: which runs a sweep consists of, checked in full before anything starts.

A grid file is TOML::

    name = "width_gate"                      # folder under runs/; default: the file's name
    notebook = "notebooks/02_width_gate.ipynb"
    timeout_s = 900                          # for each run
    memory_mb = 4000                         # for each run; default: no limit
    repeats = 3                              # of each run; see `verifylab.repeats`
    order_seed = 0                           # of the order in which repeats are run

    [parameters]                             # the same for every run
    steps = 2000

    [axes]                                   # every combination, the last axis fastest ...
    dcut_ratio = [0.5, 0.75]
    graph_capacity = [16, 32]

    [[rows]]                                 # ... or, instead of axes, one table a run
    dcut_ratio = 0.5

A relative `notebook` is looked for in the grid file's folder, then in each folder above it up to
the first that holds a ``pyproject.toml``. Relative paths inside parameters are the notebook's own
business: it runs in its own folder, as it does in JupyterLab. Only a `MACHINE` is looked for
beforehand, as it would look for it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifylab.grid_rows import KEYS, MAX_RUNS, OUT, GridError, Row, meant, rows_of
from verifylab.notebook import Notebook, NotebookError, read_notebook
from verifylab.paths import shown
from verifylab.repeats import interleaved
from verifylab.run_files import content
from verifylab.strict_json import MAX_DEPTH, nests

__all__ = ["DEFAULT_TIMEOUT_S", "MAX_RUNS", "OUT", "Grid", "GridError", "Row", "read_grid"]

#: Seconds a run may take where the grid file says nothing: a choice of this module.
DEFAULT_TIMEOUT_S = 900.0

#: The parameter that names a machine profile, where the notebook's default is one.
MACHINE = "machine"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Grid:
    """A checked grid file.

    Attributes
    ----------
    path : Path
    name : str
    notebook : Notebook
    rows : tuple of Row
        In running order; no two have the same parameters and repeat.
    timeout_s : float
        Wall seconds that each run may take.
    memory_mb : float or None
        Resident memory that the processes of each run may hold together, in units of 10**6 bytes.
    """

    path: Path
    name: str
    notebook: Notebook
    rows: tuple[Row, ...]
    timeout_s: float
    memory_mb: float | None = None


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
        if key not in KEYS:
            raise GridError(f"{path}: unknown key {key!r}{meant(key, KEYS)}")
    name = body.get("name", path.stem)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise GridError(
            f"{path}: name must be a plain folder name (letters, digits, '.', '_', '-'), "
            f"got {name!r}"
        )
    timeout_s = _number(path, body, "timeout_s", "seconds", 1e9, DEFAULT_TIMEOUT_S)
    memory_mb = _number(path, body, "memory_mb", "megabytes", 1e9, None)
    notebook = _notebook(path, body.get("notebook"))
    if OUT not in notebook.defaults:
        raise GridError(
            f"{path}: notebook {shown(notebook.path)} has no parameter {OUT!r}: a notebook for "
            "sweeps needs one, the folder into which it writes result.parquet, summary.txt and "
            "figures/"
        )
    rows = rows_of(path, body, notebook.defaults)
    _check_machines(path, notebook, rows)
    repeats = _whole(path, body, "repeats", 1, MAX_RUNS, 1)
    if len(rows) * repeats > MAX_RUNS:
        raise GridError(
            f"{path}: {len(rows)} runs with repeats = {repeats} make {len(rows) * repeats} runs, "
            f"at most {MAX_RUNS} are allowed"
        )
    order_seed = _whole(path, body, "order_seed", 0, 2**63 - 1, 0)
    try:
        rows = tuple(interleaved(rows, repeats, order_seed, notebook.defaults))
    except ValueError as error:
        raise GridError(f"{path}: {error}") from None
    assert timeout_s is not None
    return Grid(path, name, notebook, rows, timeout_s, memory_mb)


def _check_machines(path: Path, notebook: Notebook, rows: Iterable[Row]) -> None:
    """Refuse machine profiles that the notebook would not find, each only when its run starts."""
    named = dict.fromkeys(row.given[MACHINE] for row in rows if MACHINE in row.given)
    default = notebook.defaults.get(MACHINE)
    if not named or not isinstance(default, str):
        return
    from verifylab.machine import load_profile  # needs NumPy, which a plain grid does without
    from verifylab.published import DataError

    folder = notebook.path.parent
    try:
        load_profile(default, folder)
    except DataError:  # another notebook's word for something else
        return
    for name in named:
        try:
            load_profile(name, folder)
        except DataError as error:
            raise GridError(f"{path}: {error}") from None


def _number(
    path: Path, body: Mapping[str, Any], key: str, unit: str, most: float, default: float | None
) -> float | None:
    value = body.get(key, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise GridError(f"{path}: {key} must be a number of {unit}, got {value!r}")
    if not 0 < value <= most:
        raise GridError(f"{path}: {key} must be above 0 and at most 1e9, got {value}")
    return float(value)


def _whole(
    path: Path, body: Mapping[str, Any], key: str, least: int, most: int, default: int
) -> int:
    value = body.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise GridError(
            f"{path}: {key} must be a whole number from {least} to {most}, got {value!r}"
        )
    return value


def _within_64_bits(value: Any) -> None:
    """Refuse integers beyond TOML's range, which Python would read and could not print."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _within_64_bits(item)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("an integer must fit in 64 bits")


def _parse(path: Path) -> dict[str, Any]:
    try:
        body = tomllib.loads(content(path).decode("utf-8"))
        if nests(body):
            raise RecursionError
        _within_64_bits(body)
        return body
    except FileNotFoundError:
        raise GridError(f"grid file {path} does not exist") from None
    except OSError as error:
        raise GridError(f"grid file {path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise GridError(
            f"grid file {path} has more than {MAX_DEPTH} levels of lists and tables"
        ) from None
    except ValueError as error:  # also a number too long to read
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
