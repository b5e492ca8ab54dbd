"""Readers of foreign files: MB/s and peak memory on files made on the fly.

Targets (issue 7): 1 GB of log at over 100 MB/s and under 500 MB; a 1,000,000-event trace under
10 s. Each file is read in a process of its own, whose peak memory and CPU time are its own too.
Give a share of the full size as an argument to try it: ``bench_readers.py 0.1``.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

DATA = Path(__file__).parent.parent / "tests" / "data"
GB = 10**9
FILLER = (
    "{time}Z  INFO spark_server::scheduler: step done in 38.2 ms, 8 sequences running, 0 waiting\n"
)


def engine_log(path: Path, size: int, quiet_lines: int) -> None:
    """A modelled engine's log over and over, a day later each time, among other lines."""
    from verifylab.experiment import Settings
    from verifylab.machine import load_profile
    from verifylab.modelled_trace import engine_log_lines
    from verifylab.policy import policy
    from verifylab.workload import calibrated

    machine, chosen = load_profile("gb10-published"), Settings(8, steps=4000, warmup_steps=0)
    text = []
    for line in engine_log_lines(calibrated(), policy("arrangement"), chosen, machine):
        text.append(line + "\n")
        text += [FILLER.format(time=line[:26])] * quiet_lines
    chunk = "".join(text).encode()
    written, day = 0, 0
    with path.open("wb") as file:
        while written < size:
            date = f"{2026 + day // 336}-{1 + day // 28 % 12:02}-{1 + day % 28:02}".encode()
            written += file.write(chunk.replace(b"2026-08-17", date))
            day += 1


def vllm_log(path: Path, size: int) -> None:
    """The vLLM sample over and over, among other lines."""
    other = "(APIServer pid=66) INFO 09-02 08:46:13 [api_server.py:12] 127.0.0.1 POST /v1 200 OK\n"
    chunk = ((DATA / "vllm_cudagraph_metrics.log").read_text() + other * 200).encode() * 200
    with path.open("wb") as file:
        for _ in range(size // len(chunk) + 1):
            file.write(chunk)


def chrome_trace(path: Path, events: int) -> None:
    """The events of the real sample over and over."""
    body = gzip.decompress((DATA / "graph_launches.json.gz").read_bytes())
    start = body.index(b"[", body.index(b'"traceEvents"')) + 1
    one = body[start : body.rindex(b"]")].rstrip()
    many = len(json.loads(body)["traceEvents"])
    with path.open("wb") as file:
        file.write(body[:start])
        file.write(b",".join([one] * (events // many)))
        rest = json.loads(body)["traceEvents"][: events % many]
        file.write((b"," + json.dumps(rest)[1:-1].encode() if rest else b"") + b"]}")


def step_trace(path: Path, steps: int) -> None:
    """Steps of width 8 with confidences."""
    from verifylab.experiment import Settings
    from verifylab.machine import load_profile
    from verifylab.modelled_trace import write_step_trace
    from verifylab.policy import policy
    from verifylab.workload import calibrated

    machine = load_profile("gb10-published")
    chosen = Settings(8, steps=steps, warmup_steps=0)
    write_step_trace(path, calibrated(), policy("arrangement"), chosen, machine)


def peak_mb() -> float:
    """Peak memory of this process; `ru_maxrss` would count the parent's on Linux."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _read(path: Path, out: multiprocessing.Queue) -> None:
    from verifylab import traces

    wall, cpu = time.perf_counter(), time.process_time()
    trace = traces.read(path)
    out.put(
        (
            trace.format,
            trace.events,
            time.perf_counter() - wall,
            time.process_time() - cpu,
            peak_mb(),
        )
    )


def measure(path: Path) -> tuple[str, int, float, float, float]:
    """(format, events, wall s, CPU s, peak MB) of reading a file in a fresh process."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_read, args=(path, queue))
    process.start()
    result = queue.get()
    process.join()
    return result


def main() -> None:
    """Make each file, read it, print a row."""
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    log, events = int(GB * share), int(1_000_000 * share)
    cases = (
        ("engine log, 1 line in 20", lambda p: engine_log(p, log, 19)),
        ("engine log, every line", lambda p: engine_log(p, log, 0)),
        ("vLLM log, 1 line in 9", lambda p: vllm_log(p, log)),
        ("Kineto trace", lambda p: chrome_trace(p, events)),
        ("step trace", lambda p: step_trace(p, int(20_000 * share))),
    )
    print(f"cores {os.cpu_count()}, load {os.getloadavg()[0]:.1f}")
    print(f"{'file':<26}{'MB':>8}{'events':>12}{'wall s':>9}{'CPU s':>8}{'MB/s':>8}{'MB/CPU s':>10}"
          f"{'peak MB':>9}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        for name, make in cases:
            make(path)
            size = path.stat().st_size / 1e6
            _, found, wall, cpu, peak = measure(path)
            print(f"{name:<26}{size:>8,.0f}{found:>12,}{wall:>9.2f}{cpu:>8.2f}{size / wall:>8.0f}"
                  f"{size / cpu:>10.0f}{peak:>9.0f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
