"""What the server is asked to do: requests, drafts, confidences and acceptance draws.

A draft at depth d has a confidence c, drawn from a Beta distribution with mean ``acceptance[d]``
and spread s; it is accepted, given that all before it were, with probability c when confidences
are well calibrated. The spread is the share of an outcome's variance that the confidence
explains: variance = s * mean * (1 - mean). At 0 every draft of a depth looks alike; at 1 the
drafter knows the outcome.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from verifylab.dcut import DEFAULT_LADDER, DraftLadder
from verifylab.published import DataError, data_dir

__all__ = ["MAX_DRAFTS", "QUANTILES", "Tables", "Workload", "calibrated", "confidence_tables"]

#: Drafts that a slot of the pool can roll back: it keeps at most 8 snapshots.
MAX_DRAFTS = 8
#: Confidence values a depth can take: equal-probability bins of its Beta distribution.
QUANTILES = 4096
#: Longest request: its last token position must fit the 32-bit draw counter.
MAX_OUTPUT_TOKENS = 2**31
MODES = ("steady", "drain")


@dataclass(frozen=True, slots=True)
class Tables:
    """Lookup tables of one workload, by draft depth and quantile bin.

    Attributes
    ----------
    log_reported : ndarray of float64, shape (MAX_DRAFTS, QUANTILES)
        Log-confidence that the planner sees.
    accept_below : ndarray of uint64, shape (MAX_DRAFTS, QUANTILES)
        A draft is accepted when its 32-bit acceptance word is below this.
    """

    log_reported: np.ndarray
    accept_below: np.ndarray


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests and drafts.

    Parameters
    ----------
    acceptance : tuple of float
        Probability that draft d (from 1) is accepted given that all before it were. Deeper drafts
        than listed take the last value.
    confidence_spread : float
        0 to 1, see the module's text.
    informativeness : float
        1: confidences are well calibrated. 0: they say nothing (every draft of a depth is accepted
        with the same probability). Between: the true probability is that share of the way from
        the depth's mean to the confidence.
    sharpness : float
        Above 1 the drafter over-states: reported odds are the true odds to this power. Above 0.
    output_tokens : int
        Tokens that a request asks for; 1 or more.
    mode : {"steady", "drain"}
        ``steady`` replaces a finished request at once in its slot; ``drain`` does not.
    ladder : DraftLadder
        Drafts by batch width.

    Raises
    ------
    ValueError
        Naming the field, its value and what would be right.
    """

    acceptance: tuple[float, ...]
    confidence_spread: float
    informativeness: float = 1.0
    sharpness: float = 1.0
    output_tokens: int = 256
    mode: str = "steady"
    ladder: DraftLadder = DEFAULT_LADDER

    def __post_init__(self) -> None:
        if not self.acceptance or not all(0 < p < 1 for p in self.acceptance):
            raise ValueError(
                "acceptance must list probabilities between 0 and 1 (exclusive), "
                f"got {self.acceptance}"
            )
        for name in ("confidence_spread", "informativeness"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {value}")
        if not 0 < self.sharpness < float("inf"):
            raise ValueError(f"sharpness must be above 0 and finite, got {self.sharpness}")
        if not 1 <= self.output_tokens <= MAX_OUTPUT_TOKENS:
            raise ValueError(
                f"output_tokens must be from 1 to {MAX_OUTPUT_TOKENS}, got {self.output_tokens}"
            )
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        deepest = max(drafts for _, drafts in self.ladder.rungs)
        if deepest > MAX_DRAFTS:
            raise ValueError(
                f"drafts must be from 1 to {MAX_DRAFTS} (rollback snapshots a slot keeps), "
                f"got {deepest}"
            )

    def acceptance_at(self, depth: int) -> float:
        """Return the conditional acceptance of draft `depth`, counted from 0."""
        return self.acceptance[min(depth, len(self.acceptance) - 1)]

    def tables(self) -> Tables:
        """Return the lookup tables (cached by value)."""
        means = tuple(self.acceptance_at(d) for d in range(MAX_DRAFTS))
        return confidence_tables(
            means, self.confidence_spread, self.informativeness, self.sharpness
        )

    def expected_tokens(self, drafts: int) -> float:
        """Return the mean tokens a step emits when every draft is verified: 1 + p1 + p1 p2 + ..."""
        total, product = 1.0, 1.0
        for d in range(drafts):
            product *= self.acceptance_at(d)
            total += product
        return total


def _beta_bins(mean: float, spread: float) -> np.ndarray:
    """Mean confidence within each of `QUANTILES` equal-probability bins: their mean is `mean`."""
    from scipy.special import betaincinv

    if spread <= 0.0:
        return np.full(QUANTILES, mean)
    if spread >= 1.0:
        ones = mean * QUANTILES
        return np.clip(ones - np.arange(QUANTILES)[::-1], 0.0, 1.0)
    concentration = 1.0 / spread - 1.0
    a, b = mean * concentration, (1.0 - mean) * concentration
    # Confidences crowd both ends, where only the nearer end's distance keeps its digits: the lower
    # half is computed from 0 up, the upper half as one minus its mirror image.
    low = _bin_means(a, b, mean)
    high = 1.0 - _bin_means(b, a, 1.0 - mean)[::-1]
    middle = betaincinv(a, b, (np.arange(QUANTILES) + 0.5) / QUANTILES)
    return np.clip(np.where(middle < 0.5, low, high), 0.0, 1.0)


def _bin_means(a: float, b: float, mean: float) -> np.ndarray:
    """Mean of Beta(a, b) within each equal-probability bin, exact where it is well below 1."""
    from scipy.special import betainc, betaincinv

    edges = betaincinv(a, b, np.linspace(0.0, 1.0, QUANTILES + 1))
    return np.diff(betainc(a + 1.0, b, edges)) * mean * QUANTILES


@lru_cache(maxsize=64)
def confidence_tables(
    means: tuple[float, ...], spread: float, informativeness: float, sharpness: float
) -> Tables:
    """Build the tables for `means` by depth; see `Workload` for the other parameters."""
    log_reported = np.empty((len(means), QUANTILES))
    accept_below = np.empty((len(means), QUANTILES), np.uint64)
    for depth, mean in enumerate(means):
        confidence = _beta_bins(mean, spread)
        true = mean + informativeness * (confidence - mean)
        if sharpness == 1.0:
            reported = confidence
        else:
            with np.errstate(divide="ignore", over="ignore"):
                odds = confidence / (1.0 - confidence)
                powered = odds**sharpness
                reported = np.where(np.isinf(powered), 1.0, powered / (1.0 + powered))
        with np.errstate(divide="ignore"):
            log_reported[depth] = np.minimum(np.log(reported), 0.0)
        accept_below[depth] = np.rint(true * 2.0**32).astype(np.uint64)
    log_reported.flags.writeable = False
    accept_below.flags.writeable = False
    return Tables(log_reported, accept_below)


def calibrated(name: str = "published", **changes: Any) -> Workload:
    """Return the workload fitted to published figures, with `changes` to any field.

    Reads ``data/workloads/<name>.json``, which `verifylab.fit.fit_workload` writes.

    Raises
    ------
    DataError
        When the file is missing or damaged.
    ValueError
        When a change is out of range.
    """
    path = data_dir() / "workloads" / f"{name}.json"
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        workload = Workload(
            acceptance=tuple(float(p) for p in body["acceptance"]["values"]),
            confidence_spread=float(body["confidence_spread"]["value"]),
        )
    except FileNotFoundError:
        raise DataError(f"no workload {name!r} in data/workloads") from None
    except KeyError as error:
        raise DataError(f"workload {path.name} lacks the field {error}") from None
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"workload {path.name} is damaged: {error}") from None
    return replace(workload, **changes)
