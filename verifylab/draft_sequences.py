"""How the positions and sequences of a trace hang together: what independent draws leave out."""

from __future__ import annotations

import numpy as np
import pandas as pd

from verifylab.draft_calibration import recalibrated_probability
from verifylab.draft_trace import TRACE_DRAFTS, DraftTrace

__all__ = ["autocorrelation", "replay", "sequence_spread", "visited"]


def autocorrelation(trace: DraftTrace, max_lag: int = 32) -> pd.DataFrame:
    """How alike positions of one sequence are, by the tokens between them.

    Parameters
    ----------
    trace : DraftTrace
    max_lag : int
        1 or more, below the longest sequence.

    Returns
    -------
    DataFrame
        ``series, lag, correlation, n`` (pairs) for lags 1 to `max_lag` of three series of draft 1:
        ``confidence``, ``accepted`` and ``residual`` (accepted less its recalibrated confidence:
        what a workload with independent draws given the confidences takes to be zero). Deviations
        are from the mean over all sequences.
    """
    if not 1 <= max_lag < trace.lengths.max():
        raise ValueError(f"max_lag must be from 1 to {trace.lengths.max() - 1}, got {max_lag}")
    outcome = (trace.accepted > 0).astype(float)
    series = {
        "confidence": np.exp(trace.log_confidences[:, 0]),
        "accepted": outcome,
        "residual": outcome - recalibrated_probability(trace, 0),
    }
    sequence = trace.sequence_of
    rows = []
    for name, values in series.items():
        centred = values - values.mean()
        variance = float((centred**2).mean())
        for lag in range(1, max_lag + 1):
            same = sequence[lag:] == sequence[:-lag]
            products = (centred[lag:] * centred[:-lag])[same]
            rows.append(
                {
                    "series": name,
                    "lag": lag,
                    "correlation": products.mean() / variance if variance > 0 else 0.0,
                    "n": len(products),
                }
            )
    return pd.DataFrame(rows)


def sequence_spread(trace: DraftTrace) -> pd.DataFrame:
    """How sequences differ, against what chance alone would do.

    Returns
    -------
    DataFrame
        One row a sequence, by rising acceptance: ``sequence, rank`` (0 to 1), ``n`` (positions),
        ``acceptance`` and ``confidence`` (of draft 1, means), ``tokens`` (a step started at any of
        its positions, all drafts verified) and ``chance``: the acceptance at that rank if every
        position of every sequence were accepted alike and independently.
    """
    from scipy.stats import binom

    sequence, lengths = trace.sequence_of, trace.lengths
    accepted = trace.accepted > 0
    table = pd.DataFrame(
        {
            "sequence": np.arange(trace.sequences),
            "n": lengths,
            "acceptance": np.bincount(sequence, accepted) / lengths,
            "confidence": np.bincount(sequence, np.exp(trace.log_confidences[:, 0])) / lengths,
            "tokens": 1.0 + np.bincount(sequence, trace.accepted) / lengths,
        }
    ).sort_values("acceptance", ignore_index=True, kind="stable")
    rank = (np.arange(len(table)) + 0.5) / len(table)
    table.insert(1, "rank", rank)
    # Sequences of unlike length differ by chance in unlike ways; the mean length stands for all.
    n = max(1, round(float(lengths.mean())))
    table["chance"] = binom.ppf(rank, n, accepted.mean()) / n
    return table


def visited(trace: DraftTrace, drafts: int = TRACE_DRAFTS) -> np.ndarray:
    """Return the rows where an engine that verifies `drafts` a step starts its steps.

    Every sequence is read from its beginning. The rows are no random share: a step starts after a
    token that no draft got, and so more often where drafting is hard.

    Returns
    -------
    ndarray of bool, shape (rows,)
    """
    if not 1 <= drafts <= TRACE_DRAFTS:
        raise ValueError(f"drafts must be from 1 to {TRACE_DRAFTS}, got {drafts}")
    emitted = np.minimum(trace.accepted, drafts) + 1
    started = np.zeros(trace.rows, bool)
    at, ends = trace.offsets[:-1].copy(), trace.offsets[1:]
    while (going := at < ends).any():
        started[at[going]] = True
        at[going] += emitted[at[going]]
    return started


def replay(trace: DraftTrace, drafts: int = TRACE_DRAFTS) -> pd.DataFrame:
    """Tokens a step when an engine reads every sequence, verifying `drafts` each time.

    Returns
    -------
    DataFrame
        One row a sequence: ``sequence, steps, tokens, tokens_per_step``; its last step may pass
        its end.
    """
    started = visited(trace, drafts)
    sequence = trace.sequence_of[started]
    steps = np.bincount(sequence, minlength=trace.sequences)
    emitted = np.minimum(trace.accepted[started], drafts) + 1
    tokens = np.bincount(sequence, emitted, minlength=trace.sequences).astype(np.int64)
    return pd.DataFrame(
        {
            "sequence": np.arange(trace.sequences),
            "steps": steps,
            "tokens": tokens,
            "tokens_per_step": tokens / steps,
        }
    )
