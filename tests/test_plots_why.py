"""Figures of notebook 03 draw what their tables say."""

from __future__ import annotations

import matplotlib
import pandas as pd
import pytest
from matplotlib.figure import Figure

from verifylab import plots_why
from verifylab.plots import STYLE


@pytest.fixture
def ax():
    with matplotlib.style.context(STYLE):
        yield Figure(figsize=(8, 5)).subplots()


def texts(ax):
    return [t.get_text() for t in ax.texts]


def rows_of(**columns):
    frame = pd.DataFrame(columns)
    for part in ("tokens", "launches"):
        if f"{part}_pct" in frame:
            frame[f"{part}_low"] = frame[f"{part}_pct"] - 0.1
            frame[f"{part}_high"] = frame[f"{part}_pct"] + 0.1
    return frame


def test_the_spread_curve_marks_the_fit_and_what_the_ab_would_imply(ax):
    band = rows_of(
        width=[2, 2, 4, 4], spread=[0.0, 0.6, 0.0, 0.6], tokens_pct=[0.0, -3.0, 0.0, -5.0],
        fitted=[False, True, False, True], node=[False, True, False, True],
    )  # fmt: skip
    implied = pd.DataFrame({"width": [2, 4, 8], "implied_spread": [0.30, 0.32, float("nan")]})
    plots_why.draw_over_spread(band, implied, ax)
    drawn = [list(line.get_ydata()) for line in ax.lines if len(line.get_ydata()) == 2]
    assert [0.0, -3.0] in drawn and [0.0, -5.0] in drawn
    assert "n = 2, 4" in texts(ax), "marks that fall together share a label"
    assert not any("n = 8" in t for t in texts(ax))
    assert any("0.60" in t for t in texts(ax))


def test_calibration_bars_stand_by_kind_and_width(ax):
    table = rows_of(
        width=[2, 8, 2, 8], kind=["well calibrated"] * 2 + ["uninformative"] * 2,
        tokens_pct=[-3.0, -7.0, 0.0, 0.1],
    )  # fmt: skip
    plots_why.draw_calibrations(table, ax)
    assert sorted(round(p.get_height(), 6) for p in ax.patches) == [-7.0, -3.0, 0.0, 0.1]


def test_the_guess_is_shaded_where_it_would_lie(ax):
    split = rows_of(width=[2, 4], ratio=[0.75, 0.75], launches_pct=[0.0, 0.4])
    plots_why.draw_guess(split, ax)
    assert any("the guess" in t for t in texts(ax))
    assert ax.get_ylim()[0] < 0


def test_each_cell_of_the_map_names_its_winner(ax):
    table = pd.DataFrame(
        {"width": [2, 8], "graph_ms": [5.0, 5.0], "policy": ["arrangement", "indirect"],
         "gain_pct": [-0.0, 7.25]}
    )  # fmt: skip
    plots_why.draw_policy_map(table, "graph_ms", ax, title="t")
    assert texts(ax) == ["arrange-\nment\n+0.0 %", "indirect\n+7.2 %"]
    assert len(ax.patches) == 2


def test_a_narrow_lead_names_the_runner_up_and_no_gain_names_nobody(ax):
    table = pd.DataFrame(
        {"width": [2, 8], "ratio": [0.5, 0.5], "policy": ["padded", "sglang_ragged"],
         "second": ["trtllm", "indirect"], "gain_pct": [0.2, 15.0], "lead_pct": [0.0, 0.1]}
    )  # fmt: skip
    plots_why.draw_policy_map(table, "ratio", ax)
    assert texts(ax) == ["no clear\nwinner", "sglang\n= indirect\n+15.0 %"]


def test_a_gain_is_rounded_before_it_is_judged(ax):
    table = pd.DataFrame(
        {"width": [2, 4, 8], "ratio": 0.5, "policy": ["indirect", "indirect", "unpruned"],
         "second": ["arrangement", "arrangement", "padded"], "gain_pct": [0.46, 0.44, 0.7],
         "lead_pct": [0.46, 0.44, 0.0]}
    )  # fmt: skip
    plots_why.draw_policy_map(table, "ratio", ax)
    assert texts(ax) == ["indirect\n+0.5 %", "no clear\nwinner", "D-Cut off\n= padded\n+0.7 %"]


def test_every_policy_has_a_colour_of_its_own():
    from verifylab.advise import CANDIDATES
    from verifylab.experiment import UNPRUNED
    from verifylab.policy import POLICIES

    assert set(CANDIDATES) <= {*POLICIES, UNPRUNED}
    faces = [plots_why.POLICY_COLOURS[name][0] for name in CANDIDATES]
    assert len(set(faces)) == len(faces)
