"""Paths: shown to a user, and tried before anything is written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["check_writable", "refuse_existing", "shown", "write_aside"]


def shown(path: str | Path) -> str:
    """Return a path as a user would type it: from the current folder, else from ``~``, else whole.

    Keeps home folders, and with them user names, out of messages and stored records.
    """
    whole = os.path.abspath(path)
    for base, prefix in ((os.getcwd(), ""), (os.path.expanduser("~"), "~/")):
        if base != os.sep and whole.startswith(base.rstrip(os.sep) + os.sep):
            return prefix + os.path.relpath(whole, base)
    return whole


def check_writable(folder: Path) -> None:
    """Make sure that files can be written into `folder`, which need not exist; leaves no trace.

    Raises
    ------
    ValueError
        When they cannot: the message names the folder and the reason.
    """
    nearest = Path(os.path.abspath(folder))
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    try:
        # Permission bits say little to root and on network drives: really write.
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write into {shown(folder)}: {shown(nearest)}: {error.strerror}; "
            "name another folder with --out"
        ) from None


def refuse_existing(path: str | Path, force: bool = False) -> None:
    """Refuse a file that is there already, unless `force`; and a folder that cannot be written.

    Raises
    ------
    ValueError
        Naming the file and what to do.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{shown(path)} is a folder: name a file")
    if path.exists() and not force:
        raise ValueError(f"{shown(path)} exists: name another file, or --force to replace it")
    check_writable(path.parent)


def write_aside(path: str | os.PathLike[str], text: str) -> Path:
    """Write `text` beside `path` first, then rename: no reader ever sees half a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path
