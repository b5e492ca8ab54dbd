"""Two sets of stored results held against each other: paired deltas, each with its class.

Runs are paired on their parameters, but for those in which the two sets differ as a whole: what has
one value on either side, and another one on the other, is what is compared. Rows of paired runs are
paired on the columns that tell them apart. What is left (repeats, and a column ``seed``) are
replicates: the mean of their paired deltas gets a 95 % t interval.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from verifylab.loading import COLUMNS
from verifylab.records import GOOD
from verifylab.repeats import FIRST_SEED, REPEAT
from verifylab.stats import interval
from verifylab.table_values import as_text, is_number, plain

__all__ = ["CLASSES", "Comparison", "Delta", "compare_results", "lower_is_better"]

CLASSES = ("REGRESSION", "GAIN", "NO CHANGE", "NEW", "MISSING")

#: Metrics taken where none is named: the first that both sets have.
_METRICS = ("tok_s", "step_ms", "total_ms")
#: Columns that only number replicates, and those that say nothing about what was measured.
_REPLICATES, _STAMPS = ("seed",), ("date", "time", "machine", "seeds", "commit")
#: So near to 0 there is nothing to take percents of: the largest `is_number` would overflow.
_NOTHING = 1e-70
_LOWER = ("_ms", "_us", "_ns", "_bytes", "_mib", "_mb", "seconds", "captures", "capture_fraction")
_LOWER_TOO = ("launches_per_layer", "keys_seen", "nodes")

#: Values of one thing by replicate, each with the run that it is from.
_Replicates = dict[str, tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Delta:
    """One line of a comparison.

    Attributes
    ----------
    kind : str
        One of `CLASSES`.
    metric : str
    where : dict
        Parameters and columns that say what was compared.
    a, b : float or None
        Means over the replicates; None where a side has none.
    delta_pct, low_pct, high_pct : float or None
        Mean of the paired deltas in percent of `a`, with its interval; None where there is none.
        Where one of the replicates of `a` is 0, in percent of their mean size.
    n : int
        Replicates, pairs of them where both sides have some.
    """

    kind: str
    metric: str
    where: dict[str, Any]
    a: float | None
    b: float | None
    delta_pct: float | None
    low_pct: float | None
    high_pct: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare_results` found.

    Attributes
    ----------
    deltas : list of Delta
    differing : dict of str to (object, object)
        Parameters in which the sets differ as a whole: what is compared.
    left_out : list of str
        Runs of either set that have no result, with their status, and values that are no number.
    missing, new : list of str
        Runs of A, and of B, with values that the other set has no counterpart for: a whole run, a
        repeat, a seed.
    """

    deltas: list[Delta]
    differing: dict[str, tuple[Any, Any]]
    left_out: list[str]
    missing: list[str]
    new: list[str]


def lower_is_better(metric: str) -> bool:
    """Guess from a metric's name whether less of it is better: times, sizes, captures."""
    return metric.endswith(_LOWER) or metric in _LOWER_TOO


def compare_results(
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    metrics: Sequence[str] = (),
    threshold_pct: float = 1.0,
    lower: Iterable[str] = (),
) -> Comparison:
    """Compare two tables of `verifylab.store.load`, `a` being the base.

    Parameters
    ----------
    a, b : DataFrame
    metrics : sequence of str
        Columns to compare; default: the first of tok_s, step_ms, total_ms that both have.
    threshold_pct : float
        A smaller delta is NO CHANGE, and so is one whose interval reaches 0. Where all of `a` is
        0 there is no percentage: only the interval counts.
    lower : iterable of str
        Metrics of which less is better, beside those that `lower_is_better` knows.

    Raises
    ------
    ValueError
        When there is nothing to compare.
    """
    left_out = [*_without_result(a, "A"), *_without_result(b, "B")]
    a, b = (frame[frame.status.isin(GOOD)] for frame in (a, b))
    for name, frame in (("A", a), ("B", b)):
        if frame.empty:
            raise ValueError(f"{name} has no run with a result to compare")
    clocks = [set(frame["time"].dropna()) if "time" in frame else set() for frame in (a, b)]
    if all(clocks) and not clocks[0] & clocks[1]:
        one, other = (" and ".join(sorted(map(str, clock))) for clock in clocks)
        raise ValueError(f"times of A are {one}, those of B {other}: they cannot be compared")
    metrics = list(metrics) or _default(a, b)
    for metric in metrics:
        for name, frame in (("A", a), ("B", b)):
            if metric not in frame or not pd.api.types.is_numeric_dtype(frame[metric]):
                raise ValueError(f"{name} has no numbers in a column {metric!r}: {_numbers(frame)}")
    differing = _differing(a, b)
    # What a sweep sets for each repeat numbers replicates.
    apart = {f"param_{n}" for n in (REPEAT, FIRST_SEED)} if (a.repeat > 0).any() else set()
    names = sorted({n for f in (a, b) for n in f if n.startswith("param_")} - {*differing, *apart})
    by = _by(a, b, names, metrics)
    deltas: list[Delta] = []
    missing: list[str] = []
    new: list[str] = []
    for metric in metrics:
        better = -1 if lower_is_better(metric) or metric in set(lower) else 1
        for side, frame in (("A", a), ("B", b)):
            left_out += _without_number(frame, side, metric)
        left, right = (_keyed(frame, names, by, metric) for frame in (a, b))
        missing += _unpaired(left, right, metric)
        new += _unpaired(right, left, metric)
        for key in dict.fromkeys((*left, *right)):
            where = json.loads(key)
            pair = left.get(key, {}), right.get(key, {})
            deltas.append(_delta(metric, where, *pair, threshold_pct, better))
    if not deltas:
        raise ValueError(f"neither side has a finite number in {' or '.join(metrics)}")
    _thin(deltas)
    return Comparison(deltas, {n[6:]: v for n, v in differing.items()}, left_out, missing, new)


def _without_result(frame: pd.DataFrame, side: str) -> list[str]:
    bad = frame[~frame.status.isin(GOOD)]
    rows = zip(bad.sweep, bad.run, bad.status, strict=True)
    return [f"{side}: {sweep}/{run} is {status}" for sweep, run, status in rows]


def _without_number(frame: pd.DataFrame, side: str, metric: str) -> list[str]:
    values = [plain(value) for value in frame[metric].tolist()]
    rows = dict.fromkeys(
        (sweep, run, value)
        for sweep, run, value in zip(frame.sweep, frame.run, values, strict=True)
        if value is not None and not is_number(value)
    )
    return [f"{side}: {metric} of {sweep}/{run} is {value}" for sweep, run, value in rows]


def _default(a: pd.DataFrame, b: pd.DataFrame) -> list[str]:
    for metric in _METRICS:
        if metric in a and metric in b:
            return [metric]
    raise ValueError(f"name what to compare with --metric; {_numbers(a)}")


def _numbers(frame: pd.DataFrame) -> str:
    about = {*COLUMNS, *(n for n in frame if str(n).startswith("param_"))}
    names = [str(n) for n in frame if n not in about and pd.api.types.is_float_dtype(frame[n])]
    return f"there are {', '.join(names)}" if names else "there are none"


def _differing(a: pd.DataFrame, b: pd.DataFrame) -> dict[str, tuple[Any, Any]]:
    found = {}
    for name in sorted({n for f in (a, b) for n in f if n.startswith("param_")}):
        sides = [set(map(as_text, f[name])) if name in f else {"null"} for f in (a, b)]
        if len(sides[0]) == len(sides[1]) == 1 and sides[0] != sides[1]:
            found[name] = (json.loads(sides[0].pop()), json.loads(sides[1].pop()))
    return found


def _by(a: pd.DataFrame, b: pd.DataFrame, names: list[str], metrics: list[str]) -> list[str]:
    """Columns of the results that tell the rows of a run apart: as few as do, from the left."""
    about = {*COLUMNS, *metrics, *_REPLICATES, *_STAMPS}
    able = [
        n for n in a
        if n in b and n not in about and not n.startswith("param_")
        and not pd.api.types.is_float_dtype(a[n]) and not pd.api.types.is_float_dtype(b[n])
    ]  # fmt: skip
    run = ["sweep", "run", *(r for r in _REPLICATES if r in a and r in b)]
    by: list[str] = []
    # As texts: a list or a table cannot be looked up.
    texts = [pd.DataFrame({n: f[n].map(as_text) for n in run}) for f in (a, b)]
    while able and any(text.duplicated().any() for text in texts):
        by.append(able.pop(0))
        for text, frame in zip(texts, (a, b), strict=True):
            text[by[-1]] = frame[by[-1]].map(as_text)
    return by


def _keyed(
    frame: pd.DataFrame, names: list[str], by: list[str], metric: str
) -> dict[str, _Replicates]:
    """Values of a metric by what they are of, then by replicate."""
    out: dict[str, _Replicates] = {}
    runs = [f"{sweep}/{run}" for sweep, run in zip(frame.sweep, frame.run, strict=True)]
    columns = {n: frame[n].tolist() if n in frame else [None] * len(frame) for n in (*names, *by)}
    marks = [frame["repeat"].tolist(), *(frame[r].tolist() for r in _REPLICATES if r in frame)]
    seen: dict[tuple[Any, ...], int] = {}
    for at, value in enumerate(frame[metric].tolist()):
        if not is_number(plain(value)):
            continue
        where = {n.removeprefix("param_"): plain(c[at]) for n, c in columns.items()}
        key = json.dumps(where)
        mark = tuple(as_text(m[at]) for m in marks)
        # Rows that nothing tells apart are paired in their order.
        nth = seen[key, *mark] = seen.get((key, *mark), -1) + 1
        out.setdefault(key, {})[as_text([*mark, nth])] = float(value), runs[at]
    return out


def _unpaired(
    ours: dict[str, _Replicates], theirs: dict[str, _Replicates], metric: str
) -> list[str]:
    """Name the runs of `ours` with values that `theirs` has none to hold against."""
    every: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for key, replicates in ours.items():
        for mark, (_, run) in replicates.items():
            every[run] += 1
            alone[run] += mark not in theirs.get(key, {})
    return [f"{run}: {n} of {every[run]} values of {metric}" for run, n in alone.items() if n]


def _delta(
    metric: str,
    where: dict[str, Any],
    a: _Replicates,
    b: _Replicates,
    threshold_pct: float,
    better: int,
) -> Delta:
    both = [mark for mark in a if mark in b]
    if not both:
        found = a or b
        mean = float(np.mean([value for value, _ in found.values()]))
        base, other = (mean, None) if a else (None, mean)
        kind = "MISSING" if a else "NEW"
        return Delta(kind, metric, where, base, other, None, None, None, len(found))
    left, right = (np.array([side[mark][0] for mark in both]) for side in (a, b))
    means = float(left.mean()), float(right.mean())
    size = np.abs(left) if left.all() else np.abs(left).mean()
    share = bool(np.all(size > _NOTHING))
    mean, low, high = interval(100.0 * (right - left) / size if share else right - left)
    sure = math.isnan(low) or low > 0 or high < 0
    kind = "NO CHANGE"
    if sure and abs(mean) > (threshold_pct if share else 0):
        kind = "GAIN" if mean * better > 0 else "REGRESSION"
    percent: tuple[float | None, ...] = (mean, low, high)
    if not share:
        percent = (None if mean else 0.0, None, None)
    elif math.isnan(low):
        percent = (mean, None, None)
    delta, least, most = percent
    return Delta(kind, metric, where, *means, delta, least, most, len(both))


def _thin(deltas: list[Delta]) -> None:
    """Take out of every `where` what is the same in all: it tells nothing apart."""
    for name in list(deltas[0].where) if len(deltas) > 1 else ():
        if len({as_text(delta.where.get(name)) for delta in deltas}) == 1:
            for delta in deltas:
                delta.where.pop(name, None)
