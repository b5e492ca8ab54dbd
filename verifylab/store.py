"""Results on disk: one run, one folder, never half-written under its final name.

``runs/<sweep>/<run>/`` holds ``params.json``, ``status.json``, ``provenance.json``,
``result.parquet``, ``summary.txt``, ``notebook.ipynb`` and ``figures/``. A run is written into a
hidden folder beside its place and renamed at the end. What was there before is moved away only
then, and a good result only for another good one: a failure beside a good result is stored as
``<run>.failed``.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from verifylab.paths import check_writable, shown

__all__ = ["SCHEMA", "STATUSES", "Record", "Store", "StoreError", "read_record", "result_problem"]

#: Version of the folder's layout and of the JSON files in it.
SCHEMA = 1
STATUSES = ("ok", "failed", "timeout", "died", "interrupted")

_ASIDE, _OLD, _FAILED = ".part-", ".old-", ".failed"


class StoreError(ValueError):
    """The store cannot be used as asked."""


@dataclass(frozen=True, slots=True)
class Record:
    """What ``status.json`` says about a run.

    Attributes
    ----------
    run : str
        Folder name.
    status : str
        One of `STATUSES`.
    error : str
        One line; empty when ok.
    seconds : float
        Wall time, the kernel's start included.
    started, ended : str
        UTC, ISO 8601.
    identity : str
        As `verifylab.provenance.identity`.
    schema : int
    """

    run: str
    status: str
    error: str
    seconds: float
    started: str
    ended: str
    identity: str
    schema: int = SCHEMA


class Store:
    """The folder of one sweep, locked while it is written to.

    Use it as a context manager. On entering it makes the folder, takes the lock and clears up
    after a sweep that was killed.

    Parameters
    ----------
    root : path
        The folder of all sweeps, for example ``runs``.
    sweep : str
    """

    def __init__(self, root: str | Path, sweep: str) -> None:
        self.folder = Path(root) / sweep
        self._lock: int | None = None

    def __enter__(self) -> Store:
        check_writable(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        check_writable(self.folder)
        self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            raise StoreError(
                f"another sweep is writing into {shown(self.folder)}: wait for it to end"
            ) from None
        self._recover()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _recover(self) -> None:
        """Clear up after a sweep that was killed; the lock says that none is alive."""
        for folder in self.folder.glob(f"{_OLD}*"):
            final = self.folder / folder.name.removeprefix(_OLD)
            if not final.exists():  # killed between the two renames of `commit`
                folder.rename(final)
        for pattern in (f"{_OLD}*", f"{_ASIDE}*"):
            for folder in self.folder.glob(pattern):
                shutil.rmtree(folder, ignore_errors=True)

    def begin(self, run: str) -> Path:
        """Make and return the folder aside in which `run` is written; its name is unique."""
        aside = self.folder / f"{_ASIDE}{run}-{secrets.token_hex(6)}"
        (aside / "figures").mkdir(parents=True)
        return aside

    def commit(
        self,
        aside: Path,
        record: Record,
        parameters: dict[str, Any],
        provenance: dict[str, Any],
    ) -> Path:
        """Complete a folder from `begin` and give it its final name.

        Parameters
        ----------
        aside : Path
        record : Record
        parameters, provenance : dict
            For ``params.json`` and ``provenance.json``.

        Returns
        -------
        Path
            The final folder: ``<run>``, or ``<run>.failed`` where a failure must not replace a
            good result.
        """
        final = self.folder / record.run
        failed = self.folder / f"{record.run}{_FAILED}"
        if record.status == "ok":
            shutil.rmtree(failed, ignore_errors=True)
        elif (before := read_record(final)) and before.status == "ok":
            final = failed
        _name_finally(aside, final.name)
        for name, body in (
            ("params.json", {"schema": SCHEMA, "parameters": parameters}),
            ("provenance.json", {"schema": SCHEMA, **provenance}),
            ("status.json", asdict(record)),
        ):
            _write_json(aside / name, body)
        if not any((aside / "figures").iterdir()):
            (aside / "figures").rmdir()
        old = self.folder / f"{_OLD}{final.name}"
        if final.exists():
            final.rename(old)
        aside.rename(final)
        shutil.rmtree(old, ignore_errors=True)
        return final

    def find(self, run: str, identity: str) -> tuple[Record | None, str]:
        """Look for a finished run.

        Returns
        -------
        record : Record or None
            The stored run when it is whole, ok and of this identity.
        why_not : str
            Why there is none, in a few words; empty when there is.
        """
        record = read_record(self.folder / run)
        if record is None:
            return None, "no result yet"
        if record.status != "ok":
            return None, f"last time {record.status}"
        if record.identity != identity:
            return None, "parameters, notebook or library changed"
        if problem := result_problem(self.folder / run):
            return None, problem
        return record, ""


def read_record(folder: Path) -> Record | None:
    """Read a run's ``status.json``; None when it is missing, damaged or of another schema."""
    try:
        body = json.loads((folder / "status.json").read_text(encoding="utf-8"))
        record = Record(**body)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return record if record.schema == SCHEMA and record.status in STATUSES else None


def result_problem(folder: Path) -> str:
    """Say what is wrong with a run's ``result.parquet``; empty when nothing is seen to be.

    Looks at the format's marks at both ends, which a torn file does not have, and not inside.
    """
    path = folder / "result.parquet"
    try:
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(-4, os.SEEK_END)
            tail = file.read(4)
    except FileNotFoundError:
        return "no result.parquet"
    except OSError as error:
        return f"a result.parquet that cannot be read: {error.strerror}"
    return "" if head == tail == b"PAR1" else "a torn result.parquet"


def _name_finally(aside: Path, final: str) -> None:
    """Put the final name where texts in the folder speak of the folder aside.

    Outputs and the injected parameters of the notebook name it; its token makes the name unique.
    """
    for name in ("notebook.ipynb", "summary.txt"):
        path = aside / name
        if path.is_file():
            content = path.read_bytes()
            path.write_bytes(content.replace(aside.name.encode(), final.encode()))


def _write_json(path: Path, body: dict[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(body, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())  # after a power cut the renamed folder must not hold empty records
