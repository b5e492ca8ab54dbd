"""Published figures: read `data/published/*.csv`, each row with its source and caveat."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DataError", "data_dir", "figure", "table"]


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
        return pd.read_csv(path)
    except FileNotFoundError:
        raise DataError(f"published table {path.name} is missing from {path.parent}") from None
    except (OSError, pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"published table {path} cannot be read as CSV: {error}") from None


def table(name: str) -> pd.DataFrame:
    """Return a published table as a new DataFrame.

    Parameters
    ----------
    name : str
        File name without ``.csv``, for example ``"canonical_ab"``.

    Raises
    ------
    DataError
        When the file is missing or cannot be parsed.
    """
    return _read(data_dir() / "published" / f"{name}.csv").copy()


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
    try:
        value = float(rows.iloc[0][column])
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"published table {name}, row {key!r}: {column!r} is no number")
    return value
