"""How far the confidences of a trace mean what they say, and how much they say.

Draft d is judged where it was reached: where all drafts before it were accepted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from verifylab.draft_trace import TRACE_DRAFTS, DraftTrace

__all__ = [
    "by_depth",
    "calibration",
    "recalibrated",
    "recalibrated_probability",
    "shuffled",
    "uninformative",
]

#: Two-sided 95 % of a normal distribution.
_Z95 = 1.959964


def recalibrated_probability(trace: DraftTrace, depth: int) -> np.ndarray:
    """Return the acceptance to expect at each row's confidence: float64, shape (rows,).

    A monotone fit (isotonic regression) on the sequences of even number, read at those of odd
    number, and the other way round: no outcome explains itself.
    """
    from scipy.optimize import isotonic_regression

    logs = trace.log_confidences[:, depth]
    reached = trace.reached(depth)
    if not reached.any():
        return np.exp(logs)  # nothing to learn from
    outcome = (trace.accepted > depth).astype(float)
    out = np.empty(trace.rows)
    parity = trace.sequence_of % 2
    for half in (0, 1):
        fit = reached & (parity != half if trace.sequences > 1 else True)
        if not fit.any():
            fit = reached
        x, inverse = np.unique(logs[fit], return_inverse=True)
        n = np.bincount(inverse)
        y = isotonic_regression(np.bincount(inverse, outcome[fit]) / n, weights=n).x
        at = parity == half
        out[at] = np.interp(logs[at], x, y)
    return out


def recalibrated(trace: DraftTrace) -> DraftTrace:
    """Return the trace with each confidence replaced by the acceptance that it turned out to mean.

    A monotone map a depth, so the order of drafts of one depth stays and only how depths compare
    changes. Fitted on one half of the sequences and applied to the other.
    """
    columns = []
    for depth in range(TRACE_DRAFTS):
        # a bin in which nothing was accepted must keep a finite logarithm
        columns.append(np.log(np.clip(recalibrated_probability(trace, depth), 1e-6, 1.0)))
    return trace.with_log_confidences(np.stack(columns, 1), f"{trace.name} recalibrated")


def uninformative(trace: DraftTrace) -> DraftTrace:
    """Return the trace with all confidences of a depth at its acceptance: they say nothing.

    With them, re-pairing depths cannot cost a token on average.
    """
    table = by_depth(trace)
    logs = np.log(np.clip(table.acceptance.fillna(1.0).to_numpy(float), 1e-6, 1.0))
    return trace.with_log_confidences(
        np.broadcast_to(logs, (trace.rows, TRACE_DRAFTS)), f"{trace.name} uninformative"
    )


def shuffled(trace: DraftTrace, seed: int = 0) -> DraftTrace:
    """Return the trace with its rows of confidences permuted: as varied as before, but of others.

    What was accepted stays where it was, so the confidences say nothing about it any more.
    """
    order = np.random.default_rng(seed).permutation(trace.rows)
    return trace.with_log_confidences(trace.log_confidences[order], f"{trace.name} shuffled")


def calibration(trace: DraftTrace, bins: int = 12, rows: np.ndarray | None = None) -> pd.DataFrame:
    """Reliability: what the drafts' confidence predicts against what was accepted.

    Parameters
    ----------
    trace : DraftTrace
    bins : int
        Bins of about equal count a depth, 1 or more; equal confidences share one.
    rows : ndarray of bool, shape (rows,), optional
        Rows to judge by, for example `draft_sequences.visited`. Default: all.

    Returns
    -------
    DataFrame
        ``depth`` (from 1), ``bin``, ``n``, ``predicted`` (mean confidence), ``observed`` (share
        accepted), ``low, high`` (95 %, positions of one sequence not taken as independent).
    """
    if bins < 1:
        raise ValueError(f"bins must be 1 or more, got {bins}")
    sequence = trace.sequence_of
    out = []
    for depth in range(TRACE_DRAFTS):
        reached = _judged(trace, depth, rows)
        if not reached.any():
            continue
        confidence = np.exp(trace.log_confidences[reached, depth])
        outcome = (trace.accepted[reached] > depth).astype(float)
        edges = np.unique(np.quantile(confidence, np.linspace(0, 1, bins + 1)[1:-1]))
        for b, group in enumerate(np.split(*_grouped(np.searchsorted(edges, confidence)))):
            if not len(group):
                continue
            observed = outcome[group].mean()
            by_sequence = np.bincount(sequence[reached][group], outcome[group] - observed)
            half = _Z95 * np.sqrt((by_sequence**2).sum()) / len(group)
            out.append(
                {
                    "depth": depth + 1,
                    "bin": b,
                    "n": len(group),
                    "predicted": confidence[group].mean(),
                    "observed": observed,
                    "low": max(0.0, observed - half),
                    "high": min(1.0, observed + half),
                }
            )
    return pd.DataFrame(out)


def _judged(trace: DraftTrace, depth: int, rows: np.ndarray | None) -> np.ndarray:
    reached = trace.reached(depth)
    return reached if rows is None else reached & rows


def _grouped(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return indices by label, and where to split them."""
    return np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1]


def by_depth(
    trace: DraftTrace, bins: int = 12, resamples: int = 400, rows: np.ndarray | None = None
) -> pd.DataFrame:
    """One row a draft depth: acceptance, calibration and how much the confidences explain.

    Parameters
    ----------
    trace : DraftTrace
    bins : int
        As in `calibration`; they define the calibration error.
    resamples : int
        Bootstrap resamples of whole sequences behind ``spread_low`` and ``spread_high``.
    rows : ndarray of bool, shape (rows,), optional
        As in `calibration`. The recalibration is fitted to all rows whatever is given here.

    Returns
    -------
    DataFrame
        ``depth`` (from 1), ``n`` (positions where it was reached), ``acceptance`` (conditional),
        ``confidence`` (mean, as reported), ``brier``, ``ece`` (expected calibration error: mean
        distance of predicted and observed over `bins`), ``reported_spread`` and ``spread``:
        variance of the confidence over mean (1 - mean), as reported and recalibrated; the latter
        is what `Workload.confidence_spread` means, with a 95 % interval ``spread_low,
        spread_high``; ``skill``, the share of the outcome's variance that the recalibrated
        confidence does explain on sequences it was not fitted to (equal to ``spread`` if the fit
        carries over).
    """
    curve = calibration(trace, bins, rows)
    out: list[dict[str, Any]] = []
    for depth in range(TRACE_DRAFTS):
        reached = _judged(trace, depth, rows)
        n = int(reached.sum())
        if not n:
            out.append({"depth": depth + 1, "n": 0, "acceptance": np.nan})
            continue
        outcome = (trace.accepted[reached] > depth).astype(float)
        reported = np.exp(trace.log_confidences[reached, depth])
        fitted = recalibrated_probability(trace, depth)[reached]
        mean = outcome.mean()
        at = curve[curve.depth == depth + 1]
        low, high = _spread_interval(fitted, trace.sequence_of[reached], resamples)
        out.append(
            {
                "depth": depth + 1,
                "n": n,
                "acceptance": mean,
                "confidence": reported.mean(),
                "brier": ((reported - outcome) ** 2).mean(),
                "ece": float((at.n * (at.predicted - at.observed).abs()).sum() / n),
                "reported_spread": _share(reported.var(), reported.mean()),
                "spread": _share(fitted.var(), fitted.mean()),
                "spread_low": low,
                "spread_high": high,
                "skill": _share(mean * (1 - mean) - ((fitted - outcome) ** 2).mean(), mean),
            }
        )
    return pd.DataFrame(out)


def _share(variance: Any, mean: Any) -> Any:
    most = mean * (1.0 - mean)
    return np.divide(variance, most, out=np.zeros_like(np.asarray(most, float)), where=most > 0)[()]


def _spread_interval(
    probability: np.ndarray, sequence: np.ndarray, resamples: int
) -> tuple[float, float]:
    """95 % bootstrap interval of the spread, whole sequences drawn anew."""
    sums = np.stack(
        [np.bincount(sequence), np.bincount(sequence, probability),
         np.bincount(sequence, probability**2)]
    )  # fmt: skip
    sums = sums[:, sums[0] > 0]
    count = sums.shape[1]
    chosen = np.random.default_rng(0).integers(0, count, (resamples, count))
    n, first, second = sums[:, chosen].sum(-1)
    mean = first / n
    low, high = np.quantile(_share(second / n - mean**2, mean), (0.025, 0.975))
    return float(low), float(high)
