"""What a notebook left in its run's folder, made into plain files and folders that are its own.

A cell may put anything there: links to other runs, pipes that would block whoever reads them, or
something else in the place of the folder itself. Nothing of that may reach another run, or hang
or mislead whoever looks at this one.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["RECORDS", "remove", "settle"]

#: Files that the engine writes itself.
RECORDS = ("params.json", "provenance.json", "status.json")


def settle(folder: Path) -> str:
    """Make `folder` hold nothing but regular files and folders.

    A link to a file inside becomes a copy of it; other links, pipes, sockets and devices go, and so
    does what stands in the place of a record or of ``figures/``.

    Returns
    -------
    str
        What is wrong where the folder itself is gone or something else; it is empty then.
    """
    try:
        kind = os.lstat(folder).st_mode
    except FileNotFoundError:
        kind = 0
    problem = ""
    if not stat.S_ISDIR(kind):
        what = "replaced" if kind else "removed"
        problem = f"the notebook {what} its folder"
        remove(folder)
        folder.mkdir(parents=True)
    for name in RECORDS:
        remove(folder / name)
    for path in [Path(at, name) for at, below, files in os.walk(folder) for name in below + files]:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            _copy_or_remove(path, folder)
        elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            remove(path)
    figures = folder / "figures"
    if not figures.is_dir():
        remove(figures)
        figures.mkdir()
    return problem


def remove(path: Path) -> None:
    """Remove a file, a link (never what it points to) or a folder; nothing where there is none."""
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _copy_or_remove(link: Path, folder: Path) -> None:
    target = Path(os.path.realpath(link))
    inside = target.is_file() and target.is_relative_to(folder.resolve())
    link.unlink()
    if inside:
        shutil.copyfile(target, link)
