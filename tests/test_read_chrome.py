"""Chrome traces: the real one against `json.load`, small ones against hand counts, and damage."""

from __future__ import annotations

import collections
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from trace_files import DATA, chrome_event, chrome_events, chrome_text

from verifylab import json_stream
from verifylab import read_chrome as reader
from verifylab.answers_profile import device_time, graph_api, launch_counts, profile_steps
from verifylab.read_chrome import read_chrome
from verifylab.trace_file import TraceError

KINETO = DATA / "graph_launches.json.gz"


def write(tmp_path: Path, text: str | bytes, name: str = "t.json") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture(scope="module")
def kineto():
    return read_chrome(KINETO), json.loads(gzip.decompress(KINETO.read_bytes()))["traceEvents"]


def test_the_real_trace_against_a_plain_parse(kineto) -> None:
    trace, events = kineto
    assert trace.events == len(events) == 105_167
    assert trace.counts["graph_launch"] == 12
    assert trace.warnings == () and trace.about["gpu"] == "Tesla V100-SXM2-16GB"
    by_name = collections.Counter(e["name"] for e in events if e.get("cat") == "cuda_runtime")
    assert trace.table("calls").name.value_counts().to_dict() == by_name
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert len(trace.table("kernels")) == len(kernels)
    assert trace.table("kernels").dur_us.sum() == sum(e["dur"] for e in kernels)
    assert trace.steps == sum(e.get("name", "").startswith("ProfilerStep#") for e in events)


def test_what_the_real_trace_says(kineto) -> None:
    trace, events = kineto
    launches = [e for e in events if e.get("name") == "cudaGraphLaunch"]
    row = graph_api(trace).set_index("kind").loc["graph_launch"]
    assert row.calls == 12
    assert row.total_ms == pytest.approx(sum(e["dur"] for e in launches) / 1e3)
    counts = launch_counts(trace).iloc[0]
    ids = {e["args"]["correlation"] for e in launches}
    replayed = sum(e.get("cat") == "kernel" and e["args"]["correlation"] in ids for e in events)
    assert (counts.kernels_replayed, counts.kernels) == (replayed, 9876)
    steps = profile_steps(trace)
    assert steps.how.eq("ranges").all() and steps.graph_launches.tolist() == [2] * 6
    busy = device_time(trace).iloc[0]
    # Another way: paint every microsecond that a kernel covers.
    spans = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "kernel"]
    first = min(s for s, _ in spans)
    painted = np.zeros(max(e for _, e in spans) - first, bool)
    for start, end in spans:
        painted[start - first : end - first] = True
    assert busy.busy_ms == pytest.approx(painted.sum() / 1e3)


def test_a_small_one_in_full(tmp_path) -> None:
    trace = read_chrome(write(tmp_path, chrome_text()))
    assert trace.events == 13 and not trace.warnings
    # The driver call inside the runtime call is not counted twice.
    assert trace.counts == {
        "graph_launch": 2, "graph_instantiate": 1, "capture_begin": 1, "kernel_launch": 1,
        "kernels": 4, "ranges": 2,
    }  # fmt: skip
    steps = profile_steps(trace)
    assert steps.captures.tolist() == [1, 0] and steps.graph_launches.tolist() == [1, 1]
    assert steps.graph_ms.tolist() == [0.022, 0.0]
    row = launch_counts(trace).iloc[0]
    assert (row.kernels_replayed, row.kernels_eager, row.kernels_per_graph) == (3, 1, 1.5)
    api = graph_api(trace).set_index("kind")
    assert api.loc["graph_instantiate", "per_step_ms"] == 0.01
    assert profile_steps(trace, "no such range").how.eq("launches").all()
    with pytest.raises(TraceError, match="no regular expression"):
        profile_steps(trace, "(")


def read_events(tmp_path: Path, events: list[dict]):
    return read_chrome(write(tmp_path, json.dumps({"traceEvents": events})))


def test_nested_ranges_are_no_steps_of_their_own(tmp_path) -> None:
    events = []
    for at in range(0, 10_000, 1000):
        events += [
            chrome_event("verify_step", at, 900, "user_annotation"),
            chrome_event("verify_attention", at, 100, "user_annotation"),
            chrome_event("verify_gdn", at + 200, 700, "user_annotation"),
            chrome_event("cudaGraphInstantiate", at + 500, 200),
        ]
    trace = read_events(tmp_path, events)
    steps = profile_steps(trace)
    assert trace.steps == 10 and steps.dur_us.eq(900).all() and steps.captures.eq(1).all()
    assert graph_api(trace).per_step_ms[0] == 0.2
    assert len(profile_steps(trace, "attention|gdn")) == 20


@pytest.mark.parametrize(
    ("second", "steps"),
    [
        ("ProfilerStep#{i}", 10),  # another process, the same steps
        ("verify", 10),  # another pattern's
        ("ProfilerStep#{j}", 10),  # other steps, but side by side with these
    ],
)
@pytest.mark.parametrize("late", [0, 300])
def test_of_threads_side_by_side_one_steps(tmp_path, second, steps, late) -> None:
    events = []
    for i in range(10):
        other = second.format(i=i, j=i + 100)
        events += [
            chrome_event(f"ProfilerStep#{i}", 1000 * i, 900, "user_annotation"),
            chrome_event(other, 1000 * i + late, 900, "user_annotation") | {"pid": 2},
        ]
    trace = read_events(tmp_path, events)
    assert trace.steps == len(profile_steps(trace)) == steps
    assert profile_steps(trace).start_us.tolist() == [1000.0 * i for i in range(10)]


def test_threads_that_take_turns_all_step(tmp_path) -> None:
    events = [
        chrome_event("verify", 1000 * i, 900, "user_annotation") | {"tid": i % 3} for i in range(10)
    ]
    assert read_events(tmp_path, events).steps == 10


@pytest.mark.parametrize(
    "threads", [((1, 7), (2, 7)), ((1, "a"), (1, "b")), ((1, 7), (1, "7")), ((1, [1]), (1, {}))]
)
@pytest.mark.parametrize("phases", ["X", "BE"])
def test_a_thread_is_a_process_and_a_name_of_any_type(tmp_path, threads, phases) -> None:
    events = []
    for i in range(5):
        for (pid, tid), name, at, length in (
            (threads[0], "cudaGraphInstantiate", 1000 * i, 900),
            (threads[1], "cudaGraphLaunch", 1000 * i + 100, 850),
        ):
            event = chrome_event(name, at, length) | {"pid": pid, "tid": tid}
            if phases == "BE":
                events += [event | {"ph": "B"}, event | {"ph": "E", "ts": at + length}]
            else:
                events.append(event)
    events.sort(key=lambda e: e["ts"])
    trace = read_events(tmp_path, events)
    assert trace.counts == {"graph_launch": 5, "graph_instantiate": 5}
    assert trace.table("calls").dur_us.tolist() == [900, 850] * 5


def test_devices_named_by_text(tmp_path) -> None:
    devices = ["0", "1", 1, "cuda:1", None, "x"]
    events = [
        chrome_event("k", 100 * i, 10, "kernel", device=d) for i, d in enumerate(devices)
    ]  # fmt: skip
    trace = read_events(tmp_path, events)
    assert trace.table("kernels").device.tolist() == [0, 1, 1, 1, -1, -1]


@pytest.mark.parametrize("unit", ["whole", "given", "fraction"])
@pytest.mark.parametrize("ids", [True, False])
def test_a_driver_call_is_its_runtime_calls_whatever_the_rounding(tmp_path, unit, ids) -> None:
    rng, at, events = random.Random(0), 10**15 * 1000, []
    for i in range(1000):
        at += rng.randrange(50_000, 90_000)
        length, lag = rng.randrange(5000, 9000), rng.randrange(200, 600)
        inner = length - lag - rng.randrange(100, 400)
        for name, start, long in (("cuda", at, length), ("cu", at + lag, inner)):
            ts, dur = {
                "whole": (start // 1000, long // 1000), "given": (start // 1000, 7),
                "fraction": (start / 1000, long / 1000),
            }[unit]  # fmt: skip
            more = {"correlation": i} if ids else {}
            events.append(chrome_event(f"{name}GraphLaunch", ts, dur, f"{name}_x", **more))
            events[-1]["cat"] = "cuda_runtime" if name == "cuda" else "cuda_driver"
    trace = read_events(tmp_path, events)
    assert trace.counts == {"graph_launch": 1000}
    assert trace.table("calls").nested.sum() == 1000


def test_calls_in_a_row_are_not_nested(tmp_path) -> None:
    names = ("cudaGraphLaunch", "cudaGraphLaunch", "cudaLaunchKernel", "cuGraphLaunch")
    events = [chrome_event(n, 100 + 7 * i, 7, correlation=i) for i, n in enumerate(names)]
    trace = read_events(tmp_path, events)
    assert trace.counts == {"graph_launch": 3, "kernel_launch": 1}


def test_begin_and_end_events_and_a_bare_array(tmp_path) -> None:
    events = [
        {"ph": "B", "name": "cudaGraphLaunch", "ts": 5, "tid": 1},
        {"ph": "B", "name": "cuGraphLaunch", "ts": 6, "tid": 1},
        {"ph": "E", "ts": 8, "tid": 1},
        {"ph": "E", "ts": 9, "tid": 1},
        {"ph": "B", "name": "cudaGraphLaunch", "ts": 20, "tid": 1},
    ]
    trace = read_chrome(write(tmp_path, json.dumps(events)))
    assert trace.counts["graph_launch"] == 1  # the other is nested, the third has no end
    assert trace.table("calls").dur_us.tolist() == [4.0, 2.0]
    assert "1 begun events have no end" in trace.warnings[0]


@pytest.mark.parametrize("indent", [None, 1])
def test_every_cut_keeps_what_is_whole(tmp_path, indent) -> None:
    text = json.dumps({"traceEvents": chrome_events()}, indent=indent)
    begin = text.index("[") + 1
    counts = []
    for cut in [*range(begin, len(text), 7), len(text)]:
        path = write(tmp_path, text[:cut])
        try:
            trace = read_chrome(path)
        except TraceError as error:
            assert "0 trace events" in str(error)
            counts.append(0)
            continue
        counts.append(trace.events)
        assert len(trace.warnings) >= 1 or cut >= text.rindex("]")
    assert counts == sorted(counts) and counts[-1] == 13


@pytest.mark.parametrize("size", [1, 3, 17, 64, 1000])
def test_blocks_of_any_size_give_the_same(tmp_path, size) -> None:
    text = '\ufeff{"a": "\\"traceEvents\\": [", "traceEvents" :\n[' + ", ".join(
        json.dumps(e) for e in chrome_events()
    ) + ', 5, -1.5e3, "x]{", [1, [2]] ], "more": [{"ph": "X"}]}'  # fmt: skip
    data = text.encode()
    pieces = iter([data[i : i + size] for i in range(0, len(data), size)])
    from verifylab.read_chrome import OPENING
    from verifylab.trace_file import Notes

    notes = Notes()
    stream = json_stream.objects(pieces, OPENING, notes)
    next(stream)
    got = [value for several in stream for value in several]
    assert got == [*chrome_events(), 5, -1.5e3, "x]{", [1, [2]]]
    assert notes.texts() == ()


def test_stretches_equal_one_by_one(monkeypatch, tmp_path) -> None:
    rng = random.Random(3)
    nested = [[{"y": {}}, {}] * rng.randrange(9) for _ in range(2000)]
    events = [
        chrome_event("cudaGraphLaunch", i, 1, correlation=i, x=x) for i, x in enumerate(nested)
    ]
    path = write(tmp_path, json.dumps({"traceEvents": events}))
    fast = read_chrome(path)
    monkeypatch.setattr(json_stream, "_stretch", lambda text, at: ([], at, at))
    slow = read_chrome(path)
    assert fast.counts == slow.counts == {"graph_launch": 2000}
    assert fast.table("calls").equals(slow.table("calls"))


@pytest.mark.parametrize(
    "bad", ['{"ts": 00}', '{"ts": ' + "1" * 5000 + "}", '{"a": "\x01"}', "x", "[[{}, {}], 00]"]
)
def test_what_is_parsed_in_vain_is_parsed_once(monkeypatch, tmp_path, bad) -> None:
    events = [json.dumps(chrome_event("cudaGraphLaunch", i, 1)) for i in range(9000)]
    events[200:-1000:400] = [bad] * len(events[200:-1000:400])
    text, parsed = '{"traceEvents": [' + ", ".join(events) + "]}", []
    loads = json_stream.json.loads
    monkeypatch.setattr(
        json_stream.json, "loads", lambda piece: (parsed.append(len(piece)), loads(piece))[1]
    )
    trace = read_chrome(write(tmp_path, text))
    assert trace.counts == {"graph_launch": 9000 - events.count(bad)}
    assert sum(parsed) < 3 * len(text)


def test_events_without_end_are_read_up_to_a_bound(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(reader, "MAX_EVENTS", 20_000)
    text = '{"traceEvents": [' + '{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1},' * 50_000
    trace = read_chrome(write(tmp_path, text))
    assert 20_000 <= trace.events == len(trace.table("kernels")) < 25_000
    assert trace.warnings == (f"only the first {trace.events:,} events were read",)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ('{"cat": "kernel", "ts": ' + "1" * 1_000_000 + "}", "too many digits"),
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deep"),
        ('{"cat": "kernel", "ph": "X", "ts": NaN, "dur": 1}', "ts nan"),
        ('{"cat": "kernel", "ph": "X", "ts": 1, "dur": Infinity}', "dur inf"),
        ('{"cat": "kernel", "ph": "X", "ts": 1, "dur": -5}', "dur -5"),
        ('{"cat": "kernel", "ph": "X", "ts": "1", "dur": {}}', "ts '1'"),
        ('{"cat": "kernel", "ph": "X", "ts": ' + "9" * 300 + ', "dur": 1}', "beyond 64 bits"),
        ('{"cat": ["kernel"], "ph": "X"}', "is no event"),
        ("17", "is no event"),
        ('{"cat": "kernel", "ph": "X" "ts": 1}', "not JSON"),
        ('{"cat": "kernel", nonsense}', "not JSON"),
    ],
)
def test_a_bad_event_is_named_and_the_others_kept(tmp_path, bad, words) -> None:
    events = [json.dumps(e) for e in chrome_events()]
    text = '{"traceEvents": [' + ",\n".join([*events[:5], bad, *events[5:]]) + "]}"
    trace = read_chrome(write(tmp_path, text))
    assert trace.counts["graph_launch"] == 2 and trace.counts["kernels"] == 4
    assert words in trace.warnings[0], trace.warnings


def test_gzip_cut_in_the_middle(tmp_path) -> None:
    data = gzip.compress(chrome_text().encode())
    trace = read_chrome(write(tmp_path, data[: len(data) * 2 // 3], "t.json.gz"))
    assert 0 < trace.events < 13 and "gzip data is cut off" in "".join(trace.warnings)


def test_no_events_is_a_sentence(tmp_path) -> None:
    for text in ('{"traceEvents": []}', '{"traceEvents": [', '{"other": 1}', "", "["):
        with pytest.raises(TraceError, match=r"^t\.json has (no array of|0) trace events"):
            read_chrome(write(tmp_path, text))
