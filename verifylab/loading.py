"""Reading what is stored: which runs there are, and all their results as one table.

Listing opens the JSON records alone; `load` reads and checks the results too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifylab.paths import shown, unshown
from verifylab.records import (
    ALTERED,
    GOOD,
    NEWER,
    Record,
    StoreError,
    altered,
    content_of,
    damage,
    read_status,
)
from verifylab.result_tables import converted, read_result, together, unique
from verifylab.run_folder import RECORDS
from verifylab.strict_json import parse

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLUMNS",
    "Stored",
    "freshness",
    "is_run",
    "load",
    "origin_of",
    "passed_over",
    "read_object",
    "scan",
    "told_of",
]

#: Columns about the run that `load` puts in front.
COLUMNS = ("sweep", "run", "status", "repeat", "attempts", "seconds", "started", "error")

_OF_A_RUN = ("status.json", "params.json", "result.parquet", "notebook.ipynb")


@dataclass(frozen=True, slots=True)
class Stored:
    """One folder of the store.

    Attributes
    ----------
    sweep, run : str
        Names of the folders. A failure beside an older good result is ``<run>.failed``.
    folder : Path
    status : str
        One of `verifylab.records.SEEN`.
    error : str
        One line: of the run, or what is the matter with its files.
    record : Record or None
        None when it cannot be read.
    parameters : dict
        Empty when they cannot be read.
    """

    sweep: str
    run: str
    folder: Path
    status: str
    error: str
    record: Record | None
    parameters: dict[str, Any] = field(default_factory=dict)


def scan(
    paths: str | Path | Iterable[str | Path], *, deep: bool = False, tables: bool = False
) -> list[Stored]:
    """List the runs in any number of folders, by sweep and name.

    ``corrupt`` is judged by the records and by the sizes of files, ``stale`` by the hashes of the
    library and, where it is still to be found, of the notebook.

    Parameters
    ----------
    paths : path or paths
        Folders of runs, of sweeps or of all sweeps.
    deep : bool
        Also hold every data file against its checksum, tables too.
    tables : bool
        Look at the CSV files as well.

    Raises
    ------
    StoreError
        When one is no folder.
    """
    fresh = freshness()
    found: dict[Path, Stored] = {}
    for run, foreign in _runs(paths):
        if not foreign:
            found.setdefault(run, _stored(run, fresh, deep, tables or deep))
    return sorted(found.values(), key=lambda stored: (stored.sweep, stored.run))


def passed_over(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """List what `scan` passes over: beside sweeps, results that plain papermill wrote.

    No sweep and no import stored them: they have no record. Named itself, such a folder is scanned.
    """
    return sorted({run for run, foreign in _runs(paths) if foreign})


def told_of(folder: Path) -> str:
    """Say why a folder is passed over."""
    return (
        f"{shown(folder)}: it has no record, so that no sweep or import stored it (plain "
        "papermill, perhaps)"
    )


def load(paths: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Read stored results into one table.

    Parameters
    ----------
    paths : path or paths
        Folders of runs, of sweeps or of all sweeps; as `scan`.

    Returns
    -------
    DataFrame
        `COLUMNS`, then ``param_<name>`` for each parameter of the notebooks, then the columns of
        the results; one of these that is called like one of `COLUMNS` becomes ``result_<name>``.
        A run with a result has a row for each of its rows; any other has one row, nothing in the
        result's columns (whole numbers and flags are then of pandas' types that can be missing).
        Of columns of one name in one result, the second becomes ``<name>.1``, and so on.
        A result whose checksum does not hold, or whose values pandas cannot hold, is left out:
        ``corrupt``.

    Raises
    ------
    StoreError
        When a path is no folder, or a newer version of this library wrote what is in it.
    """
    import pandas as pd

    runs: list[Stored] = []
    tables: dict[int, Any] = {}
    for stored in scan(paths):
        if NEWER in stored.error:
            raise StoreError(f"{shown(stored.folder)} has {stored.error}: update verifylab")
        if stored.record and stored.status in GOOD:
            table, problem = read_result(stored.folder, stored.record)
            if problem:
                stored = replace(stored, status="corrupt", error=problem)
            elif table.num_rows:
                tables[len(runs)] = table
        runs.append(stored)
    frames, unfit = converted(tables)
    for at, problem in unfit.items():
        runs[at] = replace(runs[at], status="corrupt", error=problem)
    about = pd.DataFrame([_about(stored) for stored in runs], columns=list(COLUMNS))
    names = dict.fromkeys(name for stored in runs for name in stored.parameters)
    parameters = {
        f"param_{name}": pd.Series([stored.parameters.get(name) for stored in runs], about.index)
        for name in names
    }
    about = pd.concat([about, pd.DataFrame(parameters, about.index)], axis=1)
    if not frames:
        return about
    results = together(frames, gaps=len(tables) - len(unfit) < len(runs))
    renamed = unique(f"result_{n}" if n in about else str(n) for n in results)
    results.columns = pd.Index(renamed)
    return about.join(results).reset_index(drop=True)


def freshness() -> Callable[[Record], bool]:
    """Return a function that says whether library and notebook are still those of a record."""
    from verifylab.notebook import NotebookError, read_notebook
    from verifylab.provenance import library_hash

    library = library_hash()

    @cache
    def source(notebook: str) -> str:
        try:
            return read_notebook(unshown(notebook)).source_hash
        except NotebookError:  # moved, or seen from another folder: nothing is known
            return ""

    def fresh(record: Record) -> bool:
        if record.library and record.library != library:
            return False
        now = source(record.notebook) if record.notebook else ""
        return now in ("", record.notebook_source)

    return fresh


def _runs(paths: str | Path | Iterable[str | Path]) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of runs in folders of a run, of a sweep or of all sweeps.

    Single runs may lie beside sweeps, as ``verifylab import`` and papermill put them there. With
    each comes whether it is such a one without any record: nothing that was stored.
    """
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        folder = Path(path)
        if not folder.is_dir():
            raise StoreError(f"{shown(folder)} is no folder of stored runs")
        if is_run(folder):
            yield folder, False
            continue
        for run, of_a_sweep in _runs_below(folder):
            yield run, not of_a_sweep and not any((run / name).is_file() for name in RECORDS)


def _runs_below(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of runs below one, each with whether it lies in a sweep's folder."""
    inside = {sub: is_run(sub) for sub in _folders(folder)}
    sweeps = [sub for sub, run in inside.items() if not run and _is_sweep(sub)]
    if not sweeps and (folder / ".lock").is_file():
        yield from ((sub, True) for sub in inside)  # a run, in whatever state
        return
    yield from ((sub, False) for sub, run in inside.items() if run)
    for sweep in sweeps:
        locked = (sweep / ".lock").is_file()
        yield from ((sub, locked) for sub in _folders(sweep) if locked or is_run(sub))


def _is_sweep(folder: Path) -> bool:
    return (folder / ".lock").is_file() or any(map(is_run, _folders(folder)))


def _folders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(e.path) for e in entries if not e.name.startswith(".") and e.is_dir()]


def is_run(folder: Path) -> bool:
    """Whether a folder holds anything that a run leaves."""
    return any((folder / name).is_file() for name in _OF_A_RUN)


def _stored(folder: Path, fresh: Callable[[Record], bool], deep: bool, tables: bool) -> Stored:
    sweep = folder.parent.name or folder.resolve().parent.name
    record, problem = read_status(folder)
    parameters, digest, unsound = _parameters(folder)
    if record is None:
        return Stored(sweep, folder.name, folder, "corrupt", problem, None, parameters)
    problem = damage(folder, record, quick=not deep, tables=tables)
    if not problem and altered(record.checksums, "params.json", digest):
        problem = f"params.json {ALTERED}"
    problem = problem or unsound
    if deep and not problem:
        problem = read_object(folder, "provenance.json")[2]
    status, error = record.status, record.error
    if problem:
        status, error = "corrupt", problem
    elif status == "ok" and not fresh(record):
        status = "stale"
    return Stored(sweep, folder.name, folder, status, error, record, parameters)


def origin_of(run: Stored) -> dict[str, Any]:
    """Read a run's provenance, empty where it cannot be read."""
    return read_object(run.folder, "provenance.json")[0]


def _parameters(folder: Path) -> tuple[dict[str, Any], str, str]:
    """Return a run's parameters, the hash of their file, and what is the matter with it."""
    body, digest, problem = read_object(folder, "params.json")
    found = body.get("parameters") if body else {}
    if isinstance(found, dict):
        return found, digest, problem
    return {}, digest, "a params.json whose parameters are no object"


def read_object(folder: Path, name: str) -> tuple[dict[str, Any], str, str]:
    """Read an object, the hash of its file, and what is the matter with it where it is there."""
    digest = ""
    try:
        content = content_of(folder, name)
        digest = hashlib.sha256(content).hexdigest()
        body = parse(content)
    except FileNotFoundError:
        return {}, "", ""
    except OSError as error:
        return {}, "", f"a {name} that cannot be read: {error.strerror}"
    except ValueError:
        return {}, digest, f"a {name} that is not JSON"
    return (body, digest, "") if isinstance(body, dict) else ({}, digest, f"no object in {name}")


def _about(stored: Stored) -> list[Any]:
    record = stored.record
    head = [stored.sweep, stored.run, stored.status]
    if record is None:
        return [*head, None, None, None, None, stored.error]
    return [*head, record.repeat, record.attempts, record.seconds, record.started, stored.error]
