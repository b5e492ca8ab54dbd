"""Results on disk: one run, one folder, never half-written under its final name.

``runs/<sweep>/<run>/`` holds ``params.json``, ``status.json``, ``provenance.json``,
``result.parquet``, ``summary.txt``, ``notebook.ipynb`` and ``figures/``. A run is written into a
hidden folder beside its place and renamed at the end. What was there before is moved away only
then, and a good result only for another good one: a failure beside a good result is stored as
``<run>.failed``.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from verifylab.loading import load
from verifylab.paths import check_writable, shown
from verifylab.records import (
    NEWER,
    SCHEMA,
    STATUSES,
    Record,
    StoreError,
    damage,
    read_record,
    read_status,
    result_problem,
    write_records,
)
from verifylab.run_folder import remove

__all__ = [
    "LEFTOVERS",
    "OLD",
    "SCHEMA",
    "STATUSES",
    "Record",
    "Store",
    "StoreError",
    "load",
    "read_record",
    "result_problem",
]

_ASIDE, OLD, _FAILED = ".part-", ".old-", ".failed"
#: How folders begin that only a killed sweep leaves.
LEFTOVERS = (_ASIDE, OLD)


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
        self._entered = False
        self._one_at_a_time = threading.Lock()

    def __enter__(self) -> Store:
        check_writable(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        check_writable(self.folder)
        self._take_lock()
        self._entered = True
        self._recover()
        return self

    def _take_lock(self) -> None:
        self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            raise StoreError(
                f"another sweep is writing into {shown(self.folder)}: wait for it to end"
            ) from None

    def _keep_lock(self) -> None:
        """Take the lock anew where somebody removed the folder, and the lock with it."""
        with self._one_at_a_time:
            if self._entered and not self._holds_lock():
                self._unlock()
                self.folder.mkdir(parents=True, exist_ok=True)
                self._take_lock()

    def _holds_lock(self) -> bool:
        if self._lock is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._lock), os.stat(self.folder / ".lock"))
        except FileNotFoundError:
            return False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered = False
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _recover(self) -> None:
        """Clear up after a sweep that was killed; the lock says that none is alive."""
        for folder in self.folder.glob(f"{OLD}*"):
            final = self.folder / folder.name.removeprefix(OLD)
            if not os.path.lexists(final):  # killed between the two renames of `commit`
                folder.rename(final)
        for pattern in (f"{OLD}*", f"{_ASIDE}*"):
            for folder in self.folder.glob(pattern):
                remove(folder)

    def begin(self, run: str) -> Path:
        """Make and return the folder aside in which `run` is written; its name is unique."""
        self._keep_lock()
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
        self._keep_lock()
        final = self.folder / record.run
        failed = self.folder / f"{record.run}{_FAILED}"
        if record.status == "ok":
            remove(failed)
        elif _worth_keeping(final):
            final = failed
        _name_finally(aside, final.name)
        write_records(aside, record, parameters, provenance)
        with suppress(OSError):  # there are figures
            (aside / "figures").rmdir()
        old = self.folder / f"{OLD}{final.name}"
        if os.path.lexists(final):
            remove(old)
            final.rename(old)
        aside.rename(final)
        remove(old)
        return final

    def find(self, run: str, identity: str) -> tuple[Record | None, str]:
        """Look for a finished run.

        Returns
        -------
        record : Record or None
            The stored run when it is whole, ok and of this identity.
        why_not : str
            Why there is none, in a few words; empty when there is.

        Raises
        ------
        StoreError
            When a newer version of this library wrote it.
        """
        folder = self.folder / run
        record, why_not = read_status(folder)
        if NEWER in why_not:  # the run would replace it
            raise StoreError(f"{shown(folder)} has {why_not}: update, or name another folder")
        if record is None:
            return None, why_not if folder.exists() else "no result yet"
        if record.status != "ok":
            return None, f"last time {record.status}"
        if record.identity != identity:
            return None, "stale: parameters, notebook or library changed"
        if problem := damage(folder, record):
            return None, problem
        return record, ""


def _worth_keeping(folder: Path) -> bool:
    """Whether a failure must not replace what is stored, whatever became of the other files.

    That is a whole result of a run that was ok, and any beside a record that cannot be read.
    """
    before = read_record(folder)
    if before is None:
        return (folder / "result.parquet").exists()
    result = {k: v for k, v in before.checksums.items() if k == "result.parquet"}
    return before.status == "ok" and not damage(folder, replace(before, checksums=result))


def _name_finally(aside: Path, final: str) -> None:
    """Put the final name where texts in the folder speak of the folder aside.

    Outputs and the injected parameters of the notebook name it; its token makes the name unique.
    """
    for name in ("notebook.ipynb", "summary.txt"):
        path = aside / name
        if path.is_file():
            content = path.read_bytes()
            path.write_bytes(content.replace(aside.name.encode(), final.encode()))
