"""Reading what is stored: which runs there are, and all their results as one table.

Listing opens the JSON records alone; `load` reads and checks the results too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifylab.paths import shown
from verifylab.records import NEWER, Record, StoreError, content_of, damage, read_status

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "Stored", "freshness", "is_run", "load", "scan"]

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


def scan(paths: str | Path | Iterable[str | Path], *, deep: bool = False) -> list[Stored]:
    """List the runs in any number of folders, by sweep and name.

    ``corrupt`` is judged by the records and by the sizes of files, ``stale`` by the hashes of the
    library and, where it is still to be found, of the notebook.

    Parameters
    ----------
    paths : path or paths
        Folders of runs, of sweeps or of all sweeps.
    deep : bool
        Also hold every data file against its checksum.

    Raises
    ------
    StoreError
        When one is no folder.
    """
    fresh = freshness()
    found: dict[Path, Stored] = {}
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        folder = Path(path)
        if not folder.is_dir():
            raise StoreError(f"{shown(folder)} is no folder of stored runs")
        for run in _runs(folder):
            found.setdefault(run, _stored(run, fresh, deep))
    return sorted(found.values(), key=lambda stored: (stored.sweep, stored.run))


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
        A result whose checksum does not hold is left out: ``corrupt``.

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
        if stored.status in ("ok", "stale"):
            table, problem = _result(stored)
            if problem:
                stored = replace(stored, status="corrupt", error=problem)
            elif table.num_rows:
                tables[len(runs)] = table
        runs.append(stored)
    about = pd.DataFrame([_about(stored) for stored in runs], columns=list(COLUMNS))
    names = dict.fromkeys(name for stored in runs for name in stored.parameters)
    parameters = {
        f"param_{name}": pd.Series([stored.parameters.get(name) for stored in runs], about.index)
        for name in names
    }
    about = pd.concat([about, pd.DataFrame(parameters, about.index)], axis=1)
    results = _together(tables, gaps=len(tables) < len(runs))
    if results is None:
        return about
    results = results.rename(columns={n: f"result_{n}" for n in results if n in about})
    return about.join(results).reset_index(drop=True)


def freshness() -> Callable[[Record], bool]:
    """Return a function that says whether library and notebook are still those of a record."""
    from verifylab.notebook import NotebookError, read_notebook
    from verifylab.provenance import library_hash

    library = library_hash()

    @cache
    def source(notebook: str) -> str:
        try:
            return read_notebook(Path(notebook).expanduser()).source_hash
        except NotebookError:  # moved, or seen from another folder: nothing is known
            return ""

    def fresh(record: Record) -> bool:
        if record.library and record.library != library:
            return False
        now = source(record.notebook) if record.notebook else ""
        return now in ("", record.notebook_source)

    return fresh


def _runs(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs in a folder of a run, of a sweep or of all sweeps.

    Single runs may lie beside sweeps, as papermill and ``verifylab import`` put them there.
    """
    if is_run(folder):
        yield folder
        return
    inside = _folders(folder)
    sweeps = [sub for sub in inside if not is_run(sub) and _is_sweep(sub)]
    if not sweeps and (folder / ".lock").is_file():
        yield from inside  # what lies in a sweep is a run, in whatever state
        return
    yield from filter(is_run, inside)
    for sweep in sweeps:
        below = _folders(sweep)
        yield from below if (sweep / ".lock").is_file() else filter(is_run, below)


def _is_sweep(folder: Path) -> bool:
    return (folder / ".lock").is_file() or any(map(is_run, _folders(folder)))


def _folders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(e.path) for e in entries if not e.name.startswith(".") and e.is_dir()]


def is_run(folder: Path) -> bool:
    """Whether a folder holds anything that a run leaves."""
    return any((folder / name).is_file() for name in _OF_A_RUN)


def _stored(folder: Path, fresh: Callable[[Record], bool], deep: bool) -> Stored:
    sweep = folder.parent.name or folder.resolve().parent.name
    record, problem = read_status(folder)
    if record is None:
        return Stored(sweep, folder.name, folder, "corrupt", problem, None, _parameters(folder)[0])
    parameters, digest = _parameters(folder)
    problem = damage(folder, record, quick=not deep)
    written = record.checksums.get("params.json")
    if not problem and written and written.get("sha256") != digest:
        problem = "params.json is not as it was written (its checksum differs)"
    status, error = record.status, record.error
    if problem:
        status, error = "corrupt", problem
    elif status == "ok" and not fresh(record):
        status = "stale"
    return Stored(sweep, folder.name, folder, status, error, record, parameters)


def _parameters(folder: Path) -> tuple[dict[str, Any], str]:
    """Return a run's parameters and the hash of the file that holds them."""
    try:
        content = content_of(folder, "params.json")
        found = json.loads(content)["parameters"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return {}, ""
    return found if isinstance(found, dict) else {}, hashlib.sha256(content).hexdigest()


def _result(stored: Stored) -> tuple[Any, str]:
    """Read a result once, for its checksum and for its content."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert stored.record is not None
    try:
        content = content_of(stored.folder, "result.parquet")
        written = stored.record.checksums.get("result.parquet")
        if written and hashlib.sha256(content).hexdigest() != written.get("sha256"):
            return None, "result.parquet is not as it was written (its checksum differs)"
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        return None, f"a result.parquet that cannot be read: {' '.join(str(error).split())[:200]}"
    return table.replace_schema_metadata(None), ""


def _about(stored: Stored) -> list[Any]:
    record = stored.record
    head = [stored.sweep, stored.run, stored.status]
    if record is None:
        return [*head, None, None, None, None, stored.error]
    return [*head, record.repeat, record.attempts, record.seconds, record.started, stored.error]


def _together(tables: dict[int, Any], gaps: bool) -> pd.DataFrame | None:
    """Put tables under one another; the index says of which run a row is."""
    import warnings

    import numpy as np
    import pandas as pd
    import pyarrow as pa

    if not tables:
        return None
    # Tables of one schema are joined as they are: ten thousand frames would take long.
    alike: dict[bytes, list[int]] = {}
    for at, table in tables.items():
        alike.setdefault(table.schema.serialize().to_pybytes(), []).append(at)
    frames = []
    for runs in alike.values():
        frame = pa.concat_tables([tables[at] for at in runs]).to_pandas()
        frame.index = pd.Index(np.repeat(runs, [tables[at].num_rows for at in runs]))
        if gaps or len(alike) > 1:  # else a whole number that is missing makes all others floats
            whole = frame.select_dtypes(["integer", "bool"]).columns
            frame[whole] = frame[whole].convert_dtypes()
        frames.append(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of columns that are empty in some frame
        return pd.concat(frames)
