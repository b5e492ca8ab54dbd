"""The report of each sample, its figure, and its parameters."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from trace_files import DATA, capture_line, window_line, write_nsys

from verifylab.trace_plots import report_figure
from verifylab.trace_report import Config, find, report
from verifylab.traces import TraceError

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "06_traces.ipynb"
SAMPLES = sorted(p.name for p in DATA.iterdir() if p.name != "README.md")


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_has_a_verdict_and_a_figure(name) -> None:
    found = report(f"tests/data/{name}", Config([name]))
    assert found.sentences[0] in found.markdown() and "Cannot be said" in found.markdown()
    assert "nan" not in found.markdown()
    figure = report_figure(found)
    assert name in figure.get_suptitle().replace("\n", " ")
    for ax in figure.axes:
        assert ax.get_title(loc="left") or ax.get_title()
        assert ax.get_xlabel()
    assert len(figure.axes) == (5 if name.endswith("parquet") else len(figure.axes)) <= 5


def test_an_nsys_export_too(tmp_path) -> None:
    path = write_nsys(tmp_path / "a.sqlite")
    found = report(str(path), Config([str(path)]))
    assert "Making and ending graphs takes 60.0 % of the wall" in found.sentences[0]
    report_figure(found)


def test_the_figures_draw_the_tables() -> None:
    steps = report("tests/data/modelled_steps.parquet", Config(["x"], min_widths=[0, 8, 33]))
    axes = report_figure(steps).axes
    keys = steps.tables["keys"]
    drawn = next(line for line in axes[0].lines if line.get_label() == "found in this file")
    assert drawn.get_ydata().tolist() == keys["keys"].tolist()
    curve = next(line for line in axes[1].lines if line.get_label() == "arrangement")
    want = steps.tables["curves"].query("policy == 'arrangement'").miss_ratio
    assert np.array_equal(curve.get_ydata()[: len(want)], want)
    replayed = steps.tables["replay"]
    names = [label.get_text() for label in axes[3].get_yticklabels()]
    best_last = replayed.sort_values("tok_s_low", kind="stable").policy.tolist()
    assert names == best_last and len(names) == 16
    assert sorted(label.get_text() for label in axes[4].get_yticklabels()) == sorted(
        steps.tables["caches"].cache.unique()
    )
    bench = report("tests/data/l38_r7_c8.json", Config(["x"]))
    ax = report_figure(bench).axes[0]
    assert bench.tables["throughput"].tok_s_mean[0] == pytest.approx(110.63, abs=0.01)
    assert any(np.allclose(line.get_ydata(), [110.63], atol=0.01) for line in ax.lines)


def test_knowing_that_a_log_begins_cold_makes_bounds_exact() -> None:
    name = "tests/data/modelled_engine.log.gz"
    open_ended = report(name, Config([name])).tables["bounds"].set_index("policy").loc["canonical"]
    exact = report(name, Config([name], from_start=True)).tables["bounds"].set_index("policy")
    assert open_ended.captures_low < open_ended.captures_high
    assert exact.loc["canonical", ["captures_low", "captures_high"]].tolist() == [3, 3]


def test_a_trace_without_acceptance_has_no_gate(tmp_path) -> None:
    from verifylab.step_trace import StepTraceWriter

    path = tmp_path / "s.parquet"
    with StepTraceWriter(path) as trace:
        trace.step([0, 1], [4, 3])
    found = report(str(path), Config([str(path)]))
    assert any("does not say what was accepted" in s for s in found.sentences)
    assert len(report_figure(found).axes) == 4
    assert any("Shortest steps" in s for s in found.sentences)


def test_files_with_hardly_anything_in_them(tmp_path) -> None:
    from verifylab.step_trace import StepTraceWriter

    path = tmp_path / "a.log"
    for text in (
        window_line(200, 0, 1),
        "batched-verify graphs [200 steps, last n=4]: replay=200",
        "MTP accept n=4 p1=0.7",
        "CUDAGraph Stats:",
        "Avg generation throughput: 1.0 tokens/s",
        "Captured CUDA graph for batched verify (n=1, key=None)",
        capture_line(list(range(128)), [2] * 128),
        capture_line([5], [9]),
    ):
        path.write_text(text + "\n")
        report_figure(report(str(path), Config([str(path)])))
    for slots, depths in (([], []), ([2**32 - 1], [4]), ([5], [9])):
        with StepTraceWriter(tmp_path / "s") as trace:
            trace.step(slots, depths, accepted=[0] * len(slots))
        report_figure(report(str(tmp_path / "s"), Config(["s"])))


def test_thresholds_that_cannot_be_told_apart_are_said() -> None:
    found = report("tests/data/modelled_steps.parquet", Config(["x"]))
    assert re.match(
        r"Gate at 8: .*; thresholds 0, 2, 4, 8 cannot be told apart\.", found.sentences[0]
    )


def test_parameters_are_checked_at_once() -> None:
    for change, words in (
        ({"files": []}, "files must be a list with at least one name"),
        ({"files": "a"}, "files must be a list"),
        ({"graph_capacity": 0}, "graph_capacity must be 1 or more, got 0"),
        ({"min_widths": [-1]}, "min_widths must be whole numbers of 0 or more"),
        ({"dcut_ratio": 2}, "dcut_ratio must be from 0 to 1, got 2"),
        ({"machine": "x"}, "no machine profile 'x'"),
        ({"drafts": "x"}, "draft"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            Config(**({"files": ["a"]} | change))
    with pytest.raises(TraceError, match="absent: no such file here or in the project"):
        find("absent")


def test_the_notebook_is_stored_clean_with_typed_parameters() -> None:
    body = json.loads(NOTEBOOK.read_text())
    code = [c for c in body["cells"] if c["cell_type"] == "code"]
    assert all(not c["outputs"] and c["execution_count"] is None for c in code)
    tagged = [c for c in code if "parameters" in c["metadata"].get("tags", [])]
    names = {}
    exec("".join(tagged[0]["source"]), names)
    names.pop("__builtins__")
    assert json.loads(json.dumps(names)) == names
    Config(**{k: v for k, v in names.items() if k != "out"})
    for name in names["files"]:
        assert find(name).is_file()
