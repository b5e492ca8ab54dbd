"""Where a result comes from: enough to trust a number a month later, nothing personal.

No host name, no user name, no absolute path under a home folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import verifylab
from verifylab import device
from verifylab.grid_rows import Row
from verifylab.notebook import Notebook
from verifylab.published import DataError, data_dir

__all__ = [
    "IDENTITY_SCHEMA",
    "automatic_device",
    "checkout",
    "cpu_model",
    "identity",
    "library_hash",
    "library_now",
    "provenance",
    "versions",
]

#: Version of what a stored run means; a change makes every stored run stale.
IDENTITY_SCHEMA = 1

_PACKAGE = Path(__file__).resolve().parent
#: What of the package and of ``data/`` can change a result.
_SOURCES = ("*.py", "*.cu", "*.mplstyle")
_DATA = ("machines", "workloads", "published", "traces")
_VERSIONS = (
    "numpy",
    "numba",
    "scipy",
    "pandas",
    "pyarrow",
    "papermill",
    "ipykernel",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "cupy",
)


def identity(notebook: Notebook, row: Row, automatic: str | None = None) -> str:
    """Hash everything that a run's result depends on.

    Parameters
    ----------
    notebook : Notebook
    row : Row
    automatic : str, optional
        What ``device = "auto"`` means where it will run; default: what it means here.

    Returns
    -------
    str
        SHA-256, hexadecimal, of the parameters, the notebook's source, the library's source with
        its data, the schema, the device that ``device = "auto"`` means, the content of files that
        string parameters name (as seen from the notebook's folder), and which repeat it is.
    """
    content = {
        "schema": IDENTITY_SCHEMA,
        "parameters": row.parameters,
        "device": _resolved(row.parameters.get("device"), automatic),
        "files": _named_files(notebook.path.parent, row.parameters),
        "notebook": notebook.source_hash,
        "library": library_hash(),
    }
    if row.repeat:
        content["repeat"] = row.repeat
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()


@cache
def library_hash() -> str:
    """SHA-256 over the package's sources and the project's data files, names included."""
    files = [(p, p.relative_to(_PACKAGE)) for s in _SOURCES for p in _PACKAGE.rglob(s)]
    try:
        data = data_dir()
    except DataError:
        pass  # a run that needs data will say so itself
    else:
        files += [(p, p.relative_to(data)) for d in _DATA for p in (data / d).rglob("*.*")]
    digest = hashlib.sha256()
    for path, name in sorted(files, key=lambda pair: pair[1].as_posix()):
        if not path.is_file():  # an editor's lock, a checkpoint folder
            continue
        digest.update(f"{name.as_posix()}\0{_file_hash(path)}\0".encode())
    return digest.hexdigest()


def library_now() -> str:
    """As `library_hash`, which a process computes once, but of the files as they are by now."""
    return library_hash.__wrapped__()


def provenance(command: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the code, the machine and the command; the caller adds start and end.

    Parameters
    ----------
    command : str
        As a user would type it.
    parameters : mapping
        Of the run; its ``seed`` or ``seeds`` are repeated here.

    Returns
    -------
    dict
        JSON-able.
    """
    return {
        **checkout(),
        "library": library_hash(),
        "versions": versions(),
        "cpu": cpu_model(),
        "seeds": parameters.get("seeds", parameters.get("seed")),
        "command": command,
    }


@cache
def versions() -> dict[str, str]:
    """Versions of Python, this library and what its results may depend on, where installed."""
    found = {"python": platform.python_version(), "verifylab": verifylab.__version__}
    for name in _VERSIONS:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@cache
def checkout() -> dict[str, Any]:
    """Commit of the checkout that the package lies in, and what is changed; None where in none.

    Returns
    -------
    dict
        ``commit``; ``dirty``, whether anything differs from it; ``diff``, the SHA-256 of those
        differences, untracked files included, None where there are none.
    """
    top = _git("rev-parse", "--show-toplevel")
    # A package installed into an environment inside some other repository is not of that one.
    if top is None or Path(top).resolve() != _PACKAGE.parent:
        return {"commit": None, "dirty": None, "diff": None}
    changes = _git("status", "--porcelain")
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
        "diff": _diff_hash() if changes else None,
    }


def _diff_hash() -> str:
    digest = hashlib.sha256((_git("diff", "HEAD", "--binary") or "").encode())
    for name in sorted(
        (_git("ls-files", "--others", "--exclude-standard", "-z") or "").split("\0")
    ):
        with suppress(OSError):
            digest.update(f"{name}\0{_file_hash(_PACKAGE.parent / name)}\0".encode())
    return digest.hexdigest()


@cache
def cpu_model() -> str:
    """Name of the CPU's model, as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(*arguments: str) -> str | None:
    # A git hook's variables would point at another repository, and looking at the state must not
    # take the index lock from someone who commits.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(_PACKAGE.parent), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _resolved(asked: Any, automatic: str | None) -> str | None:
    """Resolve ``auto``: a laptop's modelled result must not answer for a GPU added later."""
    return (automatic or automatic_device()) if asked == "auto" else None


@cache
def automatic_device() -> str:
    """Name of the device that ``auto`` means on this machine."""
    return device.choose("auto").name


def _named_files(folder: Path, parameters: Mapping[str, Any]) -> dict[str, str]:
    hashes = {}
    for name, value in parameters.items():
        if isinstance(value, str) and 0 < len(value) < 1000 and "\0" not in value:
            try:
                if (folder / value).is_file():  # a device or a pipe would never end
                    hashes[name] = _file_hash(folder / value)
            except (OSError, ValueError):  # no possible path: an ordinary string
                continue
    return hashes


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
