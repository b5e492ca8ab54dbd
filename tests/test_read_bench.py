"""Bench files against the published tables, and what can be wrong with one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from trace_files import DATA, serve_result

from verifylab import json_stream
from verifylab.answers_serving import throughput
from verifylab.published import table
from verifylab.read_bench import read_bench
from verifylab.trace_file import TraceError
from verifylab.trace_report import Config, report

ROUND7 = DATA / "l38_r7_c8.json"


def write(tmp_path: Path, body: object) -> Path:
    path = tmp_path / "b.json"
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return path


@pytest.mark.parametrize(
    ("file", "row"),
    [("l38_r7_c8.json", "r7"), ("vllm_latest_reference.json", "vllm_no_spec")],
)
def test_ladders_give_the_published_rows(file, row) -> None:
    ladder = table("ladder_rounds").set_index("round").loc[row]
    rungs = read_bench(DATA / file).table("rungs")
    assert len(rungs) in (1, 8)
    for rung in rungs.itertuples():
        assert round(rung.tok_s_mean, 2) == ladder[f"C{rung.concurrency}"]


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda p: p.stem)
def test_every_number_agrees_with_the_files_own_summary(path) -> None:
    body = json.loads(path.read_text())
    trace = read_bench(path)
    rungs = trace.table("rungs").set_index("concurrency")
    for said in body["rungs"]:
        ours = rungs.loc[said["concurrency"]]
        assert ours.tok_s_mean == pytest.approx(said["tok_s_mean"])
        assert ours.tok_s_median == pytest.approx(said["tok_s_median"])
        assert ours.tok_s_spread_pct == pytest.approx(said["tok_s_spread_pct"])
        assert ours.completion_tokens == sum(said["completion_tokens_series"])
        short = 3 * body["osl"] * said["concurrency"] - sum(said["completion_tokens_series"])
        assert ours.short_tokens == short
        flagged = [w for w in trace.warnings if w.startswith(f"C={said['concurrency']}:")]
        assert bool(flagged) == (short > 0)
    assert trace.events == sum(len(r["reps"]) for r in body["rungs"])


def test_numbers_that_contradict_themselves_are_flagged(tmp_path) -> None:
    body = json.loads(ROUND7.read_text())
    body["rungs"][0]["reps"][0]["tok_s"] = 150.0
    body["rungs"][0]["tok_s_mean"] = 150.0
    trace = read_bench(write(tmp_path, body))
    assert "C=8, rep 0: tok_s says 150.00" in trace.warnings[0]
    assert any("tok_s_mean says 150.00" in w for w in trace.warnings)
    assert trace.table("rungs").tok_s_mean[0] == pytest.approx(110.63, abs=0.01)


def test_every_cut_keeps_the_complete_reps(tmp_path) -> None:
    text = ROUND7.read_text()
    counts = []
    for cut in range(0, len(text), 23):
        try:
            counts.append(read_bench(write(tmp_path, text[:cut])).counts["reps"])
        except TraceError as error:
            assert str(error).startswith("b.json")
            counts.append(0)
    assert counts == sorted(counts) and set(counts) == {0, 1, 2, 3}


def test_mending_looks_at_a_bounded_number_of_tokens(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_TOKENS", 2000)
    text = ROUND7.read_text().rstrip()[:-1] + ', "more": [' + "{}," * 5000
    trace = read_bench(write(tmp_path, text))
    assert trace.counts["reps"] == 3 and "what is complete before it is kept" in trace.warnings[0]
    monkeypatch.setattr(json_stream, "MAX_TOKENS", 10)
    with pytest.raises(TraceError, match="b.json"):
        read_bench(write(tmp_path, text))


def test_vllm_bench_serve_alone_in_a_list_and_as_lines(tmp_path) -> None:
    one = read_bench(write(tmp_path, serve_result(input_lens=[1] * 1000)))
    assert one.format == "vllm_bench_serve"
    assert throughput(one).iloc[0][["concurrency", "tok_s_mean"]].tolist() == [8, 100.0]
    both = [serve_result(), serve_result(max_concurrency=16, output_throughput=7.0)]
    lines = "\n".join(map(json.dumps, both)) + '\n{"cut'
    for body in (both, lines):
        trace = read_bench(write(tmp_path, body))
        assert throughput(trace).concurrency.tolist() == [8, 16]
        assert any("output_throughput says 7.00" in w for w in trace.warnings)
    short = read_bench(write(tmp_path, serve_result(completed=79)))
    assert "79 of 80 prompts completed" in short.warnings[0]


@pytest.mark.parametrize(
    ("said", "concurrency", "words"),
    [
        (None, None, "100.0 tok/s at most, with no limit set on requests at once (measured)."),
        ("8", 8, "100.0 tok/s at most, at 8 at once (measured)."),
        (8.0, 8, "at 8 at once"),
        *((value, None, "no limit set") for value in (0, -5, "x", 8.5, True, [], 10**400, "inf")),
    ],
)
def test_the_concurrency_of_a_served_result(tmp_path, said, concurrency, words) -> None:
    path = write(tmp_path, serve_result(max_concurrency=said))
    trace = read_bench(path)
    found = throughput(trace).concurrency[0]
    assert found == concurrency or (concurrency is None and np.isnan(found))
    assert bool(trace.warnings) == (concurrency is None and said is not None)
    sentences = report(str(path), Config([str(path)])).sentences
    assert words in sentences[0] and "nan" not in " ".join(sentences)
    assert sentences[1].startswith("One rep, no spread")


def test_numbers_as_text_are_numbers(tmp_path) -> None:
    trace = read_bench(write(tmp_path, serve_result(duration="20", output_throughput=None)))
    assert throughput(trace).tok_s_mean[0] == 200 and trace.warnings == ()


def test_a_result_without_a_speed_is_left_out(tmp_path) -> None:
    silent = serve_result(duration=None, output_throughput=None)
    trace = read_bench(write(tmp_path, [silent, serve_result()]))
    assert len(throughput(trace)) == 1 and "result 0: neither output_thr" in trace.warnings[0]
    for more in ({}, {"output_throughput": "NaN"}, {"duration": 1e-300}, {"duration": -1}):
        with pytest.raises(TraceError, match="b.json has 0 readable results of vllm bench serve"):
            read_bench(write(tmp_path, silent | more))


def test_one_rep_has_no_spread_and_an_impossible_speed_is_left_out(tmp_path) -> None:
    body = json.loads(ROUND7.read_text())
    rung = body["rungs"][0]
    more = {**rung, "concurrency": "16", "tok_s_mean": "1", "reps": rung["reps"][:1]}
    path = write(tmp_path, body | {"rungs": [rung, more]})
    table = throughput(read_bench(path))
    assert table.concurrency.tolist() == [8, 16]
    assert table.tok_s_spread_pct.isna().tolist() == [False, True]
    sentences = report(str(path), Config([str(path)])).sentences
    assert sentences[1].startswith("1 of 2 rungs have one rep, no spread")
    assert "0.0 %" not in sentences[2]
    path = write(tmp_path, body | {"rungs": [more]})
    sentences = report(str(path), Config([str(path)])).sentences
    assert len(sentences) == 2 and sentences[1].startswith("One rep, no spread")
    more["reps"] = [more["reps"][0] | {"wall_s": 1e-300, "tok_s": 1e300}, rung["reps"][1]]
    trace = read_bench(write(tmp_path, body | {"rungs": [more]}))
    assert trace.counts["reps"] == 1
    assert trace.warnings[0] == "C=16, rep 0: wall_s 1e-300 makes no speed, not used"
    assert "rep 0: neither tok_s" in trace.warnings[1]


@pytest.mark.parametrize(
    "body",
    ["", " ", "{", "[]", "17", '"x"', '{"rungs": []}', '{"rungs": 5}', '{"rungs": [{}]}',
     '{"rungs": [{"concurrency": 1e400, "reps": []}]}',
     '{"rungs": [{"concurrency": 8, "reps": [{"wall_s": 0, "tok_s": "x"}]}]}',
     '{"rungs": ' + "9" * 1_000_000 + "}", '{"rungs": ' + "[" * 1_000_000, "[{}]"],
    ids=range(14),
)  # fmt: skip
def test_what_is_no_result_is_a_sentence(tmp_path, body) -> None:
    with pytest.raises(TraceError) as caught:
        read_bench(write(tmp_path, body))
    assert str(caught.value).startswith("b.json") and "\n" not in str(caught.value)
