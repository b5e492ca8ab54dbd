"""The step trace: round trips, the documented ten lines, and files that break its rules."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifylab import read_step_trace as reader
from verifylab import step_trace
from verifylab.read_step_trace import read_step_trace
from verifylab.step_trace import StepTraceWriter, schema
from verifylab.trace_file import TraceError

DOC = Path(__file__).parent.parent / "docs" / "step_trace.md"


@st.composite
def steps(draw):
    n = draw(st.integers(0, 5))
    depths = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    slots = draw(st.lists(st.integers(0, 2**32 - 2), min_size=n, max_size=n, unique=True))
    if n and draw(st.booleans()):
        slots[0] = 2**32 - 1
    step = {"slots": slots, "depths": depths}
    if draw(st.booleans()):
        step["accepted"] = [draw(st.integers(-1, d - 1)) for d in depths]
    if draw(st.booleans()):
        step["verified"] = list(depths)
    if draw(st.booleans()):
        step["confidences"] = [[-0.5] * (d - 1) for d in depths]
    step["outcome"] = draw(st.sampled_from(step_trace.OUTCOMES))
    step["time_us"] = draw(st.none() | st.integers(0, 2**62))
    return step


@settings(deadline=None)
@given(st.lists(steps(), min_size=1, max_size=12))
def test_what_is_written_is_read(tmp_path_factory, written) -> None:
    path = tmp_path_factory.mktemp("s") / "s.parquet"
    with StepTraceWriter(path) as trace:
        for step in written:
            more = {k: v for k, v in step.items() if k not in ("slots", "depths")}
            trace.step(step["slots"], step["depths"], **more)
    read = read_step_trace(path)
    assert read.warnings == () and read.steps == len(written)
    rows = read.table("steps").to_dict("records")
    for number, (row, step) in enumerate(zip(rows, written, strict=True)):
        assert row["step"] == number and row["width"] == len(step["slots"])
        for name in ("slots", "depths", "accepted", "verified"):
            want = step.get(name)
            assert row[name] is None if want is None else row[name].tolist() == want
        assert row["outcome"] == step["outcome"]
        time = row["time_us"]
        assert time == step["time_us"] if step["time_us"] is not None else not isinstance(time, int)
    assert not list(path.parent.glob("*.part"))


def test_the_ten_lines_of_the_document_work(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    batches = [
        SimpleNamespace(slots=[0, 1], depths=[4, 3], accepted=[2, 2], outcome="capture",
                        log_confidences=[[-0.1, -0.2, -0.3], [-0.1, -0.2]]),
        SimpleNamespace(slots=[0, 1], depths=[4, 3], accepted=[3, 0], outcome="hit",
                        log_confidences=[[-0.1, -0.2, -0.3], [-0.1, -0.2]]),
    ]  # fmt: skip
    engine = SimpleNamespace(verify_steps=lambda: iter(batches))
    blocks = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.S)
    assert len(blocks) == 2
    tables = []
    for block in blocks:
        Path("steps.parquet").unlink(missing_ok=True)
        exec(block, {"engine": engine})
        trace = read_step_trace("steps.parquet")
        assert trace.warnings == ()
        assert trace.counts == {"steps": 2, "capture": 1, "hit": 1, "sequences": 4}
        tables.append(trace.table("steps"))
    for name in ("slots", "depths", "accepted"):
        assert [r.tolist() for r in tables[0][name]] == [r.tolist() for r in tables[1][name]]


def test_the_document_names_every_column_of_the_schema() -> None:
    named = re.findall(r"^\| `(\w+)` \|", DOC.read_text(), re.M)
    assert sorted(named) == sorted(schema().names)


def test_the_writer_refuses_what_breaks_a_rule(tmp_path) -> None:
    for arguments, words in (
        (([0, 1], [4]), "depths must have one entry a sequence (2), got 1"),
        (([0, 0], [4, 4]), "share a slot"),
        (([0], [0]), "depths must be 1"),
        (([-1], [4]), "slots must be 0"),
        (([0], [4], {"accepted": [4]}), "4 drafts accepted of 4 rows"),
        (
            ([0], [4], {"outcome": "replay"}),
            "outcome must be hit, capture, update, borrow, eager",
        ),
        (([0], [4], {"confidences": []}), "confidences must have one entry"),
    ):
        with StepTraceWriter(tmp_path / "s.parquet") as trace:
            slots, depths, *more = arguments
            with pytest.raises(ValueError, match=re.escape(words)):
                trace.step(slots, depths, **(more[0] if more else {}))


def bad_rows():
    good = {"step": 0, "slots": [0, 1], "depths": [4, 3], "accepted": [1, 2], "outcome": "hit"}
    return good, [
        good | {"depths": [4]},
        good | {"slots": [5, 5]},
        good | {"accepted": [4, 0]},
        good | {"slots": None},
        good | {"step": None},
        good | {"outcome": "what"},
        good | {"width": 7},
        good | {"depths": [0, 3]},
        good | {"accepted": [None, 1]},
        good | {"confidences": [[0.0]]},
        good | {"verified": [1, 1]},
    ]


@pytest.mark.parametrize("index", range(11))
def test_a_bad_row_is_named_and_the_others_kept(tmp_path, index) -> None:
    good, bad = bad_rows()
    rows = [good | {"step": 0}, bad[index] | {"step": bad[index]["step"] and 1}, good | {"step": 2}]
    rows[1]["step"] = None if bad[index]["step"] is None else 1
    pq.write_table(pa.Table.from_pylist(rows, schema()), tmp_path / "s.parquet")
    trace = read_step_trace(tmp_path / "s.parquet")
    assert trace.steps == 2 and trace.table("steps").step.tolist() == [0, 2]
    assert trace.warnings[0].startswith("row 2: ") and trace.warnings[0].endswith("left out")


def test_the_quick_check_agrees_with_the_one_by_row() -> None:
    good, bad = bad_rows()
    for row in [good, *bad]:
        table = pa.Table.from_pylist([row], schema()).combine_chunks()
        said = step_trace.problem(table.to_pylist()[0]) or ("" if row["step"] is not None else "x")
        assert reader._sound(table) == (not said), row


def test_other_integer_widths_extra_columns_and_no_metadata(tmp_path) -> None:
    table = pa.table(
        {"depths": pa.array([[4, 3]], pa.list_(pa.int64())), "extra": ["x"],
         "slots": pa.array([[0, 1]], pa.large_list(pa.int16())), "step": pa.array([7], pa.int8())}
    )  # fmt: skip
    pq.write_table(table, tmp_path / "s.parquet")
    trace = read_step_trace(tmp_path / "s.parquet")
    assert trace.steps == 1 and trace.warnings == ()
    assert trace.table("steps").accepted[0] is None


def test_steps_that_go_back_and_another_version_are_said(tmp_path) -> None:
    rows = [{"step": s, "slots": [0], "depths": [1]} for s in (5, 5, 3)]
    table = pa.Table.from_pylist(rows, schema())
    pq.write_table(
        table.replace_schema_metadata({"verifylab.step_trace": "9"}), tmp_path / "s.parquet"
    )
    trace = read_step_trace(tmp_path / "s.parquet")
    assert "step trace version" in trace.warnings[0]
    assert "step 3 comes after step 5" in "\n".join(trace.warnings)


def test_what_is_no_step_trace_is_a_sentence(tmp_path) -> None:
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(TraceError, match="without the column 'step'"):
        read_step_trace(path)
    pq.write_table(pa.Table.from_pylist([], schema()), path)
    with pytest.raises(TraceError, match="0 readable steps"):
        read_step_trace(path)
    pq.write_table(pa.table({"step": ["a"], "slots": ["b"], "depths": [1.5]}), path)
    with pytest.raises(TraceError, match="0 readable steps"):
        read_step_trace(path)
    with StepTraceWriter(path) as trace:
        trace.step([0], [4])
    whole = path.read_bytes()
    for cut in (4, 50, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(TraceError, match="no whole Parquet file"):
            read_step_trace(path)


def test_arrays_are_written_too(tmp_path) -> None:
    with StepTraceWriter(tmp_path / "s.parquet") as trace:
        trace.step(np.array([1, 0]), np.array([2, 2], np.uint8), confidences=np.zeros((2, 1)))
    assert read_step_trace(tmp_path / "s.parquet").table("steps").slots[0].tolist() == [1, 0]
