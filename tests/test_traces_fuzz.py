"""Every reader on damaged, cut, mixed and random input: a Trace or one sentence, nothing else.

``VERIFYLAB_FUZZ=2000 pytest tests/test_traces_fuzz.py`` tries that many inputs a test.
"""

from __future__ import annotations

import gzip
import json
import os
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_traces import every_format

from verifylab import traces
from verifylab.trace_answers import (
    capture_sizes,
    capture_windows,
    device_time,
    graph_api,
    keys_per_width,
    launch_counts,
    modes,
    padding,
    profile_steps,
    reuse,
    throughput,
)
from verifylab.trace_file import Trace, TraceError

ANSWERS = {
    "atlas_log": (keys_per_width, reuse),
    "vllm_log": (padding, modes, capture_sizes),
    "chrome_trace": (graph_api, profile_steps, launch_counts, device_time),
    "nsys_sqlite": (graph_api, profile_steps, launch_counts, device_time),
    "bench_ladder": (throughput,),
    "vllm_bench_serve": (throughput,),
    "step_trace": (keys_per_width, reuse),
}
FORMATS = sorted(traces.FORMATS)
QUICK = settings(
    max_examples=int(os.environ.get("VERIFYLAB_FUZZ", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
#: A reader that takes this long on a few kilobytes has a pattern that is not linear.
SLOW_S = 10.0


class Samples(dict):
    """Bytes by format; hypothesis prints arguments, so without them."""

    def __repr__(self) -> str:
        return "samples"


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    paths = every_format(tmp_path_factory.mktemp("s"))
    return Samples({name: path.read_bytes() for name, path in paths.items()})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "file"


def survives(place, data: bytes, format: str | None = None) -> Trace | None:
    """Read `data`: what comes back is sound, or the refusal is one sentence."""
    place.write_bytes(data)
    begun = time.perf_counter()
    try:
        trace = traces.read(place, format)
    except TraceError as error:
        text = str(error)
        assert text and "\n" not in text and "Traceback" not in text and len(text) < 2000
        return None
    finally:
        assert time.perf_counter() - begun < SLOW_S
    assert trace.format in traces.FORMATS and trace.events > 0
    assert all(isinstance(w, str) and "\n" not in w for w in trace.warnings)
    assert all(isinstance(n, int) and n > 0 for n in trace.counts.values())
    json.dumps(traces.inspect(place)) if format is None else None
    for answer in ANSWERS[trace.format]:
        answer(trace)
    if "windows" in trace.tables:
        capture_windows(trace)
    return trace


@QUICK
@given(data=st.binary(max_size=300), format=st.sampled_from([None, *FORMATS]))
def test_random_bytes(place, data, format) -> None:
    survives(place, data, format)


CHANGES = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from(("flip", "cut", "insert", "double", "remove")),
        st.binary(min_size=1, max_size=20),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("format", FORMATS)
@QUICK
@given(changes=CHANGES, said=st.booleans())
def test_damaged_samples(place, samples, format, changes, said) -> None:
    data = bytearray(samples[format])
    for where, kind, bits in changes:
        at = int(where * max(len(data) - 1, 0))
        if kind == "flip" and data:
            data[at] ^= bits[0]
        elif kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = bits
        elif kind == "double":
            data[at:at] = data[at : at + 200]
        else:
            del data[at : at + 50]
    survives(place, bytes(data), format if said else None)


PIECES = st.lists(
    st.tuples(
        st.integers(0, 1000),
        st.floats(0, 1),
        st.sampled_from((b"\n", b"\r\n", b"", b"\x1b[0m", b"\0")),
    ),
    max_size=15,
)


@pytest.mark.parametrize("format", ["atlas_log", "vllm_log"])
@QUICK
@given(pieces=PIECES)
def test_lines_mixed_and_cut(place, samples, format, pieces) -> None:
    """Whole messages that survive the mixing are all found."""
    lines = samples["atlas_log"].splitlines() + samples["vllm_log"].splitlines()
    mixed = b""
    for which, share, end in pieces:
        line = lines[which % len(lines)]
        mixed += line[: int(share * len(line))] + end
    trace = survives(place, mixed + b"\n" + samples[format] + b"\n", format)
    alone = survives(place, samples[format], format)
    assert trace is not None and alone is not None
    for kind, count in alone.counts.items():
        assert trace.counts.get(kind, 0) >= count


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
WRONG = st.lists(
    st.tuples(st.lists(st.integers(0, 1000), min_size=1, max_size=6), ANYTHING),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("format", ["chrome_trace", "bench_ladder", "vllm_bench_serve"])
@QUICK
@given(wrong=WRONG)
def test_json_with_values_of_any_kind(place, samples, format, wrong) -> None:
    """Valid JSON of the right shape with wrong values in it."""
    body = json.loads(samples[format])
    for path, value in wrong:
        node = body
        for depth, which in enumerate(path):
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = keys[which % len(keys)]
            if depth == len(path) - 1 or not isinstance(node[key], (dict, list)):
                node[key] = value
                break
            node = node[key]
    survives(place, json.dumps(body).encode(), format)


@QUICK
@given(cut=st.floats(0, 1), flip=st.integers(0, 255), format=st.sampled_from(FORMATS[:4]))
def test_damaged_gzip(place, samples, cut, flip, format) -> None:
    data = bytearray(gzip.compress(samples[format], mtime=0))
    at = int(cut * (len(data) - 1))
    data[at] ^= flip
    survives(place, bytes(data))
    survives(place, bytes(data[:at]))
