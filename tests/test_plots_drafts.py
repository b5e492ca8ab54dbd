"""The drafts' figures are tested by what they would draw, from hand-made tables."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from verifylab import plots, plots_drafts


@pytest.fixture
def ax():
    with matplotlib.style.context(plots.STYLE):
        yield Figure(figsize=(8, 5)).subplots()


@pytest.fixture
def curve():
    rows = [
        (1, 0, 100, 0.9, 0.95, 0.90, 0.99),
        (1, 1, 1900, 0.3, 0.4, 0.35, 0.45),
        (2, 0, 70, 0.5, 0.6, 0.5, 0.7),
    ]
    columns = ["depth", "bin", "n", "predicted", "observed", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture
def neighbours():
    return pd.DataFrame(
        {"series": ["confidence", "confidence", "residual", "residual"], "lag": [1, 2, 1, 2],
         "correlation": [0.3, 0.2, 0.05, -0.01], "n": [9, 8, 9, 8]}
    )  # fmt: skip


@pytest.fixture
def sequences():
    return pd.DataFrame(
        {"sequence": [2, 0, 1], "rank": [1 / 6, 0.5, 5 / 6], "n": [10, 12, 10],
         "acceptance": [0.4, 0.7, 0.95], "chance": [0.6, 0.68, 0.75]}
    )  # fmt: skip


def texts(ax):
    return [t.get_text() for t in ax.texts]


def curves(ax):
    return {
        tuple(map(float, np.atleast_1d(line.get_ydata()))): line.get_label() for line in ax.lines
    }


def legend(ax):
    return [t.get_text() for t in ax.get_legend().get_texts()]


def test_calibration_draws_a_line_a_depth_by_rising_confidence(curve, ax):
    plots_drafts.draw_calibration(curve, ax, stamp_text="measured | hand-made")
    drawn = curves(ax)
    assert {(0.4, 0.95), (0.6,), (0.0, 1.0)} <= set(drawn)
    assert legend(ax) == ["says what it means", "draft 1 (n = 2,000)", "draft 2 (n = 70)"]
    assert "measured | hand-made" in texts(ax)
    bars = [bar for lines in ax.collections for bar in lines.get_segments()]
    assert any(np.allclose(bar, [(0.9, 0.90), (0.9, 0.99)]) for bar in bars)


def test_autocorrelation_draws_the_series_it_is_given(neighbours, ax):
    plots_drafts.draw_autocorrelation(neighbours, ax)
    drawn = curves(ax)
    assert drawn[(0.3, 0.2)] == "confidence" and (0.05, -0.01) in drawn
    assert len(legend(ax)) == 2, "a series without rows has no line"


def test_sequences_stand_against_chance(sequences, ax):
    plots_drafts.draw_sequence_spread(sequences, ax)
    drawn = curves(ax)
    assert drawn[(0.6, 0.68, 0.75)] == "by chance alone"
    assert drawn[(0.4, 0.7, 0.95)] == "3 sequences of 10 to 12 positions"
    assert ax.get_ylim()[0] < 0.4 and ax.get_ylim()[1] > 0.95
    plots_drafts.draw_sequence_spread(sequences.assign(n=10), ax)
    assert any("3 sequences of 10 positions" in text for text in legend(ax))


def test_the_figure_has_no_clipped_and_no_overlapping_text(curve, neighbours, sequences):
    figure = plots_drafts.draft_figure(
        curve, neighbours, sequences, "measured acceptance | mtp_drafts | n = 128,000 positions"
    )
    with matplotlib.style.context(plots.STYLE):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
    box = figure.bbox
    assert len(figure.axes) == 3
    for ax in figure.axes:
        shown = [*ax.texts, ax._left_title, ax.xaxis.label, ax.yaxis.label]
        # a tick beyond the limits has a label that is not drawn
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            shown += [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
        named = [(t.get_text(), Text.get_window_extent(t, renderer)) for t in shown if t.get_text()]
        named.append(("legend", ax.get_legend().get_window_extent(renderer)))
        for name, extent in named:
            assert extent.x0 >= box.x0 - 1 and extent.x1 <= box.x1 + 1, f"{name!r} is clipped"
            assert extent.y0 >= box.y0 - 1 and extent.y1 <= box.y1 + 1, f"{name!r} is clipped"
        for i, (a, one) in enumerate(named):
            for b, two in named[i + 1 :]:
                wide = min(one.x1, two.x1) - max(one.x0, two.x0)
                tall = min(one.y1, two.y1) - max(one.y0, two.y0)
                assert not (wide > 2 and tall > 2), f"{a!r} overlaps {b!r}"
