"""Nsight Systems exports: small ones made here, versions that differ, and hostile databases."""

from __future__ import annotations

import sqlite3

import pytest
from trace_files import write_nsys

from verifylab.answers_profile import device_time, graph_api, launch_counts, profile_steps
from verifylab.read_nsys import read_nsys
from verifylab.trace_file import TraceError
from verifylab.trace_report import Config, report


def test_an_export_in_full(tmp_path) -> None:
    trace = read_nsys(write_nsys(tmp_path / "a.sqlite"))
    assert trace.counts == {
        "graph_launch": 2, "graph_instantiate": 1, "graph_exec_destroy": 1, "kernel_launch": 1,
        "kernels": 3, "ranges": 2, "graph_runs": 1,
    }  # fmt: skip
    assert trace.events == 6 + 3 + 2 + 1  # the mark is no range
    assert trace.warnings == ("1 CUDA calls returned an error",)
    assert trace.table("ranges").name.tolist() == ["verify", "verify"]  # text and textId
    api = graph_api(trace).set_index("kind")
    assert api.loc["graph_instantiate", "total_ms"] == pytest.approx(17.999)
    assert api.loc["graph_exec_destroy", "per_step_ms"] == pytest.approx(3.0)
    assert api.loc["graph_launch", "calls"] == 2  # the nested driver call left out
    steps = profile_steps(trace)
    assert steps.captures.tolist() == [1, 0] and steps.kernel_launches.tolist() == [0, 1]
    counts = launch_counts(trace).iloc[0]
    assert (counts.kernels_replayed, counts.kernels_eager) == (2, 1)
    assert device_time(trace).busy_ms[0] == pytest.approx(1.8 + 1.7 + 0.9)


def test_without_ranges_a_step_ends_with_a_graph_launch(tmp_path) -> None:
    trace = read_nsys(write_nsys(tmp_path / "a.sqlite", without=("NVTX_EVENTS",)))
    steps = profile_steps(trace)
    assert steps.how.tolist() == ["launches"] * 2
    assert steps.captures.tolist() == [1, 0]
    assert steps.graph_ms.tolist() == [pytest.approx(17.999), pytest.approx(6.0)]


@pytest.mark.parametrize(
    "without",
    ["StringIds", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL",
     "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "NVTX_EVENTS"],
)  # fmt: skip
def test_any_table_may_be_missing(tmp_path, without) -> None:
    trace = read_nsys(write_nsys(tmp_path / "a.sqlite", without=(without,)))
    assert trace.events > 0
    if without in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"):
        assert any(without in w for w in trace.warnings)


MS = 1_000_000


def test_graphs_traced_as_a_whole_count_as_busy_and_their_kernels_as_not_traced(tmp_path) -> None:
    """What Nsight Systems writes unless told otherwise: 8 ms of graph and 0.1 ms outside in 10."""
    path = write_nsys(tmp_path / "a.sqlite", more=f"""
        DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME; DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL;
        DELETE FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE; DELETE FROM NVTX_EVENTS;
        ALTER TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE ADD COLUMN deviceId INTEGER;
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99)
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
            SELECT i * 10 * {MS}, i * 10 * {MS} + 20000, 1, i, 1, 0 FROM n;
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE
            SELECT start, start + 8 * {MS}, 1, 1, 3 FROM CUPTI_ACTIVITY_KIND_RUNTIME;
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT start + 9 * {MS}, start + 9 * {MS} + 100000,
            3, correlationId + 1000, NULL, NULL, 6 FROM CUPTI_ACTIVITY_KIND_RUNTIME;
    """)  # fmt: skip
    trace = read_nsys(path)
    assert "kernels within graphs were not traced: nsys profile" in trace.warnings[0]
    assert trace.table("graph_runs").device.eq(3).all()
    assert trace.table("graph_runs").start_us.tolist()[:2] == [0, 10_000]  # as all other starts
    row = launch_counts(trace).iloc[0]
    assert (row.kernels_replayed, row.kernels_eager, row.graph_runs) == (0, 100, 100)
    (device,) = device_time(trace).itertuples()
    assert device.device == 3
    assert device.busy_pct == pytest.approx(100 * (100 * 8.1) / (99 * 10 + 9.1))
    words = report(str(path), Config([str(path)])).sentences
    assert "100 graph launches replayed kernels that were not traced, 100 others" in words[0]


def test_graphs_without_a_device_are_the_only_devices(tmp_path) -> None:
    trace = read_nsys(write_nsys(tmp_path / "a.sqlite"))
    assert trace.table("graph_runs").device.tolist() == [0] and len(device_time(trace)) == 1


def test_steps_are_the_outermost_ranges_for_inspect_and_report_alike(tmp_path) -> None:
    path = write_nsys(tmp_path / "a.sqlite", more="""
        INSERT INTO NVTX_EVENTS VALUES (0, 9000, 59, 'verify_attn', NULL, 9),
            (29000000, 29000000, 59, 'verify_gdn', NULL, 9), (7, 9, 59, 'load', NULL, 9);
    """)  # fmt: skip
    trace = read_nsys(path)
    assert trace.steps == len(profile_steps(trace)) == 2 and trace.counts["ranges"] == 5
    trace = read_nsys(write_nsys(tmp_path / "b.sqlite", without=("NVTX_EVENTS",)))
    assert trace.steps == len(profile_steps(trace)) == 2


def test_columns_missing_and_added(tmp_path) -> None:
    more = """
        ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId;
        ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN returnValue;
        ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME ADD COLUMN novelty BLOB;
        ALTER TABLE NVTX_EVENTS DROP COLUMN eventType;
    """
    trace = read_nsys(write_nsys(tmp_path / "a.sqlite", more=more))
    assert trace.counts["graph_launch"] == 2 and trace.counts["kernels"] == 3
    assert launch_counts(trace).kernels_replayed[0] == 2  # by correlation with a graph launch


def test_no_start_column_is_said(tmp_path) -> None:
    more = "ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN start;"
    trace = read_nsys(write_nsys(tmp_path / "a.sqlite", more=more))
    assert "CUPTI_ACTIVITY_KIND_RUNTIME has no column 'start'" in "\n".join(trace.warnings)


@pytest.mark.parametrize(
    ("what", "more"),
    [
        ("a view", "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE c(start, end) AS "
                   "(SELECT 1, 2 UNION ALL SELECT start, end FROM c) SELECT * FROM c;"),
        ("a virtual table", "CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5(start);"),
    ],
)  # fmt: skip
def test_a_view_or_virtual_table_in_a_tables_place_is_not_run(tmp_path, what, more) -> None:
    path = write_nsys(tmp_path / "a.sqlite", without=("CUPTI_ACTIVITY_KIND_KERNEL",), more=more)
    trace = read_nsys(path)
    assert f"CUPTI_ACTIVITY_KIND_KERNEL is {what}, not a table: not read" in trace.warnings
    assert len(trace.table("kernels")) == 0


@pytest.mark.parametrize("table_list", [True, False])
@pytest.mark.parametrize("module", ["fts5(start, end, nameId)", "rtree_i32(id, start, end)"])
@pytest.mark.parametrize("words", ["CREATE/**/VIRTUAL", "create --x\n virtual", "CREATE  VIRTUAL"])
def test_no_spelling_makes_a_virtual_table_ordinary(
    tmp_path, monkeypatch, module, words, table_list
) -> None:
    if not table_list:
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    name = "CUPTI_ACTIVITY_KIND_RUNTIME"
    sql = f"TABLE {name} USING {module}"
    path = write_nsys(tmp_path / "a.sqlite", without=(name,), more=f"""
        CREATE VIRTUAL {sql}; INSERT INTO {name} VALUES (1, 2, 3);
        PRAGMA writable_schema=ON;
        UPDATE sqlite_master SET rootpage = 2, sql = '{words} {sql}' WHERE name = '{name}';
    """)  # fmt: skip
    trace = read_nsys(path)
    assert f"{name} is a virtual table, not a table: not read" in trace.warnings
    assert len(trace.table("calls")) == 0


def test_what_is_still_in_a_journal_beside_it_is_not_lost_silently(tmp_path) -> None:
    path = write_nsys(tmp_path / "a.sqlite")
    base = sqlite3.connect(path)
    base.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;"
        "INSERT INTO StringIds VALUES (100, 'new');"
    )
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if not p.name.endswith("-shm")}
    assert set(before) == {"a.sqlite", "a.sqlite-wal"}
    link = tmp_path / "link"
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(TraceError, match=r"the rest is in a\.sqlite-wal: checkpoint it first"):
            read_nsys(name)
    link.unlink()
    assert before == {
        p.name: p.read_bytes() for p in tmp_path.iterdir() if not p.name.endswith("-shm")
    }
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert read_nsys(path).counts["graph_launch"] == 2  # with an empty -wal beside it
    base.execute("PRAGMA journal_mode=PERSIST")
    base.execute("INSERT INTO StringIds VALUES (101, 'newer')")
    base.commit()
    base.close()
    journal = tmp_path / "a.sqlite-journal"
    assert journal.stat().st_size and read_nsys(path).counts["graph_launch"] == 2  # it is over
    journal.write_bytes(bytes.fromhex("d9d505f920a163d7") + journal.read_bytes()[8:])
    with pytest.raises(TraceError, match="roll it back first: sqlite3 a.sqlite 'PRAGMA"):
        read_nsys(path)


def test_generated_columns_and_triggers_do_not_run(tmp_path) -> None:
    more = """
        DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(
            a INTEGER, start INTEGER AS (length(hex(zeroblob(a)))), end INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(a, end) VALUES (1000000, 5);
        CREATE TRIGGER CUPTI AFTER INSERT ON StringIds BEGIN DELETE FROM NVTX_EVENTS; END;
    """
    path = write_nsys(tmp_path / "a.sqlite", more=more)
    before = path.read_bytes()
    trace = read_nsys(path)
    assert "CUPTI_ACTIVITY_KIND_KERNEL has no column 'start'" in "\n".join(trace.warnings)
    assert trace.counts["ranges"] == 2
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.sqlite"]  # no journal beside it


def test_values_of_the_wrong_kind_are_left_out(tmp_path) -> None:
    more = """
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ('x', 5, 9, 1, 1, 0), (5, NULL, 9, 1, 1, 0),
            (9, 3, 9, 1, 1, 0), (1, 2, x'00ff', 'y', 'z', 'w');
        INSERT INTO StringIds VALUES (100, CAST(x'ff00fe' AS TEXT));
    """
    trace = read_nsys(write_nsys(tmp_path / "a.sqlite", more=more))
    assert trace.counts["graph_launch"] == 2
    assert sum("start or end is missing or wrong" in w for w in trace.warnings) == 3


def test_other_databases_and_damage_are_sentences(tmp_path) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as base:
        base.execute("CREATE TABLE t(x)")
    base.close()
    with pytest.raises(TraceError, match="without tables of an Nsight Systems export"):
        read_nsys(other)
    with pytest.raises(TraceError, match="no such file"):
        read_nsys(tmp_path / "absent")
    path = write_nsys(tmp_path / "a.sqlite")
    data = path.read_bytes()
    path.write_bytes(b"not a database, but long enough to be one" * 100)
    with pytest.raises(TraceError, match="no readable SQLite database"):
        read_nsys(path)
    path.write_bytes(data[:4096])
    with pytest.raises(TraceError, match=r"a\.sqlite"):
        read_nsys(path)


def test_a_file_name_cannot_add_options(tmp_path) -> None:
    path = write_nsys(tmp_path / "a?mode=rwc&x=#%20.sqlite")
    assert read_nsys(path).counts["graph_launch"] == 2
