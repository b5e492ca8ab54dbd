"""Where the gate should sit for given widths, and how sure that is.

A threshold is worth the mean over the widths of ln(tok/s with it / tok/s without canonical). Its
probability of being the best is counted over draws that redraw the seeds (bootstrap, paired), the
confidence spread (the equal-probability nodes of its fit) and every machine coefficient (within
its interval); the form of the model is not redrawn. Measured runs are redrawn over their seeds
alone, on their own clock: no modelled number enters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from verifylab.checks import whole
from verifylab.counters import SCALARS, times
from verifylab.gate import CANONICAL_KEY_MIN_WIDTH, Gate
from verifylab.machine import MachineProfile

__all__ = [
    "NEVER",
    "Recommendation",
    "chosen",
    "log_gains",
    "measured_log_gains",
    "recommend",
    "recommend_arms",
    "recommend_measured",
    "spans",
]

#: `min_width` of the rows that hold the base: never canonical.
NEVER = -1
#: Two log ratios that differ by less than this are the same run twice.
SAME = 1e-12


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A threshold and how sure it is.

    Attributes
    ----------
    min_width : int
        The recommended threshold.
    same_as : tuple of int
        Candidates that decide alike at every width given (itself included).
    probability : float
        Share of draws in which no candidate does better.
    gain_pct, gain_low, gain_high : float
        Mean over the widths of its tok/s against never canonical, percent: at the central values,
        and the 95 % interval over the draws.
    never : bool
        Whether it switches canonical on at none of the widths where that makes a difference.
    indifferent : bool
        Whether no candidate makes a difference in any draw: both arms are the same run.
    redrawn : str
        What the draws redraw, in words; the form of the model is never part of it.
    widths : tuple of int
        That the gains are the mean over.
    table : DataFrame
        By ``min_width``: ``gain_pct, gain_low, gain_high, probability`` of every candidate.
    """

    min_width: int
    same_as: tuple[int, ...]
    probability: float
    gain_pct: float
    gain_low: float
    gain_high: float
    never: bool
    indifferent: bool
    redrawn: str
    widths: tuple[int, ...]
    table: pd.DataFrame

    def sentence(self) -> str:
        """Say the recommendation in words."""
        if self.indifferent:
            return (
                "No difference: both arms are the same run at these widths, whatever the threshold."
            )
        alike = [m for m in self.same_as if m != self.min_width]
        decide = "decides" if len(alike) == 1 else "decide"
        also = f" ({spans(alike)} {decide} alike at these widths)" if alike else ""
        what = f"Gate at {self.min_width}{also}."
        if self.never:
            what = f"Keep canonical off at these widths: gate at {self.min_width}{also}."
        elif self.gain_pct < 0:
            what = (
                "None of these thresholds pays, never canonical is better; the least bad is "
                f"{self.min_width}{also}."
            )
        sure = f"{self.probability:.0%}" if self.probability < 0.995 else "over 99%"
        said = f"{what} Best, or level with the best, in {sure} of the redraws of {self.redrawn}"
        said += f"{self._next()}."
        if self.never:
            return said
        mean = f"mean over widths {spans(self.widths)} ("
        if len(self.widths) == 1:
            mean = f"at width {self.widths[0]} ("
        return (
            f"{said} Against never canonical: {self.gain_pct:+z.1f} % tok/s, {mean}95 % interval "
            f"{self.gain_low:+z.1f} to {self.gain_high:+z.1f})."
        )

    def _next(self) -> str:
        """Name what is best most often of the others, and all that are the same run."""
        others = self.table[~self.table.min_width.isin([*self.same_as, self.min_width])]
        if not others.probability.max() >= 0.005:
            return ""
        top = others.loc[others.probability.idxmax()]
        same = ["gain_pct", "gain_low", "gain_high", "probability"]
        alike = others.min_width[(others[same] == top[same]).all(axis=1)]
        name = "never canonical" if alike.max() > max(self.widths) else spans(alike)
        often = "next is" if top.probability <= self.probability else "more often it is"
        return f" ({often} {name}, in {top.probability:.0%})"


def spans(numbers: Iterable[int]) -> str:
    """Write numbers in ascending order, three and more in a row as ``low to high``."""
    rows: list[list[int]] = []
    for number in sorted(numbers):
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in rows)


def log_gains(
    runs: pd.DataFrame,
    machine: MachineProfile,
    *,
    by: str = "min_width",
    base: Any = NEVER,
    draws: int = 2000,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, list[int], list[Any]]:
    """Return ln(tok/s of a candidate / tok/s of the base): thresholds, policies or others.

    Parameters
    ----------
    runs : DataFrame
        Counts by ``width, spread, seed`` and the column `by`: every combination once, `base`
        among the candidates. The first spread is the central one; further ones are
        equal-probability nodes.
    machine : MachineProfile
    by, base : str, value
        The column that tells candidates apart, and the candidate that gains are taken against.
    draws, seed : int
        Draws, and the seed that makes them repeatable.

    Returns
    -------
    central : ndarray of float64, shape (widths, candidates)
    drawn : ndarray of float64, shape (draws, widths, candidates)
    widths, candidates : list
        What the axes stand for, `base` left out.

    Raises
    ------
    ValueError
        When a combination is missing or comes twice.
    """
    draws = whole("draws", draws, 1)
    spreads, widths, candidates = (
        list(dict.fromkeys(runs[name])) for name in ("spread", "width", by)
    )
    if base not in candidates:
        raise ValueError(f"runs must hold the base, {by} {base!r}, got {candidates}")
    candidates = [base, *(c for c in candidates if c != base)]
    seeds = np.sort(runs.seed.unique())
    index = pd.MultiIndex.from_product(
        [spreads, widths, candidates, seeds], names=["spread", "width", by, "seed"]
    )
    frame = runs.set_index(index.names)[list(SCALARS)]
    if frame.index.has_duplicates:
        raise ValueError(f"runs must hold every width, {by}, spread and seed once, got some twice")
    frame = frame.reindex(index)
    if frame.isna().any(axis=None):
        raise ValueError(f"runs must hold every width, {by}, spread and seed")
    values = frame.to_numpy(float).reshape(*(len(level) for level in index.levels), -1)

    def gains(
        total: np.ndarray, coefficients: MachineProfile | dict[str, np.ndarray]
    ) -> np.ndarray:
        named = {name: total[..., i] for i, name in enumerate(SCALARS)}
        log_rate = np.log(named["tokens"] / times(named, coefficients).total_ms)
        return log_rate[..., 1:] - log_rate[..., :1]

    central = gains(values[0].sum(axis=2), machine)

    rng = np.random.default_rng(seed)
    weight = _bootstrap(draws, len(seeds), rng)
    nodes = values[1:] if len(spreads) > 1 else values
    node = rng.integers(0, len(nodes), draws)
    coefficients = machine.sample(draws, rng)
    drawn = np.empty((draws, len(widths), len(candidates) - 1))
    for k, counts in enumerate(nodes):
        chosen = np.flatnonzero(node == k)
        total = np.einsum("ds,wmsc->dwmc", weight[chosen], counts, optimize=True)
        local = {name: c[chosen][:, None, None] for name, c in coefficients.items()}
        drawn[chosen] = gains(total, local)
    return central, drawn, widths, candidates[1:]


def _bootstrap(draws: int, seeds: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each seed is taken in each draw, shape (draws, seeds)."""
    taken = rng.integers(0, seeds, (draws, seeds)) + seeds * np.arange(draws)[:, None]
    return np.bincount(taken.ravel(), minlength=draws * seeds).reshape(draws, seeds).astype(float)


def measured_log_gains(
    runs: pd.DataFrame, *, draws: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, list[int], list[int]]:
    """Return what `log_gains` does, from measured times: bootstrapped over the seeds, paired.

    Parameters
    ----------
    runs : DataFrame
        By ``width, min_width, seed``, every combination once, `NEVER` among the thresholds:
        ``tokens`` and ``total_ms``.
    draws, seed : int

    Raises
    ------
    ValueError
        When a combination is missing.
    """
    draws = whole("draws", draws, 1)
    widths, candidates = (list(dict.fromkeys(runs[name])) for name in ("width", "min_width"))
    if NEVER not in candidates:
        raise ValueError("runs must hold the base, never canonical (min_width -1)")
    candidates = [NEVER, *(m for m in candidates if m != NEVER)]
    seeds = np.sort(runs.seed.unique())
    index = pd.MultiIndex.from_product([widths, candidates, seeds])
    frame = runs.set_index(["width", "min_width", "seed"])[["tokens", "total_ms"]].reindex(index)
    if frame.isna().any(axis=None):
        raise ValueError("runs must hold every width, threshold and seed")
    values = frame.to_numpy(float).reshape(len(widths), len(candidates), len(seeds), 2)

    def gains(total: np.ndarray) -> np.ndarray:
        log_rate = np.log(total[..., 0] / total[..., 1])
        return log_rate[..., 1:] - log_rate[..., :1]

    weight = _bootstrap(draws, len(seeds), np.random.default_rng(seed))
    drawn = gains(np.einsum("ds,wmsc->dwmc", weight, values, optimize=True))
    return gains(values.sum(axis=2)), drawn, widths, candidates[1:]


def recommend_measured(runs: pd.DataFrame, *, draws: int = 2000, seed: int = 0) -> Recommendation:
    """Recommend a threshold from measured times; choices as in `recommend`.

    Parameters
    ----------
    runs, draws, seed
        As in `measured_log_gains`.
    """
    central, drawn, widths, min_widths = measured_log_gains(runs, draws=draws, seed=seed)
    return chosen(central, drawn, widths, min_widths, f"{runs.seed.nunique()} seeds")


def recommend(
    runs: pd.DataFrame, machine: MachineProfile, *, draws: int = 2000, seed: int = 0
) -> Recommendation:
    """Recommend a threshold among those in `runs`, for a server that runs at its widths.

    Every width weighs the same. Of candidates that decide alike, the published default is named
    where it is one of them; else, of those that switch something on, the highest, and of those
    that switch nothing on, the lowest.

    Parameters
    ----------
    runs, machine, draws, seed
        As in `log_gains`.
    """
    central, drawn, widths, min_widths = log_gains(runs, machine, draws=draws, seed=seed)
    return chosen(central, drawn, widths, min_widths, _redrawn_from(runs))


def recommend_arms(
    runs: pd.DataFrame, machine: MachineProfile, *, draws: int = 2000, seed: int = 0
) -> Recommendation:
    """Recommend among every threshold from the narrowest width to above the widest.

    A steady run takes at each width one arm or the other, so the arms' gains are all it needs.

    Parameters
    ----------
    runs : DataFrame
        As in `log_gains`, of the policies ``arrangement`` and ``canonical``.
    machine, draws, seed
        As in `log_gains`.
    """
    central, drawn, widths, _ = log_gains(
        runs, machine, by="policy", base="arrangement", draws=draws, seed=seed
    )
    candidates = list(range(min(widths), max(widths) + 2))
    open_at = np.array([[Gate(m).canonical(w) for m in candidates] for w in widths])
    return chosen(
        np.where(open_at, central, 0.0),
        np.where(open_at, drawn, 0.0),
        widths,
        candidates,
        _redrawn_from(runs),
    )


def _redrawn_from(runs: pd.DataFrame) -> str:
    """Say what `log_gains` redraws of such runs: without several spreads, not the spread."""
    spread = ", confidence spread" if runs.spread.nunique() > 1 else ""
    return f"{runs.seed.nunique()} seeds{spread} and machine"


def chosen(
    central: np.ndarray,
    drawn: np.ndarray,
    widths: list[int],
    min_widths: list[int],
    redrawn: str,
) -> Recommendation:
    """Pick a threshold from gains as `log_gains` returns them, as `recommend` does.

    Parameters
    ----------
    central, drawn, widths, min_widths
        As `log_gains` returns them.
    redrawn : str
        As in `Recommendation`.
    """
    worth, drawn_worth = central.mean(axis=0), drawn.mean(axis=1)
    best = drawn_worth >= drawn_worth.max(axis=1, keepdims=True) - SAME
    low, high = np.quantile(drawn_worth, (0.025, 0.975), axis=0)
    table = pd.DataFrame(
        {
            "min_width": min_widths,
            "gain_pct": 100 * np.expm1(worth),
            "gain_low": 100 * np.expm1(low),
            "gain_high": 100 * np.expm1(high),
            "probability": best.mean(axis=0),
        }
    )
    top = int(worth.argmax())
    alike = np.abs(drawn - drawn[..., top : top + 1]).max(axis=(0, 1)) <= SAME
    names = [m for m, same in zip(min_widths, alike, strict=True) if same]
    never = bool(np.abs(drawn[..., top]).max() <= SAME)
    if CANONICAL_KEY_MIN_WIDTH in names:
        chosen = CANONICAL_KEY_MIN_WIDTH
    else:
        chosen = min(names) if never else max(names)
    row = table.iloc[min_widths.index(chosen)]
    return Recommendation(
        chosen,
        tuple(sorted(names)),
        float(row.probability),
        float(row.gain_pct),
        float(row.gain_low),
        float(row.gain_high),
        never,
        bool(np.abs(drawn).max() <= SAME),
        redrawn,
        tuple(map(int, widths)),
        table,
    )
