"""What the sweep engine costs: by run, by stored run listed and loaded, and what two jobs gain.

``python benchmarks/bench_store.py [--runs 20] [--stored 10000]``. Wall time on a shared machine is
noisy: compare within one output. ``--runs 100`` is the issue's own size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from verifylab import loading
from verifylab.executors import LocalExecutor
from verifylab.gridfile import read_grid
from verifylab.isolated import _environment
from verifylab.provenance import library_hash
from verifylab.records import SCHEMA, Record, checksums
from verifylab.stored_runs import stored_runs
from verifylab.sweep import run_sweep

ROOT = Path(__file__).resolve().parent.parent
#: The main notebook, at a size where a run is mostly its kernel's start.
SMALL = """widths = [2, 8]
min_widths = [0, 8, 33]
seeds = 2
steps = 50
warmup_steps = 10
device = "model"
"""


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def grid(folder: Path, name: str, runs: int):
    notebook = ROOT / "notebooks" / "02_width_gate.ipynb"
    axis = [round(0.25 + 0.5 * at / runs, 4) for at in range(runs)]
    path = folder / f"{name}.toml"
    text = f'notebook = "{notebook}"\n[parameters]\n{SMALL}[axes]\ndcut_ratio = {axis}\n'
    path.write_text(text)
    return read_grid(path)


def overhead(folder: Path, runs: int = 5) -> tuple[float, float]:
    """Medians of one run: under the papermill command, under the engine; taken in turn."""
    read = grid(folder, "overhead", runs)
    environment = _environment(folder / "kernel", "none")  # the same kernel, found the same way
    plain, ours = [], []
    sweep = run_sweep(read, folder / "out")
    for row in read.rows:
        given = [part for n, v in row.given.items() for part in ("-y", f"{n}: {json.dumps(v)}")]
        out = folder / "plain"
        out.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "papermill", str(read.notebook.path), str(out / "o.ipynb")]
        command += [*given, "-p", "out", str(out), "-k", "python3", "--no-progress-bar"]
        plain.append(
            timed(lambda c=command: subprocess.run(c, env=environment, check=True,
                                                   capture_output=True))
        )  # fmt: skip
        ours.append(timed(lambda: next(sweep)))
    sweep.close()
    return statistics.median(plain), statistics.median(ours)


def rate(folder: Path, runs: int, jobs: int) -> float:
    read = grid(folder, f"jobs{jobs}", runs)
    outcomes = []
    took = timed(lambda: outcomes.extend(run_sweep(read, folder, executor=LocalExecutor(jobs))))
    assert all(outcome.ok for outcome in outcomes)
    return runs / took


def fill(folder: Path, stored: int) -> None:
    """Make a store of copies of one small result."""
    frame = pd.DataFrame({"width": [2, 4, 8], "tok_s": [1.0, 2.0, 3.0], "date": ["x"] * 3})
    for at in range(stored):
        run = folder / f"s{at // 1000}" / f"r{at:05d}"
        run.mkdir(parents=True)
        if at == 0:
            frame.to_parquet(run / "result.parquet")
            first = run
        else:
            shutil.copyfile(first / "result.parquet", run / "result.parquet")
        (run / "figures").mkdir()
        for name in ("arms", "differences", "recommendation"):
            (run / "figures" / f"f.{name}.csv").write_text("width,tok_s\n2,1.0\n" * 40)
        parameters = {
            "schema": SCHEMA,
            "parameters": {"ratio": at / stored, "count": at},
            "repeat": 0,
        }
        (run / "params.json").write_text(json.dumps(parameters))
        (run / "provenance.json").write_text(json.dumps({"schema": SCHEMA}))
        record = Record(
            run.name, "ok", "", 1.0, "2026-01-01", "2026-01-01", "i", library=library_hash(),
            checksums=checksums(run),
        )  # fmt: skip
        (run / "status.json").write_text(json.dumps(asdict(record)))


def say(what: str, measured: str, wanted: str) -> None:
    print(f"{what:<36}{measured:>16}   {wanted}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="runs for the gain of two jobs")
    parser.add_argument("--stored", type=int, default=10_000, help="runs in the store that is read")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="verifylab-bench-") as scratch:
        folder = Path(scratch)
        plain, ours = overhead(folder)
        say("one run, papermill command", f"{plain:.2f} s", "")
        say("one run, engine beyond that", f"{ours - plain:+.2f} s", "< 0.3 s")
        one, two = (rate(folder, given.runs, jobs) for jobs in (1, 2))
        say(f"{given.runs} runs, --jobs 1", f"{60 * one:.1f} a minute", "")
        say(f"{given.runs} runs, --jobs 2", f"{two / one:.2f} times", ">= 1.6 times")
        store = folder / "store"
        fill(store, given.stored)
        listed = [sys.executable, "-m", "verifylab", "runs", "--json", "--out", str(store)]
        took = timed(lambda: subprocess.run(listed, check=True, stdout=subprocess.DEVNULL))
        say(f"{given.stored:,} stored, verifylab runs", f"{took:.2f} s", "< 2 s")
        took = timed(lambda: loading.scan(store))
        say(f"{given.stored:,} stored, scan", f"{took:.2f} s", "")
        took = timed(lambda: loading.load(store))
        say(f"{given.stored:,} stored, load", f"{took:.2f} s", "< 5 s")
        took = timed(lambda: stored_runs(store))
        say(f"{given.stored:,} stored, for overlays", f"{took:.2f} s", "")


if __name__ == "__main__":
    main()
