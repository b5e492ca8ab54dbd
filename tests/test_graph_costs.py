"""Calibrations as tables and figures."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import nbformat
import numpy as np
import pytest
from matplotlib.figure import Figure

from verifylab import graph_costs as measuring
from verifylab import plots, plots_costs
from verifylab.calibrate import calibrate, write_calibration
from verifylab.calibration_plan import plan_for
from verifylab.device.host import HostDevice
from verifylab.graph_costs import FITTED, graph_costs, published_costs, save
from verifylab.published import DataError


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    plan = plan_for("host", node_counts=(5, 20, 80), widths=(1, 2, 3), rows=(2, 3), repeats=2)
    result = calibrate(HostDevice(), plan)
    return write_calibration(result, tmp_path_factory.mktemp("costs") / "raw.json")


@pytest.fixture(scope="module")
def costs(file):
    return graph_costs(calibration=str(file))


@pytest.fixture
def ax():
    with matplotlib.style.context(plots.STYLE):
        yield Figure(figsize=(8, 5)).subplots()


def test_every_sample_and_fit_is_there(file, costs):
    raw = json.loads(file.read_text())
    assert list(costs.fits.operation) == list(FITTED)
    fits = costs.fits.set_index("operation")
    # In microseconds whatever the calibration's unit.
    assert fits.base_us["record"] == 1e3 * raw["coefficients"]["record_base_ms"]["value"]
    assert fits.base_us["launch"] == raw["coefficients"]["launch_base_us"]["value"]
    assert fits.per_node_low["eager"] == raw["coefficients"]["eager_per_node_us"]["low"]
    assert len(costs.operations) == len(FITTED) * len(raw["samples"]["graph_operations"])
    one = costs.operations.query("operation == 'record' and nodes == 80 and repeat == 1").ms
    assert one.item() == next(
        r["record"] for r in raw["samples"]["graph_operations"]
        if (r["nodes"], r["repeat"]) == (80, 1)
    )  # fmt: skip
    assert len(costs.steps) == len(raw["samples"]["steps"])
    for frame in (costs.fits, costs.operations, costs.steps, costs.bandwidth):
        assert set(frame.time) == {"measured"} and set(frame.machine) == {"host CPU"}
    assert costs.stamp.startswith("measured on host CPU | 20")
    assert "record (Python)" in costs.summary() and costs.stamp in costs.summary()


def test_measures_where_no_file_is_given():
    found = graph_costs("host", node_counts=[2, 10, 40], widths=[1, 2, 3], rows=[2, 3], repeats=1)
    assert (found.where, found.shape) == ("host CPU", "tiny")
    assert set(found.operations.nodes) == {2, 10, 40}
    assert (found.operations.ms >= 0).all()


def test_save_writes_what_a_sweep_looks_for(costs, tmp_path):
    names = {path.name for path in save(costs, tmp_path / "run")}
    assert names == {"result.parquet", "operations.csv", "steps.csv", "bandwidth.csv",
                     "summary.txt"}  # fmt: skip


@pytest.mark.parametrize("text", ["{", "[]", '{"plan": 1}'])
def test_what_is_no_calibration_is_named(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=r"calibration '.*x.json'"):
        graph_costs(calibration=str(tmp_path / "x.json"))


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (["machine"], [], "no attribute 'get'"),
        (["coefficients"], 5, "has no attribute"),
        (["coefficients", "record_base_ms"], {}, "'value' is missing"),
        (["coefficients", "record_base_ms", "value"], "fast", "record_base must be a finite"),
        (["samples"], [], "list indices"),
        (["samples", "steps"], 5, "samples must be a list of objects, got 5"),
        (["samples", "steps", 0, "ms"], "1", "ms must be a finite number, got '1'"),
        (["samples", "steps", 0, "form"], 7, "form of a step must be one of direct, declined"),
        (["samples", "graph_operations", 1, "record"], None, "record must be a finite number"),
        (["bandwidth", "copy_gb_s"], "x", "copy_gb_s must be a finite number, got 'x'"),
        (["plan"], "tiny", "string indices"),
    ],
)
def test_a_calibration_of_wrong_types_is_one_sentence(file, tmp_path, where, value, words):
    raw = json.loads(file.read_text())
    part = raw
    for name in where[:-1]:
        part = part[name]
    part[where[-1]] = value
    (tmp_path / "x.json").write_text(json.dumps(raw))
    with pytest.raises(DataError, match=f"x.json' is not what `verifylab calibrate.*{words}"):
        graph_costs(calibration=str(tmp_path / "x.json"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"repeats": 0}, "repeats must be from 1"),
        ({"weight_bytes": -1}, "weight_bytes must be from 0"),
        ({"weight_bytes": 5.5}, "weight_bytes must be a whole number, got 5.5"),
        ({"widths": [1]}, "widths must list 2 or more"),
        ({"widths": [0]}, "widths must be from 1"),
        ({"node_counts": [10, 20, 30.5]}, "node_counts must be a whole number, got 30.5"),
        ({"shape": "vast"}, "shape must be one of"),
        ({"device": "tpu"}, "device must be auto, host or cuda, got 'tpu'"),
        ({"calibration": 5}, "calibration must be the name of a file, got 5"),
    ],
)
def test_a_mistake_is_named_before_a_device_is_opened(monkeypatch, changes, words):
    monkeypatch.setattr(measuring, "open_for", None)
    with pytest.raises(ValueError, match=words):
        graph_costs(**{"device": "host", **changes})


def test_the_notebook_tries_its_folder_before_it_measures(monkeypatch):
    path = Path(__file__).parents[1] / "notebooks" / "04_graph_costs.ipynb"
    cells = [c for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    monkeypatch.setattr(measuring, "graph_costs", None)
    names: dict = {}
    exec(cells[0].source, names)
    names["out"] = "/proc/nowhere"
    with pytest.raises(ValueError, match="cannot write into /proc/nowhere"):
        exec(cells[1].source, names)


def test_published_costs_are_microseconds():
    frame = published_costs().set_index(["operation", "source"])
    row = frame.loc["instantiate", "Atlas PR 552"]
    assert (row.us_low, row.us_high, row.nodes, row.per_node) == (17_200, 17_200, 4500, False)
    row = frame.loc["replay_enqueue", "atoma-infer 186"]
    assert (row.us_low, row.us_high, row.nodes) == (3.6, 9.9, 85)
    row = frame.loc["replay_per_node", "ocannl 488"]
    assert row.us_low == 0.58 and row.per_node
    # 10.3 ms for a graph of 16.5 nodes includes loading: no cost over nodes.
    assert np.isnan(frame.loc["instantiate", "mlxcel 1545"].nodes)
    assert "graph_memory_per_node" not in frame.index.get_level_values(0)


def drawn(ax):
    return {
        (round(float(x), 6), round(float(y), 6))
        for line in ax.lines
        for x, y in zip(np.atleast_1d(line.get_xdata()), np.atleast_1d(line.get_ydata()),
                        strict=True)
    }  # fmt: skip


def test_operations_show_medians_and_published(costs, ax):
    plots_costs.draw_operations(
        costs.operations, costs.fits, ax, published=published_costs(), stamp=costs.stamp
    )
    median = 1e3 * costs.operations.query("operation == 'record' and nodes == 20").ms.median()
    assert (20, round(float(median), 6)) in drawn(ax)
    assert {(4500, 17_200), (4500, 5900), (4500, 2700)} <= drawn(ax)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert costs.stamp in [t.get_text() for t in ax.texts]


def test_per_node_shows_the_fit_and_published(costs, ax):
    plots_costs.draw_per_node(costs.fits, ax, published=published_costs(), stamp="s")
    names = [t.get_text() for t in ax.get_yticklabels()]
    assert names == list(FITTED.values())
    record = float(costs.fits.per_node_us[0])
    assert (round(record, 6), 0) in drawn(ax)
    assert (0.58, round(list(FITTED).index("replay") - 0.28, 6)) in drawn(ax)


def test_a_value_off_the_axis_is_an_arrow_at_its_edge(costs, ax):
    fits = costs.fits.copy()
    at = list(FITTED).index("graph_destroy")
    fits.loc[:, ["per_node_low", "per_node_us", "per_node_high"]] = [0.5, 1.0, 2.0]
    fits.loc[at, ["per_node_low", "per_node_us", "per_node_high"]] = [0.0, 0.0, 3e-5]
    plots_costs.draw_per_node(fits, ax, published=published_costs(), stamp="s")
    (arrow,) = (line for line in ax.lines if line.get_marker() == "<" and len(line.get_xdata()))
    assert (arrow.get_xdata()[0], arrow.get_ydata()[0]) == (ax.get_xlim()[0], at)
    assert not arrow.get_clip_on()
    assert "here, 0.0001 or less" in [t.get_text() for t in ax.get_legend().get_texts()]


def test_steps_draw_a_line_a_width_and_path(costs, ax):
    plots_costs.draw_steps(costs.steps, costs.shape, ax, stamp="s")
    named = [t.get_text() for t in ax.texts]
    # Width 1 has one path.
    assert sorted(t for t in named if t.startswith("n = ")) == ["n = 1", *["n = 2"] * 2,
                                                               *["n = 3"] * 2]  # fmt: skip
    assert "tiny" in ax.get_title(loc="left")


def test_bandwidth_stands_beside_the_copy(costs, ax):
    plots_costs.draw_bandwidth(costs.bandwidth, ax, stamp="s")
    heights = {round(p.get_height(), 6) for p in ax.patches}
    assert {round(v, 6) for v in costs.bandwidth.gb_s} <= heights
    copy = float(costs.bandwidth.copy_gb_s[0])
    assert any(np.allclose(line.get_ydata(), copy) for line in ax.lines)


def test_the_figure_says_where(costs):
    figure = plots_costs.graph_costs_figure(costs, published_costs())
    assert "measured on host CPU" in figure.get_suptitle()
    assert "no GPU's numbers" in figure.get_suptitle()
    for ax in figure.axes:
        assert costs.stamp in [t.get_text() for t in ax.texts]
