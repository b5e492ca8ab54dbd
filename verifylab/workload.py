"""What the server is asked to do: requests, drafts, confidences and acceptance draws.

A draft at depth d has a confidence c, drawn from a Beta distribution with mean ``acceptance[d]``
and spread s; it is accepted, given that all before it were, with probability c when confidences
are well calibrated. The spread is the share of an outcome's variance that the confidence
explains: variance = s * mean * (1 - mean). At 0 every draft of a depth looks alike; at 1 the
drafter knows the outcome.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from verifylab.checks import is_number, is_whole
from verifylab.dcut import DEFAULT_LADDER, DraftLadder
from verifylab.draws import request_words
from verifylab.published import DataError, data_dir

__all__ = [
    "MAX_DRAFTS",
    "OUTPUT_TOKENS",
    "QUANTILES",
    "Tables",
    "Workload",
    "calibrated",
    "confidence_tables",
    "spread_nodes",
    "spread_residuals",
]

#: Drafts that a slot of the pool can roll back: it keeps at most 8 snapshots.
MAX_DRAFTS = 8
#: Tokens that a request asks for where nothing else is said. A choice.
OUTPUT_TOKENS = 256
#: Confidence values a depth can take: equal-probability bins of its Beta distribution.
QUANTILES = 4096
#: Longest request: its last token position must fit the 32-bit draw counter.
MAX_OUTPUT_TOKENS = 2**31
#: Nearest that an acceptance comes to 0 or 1: the 32-bit acceptance words tell no less apart.
LEAST = 1e-9
MODES = ("steady", "drain")
#: Beta parameters from which the Beta is a normal to within its own skewness, 1 / sqrt(this) of
#: its width; beyond it SciPy's incomplete beta function loses the digits that tell bins apart.
NORMAL_FROM = 1e5


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
    output_tokens: int = OUTPUT_TOKENS
    mode: str = "steady"
    ladder: DraftLadder = DEFAULT_LADDER

    def __post_init__(self) -> None:
        listed = self.acceptance if isinstance(self.acceptance, (tuple, list)) else ()
        if not listed or not all(map(_is_acceptance, listed)):
            raise ValueError(
                f"acceptance must list probabilities between 0 and 1 ({LEAST:g} away at least), "
                f"got {self.acceptance!r}"
            )
        object.__setattr__(self, "acceptance", tuple(float(p) for p in listed))
        for name in ("confidence_spread", "informativeness"):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value <= 1:
                raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")
        if not is_number(self.sharpness) or not 0 < self.sharpness < float("inf"):
            raise ValueError(f"sharpness must be above 0 and finite, got {self.sharpness!r}")
        tokens = self.output_tokens
        if not is_whole(tokens) or not 1 <= tokens <= MAX_OUTPUT_TOKENS:
            raise ValueError(
                f"output_tokens must be a whole number from 1 to {MAX_OUTPUT_TOKENS}, "
                f"got {tokens!r}"
            )
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if not isinstance(self.ladder, DraftLadder):
            raise ValueError(
                f"ladder must be a DraftLadder (DraftLadder.parse reads '4:3,8:1'), "
                f"got {self.ladder!r}"
            )
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

    def draw(
        self, seed: int, request: np.ndarray, position: np.ndarray, drafts: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what a step drafts, and how much of it would be accepted.

        Parameters
        ----------
        seed, request, position, drafts
            As in `draws.request_words`.

        Returns
        -------
        log_confidences : ndarray of float64, shape (n, drafts)
        prefix : ndarray of int64, shape (n,)
            Accepted drafts, 0 to `drafts`.
        """
        tables = self.tables()
        words = request_words(seed, request, position, drafts)
        bins = (words[..., 0] >> np.uint64(20)).astype(np.int64)
        depth = np.arange(drafts)
        accepted = words[..., 1] < tables.accept_below[depth, bins]
        return tables.log_reported[depth, bins], np.cumprod(accepted, axis=1).sum(axis=1)

    def expected_tokens(self, drafts: int) -> float:
        """Return the mean tokens a step emits when every draft is verified: 1 + p1 + p1 p2 + ..."""
        total, product = 1.0, 1.0
        for d in range(drafts):
            product *= self.acceptance_at(d)
            total += product
        return total


def _is_acceptance(value: Any) -> bool:
    return is_number(value) and LEAST <= value <= 1 - LEAST


@lru_cache(maxsize=256)
def _beta_bins(mean: float, spread: float) -> np.ndarray:
    """Mean confidence within each of `QUANTILES` equal-probability bins: their mean is `mean`."""
    bins = np.clip(_free_bins(mean, spread), 0.0, 1.0)
    bins.flags.writeable = False
    return bins


def _free_bins(mean: float, spread: float) -> np.ndarray:
    """`_beta_bins`, up to rounding beyond 0 and 1."""
    if spread <= 0.0:
        return np.full(QUANTILES, mean)
    if spread >= 1.0:
        return mean * QUANTILES - np.arange(QUANTILES)[::-1]
    concentration = 1.0 / spread - 1.0
    a, b = mean * concentration, (1.0 - mean) * concentration
    if min(a, b) > NORMAL_FROM:
        return mean + np.sqrt(spread * mean * (1.0 - mean)) * _normal_bins()
    # Confidences crowd both ends, where only the nearer end's distance keeps its digits: the lower
    # half is computed from 0 up, the upper half as one minus its mirror image.
    edges, low = _bin_means(a, b, mean)
    _, mirrored = _bin_means(b, a, 1.0 - mean)
    high = 1.0 - mirrored[::-1]
    split = int(np.count_nonzero(edges < 0.5)) - 1
    # One bin straddles the middle, and its two edges may crowd both ends: it takes what is left.
    bins = np.concatenate([low[:split], [0.0], high[split + 1 :]])
    bins[split] = mean * QUANTILES - bins.sum()
    return bins


def _normal_bins() -> np.ndarray:
    """Mean of a standard normal within each equal-probability bin."""
    from scipy.special import ndtri

    edges = ndtri(np.linspace(0.0, 1.0, QUANTILES + 1))
    return -np.diff(np.exp(-(edges**2) / 2.0)) * QUANTILES / np.sqrt(2.0 * np.pi)


def _bin_means(a: float, b: float, mean: float) -> tuple[np.ndarray, np.ndarray]:
    """Edges and means of Beta(a, b)'s equal-probability bins, exact where well below 1."""
    from scipy.special import betainc, betaincinv

    edges = betaincinv(a, b, np.linspace(0.0, 1.0, QUANTILES + 1))
    return edges, np.diff(betainc(a + 1.0, b, edges)) * mean * QUANTILES


@lru_cache(maxsize=64)
def confidence_tables(
    means: tuple[float, ...], spread: float, informativeness: float, sharpness: float
) -> Tables:
    """Build the tables for `means` by depth; see `Workload` for the other parameters.

    Raises
    ------
    ValueError
        When a mean is outside what `Workload` takes.
    """
    if wrong := [mean for mean in means if not _is_acceptance(mean)]:
        raise ValueError(
            f"means must be between 0 and 1 ({LEAST:g} away at least), got {wrong[0]!r}"
        )
    from scipy.special import log_expit, logit

    log_reported = np.empty((len(means), QUANTILES))
    accept_below = np.empty((len(means), QUANTILES), np.uint64)
    for depth, mean in enumerate(means):
        confidence = _beta_bins(mean, spread)
        true = mean + informativeness * (confidence - mean)
        if sharpness == 1.0:
            with np.errstate(divide="ignore"):
                log_reported[depth] = np.minimum(np.log(confidence), 0.0)
        else:
            log_reported[depth] = log_expit(sharpness * logit(confidence))
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
    body = _stored(name)
    with _naming(name):
        workload = Workload(
            acceptance=body["acceptance"]["values"],
            confidence_spread=body["confidence_spread"]["value"],
        )
    return replace(workload, **changes)


def spread_nodes(name: str = "published") -> list[float]:
    """Return equal-probability nodes of the fitted confidence spread's uncertainty.

    Raises
    ------
    DataError
        When the file is missing or damaged.
    """
    body = _stored(name)
    with _naming(name):
        nodes = body["confidence_spread"]["nodes"]
        if not nodes or not all(is_number(node) and 0 <= node <= 1 for node in nodes):
            raise ValueError(f"nodes must list numbers from 0 to 1, got {nodes!r}")
    return [float(node) for node in nodes]


def spread_residuals(name: str = "published") -> tuple[float, list[dict[str, float]]]:
    """Return how well the fitted spread meets the ratio sweep.

    Returns
    -------
    level : float
        Factor on accepted drafts, fitted beside the spread.
    residuals : list of dict
        ``ratio, published, fitted, residual`` in tokens per step, a row a ratio.

    Raises
    ------
    DataError
        When the file is missing or damaged.
    """
    body = _stored(name)
    with _naming(name):
        spread = body["confidence_spread"]
        rows = [
            {field: _finite(f"residuals[{i}].{field}", row[field]) for field in _RESIDUAL}
            for i, row in enumerate(spread["residuals"])
        ]
        if not rows:
            raise ValueError("residuals must list one ratio or more, got none")
        return _finite("level", spread["level"]), rows


_RESIDUAL = ("ratio", "published", "fitted", "residual")


def _finite(name: str, value: Any) -> float:
    if not is_number(value) or not np.isfinite(value):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)


def _stored(name: str) -> Any:
    """Read a fitted workload's file."""
    path = data_dir() / "workloads" / f"{name}.json"
    with _naming(name):
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(f"no workload {name!r} in data/workloads") from None


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Turn whatever a damaged file causes into one sentence that names it."""
    try:
        yield
    except DataError:
        raise
    except KeyError as error:
        raise DataError(f"workload {name}.json lacks the field {error}") from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"workload {name}.json is damaged: {error}") from None
