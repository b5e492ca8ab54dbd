"""A miss-ratio curve for every capacity beside libCacheSim simulating one, on the same trace.

python benchmarks/bench_caches.py [--requests N] [--capacity N] [--rounds N] [--python PATH]

libCacheSim (GPL) is no dependency: `--python` names an interpreter that has the package
`libcachesim` (default: this one). Without it that column is skipped and says why. Both read the
trace before the clock starts: libCacheSim from its own binary format (page cache warm), verifylab
from an array. They take turns for `--rounds` rounds and the best of each counts. LRU hits at that
capacity, and Belady's, must agree to the last digit.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from verifylab._fast_caches import next_uses
from verifylab.caches import CacheRule, simulate
from verifylab.experiment import Settings
from verifylab.key_trace import key_trace
from verifylab.machine import load_profile
from verifylab.miss_curves import miss_ratio_curve
from verifylab.policy import policy
from verifylab.workload import calibrated

#: Runs under the interpreter that has libCacheSim: seconds and hits of one capacity.
PEER = """
import json, sys, time
import libcachesim as lcs
path, rule, capacity, requests = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
reader = lcs.TraceReader(
    path, lcs.TraceType.ORACLE_GENERAL_TRACE, lcs.ReaderInitParam(ignore_obj_size=True))
cache = getattr(lcs, rule)(capacity)
start = time.perf_counter()
misses, _ = cache.process_trace(reader)
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "hits": round((1 - misses) * requests)}))
"""


def traces(requests):
    rng = np.random.default_rng(0)
    run = key_trace(
        calibrated(), policy("arrangement"), Settings(8, steps=requests, warmup_steps=0),
        load_profile("gb10-published"),
    )  # fmt: skip
    yield "arrangement keys, width 8", run.ids.astype(np.int64)
    yield "Zipf 1.1 over 100,000 keys", rng.zipf(1.1, requests) % 100_000
    yield "uniform over 100,000 keys", rng.integers(0, 100_000, requests)


def write_oracle_general(keys, path):
    """Write libCacheSim's 24-byte records: time, id, size, next access."""
    coming = next_uses(keys, int(keys.max()) + 1)
    record = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    out = np.zeros(len(keys), record)
    out["time"] = np.arange(len(keys))
    out["id"] = keys + 1
    out["size"] = 1
    # Its clock counts requests from 1.
    out["next"] = np.where(coming < len(keys), coming + 1, -1)
    out.tofile(path)


def peer(python, path, rule, capacity, requests):
    done = subprocess.run(
        [python, "-c", PEER, path, rule, str(capacity), str(requests)],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


def seconds(call):
    start = time.perf_counter()
    out = call()
    return time.perf_counter() - start, out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--capacity", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    capacity = options.capacity
    miss_ratio_curve([0, 1]), miss_ratio_curve([0, 1], eviction="min")  # compile
    simulate([0, 1], CacheRule())
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, keys in traces(options.requests):
            path = str(Path(folder) / "trace.bin")
            write_oracle_general(keys, path)
            reason = ""
            ours, theirs = [], []
            for _ in range(options.rounds):
                spent, curve = seconds(lambda k=keys: miss_ratio_curve(k))
                ours.append(spent)
                try:
                    theirs.append(peer(options.python, path, "LRU", capacity, len(keys)))
                except (RuntimeError, OSError) as error:
                    reason = str(error)
            spent_min, optimum = seconds(lambda k=keys: miss_ratio_curve(k, eviction="min"))
            spent_one, _ = seconds(lambda k=keys: simulate(k, CacheRule(capacity=capacity)))
            print(
                f"{name}: {len(keys):,} requests, {len(curve.hits):,} keys\n"
                f"  verifylab  LRU, all {len(curve.hits):,} capacities: {min(ours) * 1e3:.0f} ms; "
                f"MIN, all: {spent_min * 1e3:.0f} ms; LRU, one, direct: {spent_one * 1e3:.0f} ms"
            )
            if not theirs:
                print(f"  libCacheSim skipped: {reason}")
                continue
            best = min(run["seconds"] for run in theirs)
            belady = peer(options.python, path, "Belady", capacity, len(keys))
            same = all(run["hits"] == curve.at(capacity).hits for run in theirs)
            same_min = belady["hits"] == optimum.at(capacity).hits
            failed |= not same
            print(
                f"  libCacheSim LRU, {capacity} graphs: {best * 1e3:.0f} ms; "
                f"Belady: {belady['seconds'] * 1e3:.0f} ms\n"
                f"  one of theirs over all of ours: {best / min(ours):.1f}x; LRU hits "
                f"{curve.at(capacity).hits:,} {'equal' if same else 'DIFFER'}; MIN hits "
                f"{optimum.at(capacity).hits:,} "
                f"{'equal' if same_min else 'against ' + format(belady['hits'], ',')}"
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
