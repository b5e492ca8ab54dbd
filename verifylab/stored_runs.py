"""Tables of stored runs, read by the names of their files: what overlays and figures are made of.

The one place that knows how a run's folder looks; the rest asks for tables. Nothing is computed.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifylab.loading import read_object
from verifylab.paths import printable, shown
from verifylab.records import damage, read_record
from verifylab.run_files import content

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StoredRun", "stored_runs"]


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
            written = self.checksums.get(path.relative_to(self.folder).as_posix(), {})
            if "sha256" in written and hashlib.sha256(held).hexdigest() != written["sha256"]:
                raise ValueError("it is not as it was written (its checksum differs)")
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
    found: dict[Path, StoredRun] = {}
    for given in folders:
        folder = Path(given)
        for depth in ("status.json", "*/status.json", "*/*/status.json"):
            for status in folder.glob(depth):
                run = status.parent.resolve()
                if not any(part.startswith(".") for part in status.relative_to(folder).parts[:-1]):
                    stored = _read(run, Path(os.path.abspath(status.parent)))
                    if stored is not None:
                        found.setdefault(run, stored)
    return sorted(found.values(), key=lambda stored: stored.label)


def _read(folder: Path, named: Path) -> StoredRun | None:
    """Read a run; `named` may be a link to its folder."""
    record = read_record(folder)
    if record is None or record.status != "ok" or damage(folder, record, quick=True, tables=True):
        return None
    where, _, _ = read_object(folder, "provenance.json")
    body, digest, _ = read_object(folder, "params.json")
    if digest != record.checksums.get("params.json", {}).get("sha256", digest):
        return None
    parameters = body.get("parameters")
    commit = str(where.get("commit") or "")[:9]
    return StoredRun(
        printable(named.parent.name),
        printable(named.name),
        folder,
        parameters if isinstance(parameters, dict) else {},
        commit + ("+" if commit and where.get("dirty") else ""),
        record.ended,
        record.checksums,
    )
