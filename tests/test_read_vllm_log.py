"""vLLM's log: the sample against hand counts, and what can be wrong with one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from trace_files import DATA

from verifylab.answers_serving import capture_sizes, modes, padding
from verifylab.read_vllm_log import read_vllm_log
from verifylab.trace_file import TraceError

SAMPLE = DATA / "vllm_cudagraph_metrics.log"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "v.log"
    path.write_bytes(text.encode())
    return path


def test_the_sample_against_a_count_of_its_rows() -> None:
    text = SAMPLE.read_text()
    rows = re.findall(r"\| (\d+) +\| (\d+) +\| (\d+) +\| (?:\w+\.)?(\w+) +\| (\d+) +\|", text)
    trace = read_vllm_log(SAMPLE)
    graphs = trace.table("graphs")
    got = graphs[["unpadded", "padded", "paddings", "runtime_mode", "count"]].astype(str)
    assert [tuple(r) for r in got.to_numpy()] == rows and len(rows) == 6
    assert trace.steps == sum(int(r[4]) for r in rows) == 113
    assert trace.warnings == ()
    assert trace.counts["stats_blocks"] == text.count("CUDAGraph Stats")
    settings = trace.table("settings")
    assert settings["mode"].tolist() == ["FULL_AND_PIECEWISE"] * 2  # both spellings
    assert settings.capture_sizes.map(list).tolist() == [[1, 2, 4, 8, 16, 24, 32]] * 2
    assert trace.table("throughput").generation_tok_s.tolist() == [11.5, 12.1]
    assert trace.table("acceptance").by_position[0] == [0.776, 0.480, 0.274]


def test_what_it_says_of_padding_modes_and_sizes() -> None:
    trace = read_vllm_log(SAMPLE)
    table = padding(trace).set_index(["runtime_mode", "padded"])
    full = table.loc[("FULL", 16)]
    assert (full.steps, full.tokens, full.padding) == (102, 41 * 16 + 61 * 12, 61 * 4)
    assert full.waste_pct == pytest.approx(100 * 244 / (102 * 16))
    shares = modes(trace).set_index("runtime_mode").steps
    assert shares.to_dict() == {"FULL": 105, "PIECEWISE": 6, "NONE": 2}
    unused = capture_sizes(trace)
    assert unused["size"][unused.never_used].tolist() == [1, 2, 8, 32]


def test_crlf_ansi_and_lines_without_prefix_change_nothing(tmp_path) -> None:
    text = SAMPLE.read_text()
    want = read_vllm_log(SAMPLE).counts
    assert read_vllm_log(write(tmp_path, text.replace("\n", "\r\n"))).counts == want
    assert (
        read_vllm_log(write(tmp_path, text.replace("INFO", "\x1b[32mINFO\x1b[0m"))).counts == want
    )
    bare = re.sub(r"(?m)^.*?\.py:\d+\] ", "", text)
    assert read_vllm_log(write(tmp_path, bare)).counts == want


def test_engines_that_interleave_keep_their_own_blocks_and_columns(tmp_path) -> None:
    a, b = "(EngineCore_DP0 pid=1) ", "(EngineCore_DP1 pid=2) "
    text = "\n".join(
        [
            a + "- Capture sizes: [1, 2]",
            b + "- Capture sizes: [4]",
            a + "CUDAGraph Stats:",
            b + "CUDAGraph Stats:",
            a + "| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |",
            b + "| Runtime Mode | New | Padded Tokens | Unpadded Tokens | Count |",
            b + "| FULL | x | 4 | 3 | 10 |",
            a + "| 2 | 2 | 0 | FULL | 7 |",
        ]
    )
    graphs = read_vllm_log(write(tmp_path, text)).table("graphs")
    assert graphs.block.tolist() == [1, 0]
    assert graphs[["unpadded", "padded", "paddings", "count"]].to_numpy().tolist() == [
        [3, 4, 1, 10], [2, 2, 0, 7],
    ]  # fmt: skip


def test_cut_and_contradicting_rows_have_their_line(tmp_path) -> None:
    text = (
        "CUDAGraph Stats:\n| 1 | 2 | 1 | FULL | 3 |\n| 1 | 2 | 5 | FULL | 3 |\n"
        "| 1 | 2 | 1 | FULL | 3\n| 1 | 2 | 1 | FULL\nEngine 000: Avg generation throughput: 1"
        "\nAvg generation throughput: tokens\n| 1 | " + "9" * 1_000_000 + " | 0 | FULL | 1 |\n"
    )
    trace = read_vllm_log(write(tmp_path, text))
    assert trace.counts["graph_rows"] == 2
    words = "\n".join(trace.warnings)
    assert "line 3: 2 padded tokens less 1 unpadded are not 5" in words
    for line in (4, 5, 7):
        assert f"line {line}:" in words


@pytest.mark.parametrize(
    "line",
    ["- Capture sizes: [" + "1" * 1_000_000, "| FULL " * 200_000, "Mode: " + "A" * 1_000_000,
     "Per-position acceptance rate: " + "1.1" * 300_000, "(" * 500_000 + "FULL|",
     "FULL|" + "\x1b[" * 300_000],
    ids=range(6),
)  # fmt: skip
def test_hostile_lines(tmp_path, line) -> None:
    trace = read_vllm_log(write(tmp_path, line + "\n| 1 | 2 | 1 | FULL | 3 |\n"))
    assert trace.steps == 3


def test_nothing_of_interest_is_said_in_a_sentence(tmp_path) -> None:
    with pytest.raises(TraceError, match=r"v\.log has no readable message of vLLM"):
        read_vllm_log(write(tmp_path, "hello FULL | \n"))


def test_logs_of_docker_compose_have_a_bar_in_every_line(tmp_path) -> None:
    """Rows are found by other needles then: the same rows, the same steps."""
    path = tmp_path / "a.log"
    text = SAMPLE.read_text()
    path.write_text("".join(f"vllm-1  | {line}\n" for line in text.splitlines()))
    plain, prefixed = read_vllm_log(SAMPLE), read_vllm_log(path)
    assert prefixed.counts == plain.counts and prefixed.steps == plain.steps
    sizes = [t.table("settings").capture_sizes.tolist() for t in (plain, prefixed)]
    assert sizes[0] == sizes[1]
    assert set(prefixed.table("graphs").engine) == {"vllm-1 (APIServer pid=66)"}


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("2026-08-17T05:46:{:02}.123456789Z ", ""),
        ("2026-08-17T05:46:{:02}.123456789Z stderr F ", ""),
        ("vllm-1  | 2026-08-17T05:46:{:02}.123456789Z ", "vllm-1 "),
        ("[pod/vllm-0/server] 2026-08-17T05:46:{:02}.123456789Z ", "[pod/vllm-0/server] "),
        ("Aug 17 05:46:{:02} gb10 vllm[12]: ", "gb10 vllm[12] "),
        ("2026-08-17 05:46:{:02} gb10 vllm[12]: ", "gb10 vllm[12] "),
        ("1787003{:03}.5 ", ""),
        ("<134>1 2026-08-17T05:46:{:02}Z gb10 vllm 12 - - ", ""),
    ],
)
def test_a_collectors_time_names_no_engine(tmp_path, prefix, name) -> None:
    """Two engines interleave, with other sizes: they stay apart, and are no more than two."""
    engines = ("(EngineCore_DP0 pid=1)", "(EngineCore_DP1 pid=2)")
    lines = []
    for words in ("- Capture sizes: [{}]", "CUDAGraph Stats:", "| {} | {} | 0 | FULL | 7 |"):
        for size, engine in enumerate(engines, 1):
            head = f"{engine} INFO 09-02 08:46:23 [compilation/cuda_graph.py:123] "
            lines.append(prefix.format(len(lines)) + head + words.format(size, size))
    trace = read_vllm_log(write(tmp_path, "\n".join(lines) + "\n"))
    assert trace.table("graphs").engine.tolist() == [name + engine for engine in engines]
    assert trace.table("settings").capture_sizes.tolist() == [(1,), (2,)]
    assert not capture_sizes(trace).never_used.any()


def test_a_number_that_is_no_count_is_refused_and_sums_do_not_wrap(tmp_path) -> None:
    most = 10**12
    text = "CUDAGraph Stats:\n| 1 | 1 | 0 | FULL | 999999999999999 |\n"
    text += f"| {most} | {most} | 0 | FULL | {most} |\n" * 10
    trace = read_vllm_log(write(tmp_path, text))
    assert trace.steps == 10 * most
    assert trace.warnings == ("line 2: 999999999999999 is no count, the row is left out",)
    assert padding(trace).tokens[0] == 10.0 * most * most
