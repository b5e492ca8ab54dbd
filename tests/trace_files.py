"""Small inputs in every format, made here, for the reader tests."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

DATA = Path(__file__).parent / "data"
STRINGS = {1: "cudaGraphLaunch_v10000", 2: "cuGraphInstantiateWithFlags", 3: "cudaLaunchKernel",
           4: "cuGraphExecDestroy", 5: "verify", 6: "gdn_kernel", 7: "cuGraphLaunch"}  # fmt: skip


def chrome_event(
    name: str, ts: float, dur: float, cat: str = "cuda_runtime", **args: object
) -> dict:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 7, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def chrome_events() -> list[dict]:
    return [
        chrome_event("aten::zeros", 0, 5, "cpu_op"),
        chrome_event("verify_step", 0, 95, "user_annotation"),
        chrome_event("cudaStreamBeginCapture", 1, 2, correlation=1),
        chrome_event("cudaGraphInstantiate", 10, 20, correlation=2),
        chrome_event("cuGraphInstantiateWithFlags", 11, 18, "cuda_driver", correlation=2),
        chrome_event("cudaGraphLaunch", 40, 4, correlation=3),
        chrome_event("verify_step", 100, 50, "user_annotation"),
        chrome_event("cudaGraphLaunch", 110, 4, correlation=4),
        chrome_event("cudaLaunchKernel", 120, 3, correlation=5),
        chrome_event("k1", 46, 10, "kernel", device=0, correlation=3),
        chrome_event("k2", 58, 10, "kernel", device=0, correlation=3, **{"graph node id": 9}),
        chrome_event("k1", 116, 10, "kernel", device=0, correlation=4),
        chrome_event("k3", 146, 10, "kernel", device=0, correlation=5),
    ]


def chrome_text() -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": chrome_events(), "displayTimeUnit": "ms"})


def write_nsys(path: Path, *, more: str = "", without: tuple[str, ...] = ()) -> Path:
    """Write a small export; `more` is SQL run at the end, `without` names tables to drop."""
    base = sqlite3.connect(path)
    base.executescript(
        """
        CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(
            start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
            nameId INTEGER, returnValue INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(
            start INTEGER, end INTEGER, deviceId INTEGER, correlationId INTEGER,
            graphId INTEGER, graphNodeId INTEGER, shortName INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(
            start INTEGER, end INTEGER, graphId INTEGER, graphExecId INTEGER);
        CREATE TABLE NVTX_EVENTS(
            start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
            globalTid INTEGER);
        """
    )
    base.executemany("INSERT INTO StringIds VALUES (?, ?)", STRINGS.items())
    base.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?)",
        [
            (1_000, 18_000_000, 9, 1, 2, 0),
            (18_100_000, 18_150_000, 9, 2, 1, 0),
            (18_110_000, 18_140_000, 9, 2, 7, 0),  # the driver call inside the runtime call
            (30_000_000, 36_000_000, 9, 3, 4, 0),
            (36_100_000, 36_200_000, 9, 4, 1, 0),
            (37_000_000, 37_010_000, 9, 5, 3, 700),
        ],
    )
    base.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, ?, 0, ?, 6)",
        [
            (18_200_000, 20_000_000, 2, 0),
            (36_300_000, 38_000_000, 4, 77),
            (38_100_000, 39_000_000, 5, 0),
        ],
    )
    base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (18200000, 20000000, 3, 4)")
    base.executemany(
        "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, 9)",
        [
            (0, 21_000_000, 59, "verify", None),
            (29_000_000, 40_000_000, 59, None, 5),
            (5, None, 34, "mark", None),
        ],
    )
    for table in without:
        base.execute(f"DROP TABLE {table}")
    base.executescript(more)
    base.commit()
    base.close()
    return path


def serve_result(**changes: object) -> dict:
    return {
        "backend": "vllm", "model_id": "m", "num_prompts": 80, "request_rate": "inf",
        "max_concurrency": 8, "duration": 40.0, "completed": 80, "total_output_tokens": 4000,
        "output_throughput": 100.0, "mean_ttft_ms": 90.0, "median_ttft_ms": 80.0,
        "p99_ttft_ms": 200.0, "mean_tpot_ms": 60.0, "median_tpot_ms": 59.0, "p99_tpot_ms": 80.0,
        "mean_itl_ms": 60.0, "median_itl_ms": 58.0, "p99_itl_ms": 90.0, **changes,
    }  # fmt: skip


def capture_line(
    slots: list[int], depths: list[int], time: str = "2026-08-17T05:46:12.000000Z"
) -> str:
    words = [w for pair in zip(slots, depths, strict=True) for w in pair] + [4294967295]
    return (
        f"{time}  INFO model::verify: Captured CUDA graph for batched verify ks={depths} "
        f"(n={len(slots)}, key=Some({words}))"
    )


def window_line(
    replay: int, capture: int, live: int, capacity: int = 32, borrow: int = 0, eager: int = 0,
    time: str = "2026-08-17T05:47:12.000000Z",
) -> str:  # fmt: skip
    steps = replay + capture + borrow + eager
    return (
        f"{time}  INFO model::verify: batched-verify graphs [{steps} steps, last n=8]: "
        f"replay={replay} borrow={borrow} CAPTURE={capture} eager={eager} "
        f"capture_frac={capture / steps:.3f} live_keys={live}/{capacity}"
    )
