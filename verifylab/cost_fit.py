"""Least squares with intervals, for costs that grow with a few counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

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
    """Fit ``costs = sum_j coefficient_j * regressors[:, j]`` by relative least squares.

    Each row is weighted by the inverse square of its cost, because the noise of a time grows with
    the time: a plain fit over 10 to 10,000 nodes would see the largest graphs only. The intervals
    are Student's t from the residuals, so they widen where the costs are not linear.

    Parameters
    ----------
    regressors : (samples, coefficients) array
        A column of ones for a constant term.
    costs : (samples,) array
        Above 0: one robust number (a median) for each setting, not every repeat of it.

    Returns
    -------
    list of Coefficient
        One for each column.

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
    solution, *_ = np.linalg.lstsq(relative / size, np.ones(samples), rcond=None)
    residuals = 1.0 - relative / size @ solution
    variance = residuals @ residuals / (samples - terms)
    spread = np.sqrt(variance * np.diag(np.linalg.inv((relative / size).T @ (relative / size))))
    half = stats.t.ppf(0.975, samples - terms) * spread
    return [
        Coefficient(float(v / s), float((v - h) / s), float((v + h) / s))
        for v, h, s in zip(solution, half, size, strict=True)
    ]
