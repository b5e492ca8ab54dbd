"""Paths: shown to a user, and tried before anything is written."""

from __future__ import annotations

import errno
import os
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

__all__ = [
    "check_writable",
    "refuse_existing",
    "shown",
    "unshown",
    "writable_folder",
    "write_aside",
    "write_files",
]


def shown(path: str | Path) -> str:
    """Return a path as a user would type it: from the current folder, else from ``~``, else whole.

    Keeps home folders, and with them user names, out of messages and stored records.
    """
    whole = os.path.abspath(path)
    for base, prefix in ((os.getcwd(), ""), (os.path.expanduser("~"), "~/")):
        if base != os.sep and whole.startswith(base.rstrip(os.sep) + os.sep):
            whole = prefix + os.path.relpath(whole, base)
            break
    return whole.encode("utf-8", "backslashreplace").decode()


def unshown(text: str) -> Path:
    """Return the path that `shown` shows as `text`; ``~`` stays where there is no home folder."""
    return Path(os.path.expanduser(text) if text.startswith("~/") else text)


def check_writable(folder: Path, remedy: str = "name another folder with --out") -> None:
    """Make sure that files can be written into `folder`, which need not exist; leaves no trace.

    Parameters
    ----------
    folder : Path
    remedy : str
        What the user can do: the end of the message.

    Raises
    ------
    ValueError
        When they cannot: the message names the folder and the reason.
    """
    nearest = Path(os.path.abspath(folder))
    try:
        os.lstat(nearest)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ValueError(
                f"cannot write into {str(folder)[:40]}...: {error.strerror}; {remedy}"
            ) from None
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    try:
        # Permission bits say little to root and on network drives: really write.
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write into {shown(folder)}: {shown(nearest)}: {error.strerror}; {remedy}"
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


def write_aside(path: str | os.PathLike[str], data: str | bytes) -> Path:
    """Write a file beside `path` first, then rename: nobody ever sees, or is left with, half of it.

    Parameters
    ----------
    path : path
        Its folder is made where it is missing. What was there stays until the new file is whole.
    data : str or bytes
        Text is stored as UTF-8.

    Raises
    ------
    OSError
        When it cannot be written; its ``filename`` is `path`.
    """
    return _write({Path(path): data})[0]


def write_files(folder: str | os.PathLike[str], contents: Mapping[str, str | bytes]) -> list[Path]:
    """Write each of `contents` into `folder` under its name, as `write_aside` does.

    All are written aside before the first is renamed: what is interrupted before that leaves what
    was there, of every file.
    """
    return _write({Path(folder) / name: data for name, data in contents.items()})


def _write(contents: Mapping[Path, str | bytes]) -> list[Path]:
    token = uuid.uuid4().hex[:8]
    aside = {path: path.with_name(f"{path.name}.{token}.part") for path in contents}
    path = Path()
    try:
        for path, data in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with aside[path].open("xb") as file:
                file.write(data.encode("utf-8") if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
        for path in contents:
            os.replace(aside[path], path)
    except OSError as error:
        raise _naming(error, path) from None
    finally:
        for part in aside.values():
            with suppress(OSError):
                part.unlink()
    return list(contents)


def _naming(error: OSError, path: Path) -> OSError:
    return OSError(error.errno, f"cannot be written: {error.strerror or error}", str(path))


def printable(text: str) -> str:
    """Return a text of one line, a question mark for what cannot be written or drawn in it."""
    return "".join(c if c.isprintable() else "?" for c in text)


def writable_folder(out: object, *, name: str = "out") -> str:
    """Return `out` where files can be written into it, or it is ``""`` (nothing is to be written).

    Raises
    ------
    ValueError
        When it is no text, a file, a stored run, or cannot be written.
    """
    if not isinstance(out, (str, os.PathLike)):
        raise ValueError(
            f"{name} must be the name of a folder, or '' to write nothing, got {out!r}"
        )
    text = os.fspath(out)
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{name} must be the name of a folder, got {out!r}")
    if text:
        if os.path.isfile(os.path.join(text, "status.json")):
            raise ValueError(f"{shown(Path(text))} is a stored run: name another folder as {name}")
        check_writable(Path(text), f"name another folder as {name}")
    return text
