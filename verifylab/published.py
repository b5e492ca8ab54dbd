"""Published figures: read `data/published/*.csv`, each row with its source and caveat."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from verifylab.published_schema import fault, numbers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DataError", "data_dir", "figure", "number", "table"]


class DataError(ValueError):
    """A file of the project's data is missing or not what it should be."""


def data_dir() -> Path:
    """Return the project's ``data/`` folder.

    ``VERIFYLAB_DATA`` names another one; otherwise it is found beside the package (a checkout or
    an editable install), then in the current folder.

    Raises
    ------
    DataError
        When there is none.
    """
    named = os.environ.get("VERIFYLAB_DATA")
    candidates = [Path(named)] if named else [Path(__file__).resolve().parent.parent / "data"]
    if not named:
        candidates.append(Path.cwd() / "data")
    for folder in candidates:
        if (folder / "published").is_dir():
            return folder
    raise DataError(
        f"no data folder with published/ in {' or '.join(str(c) for c in candidates)}: "
        "run from a checkout of the project, or set VERIFYLAB_DATA to its data folder"
    )


@cache
def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        frame = pd.read_csv(path)
    except FileNotFoundError:
        raise DataError(f"published table {path.name} is missing from {path.parent}") from None
    except (OSError, pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"published table {path} cannot be read as CSV: {error}") from None
    if wrong := fault(path.stem, frame):
        raise DataError(f"published table {path.name} {wrong}")
    return frame


def table(name: str) -> pd.DataFrame:
    """Return a published table as a new DataFrame.

    Parameters
    ----------
    name : str
        File name without ``.csv``, for example ``"canonical_ab"``.

    Raises
    ------
    DataError
        When the file is missing, cannot be parsed or does not hold what it must
        (`verifylab.published_schema`).
    """
    return _read(data_dir() / "published" / f"{name}.csv").copy()


def number(name: str, row: pd.Series, column: str) -> float:
    """Return the one number in a cell of `row`, a row of table `name`.

    Raises
    ------
    DataError
        When the cell holds none.
    """
    values = numbers(row[column])
    if len(values) != 1:
        raise DataError(
            f"published table {name}.csv, line {int(row.name) + 2}: {column} must be one number, "
            f"got {row[column]!r}"
        )
    return values[0]


def figure(name: str, key: str, column: str) -> float:
    """Return one number: of table `name`, the row whose first column is `key`, the named column.

    Raises
    ------
    DataError
        When there is not exactly one such row, or it holds no number.
    """
    frame = table(name)
    rows = frame[frame.iloc[:, 0] == key]
    if column not in frame.columns or len(rows) != 1:
        raise DataError(f"published table {name} has no single row {key!r} with a {column!r}")
    values = numbers(rows.iloc[0][column])
    if len(values) != 1:
        raise DataError(f"published table {name}, row {key!r}: {column!r} is no number")
    return values[0]
