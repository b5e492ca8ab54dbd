"""What a stored run says about itself: its ``status.json``, and whether its files are as written.

Schema of the folder (`SCHEMA`): ``status.json`` holds the fields of `Record`, ``params.json``
``{"schema", "parameters", "repeat"}``, ``provenance.json`` ``{"schema", ...}`` as
`verifylab.provenance` gives it. Schema 1 lacked ``repeat``, ``attempts``, ``notes``, ``notebook``,
``notebook_source``, ``library`` and ``checksums``; it is read with their defaults.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from verifylab.run_files import never_waiting
from verifylab.strict_json import parse, unpaired

__all__ = [
    "ALTERED",
    "GOOD",
    "NEWER",
    "READABLE",
    "SCHEMA",
    "SEEN",
    "STATUSES",
    "Record",
    "StoreError",
    "altered",
    "checksums",
    "content_of",
    "damage",
    "read_record",
    "read_status",
    "result_problem",
    "write_records",
]

#: Version of the folder's layout and of the JSON files in it: 2 brought checksums, 3 those of
#: tables and of what lies in ``figures/``.
SCHEMA = 3
#: Versions that this code reads.
READABLE = (1, 2, 3)
#: How a record of a schema to come is spoken of.
NEWER = "written by a newer verifylab"
#: What a run is stored with.
STATUSES = ("ok", "failed", "timeout", "died", "interrupted")
#: What a stored run is seen as: ``stale`` is ok, but its notebook or the library changed since;
#: ``corrupt`` has files that are missing, torn or not as they were written.
SEEN = (*STATUSES, "stale", "corrupt")
#: Of these, the ones whose results are whole and good.
GOOD = ("ok", "stale")

#: What of a run's folder is data. A notebook or a text may be opened and saved by its reader.
_DATA = ("*.parquet", "*.csv", "figures/*.csv", "params.json", "provenance.json")


#: How that is said of a file.
ALTERED = "is not as it was written (its checksum differs)"


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
    repeat : int
        Which repeat of its parameters, from 0.
    attempts : int
        How often it was started: more than once where a cluster's worker was lost.
    notes : tuple of str
        What else is to be known, one sentence each.
    notebook, notebook_source, library : str
        The notebook's path as shown, the hash of its source, and that of the library.
    checksums : dict
        ``{"bytes": ..., "sha256": ...}`` of each data file, by its path in the folder.
    """

    run: str
    status: str
    error: str
    seconds: float
    started: str
    ended: str
    identity: str
    schema: int = SCHEMA
    repeat: int = 0
    attempts: int = 1
    notes: tuple[str, ...] = ()
    notebook: str = ""
    notebook_source: str = ""
    library: str = ""
    checksums: dict[str, dict[str, Any]] = field(default_factory=dict, compare=False)


_TYPES = {
    "run": str,
    "status": str,
    "error": str,
    "seconds": (int, float),
    "started": str,
    "ended": str,
    "identity": str,
    "schema": int,
    "repeat": int,
    "attempts": int,
    "notes": tuple,
    "notebook": str,
    "notebook_source": str,
    "library": str,
    "checksums": dict,
}
#: No count or time of a run comes near.
_MOST = 10**15
assert set(_TYPES) == {f.name for f in fields(Record)}


def read_status(folder: Path) -> tuple[Record | None, str]:
    """Read a run's ``status.json``.

    Returns
    -------
    record : Record or None
    why_not : str
        What is the matter with the file, in a few words; empty when nothing is.
    """
    try:
        body = parse(content_of(folder, "status.json"))
    except FileNotFoundError:
        return None, "no status.json"
    except OSError as error:
        return None, f"a status.json that cannot be read: {error.strerror}"
    except ValueError:
        return None, "a status.json that is not JSON"
    if not isinstance(body, dict):
        return None, "a status.json that is no object"
    schema = body.get("schema")
    if schema not in READABLE:
        newer = isinstance(schema, int) and schema > SCHEMA
        what = NEWER if newer else "of an unknown kind"
        readable = ", ".join(map(str, READABLE[:-1])) + f" and {READABLE[-1]}"
        return None, f"a status.json {what}: schema {schema!r}, this one reads {readable}"
    if isinstance(body.get("notes"), list):
        body["notes"] = tuple(body["notes"])
    try:
        record = Record(**body)
    except TypeError:
        return None, "a status.json with fields missing or unknown"
    if problem := _mistyped(record):
        return None, f"a status.json whose {problem}"
    return record, ""


def _mistyped(record: Record) -> str:
    """Say which field of a record has no such value; empty when none."""
    for name, kind in _TYPES.items():
        value = getattr(record, name)
        if not isinstance(value, kind) or isinstance(value, bool):  # type: ignore[arg-type]
            return f"{name!r} is no {_kind(kind)}"
        if isinstance(value, (int, float)) and not 0 <= value < _MOST:
            return f"{name!r} is no {_kind(kind)} from 0 to {_MOST}"
    if not all(isinstance(note, str) for note in record.notes):
        return "'notes' are no texts"
    for name, written in record.checksums.items():
        good = isinstance(written, dict) and isinstance(written.get("bytes"), int)
        if not good or not isinstance(written.get("sha256"), str) or not _is_plain(name):
            return f"checksum of {name!r} is damaged"
    return "" if record.status in STATUSES else f"status is {record.status!r}"


def _is_plain(name: str) -> bool:
    """Whether a name is that of a file of a run or of its figures, not the way to another."""
    name = name.removeprefix("figures/")
    return "\0" not in name and os.path.basename(name) == name and name not in ("", ".", "..")


def content_of(folder: Path, name: str) -> bytes:
    """Read a file; without `pathlib`'s joining, which tells where ten thousand are read."""
    with open(f"{folder}{os.sep}{name}", "rb", buffering=0, opener=never_waiting) as file:
        return file.read()


def read_record(folder: Path) -> Record | None:
    """Read a run's ``status.json``; None when it is missing, damaged or of another schema."""
    return read_status(folder)[0]


def write_records(
    folder: Path, record: Record, parameters: dict[str, Any], provenance: dict[str, Any]
) -> None:
    """Write the three JSON files of a run, `record` last, with the checksums of its data."""
    about = {"schema": SCHEMA, "parameters": parameters, "repeat": record.repeat}
    _write_json(folder / "params.json", about)
    _write_json(folder / "provenance.json", {"schema": SCHEMA, **provenance})
    _write_json(folder / "status.json", asdict(replace(record, checksums=checksums(folder))))


def _write_json(path: Path, body: dict[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(body, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())  # after a power cut the renamed folder must not hold empty records


def checksums(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of the data files of a run, by their path in its folder."""
    found = {}
    paths = (path for pattern in _DATA for path in folder.glob(pattern))
    for path in sorted(path for path in paths if path.is_file() and not unpaired(path.name)):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            name = path.relative_to(folder).as_posix()
            found[name] = {"bytes": file.tell(), "sha256": digest}
    return found


def altered(checksums: Mapping[str, Mapping[str, Any]], name: str, digest: str) -> bool:
    """Whether a file of this SHA-256 is not what was written; no checksum speaks against none."""
    written = checksums.get(name)
    return written is not None and written["sha256"] != digest


def damage(folder: Path, record: Record, *, quick: bool = False, tables: bool = False) -> str:
    """Say how a run's data files differ from what was written; empty when they do not.

    A table beside the result may be opened and saved by its reader: the result is none the worse.

    Parameters
    ----------
    folder : Path
    record : Record
        Of this folder. One of schema 1 has no checksums: then only the marks are looked at.
    quick : bool
        Look at sizes alone.
    tables : bool
        Look at the CSV files too: for whoever reads these.
    """
    for name, written in record.checksums.items():
        if name.endswith(".csv") and not tables:
            continue
        path = f"{folder}{os.sep}{name}"
        try:
            size = os.stat(path).st_size
            if size != written["bytes"]:
                return f"{name} has {size} bytes, {written['bytes']} were written"
            if quick:
                continue
            with open(path, "rb", opener=never_waiting) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if altered(record.checksums, name, digest):
                    return f"{name} {ALTERED}"
        except FileNotFoundError:
            return f"no {name}"
        except OSError as error:
            return f"a {name} that cannot be read: {error.strerror}"
    # A record of schema 1 has no checksums; nor may one that says ok go without a result.
    unknown = record.status == "ok" and "result.parquet" not in record.checksums
    return result_problem(folder) if unknown else ""


def result_problem(folder: Path, *, deep: bool = False) -> str:
    """Say what is wrong with a run's ``result.parquet``; empty when nothing is seen to be.

    Looks at the format's marks at both ends, which a torn file does not have; `deep`, also at the
    schema and the row groups that it lists.
    """
    path = folder / "result.parquet"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "a result.parquet that is no file"
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(-4, os.SEEK_END)
            tail = file.read(4)
    except FileNotFoundError:
        return "no result.parquet"
    except OSError as error:
        return f"a result.parquet that cannot be read: {error.strerror}"
    if not head == tail == b"PAR1":
        return "a torn result.parquet"
    return _parquet_problem(path) if deep else ""


def _parquet_problem(path: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        return f"a result.parquet that cannot be read: {' '.join(str(error).split())[:200]}"
    return ""


def _kind(kind: Any) -> str:
    names = {str: "text", int: "whole number", dict: "object", tuple: "list"}
    return names.get(kind, "number")
