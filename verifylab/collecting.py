"""Taking away what is not worth keeping of the store: never an ok run, unless it is named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verifylab.loading import Stored, scan
from verifylab.records import GOOD
from verifylab.run_folder import remove
from verifylab.store import LEFTOVERS, OLD, Store

__all__ = ["LEFTOVER", "Garbage", "collect", "garbage"]

#: Status of what a killed sweep left.
LEFTOVER = "leftover"


@dataclass(frozen=True, slots=True)
class Garbage:
    """A folder that could go.

    Attributes
    ----------
    sweep, run : str
    folder : Path
    status : str
        One of `verifylab.records.SEEN`, or ``leftover``: of a sweep that was killed.
    why : str
    nbytes : int
    """

    sweep: str
    run: str
    folder: Path
    status: str
    why: str
    nbytes: int


def garbage(
    sweeps: Sequence[Path], named: Sequence[Path] = (), statuses: Sequence[str] = ()
) -> list[Garbage]:
    """List what could go.

    Parameters
    ----------
    sweeps : sequence of Path
        Folders of sweeps: of these, what a killed sweep left and every run that is not ok, or
        the runs of `statuses`, where these are given.
    named : sequence of Path
        Folders of runs that go whatever their status.
    statuses : sequence of str
        ``ok`` and ``stale`` go only when named here.
    """
    found = {}
    for sweep in sweeps:
        for stored in scan(sweep):
            ready = stored.status in statuses if statuses else stored.status not in GOOD
            if ready and _ours(stored.folder):
                found[stored.folder] = _of(stored, f"status {stored.status}")
        if not statuses:
            for pattern in LEFTOVERS:
                for folder in sweep.glob(f"{pattern}*"):
                    if not os.path.lexists(sweep / folder.name.removeprefix(OLD)):
                        continue  # the next sweep puts it back in its place
                    why = "left by a sweep that was killed, or being written now"
                    found[folder] = Garbage(
                        sweep.name, folder.name, folder, LEFTOVER, why, _size(folder)
                    )
    for folder in named:
        for stored in scan(folder):
            found[stored.folder] = _of(stored, "named")
    return sorted(found.values(), key=lambda one: (one.sweep, one.run))


def collect(found: Sequence[Garbage]) -> list[Garbage]:
    """Remove folders; return those that are gone. One whose status is another by now stays.

    Raises
    ------
    StoreError
        When a sweep is writing beside one of them.
    """
    gone = []
    for sweep in dict.fromkeys(one.folder.parent for one in found):
        with Store(sweep.parent, sweep.name):  # takes the lock, and the leftovers away
            for one in found:
                if one.folder.parent == sweep and _as_seen(one):
                    remove(one.folder)
                    if not os.path.lexists(one.folder):
                        gone.append(one)
    return gone


def _ours(folder: Path) -> bool:
    """Whether a sweep wrote this folder, and nobody put runs into it since."""
    records = list(folder.rglob("status.json"))
    return records == [folder / "status.json"]


def _as_seen(one: Garbage) -> bool:
    if one.status == LEFTOVER or not one.folder.is_dir():
        return True
    return [stored.status for stored in scan(one.folder)] == [one.status]


def _of(stored: Stored, why: str) -> Garbage:
    size = _size(stored.folder)
    return Garbage(stored.sweep, stored.run, stored.folder, stored.status, why, size)


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))
