"""Detection by content, inspect, import, and the two commands."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from trace_files import (
    DATA,
    capture_line,
    chrome_events,
    chrome_text,
    serve_result,
    window_line,
    write_nsys,
)

from verifylab import cli, traces
from verifylab.step_trace import StepTraceWriter
from verifylab.trace_answers import (
    CANNOT,
    GIVES,
    device_time,
    graph_api,
    launch_counts,
    profile_steps,
)
from verifylab.traces import TraceError

SAMPLES = {
    "atlas_engine.log": "atlas_log",
    "vllm_cudagraph_metrics.log": "vllm_log",
    "graph_launches.json.gz": "chrome_trace",
    "l38_r7_c8.json": "bench_ladder",
    "sweep_atlas_stacktip_dgx2_20260820.json": "bench_ladder",
    "vllm_latest_reference.json": "bench_ladder",
    "modelled_steps.parquet": "step_trace",
    "modelled_engine.log.gz": "atlas_log",
}


@pytest.fixture
def main():
    """Run the command line."""
    return lambda *words: CliRunner().invoke(cli.main, [str(w) for w in words])


def every_format(folder: Path) -> dict[str, Path]:
    """Write a small file of each format, under names that say nothing."""
    made = {
        "atlas_log": capture_line([0, 1], [4, 3]) + "\n" + window_line(9, 1, 1),
        "vllm_log": (DATA / "vllm_cudagraph_metrics.log").read_text(),
        "chrome_trace": chrome_text(),
        "bench_ladder": (DATA / "l38_r7_c8.json").read_text(),
        "vllm_bench_serve": json.dumps(serve_result()),
    }
    paths = {}
    for number, (name, text) in enumerate(made.items()):
        paths[name] = folder / f"file{number}"
        paths[name].write_text(text)
    paths["nsys_sqlite"] = write_nsys(folder / "file8")
    paths["step_trace"] = folder / "file9"
    with StepTraceWriter(paths["step_trace"]) as trace:
        trace.step([0, 1], [4, 3], accepted=[1, 0], outcome="capture")
    return paths


def test_the_samples_are_known_by_content_not_by_name(tmp_path) -> None:
    assert set(SAMPLES) == {p.name for p in DATA.iterdir()} - {"README.md"}
    for name, format in SAMPLES.items():
        disguised = tmp_path / "x.txt"
        shutil.copy(DATA / name, disguised)
        assert traces.detect(disguised) == format


def test_every_format_is_detected_read_and_described(tmp_path) -> None:
    paths = every_format(tmp_path)
    assert set(paths) == set(traces.FORMATS) == set(GIVES) == set(CANNOT)
    for format, path in paths.items():
        assert traces.detect(path) == format
        found = traces.inspect(path)
        assert {"format", "steps", "events", "counts", "warnings"} <= found.keys()
        assert found["format"] == format and found["events"] > 0
        assert json.loads(json.dumps(found)) == found
        trace = traces.read(path)
        assert traces.read(path, format).counts == trace.counts == found["counts"]
        with pytest.raises(TraceError, match="has no table 'x', it has"):
            trace.table("x")


@pytest.mark.parametrize("format", ["atlas_log", "vllm_log", "chrome_trace", "bench_ladder"])
def test_gzip_is_read_whatever_the_name(tmp_path, format) -> None:
    path = every_format(tmp_path)[format]
    plain = traces.inspect(path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert traces.inspect(path) == plain


@pytest.mark.parametrize("format", ["nsys_sqlite", "step_trace"])
def test_what_is_not_read_as_a_stream_must_be_decompressed_first(tmp_path, format) -> None:
    path = every_format(tmp_path)[format]
    path.write_bytes(gzip.compress(path.read_bytes()))
    for said in (None, format):
        with pytest.raises(TraceError, match=rf"decompress it first: gunzip {path.name}$"):
            traces.read(path, said)


def test_messages_after_megabytes_of_other_text_are_found(tmp_path) -> None:
    path = tmp_path / "a"
    line = capture_line([0, 1], [4, 3])
    path.write_text("loading weights, shard by shard\n" * 400_000 + line + "\n")
    found = traces.inspect(path)
    assert found["counts"] == {"captures": 1}


def test_messages_of_two_engines_in_one_file_are_said(tmp_path) -> None:
    paths = every_format(tmp_path)
    both = tmp_path / "both"
    both.write_text(paths["atlas_log"].read_text() + "\n" + paths["vllm_log"].read_text())
    found = traces.read(both)
    assert found.format == "vllm_log" and found.steps == 113
    assert "another format too (Atlas engine log)" in found.warnings[-1]
    assert traces.read(both, "atlas_log").counts == traces.read(paths["atlas_log"]).counts


def test_a_bare_array_and_json_with_the_events_last(tmp_path) -> None:
    path = tmp_path / "a"
    path.write_text(json.dumps(chrome_events()))
    assert traces.detect(path) == "chrome_trace"
    path.write_text(json.dumps({"x": "y" * 10_000_000, "traceEvents": chrome_events()}))
    assert traces.inspect(path)["counts"]["graph_launch"] == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"\x1f\x8b", "nothing can be decompressed"),
        (gzip.compress(b""), "is empty"),
        (b"\0\1\2\3" * 1000, "binary data of no known format"),
        (b"hello\nworld\n", "text of no known format"),
        (b'{"a": 1}', "of no known format"),
        ("INFO batched-verify graphs [".encode("utf-16"), "UTF-16 text: convert it to UTF-8"),
    ],
)
def test_what_is_not_known_is_said_in_a_sentence(tmp_path, data, words, main) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=words):
        traces.read(path)
    for command in ("inspect", "import"):
        result = main(command, path)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    with pytest.raises(TraceError, match="format must be one of"):
        traces.read(path, "csv")


def test_import_stores_like_a_run_and_load_gives_it_back(tmp_path) -> None:
    (tmp_path / "in").mkdir()
    paths = every_format(tmp_path / "in")
    out = traces.import_files(list(paths.values()), tmp_path / "runs" / "mine")
    assert {p.name for p in out.iterdir()} == {
        "params.json", "status.json", "provenance.json", "result.parquet", "summary.txt", "tables",
    }  # fmt: skip
    assert json.loads((out / "status.json").read_text())["status"] == "ok"
    assert str(tmp_path) not in (out / "provenance.json").read_text()
    result = pd.read_parquet(out / "result.parquet")
    assert set(result.format) == set(paths)
    for stored, path in zip(traces.load(out), paths.values(), strict=True):
        fresh = traces.read(path)
        assert (stored.format, stored.source, stored.steps) == (
            fresh.format, fresh.source, fresh.steps,
        )  # fmt: skip
        assert dict(stored.counts) == dict(fresh.counts)
        for name, table in fresh.tables.items():
            assert len(stored.table(name)) == len(table)
            assert list(stored.table(name).columns) == list(table.columns)


def test_a_profile_that_was_imported_answers_as_the_file(tmp_path) -> None:
    paths = [write_nsys(tmp_path / "a"), tmp_path / "b", tmp_path / "c"]
    paths[1].write_text(chrome_text())
    paths[2].write_text(json.dumps([e for e in chrome_events() if e["cat"] == "cuda_runtime"]))
    stored = traces.load(traces.import_files(paths, tmp_path / "out"))
    for path, trace in zip(paths, stored, strict=True):
        for answer in (profile_steps, graph_api, launch_counts, device_time):
            assert answer(trace).equals(answer(traces.read(path)))


def test_import_leaves_nothing_half_done(tmp_path) -> None:
    good, bad = DATA / "atlas_engine.log", tmp_path / "bad"
    bad.write_text("no")
    with pytest.raises(TraceError, match="no known format"):
        traces.import_files([good, bad], tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["bad"]
    (tmp_path / "out").mkdir()
    with pytest.raises(TraceError, match="out exists already"):
        traces.import_files([good], tmp_path / "out")
    with pytest.raises(TraceError, match="no file to import"):
        traces.import_files([], tmp_path / "new")
    with pytest.raises(TraceError, match="cannot be written"):
        traces.import_files([good], bad / "below")
    with pytest.raises(TraceError, match="no folder of imported traces"):
        traces.load(tmp_path)


def test_the_commands(tmp_path, main, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = main("inspect", *(DATA / name for name in SAMPLES))
    assert result.exit_code == 0
    for screen in result.stdout.split("\n\n"):
        assert len(screen.splitlines()) <= 24
    lines = main("inspect", "--json", DATA / "graph_launches.json.gz", DATA / "atlas_engine.log")
    first, second = map(json.loads, lines.stdout.splitlines())
    assert (first["format"], first["events"], first["counts"]["graph_launch"]) == (
        "chrome_trace", 105_167, 12,
    )  # fmt: skip
    assert (second["format"], second["steps"]) == ("atlas_log", 200)
    result = main("import", DATA / "atlas_engine.log")
    assert result.exit_code == 0 and Path("runs/imported/atlas_engine/result.parquet").is_file()
    again = main("import", DATA / "atlas_engine.log", "--json")
    assert again.exit_code == 2 and again.stderr.startswith(
        "error: runs/imported/atlas_engine exists already"
    )
    result = main("import", DATA / "atlas_engine.log", "--out", "r", "--json")
    assert json.loads(result.stdout)["out"] == "r"


def test_one_bad_file_hides_no_good_one_and_is_named_with_its_path(
    tmp_path, main, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in "ab":
        Path(folder).mkdir()
        Path(folder, "x.log").write_text("no")
    log, bench = DATA / "atlas_engine.log", DATA / "graph_launches.json.gz"
    files = ("a/x.log", log, "nowhere/y", "b/x.log", bench)
    for command in ("inspect", "import"):
        result = main(command, *files, "--json")
        assert result.exit_code == 2
        told = result.stderr.splitlines()
        assert [line.split()[1] for line in told] == ["a/x.log", "nowhere/y:", "b/x.log"]
        assert told[0].startswith("error: a/x.log is text of no known format")
        assert told[1] == "error: nowhere/y: no such file"
        found = [json.loads(line)["file"] for line in result.stdout.splitlines()]
        assert found == [log.name, bench.name]
    assert [trace.source for trace in traces.load("runs/imported/x")] == found
    for command in (["inspect"], ["import", "--out", "new"]):
        result = main(*command, "a/x.log", "b/x.log")
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 2)
    assert not Path("new").exists()


def test_the_document_names_every_format_and_its_example_runs(tmp_path, monkeypatch) -> None:
    text = (Path(__file__).parent.parent / "docs" / "traces.md").read_text()
    for word in (
        "Atlas engine log",
        "vLLM log",
        "Kineto",
        "Nsight",
        "ladder",
        "serve",
        "step trace",
    ):
        assert word in text
    shutil.copy(DATA / "atlas_engine.log", tmp_path / "engine.log")
    monkeypatch.chdir(tmp_path)
    exec(text.split("```python\n")[1].split("```")[0], {})


def test_a_needle_in_other_text_does_not_tell_the_format(tmp_path) -> None:
    path = tmp_path / "a.log"
    throughput = "INFO Avg generation throughput: 11.5 tokens/s, Running: 4 reqs\n"
    for between in ("", "boring line\n" * 500_000):
        path.write_text("usage positional: a\nMTP accept \n" + between + throughput)
        assert traces.detect(path) == "vllm_log"
    path.write_text("Avg generation throughput: n/a\n" * 9 + capture_line([0, 1], [4, 3]))
    assert traces.detect(path) == "atlas_log"
    path.write_text("usage positional: a\n")
    with pytest.raises(TraceError, match="no readable message of an Atlas engine"):
        traces.read(path)


@pytest.mark.parametrize("name", ["a\x1b[31mred.log", "a\nb.log"])
def test_names_of_files_are_shown_printable(tmp_path, main, monkeypatch, name) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.write_text(capture_line([0, 1], [4, 3]) + "\n")
    for words in (("inspect", path), ("import", path), ("import", path, "--out", "o\x1b")):
        result = main(*words)
        assert result.exit_code == 0, result.stderr
        assert all(c.isprintable() for line in result.stdout.splitlines() for c in line)
    assert [p.name.isprintable() for p in (tmp_path / "runs" / "imported").iterdir()] == [True]


def test_a_folder_is_named_in_its_refusal(tmp_path, main, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main("inspect", ".").stderr == "error: . is not a regular file\n"
