"""The engine log's reader against counts made another way: by `grep`, and by the model's run."""

from __future__ import annotations

import datetime as dt
import gzip
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_files import DATA, capture_line, window_line

from verifylab import trace_file
from verifylab.answers_keys import capture_windows, keys_per_width, reuse
from verifylab.experiment import Settings, run
from verifylab.machine import load_profile
from verifylab.modelled_trace import engine_log_lines
from verifylab.policy import policy
from verifylab.read_engine_log import _microseconds, read_engine_log
from verifylab.trace_file import TraceError
from verifylab.workload import calibrated

SAMPLE = DATA / "atlas_engine.log"


@pytest.fixture(scope="module")
def modelled(tmp_path_factory):
    """A modelled run of 1,000 steps: its log, and its counters."""
    workload, machine = calibrated(), load_profile("gb10-published")
    settings = Settings(8, steps=1000, warmup_steps=0)
    path = tmp_path_factory.mktemp("log") / "engine.log"
    lines = engine_log_lines(workload, policy("arrangement"), settings, machine)
    path.write_text("\n".join(lines) + "\n")
    return path, run(workload, "arrangement", None, machine, settings).counters


def write(tmp_path: Path, *lines: str, end: str = "\n") -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(end.join((*lines, "")).encode())
    return path


def test_the_sample_has_what_grep_finds_in_it() -> None:
    text = SAMPLE.read_text()
    trace = read_engine_log(SAMPLE)
    assert trace.counts == {
        "captures": len(re.findall("Captured CUDA graph for batched", text)),
        "windows": text.count("batched-verify graphs"),
        "dcut": text.count("MTP D-Cut"),
        "acceptance": text.count("MTP accept"),
    }
    assert trace.steps == 200 and trace.warnings == ()
    keys = trace.table("keys")
    assert keys.slots.map(list).tolist() == [[0, 2, 1, 3], [1, 3, 0, 2], [0, 1, 3, 2]]
    assert keys.depths.map(list).tolist() == [[4, 4, 3, 3], [4, 4, 3, 3], [4, 4, 4, 2]]
    assert not keys.canonical.any()
    window = trace.table("windows").iloc[0]
    assert (window.steps, window.replay, window.capture, window.live_keys, window.capacity) == (
        200, 190, 10, 10, 32,
    )  # fmt: skip
    # The line in ANSI colours has its time as the plain ones have.
    assert window.time == pd.Timestamp("2026-08-17T05:47:01.558112")
    accepted = trace.table("acceptance").iloc[0]
    assert (accepted.p1, accepted.tok_step) == (0.776, 2.533)
    assert np.isnan(accepted.token_ratio)  # an older line ends before it
    first = trace.table("captures").iloc[0]
    assert text[first.offset :].startswith("Captured CUDA graph")


def test_a_modelled_log_gives_back_the_counters_of_the_run(modelled) -> None:
    path, counters = modelled
    trace = read_engine_log(path)
    assert trace.counts["captures"] == counters.captures
    assert trace.steps == counters.steps
    windows = trace.table("windows")
    assert (windows.replay.sum(), windows.capture.sum()) == (counters.hits, counters.captures)
    table = keys_per_width(trace)
    assert table.n.tolist() == [8]
    assert (table.uses[0], table["keys"][0]) == (counters.captures, counters.keys_seen)
    inferred = capture_windows(trace)
    # Cold start: the first window's upper end is not the truth, its lower end is.
    assert inferred.evictions_low.sum() == counters.evictions
    assert (inferred.evictions_low <= inferred.evictions_high).all()
    again = reuse(trace)
    assert len(again) == counters.captures - counters.keys_seen
    assert (again.at_least == 32).all()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_blocks_make_no_difference(tmp_path, monkeypatch, modelled, end) -> None:
    lines = modelled[0].read_text().splitlines()[:300]
    path = write(tmp_path, *lines, end=end)
    whole = read_engine_log(path)
    blocks = trace_file.blocks
    monkeypatch.setattr(
        trace_file, "blocks", lambda path, notes, size=0, limits=None: blocks(path, notes, 777)
    )
    small = read_engine_log(path)
    assert whole.counts == small.counts
    for name, table in whole.tables.items():
        pd.testing.assert_frame_equal(table, small.table(name))


def test_gzip_whole_and_cut_off(tmp_path, modelled) -> None:
    data = gzip.compress(modelled[0].read_bytes())
    path = tmp_path / "a.log.gz"
    path.write_bytes(data)
    whole = read_engine_log(path)
    assert whole.counts["captures"] == modelled[1].captures and not whole.warnings
    path.write_bytes(data[: len(data) // 2])
    half = read_engine_log(path)
    assert 0 < half.counts["captures"] < whole.counts["captures"]
    assert "gzip data is cut off" in half.warnings[0] and "offset" in half.warnings[0]


def test_fields_missing_and_added(tmp_path) -> None:
    path = write(
        tmp_path,
        "batched-verify graphs [200 steps, last n=4]: replay=150 CAPTURE=50 new=7 live_keys=3/48",
        "MTP accept n=8 k_drafts=3 verifies=128 p1=0.793 mean_na=1.606 tok_step=2.606 "
        "token_ratio=1.0420 span_ms=26842 fresh=true",
        "K4 positional: steps=100 p1=0.77 p2_uncond=0.50 p3_uncond=0.31 p2_cond=0.65 p3_cond=0.62 "
        "(d1=77 d2u=50 d3u=31 d2c=65 d3c=62) seq_len=4096",
        "verify graph borrow: n=20 R=40 -> replaying captured 32-seq key with 12 ghost pairs",
        "batched-verify GDN conv+WY [last n=4 k=4]: engaged=96 declined=1952 declined_frac=0.953 "
        "(a declined call is 28 launches/layer, not 2)",
        "Captured CUDA graph for batch size 8 (n=7, slots=Some([0, 1, 2, 3, 4, 5, 6, 32]))",
        "Captured CUDA graph for batched verify ks=[4] (n=1, key=None)",
    )
    trace = read_engine_log(path)
    assert trace.warnings == ()
    window = trace.table("windows").iloc[0]
    assert pd.isna(window.capture_frac) and pd.isna(window.time)
    assert (window.borrow, window.eager) == (0, 0)  # the others make the 200 steps
    assert (window.replay, window.capture, window.capacity) == (150, 50, 48)
    assert trace.table("acceptance").token_ratio[0] == 1.042
    assert trace.table("positional").p3_cond[0] == 0.62
    assert trace.table("borrows").iloc[0][["n", "rows", "key_n", "ghosts"]].tolist() == [
        20,
        40,
        32,
        12,
    ]
    assert trace.table("fast_path").declined[0] == 1952
    assert trace.table("decode_captures").iloc[0][["size", "n"]].tolist() == [8, 7]
    assert trace.table("captures").key_id.tolist() == [-1]
    assert capture_windows(trace).capture_fraction[0] == 0.25  # of the steps said


def test_what_is_cut_or_wrong_has_its_line_and_the_rest_is_kept(tmp_path) -> None:
    good = capture_line([0, 1], [4, 3])
    path = write(
        tmp_path,
        good,
        good[:-30],  # cut in the middle of its key
        good.replace("key=Some([0, 4, 1, 3, 4294967295])", "key=Some([0, 4, 1, 3])"),
        good.replace("4294967295", "7"),
        good.replace("n=2", "n=3"),
        good.replace("[0, 4,", "[99999999999, 4,"),
        "batched-verify graphs [",
        window_line(100, 100, 2).replace("replay=100", "replay=90"),
        "plain text",
        good,
    )
    trace = read_engine_log(path)
    assert trace.counts == {"captures": 2, "windows": 1, "captures_unreadable": 5}
    text = "\n".join(trace.warnings)
    said = ["readable key", "2 n + 1", "ends in 7", "says n=3", "32 bits"]
    for line, words in enumerate([*said, "without readable fields", "make 190"], 2):
        assert re.search(rf"line {line}: .*{re.escape(words)}", text), (line, text)


def window(text: str) -> str:
    return f"batched-verify graphs [{text}"


def test_a_count_that_a_window_lacks_comes_from_the_others_or_stays_open(tmp_path) -> None:
    path = write(
        tmp_path,
        window("last n=2]: replay=198 borrow=0 CAPTURE=2 eager=0 live_keys=4/32"),
        window("200 steps, last n=2]: replay=198 borrow=0 eager=0 live_keys=4/32"),
        window("200 steps, last n=2]: replay=18 borrow=0 CAPTURE=18"),  # of 182, cut
        window("200 steps, last n=2]: replay=198 bor"),
        window("200 steps, last n=2]: replay=198 borrow=0 CAPTURE=2 eager=0 live_keys=10/3"),
    )
    trace = read_engine_log(path)
    windows = capture_windows(trace)
    assert trace.steps == 1000
    assert windows.steps.tolist() == [200] * 5
    assert windows.capture.tolist() == [2, 2, pd.NA, pd.NA, 2]
    assert windows.captures_high.tolist() == [2, 2, 182, 2, 2]
    assert windows.counted.tolist() == [True, True, False, False, True]
    assert pd.isna(windows.capacity[4])


def test_evictions_are_within_their_ends_whatever_a_window_lacks(tmp_path, modelled) -> None:
    path, counters = modelled
    lines = path.read_text().splitlines()
    at = [i for i, line in enumerate(lines) if "batched-verify graphs" in line]
    for cut in at:
        for end in (" borrow=", " CAPTURE=", " eager=", " live_keys=", "[200 steps"):
            some = [line.split(end)[0] if i == cut else line for i, line in enumerate(lines)]
            windows = capture_windows(read_engine_log(write(tmp_path, *some)))
            high = windows.evictions_high.sum(skipna=False)
            assert windows.evictions_low.sum() <= counters.evictions
            if end != "[200 steps":  # else the window is no message any more
                assert counters.evictions <= high or np.isnan(high)


def test_a_number_that_is_no_count_is_refused_with_its_line(tmp_path) -> None:
    huge = window("999999999999999 steps, last n=8]: replay=999999999999999 borrow=0 CAPTURE=1")
    path = write(tmp_path, *[huge] * 20_000, window_line(198, 2, 2))
    trace = read_engine_log(path)
    assert trace.steps == 200
    assert "line 1: steps=999999999999999 is no count" in trace.warnings[1]


@pytest.mark.parametrize(
    ("slots", "depths", "words"),
    [([0, 0], [4, 4], "two sequences share a slot"), ([4294967295, 0], [4, 4], "without a slot"),
     ([0, 1], [97, 4], "97 rows, a dispatch holds 96")],
)  # fmt: skip
def test_keys_that_no_engine_can_have_are_refused(tmp_path, slots, depths, words) -> None:
    path = write(tmp_path, capture_line(slots, depths), capture_line([0, 1], [96, 3]))
    trace = read_engine_log(path)
    assert trace.table("keys").slots.map(list).tolist() == [[0, 1]]
    assert trace.warnings[0].startswith("line 1: ") and words in trace.warnings[0]


def test_two_messages_on_one_line(tmp_path) -> None:
    cut = capture_line([0, 1], [4, 3])[:-40]
    whole = capture_line([2, 3], [4, 4], "2026-08-17T05:46:13.000000Z")
    trace = read_engine_log(write(tmp_path, cut + whole))
    assert trace.counts == {"captures": 1, "captures_unreadable": 1}
    assert trace.table("captures").time[0] == pd.Timestamp("2026-08-17T05:46:13")
    assert "line 1" in trace.warnings[0]


def test_several_engines_and_a_clock_that_goes_back(tmp_path) -> None:
    a, b = "engine-1  | ", "engine-2  | "
    path = write(
        tmp_path,
        a + capture_line([0, 1], [4, 3], "2026-08-17T05:00:00.000000Z"),
        b + capture_line([1, 0], [4, 3], "2026-08-17T04:00:00.000000Z"),
        a + capture_line([0, 1], [4, 4], "2026-08-17T05:00:09.000000Z"),
        a + capture_line([0, 1], [3, 3], "2026-08-17T05:00:08.500000Z"),  # mere reordering
        a + capture_line([0, 1], [2, 2], "2026-08-17T03:00:00.000000Z"),  # a restart
    )
    trace = read_engine_log(path)
    captures = trace.table("captures")
    assert captures.engine.tolist() == ["engine-1", "engine-2", "engine-1", "engine-1", "engine-1"]
    assert captures.segment.tolist() == [0, 0, 0, 0, 1]
    assert len(trace.warnings) == 2 and "the clock goes back by 0.5" in trace.warnings[0]


@pytest.mark.parametrize(
    "line",
    [
        "Captured CUDA graph for batched verify (n=" + "9" * 1_000_000 + ", key=Some([0, 4, 1]))",
        "Captured CUDA graph for batched verify ks=[4] (n=1, key=Some([" + "1" * 1_000_000 + "]))",
        "batched-verify graphs [" + "2" * 1_000_000 + " steps: replay=" + "3" * 1_000_000,
        "MTP accept " + "a=" * 500_000,
        "MTP accept " + "a=[" * 300_000,
        "MTP accept " + "w" * 1_000_000,
        "MTP accept n=1e999999 p1=nan tok_step=-inf mean_na=0x7",
        "MTP accept " * 100_000,
        "\x1b[" * 400_000 + "MTP accept ",
    ],
    ids=range(9),
)  # fmt: skip
def test_hostile_lines_cost_nothing_and_the_rest_is_kept(tmp_path, line) -> None:
    path = write(tmp_path, line, capture_line([0, 1], [4, 3]))
    trace = read_engine_log(path)
    assert trace.counts["captures"] >= 1
    assert trace.table("keys").slots.map(list).tolist()[-1] == [0, 1]


def test_a_file_without_messages_is_refused_in_a_sentence(tmp_path) -> None:
    path = write(tmp_path, "nothing of interest")
    with pytest.raises(
        TraceError, match=r"a\.log has no readable message of an Atlas engine in 20"
    ):
        read_engine_log(path)
    with pytest.raises(TraceError, match="no such file"):
        read_engine_log(tmp_path / "absent")
    with pytest.raises(TraceError, match="not a regular file"):
        read_engine_log(tmp_path)


@given(st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2999, 1, 1)), st.integers(19, 26))
def test_times_are_numpys(moment, length) -> None:
    text = moment.isoformat(timespec="microseconds")[:length]
    text = text.rstrip(".")
    got = _microseconds(np.array([text.encode()], "S26"))
    assert got[0] == np.datetime64(text, "us").astype(np.int64)


@pytest.mark.parametrize(
    "text",
    ["NaT", "", "2026-02-30T00:00:00", "2026-13-01T00:00:00", "2026-00-01T00:00:00",
     "2026-01-00T00:00:00", "2026-01-01T24:00:00", "2026-01-01T00:60:00", "2026-01-01T00;00:00",
     "2026-01-01T00:00:0x", "2026-01-01T00:00:00Z", "-026-01-01T00:00:00"],
)  # fmt: skip
def test_what_is_no_time_is_none(text) -> None:
    good = "2026-08-17T05:46:12.004211"
    got = _microseconds(np.array([good.encode(), text.encode()], "S26"))
    assert got[0] == np.datetime64(good, "us").astype(np.int64)
    assert got[1] == np.iinfo(np.int64).min


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("2026-08-17T05:46:0{}.123456789Z ", ""),  # kubectl logs --timestamps, docker logs -t
        ("2026-08-17T05:46:0{}.123456789+02:00 stdout F ", ""),  # the runtime's own file
        ("[pod/atlas-0/engine] 2026-08-17T05:46:0{}.123456789Z ", "[pod/atlas-0/engine]"),
        ("engine-1  | 2026-08-17T05:46:0{}.123456789Z ", "engine-1"),
        ("Aug 17 05:46:0{} gb10 atlas[123]: ", "gb10 atlas[123]"),
        ("Mon Aug  7 05:46:0{} gb10 atlas[123]: ", "gb10 atlas[123]"),
        ("178700316{}.123456 gb10 atlas[123]: ", "gb10 atlas[123]"),
        ("[ 316{}.123456] gb10 atlas[123]: ", "gb10 atlas[123]"),
        ("2026-08-17 05:46:0{},123 ", ""),
    ],
)
def test_a_collectors_time_names_no_engine(tmp_path, prefix, name) -> None:
    lines = [capture_line([0, 1], [4, 3]), capture_line([1, 0], [4, 3]), window_line(198, 2, 2)]
    trace = read_engine_log(
        write(tmp_path, *(prefix.format(i) + line for i, line in enumerate(lines)))
    )
    assert trace.table("captures").engine.tolist() == [name] * 2
    assert trace.table("windows").engine.tolist() == [name]
    assert trace.table("captures").time[0] == pd.Timestamp("2026-08-17T05:46:12")


def test_half_a_message_names_no_engine(tmp_path) -> None:
    line = capture_line([0, 1], [4, 3])
    trace = read_engine_log(write(tmp_path, line[:60] + line, line))
    assert trace.table("captures").engine.tolist() == ["", ""]
