"""Plots are tested by what they would draw, from hand-made tables."""

from __future__ import annotations

import dataclasses

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from verifylab import plots
from verifylab.explain import explain
from verifylab.gate import Gate
from verifylab.plots_batch import steps_figure

STAMP = {"time": "modelled", "machine": "hand-made", "date": "2026-01-02", "seeds": 7}


@pytest.fixture
def ax():
    with matplotlib.style.context(plots.STYLE):
        yield Figure(figsize=(8, 5)).subplots()


@pytest.fixture
def arms():
    rows = []
    for width, keys, rate in ((2, (2, 1), (40.0, 39.0)), (8, (266, 3), (99.0, 107.0))):
        for policy, k, r in zip(("arrangement", "canonical"), keys, rate, strict=True):
            rows.append(
                {"width": width, "policy": policy, "reachable_keys": k, "tok_s": r,
                 "tok_s_low": r - 1, "tok_s_high": r + 1, "bound_tok_s": r * 1.1, **STAMP}
            )  # fmt: skip
    return pd.DataFrame(rows)


@pytest.fixture
def differences():
    rows = [
        {"width": 2, "tokens": -3.0, "captures": 0.0, "launches": 0.0, "work": 0.0},
        {"width": 8, "tokens": -7.0, "captures": 14.0, "launches": 1.0, "work": 0.0},
    ]
    out = []
    for row in rows:
        whole = sum(row[c] for c in ("tokens", "captures", "launches", "work"))
        out.append(
            {"width": row["width"], "n": 7, "delta_pct": whole, "delta_low": whole - 0.5,
             "delta_high": whole + 0.5, **STAMP}
            | {f"{c}_pct": row[c] for c in ("tokens", "captures", "launches", "work")}
        )  # fmt: skip
    return pd.DataFrame(out)


def texts(ax):
    return [t.get_text() for t in ax.texts]


def test_collapse_joins_both_arms_and_draws_the_cache(arms, ax):
    plots.draw_collapse(arms, 32, ax)
    assert ax.get_xscale() == "log"
    points = {
        (float(x), float(y))
        for line in ax.lines
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
        if line.get_linestyle() == "None"
    }
    assert {(2, 40), (1, 39), (266, 99), (3, 107)} <= points
    assert any(line.get_xdata()[0] == 32 for line in ax.lines if line.get_linestyle() == "--")
    arrows = [t for t in ax.texts if t.get_text() == "" and t.arrow_patch is not None]
    assert {t.xy for t in arrows} == {(1, 39.0), (3, 107.0)}
    assert {"n = 2", "n = 8", "cache: 32 graphs"} <= set(texts(ax))


def test_difference_stacks_the_parts_and_marks_the_whole(differences, arms, ax):
    published = pd.DataFrame({"concurrency": [2, 8, 64], "delta_pct": [-2.4, 3.9, 0.2]})
    plots.draw_difference(differences, ax, published=published, arms=arms)
    bars = [(round(p.get_y(), 6), round(p.get_height(), 6)) for p in ax.patches]
    assert (0, 14.0) in bars and (14.0, 1.0) in bars, "launches stand on captures"
    assert (0, -7.0) in bars and (0, -3.0) in bars
    ys = [tuple(map(float, np.atleast_1d(line.get_ydata()))) for line in ax.lines]
    assert (-3.0, 8.0) in ys, "the whole"
    assert (-2.4, 3.9) in ys, "published, only at the widths shown"
    assert any(np.allclose(y, (10.0, 10.0)) for y in ys if len(y) == 2), "captures free"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["2", "8"]
    assert any("true pair" in t for t in texts(ax)), "the caveat stands beside"


def test_a_cause_without_a_part_has_no_bar(differences, ax):
    plots.draw_difference(differences, ax)
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert "captures" in labels and "more steps" not in labels


def test_thresholds_draw_a_line_a_width_and_name_those_that_do_not_move(ax):
    rows = []
    for width in (2, 8, 16):
        for m in (0, 8, 33):
            gain = {2: -3.0, 8: 8.0, 16: 0.0}[width] * (width >= m)
            rows.append(
                {"width": width, "min_width": m, "tok_s": 50.0 * (1 + gain / 100),
                 "gain_pct": gain, "gain_low": gain - 0.1, "gain_high": gain + 0.1, **STAMP}
            )  # fmt: skip
    plots.draw_thresholds(pd.DataFrame(rows), 8, ax)
    drawn = [list(line.get_ydata()) for line in ax.lines if len(line.get_ydata()) == 3]
    assert [-3.0, 0.0, 0.0] in drawn and [8.0, 8.0, 0.0] in drawn
    assert "no difference at n = 16" in texts(ax)
    assert {"recommended", "n = 2: -3.0 %", "n = 8: +8.0 %"} <= set(texts(ax))
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "8", "33*"]


def test_probability_bars_carry_their_numbers(ax):
    table = pd.DataFrame(
        {"min_width": [0, 8, 33], "gain_pct": [-1.0, 2.0, 0.0], "gain_low": [-2.0, 1.0, 0.0],
         "gain_high": [0.0, 3.0, 0.0], "probability": [0.0, 0.9, 0.1]}
    )  # fmt: skip
    plots.draw_probability(table, 8, [2, 4, 8, 16], ax, "modelled | x")
    assert [round(p.get_height(), 6) for p in ax.patches] == [0, 90, 10]
    assert {"0%", "90%", "10%", "recommended", "modelled | x"} <= set(texts(ax))
    assert [bool(p.get_hatch()) for p in ax.patches] == [False, True, False], "not by colour alone"
    said = ax.get_xlabel()
    assert "* above every width: never" in said and "against never canonical" in said
    assert "mean over 4 widths, 2 to 16, each counted the same" in said
    assert ax.get_xticklabels()[2].get_text() == "33*\n+0.0 %"


def test_key_counts_show_both_arms_and_measured(ax):
    spaces = pd.DataFrame(
        {"width": [4, 8], "arrangement_keys": [10, 266], "canonical_keys": [2, 3]}
    )
    measured = pd.DataFrame({"width": [8, 16], "low": [160.0, 1.0], "high": [253.0, 1.0]})
    plots.draw_key_counts(spaces, 32, ax, measured=measured)
    ys = [list(map(float, np.atleast_1d(line.get_ydata()))) for line in ax.lines]
    assert [10.0, 266.0] in ys and [2.0, 3.0] in ys and [206.5] in ys
    assert {"10", "266"} <= set(texts(ax))


def test_the_line_breaks_where_d_cut_stops(ax):
    spaces = pd.DataFrame(
        {"width": [7, 8, 16], "arrangement_keys": [77, 266, 1], "canonical_keys": [2, 3, 1]}
    )
    plots.draw_key_counts(spaces, 32, ax, setting="D-Cut ratio 0.75")
    (own,) = (line for line in ax.lines if line.get_label() == "arrangement (counted)")
    assert np.isnan(own.get_ydata()[2]) and own.get_ydata()[1] == 266
    assert "D-Cut off\nabove 8" in texts(ax) and {"2", "3"} <= set(texts(ax))
    assert "ratio 0.75" in ax.get_xlabel()


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0%"), (0.001, "<1%"), (0.74, "74%"), (0.994, "99%"), (0.996, ">99%"), (1.0, ">99%")],
)
def test_a_share_is_never_rounded_to_certainty(share, text):
    assert plots.share_text(share) == text


def test_a_batch_says_that_launches_are_a_layer_s():
    arms = explain([0, 1, 2, 3], [4, 3, 4, 3], Gate())
    figure = steps_figure([arms], [0, 1, 2, 3], ["step 1"])
    assert figure.axes[0].get_title(loc="left") == "step 1, arrangement: 28 launches a layer"


def test_every_panel_says_modelled_machine_date_and_n(arms, differences):
    with matplotlib.style.context(plots.STYLE):
        axes = Figure().subplots(1, 2)
    plots.draw_collapse(arms, 32, axes[0])
    plots.draw_difference(differences, axes[1])
    for ax in axes:
        assert "modelled | hand-made | 2026-01-02 | n = 7 seeds" in texts(ax)


def test_labels_are_moved_apart_in_order():
    placed = plots._spread([1.0, 1.1, 5.0, 1.05], 1.0)
    assert np.diff(np.sort(placed)).min() >= 1.0 - 1e-6
    assert list(np.argsort(placed)) == [0, 3, 1, 2]


def test_the_whole_figure_has_no_clipped_and_no_overlapping_text(tmp_path):
    from verifylab.published import table
    from verifylab.width_gate import Config, width_gate

    result = width_gate(Config(seeds=3, steps=200, warmup_steps=20, device="model"))
    figure = plots.width_gate_figure(result, table("canonical_ab"))
    with matplotlib.style.context(plots.STYLE):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        box = figure.bbox
        shown = []
        for ax in figure.axes:
            ticks = [t for t in (*ax.get_xticklabels(), *ax.get_yticklabels())]
            low, high = ax.get_ylim()
            for text in (*ax.texts, ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label):
                if text.get_text() and text.get_visible():
                    # the text alone: an annotation's own extent includes its leader line
                    extent = Text.get_window_extent(text, renderer)
                    shown.append((ax, text.get_text(), extent))
            for text in ticks:
                if text.get_text() and text.get_visible():
                    extent = text.get_window_extent(renderer)
                    inside = ax.get_window_extent(renderer)
                    if inside.y0 - 60 <= extent.y0 <= inside.y1 and extent.x1 <= inside.x1 + 30:
                        shown.append((ax, text.get_text(), extent))
    for _, name, extent in shown:
        assert extent.x0 >= box.x0 - 1 and extent.x1 <= box.x1 + 1, f"{name!r} is clipped"
        assert extent.y0 >= box.y0 - 1 and extent.y1 <= box.y1 + 1, f"{name!r} is clipped"
    for i, (ax, a, one) in enumerate(shown):
        for other_ax, b, two in shown[i + 1 :]:
            if ax is other_ax:
                shared = min(one.x1, two.x1) - max(one.x0, two.x0)
                tall = min(one.y1, two.y1) - max(one.y0, two.y0)
                assert not (shared > 2 and tall > 2), f"{a!r} overlaps {b!r}"


def test_saving_writes_both_images_and_the_tables(arms, tmp_path):
    figure = plots.key_space_figure(
        pd.DataFrame({"width": [4], "arrangement_keys": [10], "canonical_keys": [2]}), 32
    )
    paths = plots.save_figure(figure, tmp_path / "deep" / "er", "a_name", {"arms": arms})
    assert sorted(p.name for p in paths) == ["a_name.arms.csv", "a_name.png", "a_name.svg"]
    assert pd.read_csv(paths[-1]).equals(arms.astype(pd.read_csv(paths[-1]).dtypes))
    first = (tmp_path / "deep" / "er" / "a_name.svg").read_bytes()
    plots.save_figure(figure, tmp_path / "deep" / "er", "a_name", {})
    assert (tmp_path / "deep" / "er" / "a_name.svg").read_bytes() == first, "repeatable"
    with pytest.raises(ValueError, match="figure's name"):
        plots.save_figure(figure, tmp_path, "../up", {})


def test_the_published_ab_is_drawn_only_at_its_own_ratio():
    from verifylab.published import table
    from verifylab.width_gate import Config, width_gate

    config = Config(
        widths=[2, 8], min_widths=[0, 33], seeds=2, steps=50, warmup_steps=0, device="model"
    )
    other = dataclasses.replace(config, dcut_ratio=0.5)
    for chosen, shown in ((config, True), (other, False)):
        figure = plots.width_gate_figure(width_gate(chosen), table("canonical_ab"))
        labels = [t.get_text() for t in figure.axes[1].get_legend().get_texts()]
        assert any("published" in label for label in labels) is shown
