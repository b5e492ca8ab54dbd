"""Tables of stored runs, read by the names of their files: what overlays and figures are made of.

The one place that knows how a run's folder looks; the rest asks for tables. Nothing is computed.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifylab.loading import Stored, origin_of, scan
from verifylab.paths import printable, shown
from verifylab.records import ALTERED, GOOD, Record, altered
from verifylab.run_files import content

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StoredRun", "good_runs", "stored_runs"]


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One good run.

    Attributes
    ----------
    sweep, run : str
        Names of the folders; what cannot be written or drawn in them is a question mark.
    folder : Path
    parameters : dict
    commit : str
        First characters of the commit it ran at, ``+`` where there were changes; "" unknown.
    ended : str
        When, ISO; "" unknown.
    checksums : dict
        Of its files, as in `records.Record`.
    """

    sweep: str
    run: str
    folder: Path
    parameters: dict[str, Any] = field(default_factory=dict)
    commit: str = ""
    ended: str = ""
    checksums: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def date(self) -> str:
        """Return the day it ended."""
        return self.ended[:10]

    @property
    def when(self) -> datetime:
        """Return when it ended, as a time that can be compared; the first of all where unknown."""
        try:
            ended = datetime.fromisoformat(self.ended)
        except ValueError:
            return datetime.min.replace(tzinfo=UTC)
        return ended if ended.tzinfo else ended.replace(tzinfo=UTC)

    @property
    def label(self) -> str:
        """Return ``sweep/run``."""
        return f"{self.sweep}/{self.run}"

    @property
    def short(self) -> str:
        """Return `label` with the middle of a long name left out: its end tells runs apart."""
        return "/".join(
            n if len(n) <= 32 else f"{n[:18]}...{n[-11:]}" for n in (self.sweep, self.run)
        )

    def has(self, *names: str) -> bool:
        """Whether the run holds all these tables."""
        return all(self._path(name) is not None for name in names)

    def table(self, name: str) -> pd.DataFrame:
        """Return a table: ``result``, or a CSV of the run or behind one of its figures.

        Raises
        ------
        ValueError
            When there is none of that name, or it cannot be read.
        """
        import pandas as pd

        path = self._path(name)
        if path is None:
            raise ValueError(f"{shown(self.folder)} holds no table {name!r}")
        try:
            held = content(path)
            written, digest = path.relative_to(self.folder).as_posix(), hashlib.sha256(held)
            if altered(self.checksums, written, digest.hexdigest()):
                raise ValueError(f"it {ALTERED}")
            buffer = io.BytesIO(held)
            return pd.read_parquet(buffer) if path.suffix == ".parquet" else pd.read_csv(buffer)
        except Exception as error:  # pyarrow and pandas raise of many kinds on damage
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"{shown(path)} cannot be read: {reason}") from None

    def numbers(self, name: str, *columns: str) -> pd.DataFrame:
        """Return a table that has rows, and finite numbers in these columns.

        Raises
        ------
        ValueError
            When one is missing or holds anything else.
        """
        import numpy as np

        table = self.table(name)
        if lacking := [c for c in columns if c not in table]:
            raise ValueError(f"{self.label}: its table {name!r} has no column {lacking[0]!r}")
        if table.empty:
            raise ValueError(f"{self.label}: its table {name!r} has no row")
        for column in columns:
            if table[column].dtype.kind not in "iuf" or not np.isfinite(table[column]).all():
                where = f"{self.label}: column {column!r} of its table {name!r}"
                raise ValueError(f"{where} must hold finite numbers")
        return table

    def _path(self, name: str) -> Path | None:
        if name == "result":
            path = self.folder / "result.parquet"
            return path if path.is_file() else None
        for path in (self.folder / f"{name}.csv", *self.folder.glob(f"figures/*.{name}.csv")):
            if path.is_file():
                return path
        return None


def stored_runs(*folders: str | Path) -> list[StoredRun]:
    """List the good runs in folders of a run, of a sweep or of all sweeps, by name.

    One of which a file is missing or has another size than was written is none; `StoredRun.table`
    holds what it reads against its checksum. A folder that does not exist holds none.
    """
    return good_runs(scan([folder for folder in folders if Path(folder).is_dir()], tables=True))


def good_runs(seen: Iterable[Stored]) -> list[StoredRun]:
    """List the good ones of scanned runs, by name; one that is linked to is one.

    Parameters
    ----------
    seen : iterable of Stored
        As ``scan(folders, tables=True)`` returns them.
    """
    found: dict[Path, StoredRun] = {}
    for run in seen:
        if run.status in GOOD and run.record is not None:
            folder = run.folder.resolve()
            if folder not in found:
                found[folder] = _good(run, run.record, folder)
    return sorted(found.values(), key=lambda stored: stored.label)


def _good(run: Stored, record: Record, folder: Path) -> StoredRun:
    named = Path(os.path.abspath(run.folder))  # it may be a link to the folder
    where = origin_of(run)
    commit = str(where.get("commit") or "")[:9]
    return StoredRun(
        printable(named.parent.name),
        printable(named.name),
        folder,
        run.parameters,
        commit + ("+" if commit and where.get("dirty") else ""),
        record.ended,
        record.checksums,
    )
