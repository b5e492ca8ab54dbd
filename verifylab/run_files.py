"""Files that a run's notebook wrote, read whatever it put in their place."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["content", "headline", "never_waiting", "text"]


def content(path: Path) -> bytes:
    """Read a file.

    Raises
    ------
    OSError
        When it cannot be read, or is a folder, a pipe or a device.
    """
    with open(path, "rb", opener=never_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no file")
        return file.read()


def text(folder: Path, name: str) -> str:
    """Read a text of a run; empty where it cannot be read."""
    try:
        return content(folder / name).decode("utf-8", "replace")
    except OSError:
        return ""


def headline(folder: Path) -> str:
    """Return the first line of a run's ``summary.txt``, empty where there is none."""
    return next(iter(text(folder, "summary.txt").strip().splitlines()), "")


def never_waiting(path: str, flags: int) -> int:
    """Open a file, as `open` asks its opener; a pipe that somebody put there is an empty file."""
    return os.open(path, flags | os.O_NONBLOCK)
