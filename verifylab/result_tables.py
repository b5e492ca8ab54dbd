"""Results of many runs as one table: read, made frames, put under one another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifylab.records import ALTERED, Record, altered, content_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["converted", "read_result", "together", "unique"]


def read_result(folder: Path, record: Record) -> tuple[Any, str]:
    """Read a result once, for its checksum and for its content; return it, or why there is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        content = content_of(folder, "result.parquet")
        if altered(record.checksums, "result.parquet", hashlib.sha256(content).hexdigest()):
            return None, f"result.parquet {ALTERED}"
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        return None, f"a result.parquet that cannot be read: {' '.join(str(error).split())[:200]}"
    table = table.rename_columns(unique(table.column_names))
    return table.replace_schema_metadata(None), ""


def unique(names: Iterable[str]) -> list[str]:
    """Tell names that come twice apart: the second ``a`` becomes ``a.1``."""
    names = list(names)
    if len(set(names)) == len(names):
        return names
    told: list[str] = []
    for name in names:
        new, nth = name, 0
        while new in told or (nth and new in names):
            nth += 1
            new = f"{name}.{nth}"
        told.append(new)
    return told


def converted(tables: dict[int, Any]) -> tuple[list[pd.DataFrame], dict[int, str]]:
    """Return tables as frames whose index says of which run a row is, and why some cannot be."""
    # Tables of one schema are joined as they are: ten thousand frames would take long.
    alike: dict[bytes, list[int]] = {}
    for at, table in tables.items():
        alike.setdefault(table.schema.serialize().to_pybytes(), []).append(at)
    frames = []
    unfit: dict[int, str] = {}
    for runs in alike.values():
        frame, problem = _frame(tables, runs)
        if problem:
            problems = {at: _frame(tables, [at])[1] for at in runs}
            unfit |= {at: told for at, told in problems.items() if told}
            if not (runs := [at for at in runs if at not in unfit]):
                continue
            frame, _ = _frame(tables, runs)
        frames.append(frame)
    return frames, unfit


def _frame(tables: dict[int, Any], runs: list[int]) -> tuple[Any, str]:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    try:
        table = pa.concat_tables([tables[at] for at in runs])
        table.validate(full=True)  # texts that are not UTF-8 would be noticed by whoever reads them
        frame = table.to_pandas()
    # No such time zone, a year beyond 9999: Arrow holds more than pandas.
    except Exception as error:
        told = " ".join(str(error).split())[:200]
        return None, f"a result.parquet whose values cannot be read: {told}"
    frame.index = pd.Index(np.repeat(runs, [tables[at].num_rows for at in runs]))
    return frame, ""


def together(frames: list[pd.DataFrame], gaps: bool) -> pd.DataFrame:
    """Put frames under one another; `gaps`, whether some run has none."""
    import warnings

    import pandas as pd

    if gaps or len(frames) > 1:  # else a whole number that is missing makes all others floats
        for frame in frames:
            whole = frame.select_dtypes(["integer", "bool"]).columns
            frame[whole] = frame[whole].convert_dtypes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of columns that are empty in some frame
        return pd.concat(frames)
