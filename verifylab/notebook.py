"""What a stored notebook says about itself: its parameters, their defaults, its source.

Reads the file as JSON and the parameter cell as syntax; nothing is executed or imported.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verifylab.paths import shown
from verifylab.strict_json import storable

__all__ = ["UNKNOWN", "Notebook", "NotebookError", "read_notebook"]


class NotebookError(ValueError):
    """A file is no notebook that can be swept."""


class _Unknown:
    """Default of a parameter whose value only running the cell would tell."""

    def __repr__(self) -> str:
        return "UNKNOWN"


#: Stands for a default that is no literal; any value is taken for such a parameter.
UNKNOWN = _Unknown()


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook on disk.

    Attributes
    ----------
    path : Path
    defaults : dict of str to object
        Parameters in the order of the cell tagged ``parameters``, with their defaults
        (`UNKNOWN` where one is no literal).
    source_hash : str
        SHA-256 of the cells' kinds and sources. Outputs and metadata do not count.
    content : bytes
        The file as it was read: what is run, whatever becomes of the file meanwhile.
    """

    path: Path
    defaults: dict[str, Any]
    source_hash: str
    content: bytes = field(default=b"", repr=False)


def read_notebook(path: Path) -> Notebook:
    """Read a notebook's parameters and source.

    Raises
    ------
    NotebookError
        When the file is missing, no notebook of format 4, or has no readable cell tagged
        ``parameters``.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device would never end
        raise NotebookError(f"notebook {shown(path)} is no file")
    try:
        content = path.read_bytes()
        body = json.loads(content.decode("utf-8"))
    except FileNotFoundError:
        raise NotebookError(f"notebook {shown(path)} does not exist") from None
    except OSError as error:
        raise NotebookError(f"notebook {shown(path)} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise NotebookError(f"notebook {shown(path)} is not JSON: it nests too deep") from None
    except ValueError as error:
        raise NotebookError(f"notebook {shown(path)} is not JSON: {error}") from None
    cells = body.get("cells") if isinstance(body, dict) else None
    if not isinstance(cells, list) or body.get("nbformat") != 4:
        raise NotebookError(f"{shown(path)} is no notebook of format 4")
    for number, cell in enumerate(cells):
        if not isinstance(cell, dict) or not _is_text(cell.get("source", "")):
            raise NotebookError(f"{shown(path)} is no notebook: its cell {number} is damaged")
    sources = [(str(cell.get("cell_type")), _source(cell)) for cell in cells]
    tagged = [
        source
        for cell, (kind, source) in zip(cells, sources, strict=True)
        if kind == "code" and "parameters" in _tags(cell)
    ]
    if not tagged:
        raise NotebookError(
            f"notebook {shown(path)} has no code cell tagged 'parameters': tag the cell that holds "
            "the defaults (JupyterLab: property inspector, cell tags)"
        )
    digest = hashlib.sha256(json.dumps(sources).encode()).hexdigest()
    return Notebook(path, _defaults(tagged[0], path), digest, content)


def _is_text(source: Any) -> bool:
    lines = source if isinstance(source, list) else [source]
    return all(isinstance(line, str) for line in lines)


def _tags(cell: dict[str, Any]) -> list[Any]:
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return tags if isinstance(tags, list) else []


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def _defaults(source: str, path: Path) -> dict[str, Any]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = str(error) if isinstance(error, (SyntaxError, ValueError)) else "it nests too deep"
        raise NotebookError(
            f"notebook {shown(path)}: the cell tagged 'parameters' is not plain Python: {why}"
        ) from None
    defaults: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                defaults[target.id] = _literal(value)
    return defaults


def _literal(value: ast.expr) -> Any:
    try:
        literal = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN
    return literal if storable(literal) else UNKNOWN
