"""Whether the tables of a stored run agree with one another and with its summary."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from verifylab.stored_runs import StoredRun

__all__ = ["BOUNDS", "contradiction", "named_gate"]

#: Columns that hold finite numbers in every stored table, by its name, and the least of each.
BOUNDS: dict[str, dict[str, float]] = {
    "arms": {"width": 1, "reachable_keys": 1, "tok_s": 0, "bound_tok_s": 0},
    "differences": {
        "width": 1,
        "delta_pct": -100,
        "delta_low": -1e9,
        "delta_high": -1e9,
        "tokens_pct": -1e9,
        "captures_pct": -1e9,
        "launches_pct": -1e9,
        "work_pct": -1e9,
    },
    "recommendation": {"min_width": 0, "gain_pct": -100, "probability": 0},
    "map": {"width": 1, "graph_ms": 0, "gain_pct": -100},
    "harmless": {"width": 1, "canonical_tok_s": 0, "arrangement_tok_s": 0},
    "result": {"width": 1, "capacity": 1, "tok_s": 0, "memory_gb": 0},
}
#: And the most of some.
_MOST = {"probability": 1.0}
#: Columns that say how all of a table was made.
_ONE_VALUE = ("time", "machine", "date", "seeds")
#: Percent by which the parts of a difference may miss the whole: they add up but for rounding.
_SUM = 1e-6
#: What tells the rows of a stored table apart, by its name: each comes once.
_KEYS = {
    "arms": ("width", "policy"),
    "differences": ("width",),
    "recommendation": ("min_width",),
    "map": ("map", "ratio", "graph_ms", "width"),
    "harmless": ("width",),
    "result": ("width", "policy", "eviction", "capacity"),
}
#: Percent by which a mean of ratios may leave the interval of the paired mean.
_NEAR = 0.5
_GATE = re.compile(r"\b(?:[Gg]ate at|least bad is) (\d+)")
_GAIN = re.compile(r"Against never canonical: ([+-]\d+\.\d) %")


def contradiction(run: StoredRun, tables: Mapping[str, pd.DataFrame], summary: str) -> str:
    """Say what in a run's tables is out of bounds, or contradicts its other records.

    Parameters
    ----------
    run : StoredRun
    tables : mapping of str to DataFrame
        By name, those that figures are drawn from.
    summary : str
        First line of its summary.

    Returns
    -------
    str
        Empty where nothing does.
    """
    for name, table in tables.items():
        for column, least in BOUNDS[name].items():
            if (lowest := table[column].min()) < least:
                return (
                    f"column {column!r} of its table {name!r} must be {least:g} or more, "
                    f"got {lowest:g}"
                )
            if column in _MOST and (highest := table[column].max()) > _MOST[column]:
                return (
                    f"column {column!r} of its table {name!r} must be {_MOST[column]:g} or less, "
                    f"got {highest:g}"
                )
        if said := _made(name, table, run):
            return said
        keys = list(_KEYS[name])
        if set(keys) <= set(table) and table.duplicated(keys).any():
            row = table[table.duplicated(keys)].iloc[0]
            which = ", ".join(f"{key} {row[key]}" for key in keys)
            return f"its table {name!r} has more than one row of {which}"
    said = ""
    if "arms" in tables:
        said = _widths(run, tables["arms"])
    if not said and "arms" in tables and "differences" in tables:
        said = _differences(tables["arms"], tables["differences"])
    if not said and "recommendation" in tables:
        said = _gate(tables["recommendation"], summary)
    return said


def _made(name: str, table: pd.DataFrame, run: StoredRun) -> str:
    """Hold what a table says of its making against itself and against the run's parameters."""
    for column in _ONE_VALUE:
        if column in table and table[column].nunique(dropna=False) > 1:
            return f"column {column!r} of its table {name!r} must hold one value throughout"
    asked = run.parameters.get("device")
    if asked == "model" and "time" in table and table.time.iloc[0] != "modelled":
        return f"its table {name!r} says {table.time.iloc[0]}, its parameters device 'model'"
    if "seeds" in table and not table.seeds.iloc[0] >= 1:
        return f"column 'seeds' of its table {name!r} must be 1 or more, got {table.seeds.iloc[0]}"
    if "graph_ms" in table and not ("time" in table and table.time.iloc[0] == "measured"):
        if not np.isfinite(table.graph_ms).all() or table.graph_ms.min() < 0:
            return f"column 'graph_ms' of its table {name!r} must hold 0 or more milliseconds"
    return ""


def named_gate(summary: str) -> int | None:
    """Return the threshold that the first line of a summary names; None where it names none."""
    gate = _GATE.search(summary)
    return int(gate[1]) if gate else None


def _widths(run: StoredRun, arms: pd.DataFrame) -> str:
    asked, there = set(run.parameters.get("widths", arms.width)), set(arms.width)
    if asked == there:
        return ""
    return f"its table 'arms' has the widths {_listed(there)}, its parameters say {_listed(asked)}"


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _differences(arms: pd.DataFrame, differences: pd.DataFrame) -> str:
    if (there := set(arms.width)) != (told := set(differences.width)):
        return (
            f"its table 'differences' has the widths {_listed(told)}, its table 'arms' "
            f"{_listed(there)}"
        )
    rate = arms.pivot_table(index="width", columns="policy", values="tok_s")
    gain = 100 * (rate.canonical / rate.arrangement - 1)
    for row in differences.itertuples():
        parts = row.tokens_pct + row.captures_pct + row.launches_pct + row.work_pct
        if abs(parts - row.delta_pct) > _SUM:
            return (
                f"the parts in its table 'differences' make {parts:+.1f} % at width {row.width}, "
                f"the whole is {row.delta_pct:+.1f} %"
            )
        half = (row.delta_high - row.delta_low) / 2
        if not abs(gain[row.width] - row.delta_pct) <= half + _NEAR:
            return (
                f"its tables contradict each other: canonical at width {row.width} is "
                f"{row.delta_pct:+.1f} % in 'differences', {gain[row.width]:+.1f} % in 'arms'"
            )
    return ""


def _gate(table: pd.DataFrame, summary: str) -> str:
    """Hold the gate and the gain that the summary names against the table's best."""
    gate, gain = _GATE.search(summary), _GAIN.search(summary)
    best = table.gain_pct.max()
    if gate is None:
        if not summary or abs(best - table.gain_pct.min()) < 1e-6:
            return ""  # no summary, or no threshold makes a difference
        at = _listed(set(table.min_width[table.gain_pct == best]))
        return f"its summary names no gate, its table 'recommendation' {best:+.1f} % at {at}"
    row = table.gain_pct[table.min_width == int(gate[1])]
    if len(row) and best - row.iloc[0] < 1e-6 and not (gain and abs(best - float(gain[1])) > 0.051):
        return ""
    claimed = f"{gate[0]!r}" + (f" and {gain[1]} %" if gain else "")
    at = _listed(set(table.min_width[table.gain_pct == best]))
    return f"its summary says {claimed}, its table 'recommendation' {best:+.1f} % at {at}"
