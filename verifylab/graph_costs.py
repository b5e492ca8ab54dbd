"""What graph operations and verify steps cost: `04_graph_costs.ipynb`, in tables.

A calibration is measured here or read back; each function turns a part of it into a DataFrame that
carries its stamp (what it was measured on, when).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

import pandas as pd

from verifylab.calibrate import calibrate
from verifylab.calibration_plan import open_for, plan_for
from verifylab.checks import is_number
from verifylab.paths import write_files
from verifylab.published import DataError, table
from verifylab.run_files import content

__all__ = ["FITTED", "PUBLISHED_NODES", "GraphCosts", "graph_costs", "published_costs", "save"]

#: Operations that are fitted over nodes, in the order of a graph's life, with what they are called.
FITTED = {
    "record": "record (Python)",
    "instantiate": "instantiate",
    "launch": "launch, host time",
    "replay": "replay, device time",
    "exec_destroy": "exec destroy",
    "graph_destroy": "graph destroy",
    "eager": "launch without graph",
}
#: Nodes of the graphs whose cost is published as one number, by words of the row's ``setting`` in
#: ``api_costs.csv``; a range by its middle, "same" as the row above. The V100's instantiate is left
#: out: it includes loading.
PUBLISHED_NODES = {"about 4-5 thousand nodes": 4500, "same": 4500, "79-91 nodes": 85}
#: Paths that a calibration times.
FORMS = ("direct", "declined")
_PARTS = ("machine", "plan", "date", "coefficients", "bandwidth", "samples")


@dataclass(frozen=True, slots=True)
class GraphCosts:
    """A calibration as tables; each has the columns ``time, machine, date``.

    Attributes
    ----------
    fits : DataFrame
        ``operation, label, base_us, base_low, base_high, per_node_us, per_node_low,
        per_node_high``: one row for each of `FITTED`.
    operations : DataFrame
        Every sample: ``operation, nodes, repeat, ms``.
    steps : DataFrame
        Every sample: ``width, rows, form, nodes, repeat, ms``.
    bandwidth : DataFrame
        ``width, rows, gb_s, of_copy, copy_gb_s``: state and weight bytes of the fast path's steps.
    where, why : str
        ``host CPU`` or the GPU's name; why that device.
    shape : str
    """

    fits: pd.DataFrame
    operations: pd.DataFrame
    steps: pd.DataFrame
    bandwidth: pd.DataFrame
    where: str
    why: str
    shape: str

    @property
    def stamp(self) -> str:
        """Where and when, in one line."""
        return f"measured on {self.where} | {self.fits.date.iloc[0]}"

    def summary(self) -> str:
        """Return the fits as text, with the stamp."""
        shown = self.fits[
            ["label", "base_us", "base_low", "base_high", "per_node_us", "per_node_low",
             "per_node_high"]
        ]  # fmt: skip
        text = shown.to_string(index=False, float_format="{:.4g}".format)
        return (
            f"{text}\n(microseconds: base + per_node * nodes, 95 % intervals)\n\n"
            f"{self.stamp}; verify step {self.shape!r}. {self.why}\n"
        )


def graph_costs(
    device: str = "auto",
    *,
    calibration: str = "",
    quick: bool = False,
    shape: str = "",
    weight_bytes: int = 0,
    **changes: int | Sequence[int],
) -> GraphCosts:
    """Measure a calibration, or read one back, and lay it out as tables.

    Parameters
    ----------
    device : {"auto", "host", "cuda"}
        ``auto``: the GPU where one answers, else the host with its small plan.
    calibration : str
        A file of ``verifylab calibrate --samples``: nothing is measured then.
    quick, shape, weight_bytes, **changes
        As `calibration_plan.plan_for`.

    Raises
    ------
    ValueError
        When a value is out of range, or the file is no calibration (`DataError`).
    DeviceError
        When ``cuda`` is asked for and does not work.
    """
    if calibration:
        return _read(calibration)
    if device not in ("auto", "host", "cuda"):
        raise ValueError(f"device must be auto, host or cuda, got {device!r}")
    # Checked before a GPU is opened, and before anything is measured.
    plan_for("host", quick=quick, shape=shape, weight_bytes=weight_bytes, **changes)
    opened, why = open_for(device)
    plan = plan_for(opened.name, quick=quick, shape=shape, weight_bytes=weight_bytes, **changes)
    return _tables(calibrate(opened, plan), why)


def _tables(result: dict[str, Any], why: str) -> GraphCosts:
    where = str(result["machine"].get("gpu") or "host CPU")
    stamp = {"time": "measured", "machine": where, "date": str(result["date"])[:10]}
    samples = result["samples"]
    operations = _numbers(samples["graph_operations"], "nodes", "repeat", *FITTED).melt(
        ["nodes", "repeat"], list(FITTED), "operation", "ms"
    )
    steps = _numbers(samples["steps"], "width", "rows", "nodes", "ms", "repeat")
    if not steps.form.isin(FORMS).all():
        raise ValueError(f"the form of a step must be one of {', '.join(FORMS)}")
    bandwidth = _numbers(result["bandwidth"]["steps"], "width", "rows", "gb_s", "of_copy").assign(
        copy_gb_s=_finite("copy_gb_s", result["bandwidth"]["copy_gb_s"])
    )
    return GraphCosts(
        _fits(result["coefficients"]).assign(**stamp),
        operations.assign(**stamp),
        steps.assign(**stamp),
        bandwidth.assign(**stamp),
        where,
        f"Device: {why}.",
        str(result["plan"]["shape"]),
    )


def _finite(name: str, value: Any) -> float:
    if not is_number(value) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {short(value)}")
    return float(value)


def _numbers(rows: list[dict[str, Any]], *columns: str) -> pd.DataFrame:
    """Return one row a sample, each of `columns` in every one of them a finite number."""
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"samples must be a list of objects, got {short(rows)}")
    for row in rows:
        for name in columns:
            _finite(name, row[name])
    return pd.DataFrame(rows)


def _read(path: str) -> GraphCosts:
    if not isinstance(path, str):
        raise DataError(f"calibration must be the name of a file, got {short(path)}")
    try:
        body = json.loads(content(Path(path)).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"calibration {path!r} cannot be read: {error}") from None
    if not isinstance(body, dict) or any(part not in body for part in _PARTS):
        raise DataError(
            f"calibration {path!r} is not what `verifylab calibrate --samples` writes: it must "
            f"hold {', '.join(_PARTS)}"
        )
    try:
        return _tables(body, f"read from {Path(path).name}")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DataError(
            f"calibration {path!r} is not what `verifylab calibrate --samples` writes: {missing}"
        ) from None


def _fits(coefficients: dict[str, Any]) -> pd.DataFrame:
    rows = []
    for operation, label in FITTED.items():
        row: dict[str, Any] = {"operation": operation, "label": label}
        for name in ("base", "per_node"):
            micro = coefficients.get(f"{operation}_{name}_us")
            fitted = micro or coefficients[f"{operation}_{name}_ms"]
            scale = 1.0 if micro else 1e3
            for part, column in (("value", "us"), ("low", "low"), ("high", "high")):
                row[f"{name}_{column}"] = scale * _finite(f"{operation}_{name}", fitted[part])
        rows.append(row)
    return pd.DataFrame(rows)


def published_costs() -> pd.DataFrame:
    """Return ``api_costs.csv`` with numbers: ``us_low, us_high``, and ``nodes`` where known.

    Per-node rows (``us/node`` or ``ms/node``) have ``per_node`` True. Rows in bytes are left out.
    """
    frame = table("api_costs")
    frame = frame[frame.unit.str.startswith(("ms", "us"))].copy()
    scale = frame.unit.map(lambda unit: 1e3 if unit.startswith("ms") else 1.0)
    bounds = frame.value.astype(str).str.split("-")
    frame["us_low"] = bounds.str[0].astype(float) * scale
    frame["us_high"] = bounds.str[-1].astype(float) * scale
    frame["per_node"] = frame.unit.str.endswith("/node") | frame.operation.str.endswith("_per_node")
    settings = frame.setting.fillna("")
    frame["nodes"] = [
        next((n for words, n in PUBLISHED_NODES.items() if words in text), None)
        for text in settings
    ]
    return frame.reset_index(drop=True)


def save(costs: GraphCosts, folder: str | Path) -> list[Path]:
    """Write ``result.parquet`` (the fits), the samples as CSV, and ``summary.txt``."""
    return write_files(
        folder,
        {
            "result.parquet": costs.fits.to_parquet(index=False),
            "operations.csv": costs.operations.to_csv(index=False),
            "steps.csv": costs.steps.to_csv(index=False),
            "bandwidth.csv": costs.bandwidth.to_csv(index=False),
            "summary.txt": costs.summary(),
        },
    )
