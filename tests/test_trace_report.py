"""The report of each sample, its figure, and its parameters."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from trace_files import DATA, capture_line, window_line, write_nsys

from verifylab.trace_plots import report_figure
from verifylab.trace_report import Config, find, report, report_all, save
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
        "CUDAGraph Stats:\n| 1 | 2 | 1 | FULL | 3 |",
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


def write_steps(path: Path, *steps: tuple[list[int], list[int]]) -> str:
    from verifylab.step_trace import StepTraceWriter

    with StepTraceWriter(path) as trace:
        for slots, depths in steps:
            trace.step(slots, depths, accepted=[0] * len(slots))
    return str(path)


def test_a_step_too_deep_for_any_dispatch_is_left_out(tmp_path) -> None:
    steps = [([0, 1], [4, 3]), ([0, 1], [97, 3]), ([0, 1], [4, 3])]
    name = write_steps(tmp_path / "s", *steps, ([0], [70_000]))
    found = report(name, Config([name], min_widths=[0]))
    assert found.tables["replay"].steps.tolist() == [2] * 16
    assert found.trace.warnings == (
        "step 1: a sequence of 97 rows, a dispatch holds 96: left out",
        "step 3: a sequence of 70,000 rows, a dispatch holds 96: left out",
    )
    report_figure(report(write_steps(tmp_path / "t", ([0], [97])), Config(["t"])))


def test_one_bad_file_stops_no_other(tmp_path) -> None:
    bad, good = tmp_path / "bad.log", "tests/data/atlas_engine.log"
    bad.write_text("nothing")
    reports, failed = report_all(Config([str(bad), good, "absent"]))
    assert [r.trace.source for r in reports] == ["atlas_engine.log"]
    assert failed[0].startswith("bad.log is ") and failed[1].startswith("absent: no such file")
    summary = save(reports, tmp_path / "out", failed)[1].read_text()
    assert "\nnot read: bad.log is " in summary
    with pytest.raises(TraceError, match="no file could be read: bad.log"):
        report_all(Config([str(bad)]))


def test_a_wide_step_is_several_dispatches_and_they_are_not_called_steps(tmp_path) -> None:
    wide = list(range(40)), [2] * 40
    name = write_steps(tmp_path / "s", wide, wide)
    words = " ".join(report(name, Config([name], min_widths=[0])).sentences)
    assert "2 steps (4 dispatches)" in words and "hit 50.0 of 100 dispatches" in words
    name = write_steps(tmp_path / "t", ([0, 1], [4, 3]), ([0, 1], [4, 3]))
    assert "hit 50.0 of 100 steps" in " ".join(report(name, Config([name])).sentences)


def test_all_keys_found_are_within_the_axes(tmp_path) -> None:
    path = tmp_path / "a.log"
    path.write_text("".join(capture_line([i, i + 1], [4, 4]) + "\n" for i in range(500)))
    ax = report_figure(report(str(path), Config(["a"]))).axes[0]
    assert ax.get_ylim()[1] > 500


def test_windows_without_counts_are_left_out_and_said(tmp_path) -> None:
    path = tmp_path / "a.log"
    cut = "batched-verify graphs [200 steps, last n=2]: replay=198 bor"
    lost = "batched-verify graphs [last n=2]: replay=198 CAPTURE=2"
    path.write_text("\n".join([window_line(198, 2, 2), cut, lost, window_line(196, 4, 6)]) + "\n")
    found = report(str(path), Config(["a"]))
    assert found.sentences[0].startswith("1.5 % of 400 steps captured a graph (0 different keys")
    assert "left out, without both counts: 2 of 4 windows" in found.sentences[0]
    assert "0 at least" in found.sentences[1]
    assert report_figure(found).axes[0].get_title(loc="left") == (
        "Captures as logged (left out: 2)"
    )


def vllm_log(path: Path, engine: str, sizes: list[int], rows: list[tuple]) -> str:
    lines = [f"- Capture sizes: {sizes}", "CUDAGraph Stats:"]
    lines += [f"| {u} | {p} | {p - u} | {mode} | {count} |" for u, p, mode, count in rows]
    with path.open("a") as file:
        file.writelines(f"({engine}) {line}\n" for line in lines)
    return str(path)


def test_many_sizes_fit_their_panels(tmp_path) -> None:
    sizes = [1, 2, 4, *range(8, 513, 8)]
    rows = [(s, s, "FULL", 10) for s in sizes[::2]] + [(s, s, "NONE", 2) for s in range(600, 612)]
    found = report(vllm_log(tmp_path / "v", "A", sizes, rows), Config(["v"]))
    padding, used = report_figure(found).axes
    labels = [t.get_text() for t in padding.get_xticklabels()]
    assert len(labels) == 13 and labels[-1] == f"others\n({len(rows) - 12})"
    total = found.tables["padding"].tokens.sum()
    assert sum(bar.get_height() for bar in padding.containers[0]) == total
    assert len(used.get_xticks()) <= 12 and len(used.containers[0]) == len(sizes)
    assert found.sentences[1].endswith("and 17 more.")


def test_sizes_of_several_engines_are_summed_and_named(tmp_path) -> None:
    for engine, size in (("A", 1), ("B", 2)):
        name = vllm_log(tmp_path / "v", engine, [1, 2, 4], [(size, size, "FULL", 5)])
    found = report(name, Config(["v"]))
    assert found.sentences[1] == "Captured sizes never used: (A): 2, 4; (B): 1, 4."
    ax = report_figure(found).axes[1]
    assert [bar.get_height() for bar in ax.containers[0]] == [5, 5, 0]
    assert ax.lines[0].get_xdata().tolist() == [2]


def test_statistics_without_a_row_are_no_throughput(tmp_path) -> None:
    found = report(vllm_log(tmp_path / "v", "A", [1, 2], []), Config(["v"]))
    assert found.sentences[0] == (
        "The log has 1 block of CUDA-graph statistics without a readable row."
    )


def test_thresholds_that_cannot_be_told_apart_are_said() -> None:
    found = report("tests/data/modelled_steps.parquet", Config(["x"]))
    assert re.match(
        r"128 different keys as arranged; canonical at every width would leave 11\. "
        r"Gate at 8: .*; thresholds 0, 2, 4, 8 cannot be told apart\.",
        found.sentences[0],
    )


def test_thresholds_that_one_width_cannot_tell_apart_are_said_to_be_the_same(tmp_path) -> None:
    steps = [([0, 1], depths) for depths in ([4, 3], [3, 4], [4, 3], [3, 4])]
    path = write_steps(tmp_path / "s", *steps)
    found = report(path, Config(["s"], min_widths=[0, 1, 2, 33]))
    assert found.sentences[0].startswith("2 different keys as arranged; canonical at every width")
    assert found.sentences[0].endswith(
        "; the trace has one width, so thresholds up to 2 are the same to it."
    )


def test_keys_are_counted_as_logged_and_as_canonical_beside_what_the_reference_is_of(
    tmp_path,
) -> None:
    path = tmp_path / "a.log"
    logged = [([0, 1], [4, 3]), ([0, 1], [3, 4]), ([1, 0], [4, 3]), ([2, 3], [4, 3])]
    path.write_text("".join(capture_line(*key) + "\n" for key in logged))
    found = report(str(path), Config(["a"], dcut_ratio=0.5, drafts=2))
    assert found.sentences[0] == (
        "4 different keys were captured, at widths 2; canonical at every width would leave 2."
    )
    (row,) = found.tables["keys"].to_dict("records")
    assert (row["keys"], row["logged_canonical"], row["keys_if_canonical"]) == (4, 2, 2)
    (row,) = found.tables["spaces"].to_dict("records")
    assert (row["width"], row["dcut_ratio"], row["drafts"]) == (2, 0.5, 2)
    assert "counted for D-Cut ratio 0.5, 2 drafts" in report_figure(found).axes[0].get_xlabel()


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


def test_a_clock_that_goes_back_often_does_not_flood_the_report(tmp_path):
    path = tmp_path / "back.log"
    lines = [
        f"2026-08-17T05:{59 - at:02d}:00.000000Z  INFO a: Captured CUDA graph for batched verify "
        f"ks=[4, 3] (n=2, key=Some([0, 4, 1, 3, 4294967295]))"
        for at in range(40)
    ]
    path.write_text("\n".join(lines) + "\n")
    found = report(str(path), Config(files=[str(path)]))
    assert len(found.tables["bounds"].query("policy == 'canonical'")) == 40
    told = [text for text in found.sentences if text.startswith("Canonical at every width")]
    assert len(told) == 8 and "And 32 more stretches of the log: see the table of bounds." in (
        found.sentences
    )
