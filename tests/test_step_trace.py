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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"time_us": 1.5}, "time_us must be a whole number, got 1.5"),
        ({"time_us": 2**63}, "time_us must have 64 bits"),
        ({"time_us": -(2**63) - 1}, "time_us must have 64 bits"),
        ({"time_us": "12"}, "time_us must be a whole number, got '12'"),
        ({"time_us": float("nan")}, "time_us must be a whole number, got nan"),
        ({"time_us": True}, "time_us must be a whole number, got True"),
        ({"slots": [0.7, 1]}, "each of slots must be a whole number, got 0.7"),
        ({"slots": [True, 0]}, "each of slots must be a whole number, got True"),
        ({"slots": 5}, "slots must be a list of whole numbers, got 5"),
        ({"slots": np.array([0.0, 1.0])}, "each of slots must be a whole number"),
        ({"slots": np.array([[0, 1]])}, "each of slots must be a whole number"),
        ({"slots": None}, "slots or depths are null"),
        ({"depths": [2.9, 2]}, "each of depths must be a whole number, got 2.9"),
        ({"depths": ["2", 2]}, "each of depths must be a whole number, got '2'"),
        ({"accepted": [None, 1]}, "each of accepted must be a whole number, got None"),
        ({"verified": [1, float("inf")]}, "each of verified must be a whole number, got inf"),
        ({"confidences": [0.1, 0.2]}, "confidences must be a list of numbers for each sequence"),
        ({"confidences": [["x"], []]}, "confidences must be a list of numbers for each sequence"),
        ({"outcome": None, "time_us": 2**70}, "time_us must have 64 bits"),
        ({"outcome": 3}, "outcome must be hit"),
        ({"outcome": ["hit"]}, "outcome must be hit"),
    ],
)
def test_the_writer_refuses_a_step_at_once_and_goes_on(tmp_path, change, words) -> None:
    with StepTraceWriter(tmp_path / "s.parquet") as trace:
        trace.step([0, 1], [2, 2], time_us=np.int64(2**62))
        with pytest.raises(ValueError, match=re.escape(f"step 1: {words}")):
            trace.step(**({"slots": [0, 1], "depths": [2, 2]} | change))
        trace.step([0, 1], [2, 2], confidences=[[-0.5, None], None], time_us=-(2**63))
    read = read_step_trace(tmp_path / "s.parquet")
    assert read.table("steps").step.tolist() == [0, 1] and read.warnings == ()


def test_a_writer_closed_twice_or_written_to_after(tmp_path) -> None:
    with StepTraceWriter(tmp_path / "s.parquet") as trace:
        trace.step([0], [1])
        trace.close()
        with pytest.raises(ValueError, match="the trace is closed"):
            trace.step([0], [1])
    assert read_step_trace(tmp_path / "s.parquet").steps == 1


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


BIG = pa.list_(pa.int64())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("slots", [-1, 1], "slots: Integer value -1 not in range"),
        ("slots", [2**40, 1], "slots: Integer value 1099511627776 not in range"),
        ("depths", [-4, 3], "depths: Integer value -4 not in range"),
        ("accepted", [2**40, 1], "accepted: Integer value 1099511627776 not in range"),
        ("verified", [4, -1], "verified: Integer value -1 not in range"),
        ("width", 2**40, "width: Integer value 1099511627776 not in range"),
    ],
)
@pytest.mark.parametrize("many", [100, 20_000])
def test_a_value_that_its_column_cannot_hold_costs_its_row_alone(
    tmp_path, name, value, words, many
) -> None:
    good, _ = bad_rows()
    rows = [
        good | {"step": i, "verified": [4, 4], "width": 2} | ({name: value} if i == 50 else {})
        for i in range(many)
    ]
    lists = dict.fromkeys(("slots", "depths", "accepted", "verified"), BIG)
    types = {"step": pa.int64(), **lists, "width": pa.int64(), "outcome": pa.string()}
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(types)), tmp_path / "s.parquet")
    trace = read_step_trace(tmp_path / "s.parquet")
    assert trace.table("steps").step.tolist() == [i for i in range(many) if i != 50]
    assert len(trace.warnings) == 1
    assert trace.warnings[0].startswith(f"row 51: {words}") and "left out" in trace.warnings[0]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("confidences", pa.array([0.1] * 3)),
        ("outcome", pa.array([1] * 3)),
        ("accepted", pa.array(["x"] * 3)),
        ("time_us", pa.array(["2026-08-17"] * 3)),
        ("verified", pa.array([[[1]]] * 3)),
        ("width", pa.array([{"a": 1}] * 3)),
    ],
)
def test_an_optional_column_of_another_kind_is_left_out(tmp_path, name, values) -> None:
    table = pa.table({"step": [0, 1, 2], "slots": [[0]] * 3, "depths": [[2]] * 3, name: values})
    pq.write_table(table, tmp_path / "s.parquet")
    trace = read_step_trace(tmp_path / "s.parquet")
    assert trace.steps == 3 and len(trace.warnings) == 1
    assert name in trace.warnings[0] and trace.warnings[0].endswith("left out")


def test_a_column_there_twice(tmp_path) -> None:
    path, lists = tmp_path / "s.parquet", pa.array([[1], [1]])

    def write(*names: str) -> None:
        columns = [pa.array([0, 1]), *[lists] * len(names)]
        pq.write_table(pa.Table.from_arrays(columns, ["step", *names]), path)

    write("slots", "slots", "depths")
    with pytest.raises(TraceError, match="0 readable steps: there are 2 columns 'slots'"):
        read_step_trace(path)
    write("slots", "depths", "accepted", "accepted")
    trace = read_step_trace(path)
    assert trace.steps == 2
    assert trace.warnings == ("there are 2 columns 'accepted': left out",)
    write("slots", "depths", "other", "other")
    assert read_step_trace(path).warnings == ()


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
