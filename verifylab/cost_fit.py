"""Non-negative least squares with intervals, for costs that grow with a few counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

__all__ = ["Coefficient", "fit_costs"]


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A fitted value with its 95 % interval.

    Attributes
    ----------
    value, low, high : float
        In the unit of the fitted samples over the unit of the regressor.
    """

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Coefficient:
        """Return the same in another unit (`factor` above 0)."""
        return Coefficient(self.value * factor, self.low * factor, self.high * factor)


def fit_costs(regressors: ArrayLike, costs: ArrayLike) -> list[Coefficient]:
    """Fit ``costs = sum_j coefficient_j * regressors[:, j]`` by non-negative least squares.

    Each row is weighted by the inverse square of its cost, because the noise of a time grows with
    the time: a plain fit over 10 to 10,000 nodes would see the largest graphs only. The intervals
    are Student's t from the residuals, so they widen where the costs are not linear.

    No coefficient is below 0: nothing that is counted saves time. One that would be is 0, and the
    others are fitted without it: cutting it off afterwards would leave what it balanced. Its
    interval runs from 0 up to the half-width it would have beside the others; those of the others
    are of the fit without it, cut at 0.

    Parameters
    ----------
    regressors : (samples, coefficients) array
        A column of ones for a constant term.
    costs : (samples,) array
        Above 0: one robust number (a median) for each setting, not every repeat of it.

    Returns
    -------
    list of Coefficient
        One for each column, 0 or more.

    Raises
    ------
    ValueError
        When there are too few samples, a cost is not above 0, or the columns are dependent.
    """
    x, y = np.asarray(regressors, np.float64), np.asarray(costs, np.float64)
    samples, terms = x.shape
    if samples <= terms:
        raise ValueError(
            f"{terms} coefficients need more than {terms} samples for an interval, got {samples}"
        )
    if not (y > 0).all():
        raise ValueError(f"costs must be above 0, got {float(y.min())}")
    relative = x / y[:, None]
    # Columns of one size, so that the rank test is fair to per-node terms.
    size = np.linalg.norm(relative, axis=0)
    if not size.all() or np.linalg.matrix_rank(relative / size) < terms:
        raise ValueError("the settings do not tell the coefficients apart: vary each on its own")
    scaled = relative / size
    solution, _ = optimize.nnls(scaled, np.ones(samples))
    active = solution > 0.0
    residuals = 1.0 - scaled @ solution
    half = np.empty(terms)
    for j in range(terms):
        # With all that is fitted, and this one.
        used = np.flatnonzero(active | (np.arange(terms) == j))
        freedom = samples - int(active.sum())
        spread = np.linalg.inv(scaled[:, used].T @ scaled[:, used])[used == j, used == j].item()
        half[j] = stats.t.ppf(0.975, freedom) * np.sqrt(residuals @ residuals / freedom * spread)
    return [
        Coefficient(float(v / s), float(max(0.0, v - h) / s), float((v + h) / s))
        for v, h, s in zip(solution, half, size, strict=True)
    ]
