"""One verify batch drawn: slots, rows and depth runs of each arm."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from verifylab.explain import ArmExplained
from verifylab.plots import STYLE

__all__ = ["batch_figure", "draw_batch", "steps_figure"]

#: Fill by rows, light to dark: told apart in grey too. The number stands in the box.
FILLS = ("#f0f0f0", "#d3e4f3", "#a8cee4", "#6aaed6", "#3787c0", "#1864aa", "#0b4083")
FAST, DECLINED = "#0072B2", "#D55E00"


def draw_batch(
    arm: ArmExplained, slots: Sequence[int], ax: Axes, *, title: str | None = None
) -> Axes:
    """Draw a batch in dispatch order: a box a sequence, a bracket a depth run.

    Parameters
    ----------
    arm : ArmExplained
        As `explain.explain` gives it.
    slots : sequence of int
        By input index.
    ax : Axes
    title : str, optional
        Default: the arm and its launches.
    """
    n = len(arm.order)
    for p, (i, rows) in enumerate(zip(arm.order, arm.depths, strict=True)):
        at = min(rows, len(FILLS)) - 1
        ax.add_patch(Rectangle((p + 0.04, 0.0), 0.92, 1.0, facecolor=FILLS[at], edgecolor="#555"))
        ax.text(
            p + 0.5, 0.48, str(rows), ha="center", va="center", fontsize=15,
            color="white" if at >= 4 else "black",
        )  # fmt: skip
        ax.text(p + 0.5, 1.13, str(slots[i]), ha="center", va="bottom", fontsize=12)
    for run in arm.runs:
        a, b = run.start + 0.08, run.start + run.length - 0.08
        look = {"color": FAST, "ls": "-"} if run.fast else {"color": DECLINED, "ls": (0, (3, 2))}
        ax.plot([a, a, b, b], [-0.1, -0.24, -0.24, -0.1], lw=2.4, **look)
        name = "fast" if run.fast else "declined"
        if run.length == 1 and n > 12:
            name = name[0].upper()
        for y, word in ((-0.34, name), (-0.68, str(run.launches))):
            ax.text((a + b) / 2, y, word, ha="center", va="top", fontsize=11)
    for y, word, at_y in (
        (1.13, "slot", "bottom"), (0.48, "rows", "center"), (-0.34, "run", "top"),
        (-0.68, "launches", "top"),
    ):  # fmt: skip
        ax.text(-0.15, y, word, ha="right", va=at_y, fontsize=11, color="#555555")
    ax.set_xlim(-1.3, max(n, 5) + 0.1)
    ax.set_ylim(-1.05, 1.6)
    ax.axis("off")
    ax.set_title(
        f"{arm.arm}: {arm.launches_per_layer} launches a layer" if title is None else title
    )
    return ax


def batch_figure(arms: Sequence[ArmExplained], slots: Sequence[int]) -> Figure:
    """Return both arms of one batch, one above the other."""
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(11, 5.6), layout="constrained")
        for arm, ax in zip(arms, figure.subplots(len(arms), 1, squeeze=False)[:, 0], strict=True):
            mark = ", taken by the gate" if arm.gate else ""
            draw_batch(
                arm, slots, ax,
                title=f"{arm.arm}{mark}: {arm.launches_per_layer} launches a layer",
            )  # fmt: skip
    return figure


def steps_figure(
    steps: Sequence[Sequence[ArmExplained]], slots: Sequence[int], names: Sequence[str]
) -> Figure:
    """Return several steps of one batch beside each other, an arm a row.

    Parameters
    ----------
    steps : sequence of sequence of ArmExplained
        Of each step, its arms.
    slots : sequence of int
    names : sequence of str
        What each step is called.
    """
    arms = len(steps[0])
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(6.2 * len(steps), 2.9 * arms), layout="constrained")
        axes = figure.subplots(arms, len(steps), squeeze=False)
        for column, (step, name) in enumerate(zip(steps, names, strict=True)):
            for line, arm in enumerate(step):
                draw_batch(
                    arm, slots, axes[line, column],
                    title=f"{name}, {arm.arm}: {arm.launches_per_layer} launches a layer",
                )  # fmt: skip
    return figure
