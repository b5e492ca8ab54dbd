"""Whether the stored fits still follow from the published figures."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

from verifylab import fit
from verifylab.published import DataError, data_dir

__all__ = ["RELATIVE_TOLERANCE", "differences"]

#: Two fits that differ by less are the same: another CPU or SciPy moves the last digits.
RELATIVE_TOLERANCE = 1e-4


def differences(folder: Path | None = None) -> list[str]:
    """Fit again and compare with what is stored.

    Parameters
    ----------
    folder : Path, optional
        Default: the project's ``data/``.

    Returns
    -------
    list of str
        One sentence for each value that differs; empty when none does.

    Raises
    ------
    DataError
        When a stored fit is missing or no JSON.
    """
    folder = data_dir() if folder is None else folder
    found = []
    with tempfile.TemporaryDirectory() as aside:
        for fresh in fit.write(Path(aside)):
            name = fresh.relative_to(aside)
            try:
                stored = json.loads((folder / name).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise DataError(f"stored fit {name.as_posix()} cannot be read: {error}") from None
            again = json.loads(fresh.read_text(encoding="utf-8"))
            found += _compare(stored, again, name.as_posix())
    return found


def _compare(stored: Any, again: Any, where: str) -> list[str]:
    if isinstance(stored, dict) and isinstance(again, dict):
        if missing := sorted(stored.keys() ^ again.keys()):
            return [f"{where}: only one of the stored and the new fit has {', '.join(missing)}"]
        return [d for key in again for d in _compare(stored[key], again[key], f"{where}: {key}")]
    if isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        pairs = enumerate(zip(stored, again, strict=True))
        return [d for at, (a, b) in pairs for d in _compare(a, b, f"{where}[{at}]")]
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (stored, again))
    same = stored == again or (
        numbers and math.isclose(stored, again, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12)
    )
    return [] if same else [f"{where}: stored {stored!r}, fitted again {again!r}"]
