"""How many batches a second can be ordered, assigned and keyed, beside Rust batch by batch.

python benchmarks/bench_rule.py [--elements N] [--rounds N] [--seed N]

Rust sorts the same data, one batch at a time on one thread, and drops each result at once;
verifylab keeps all of its results: order, assigned and key words of every batch. Rust and
verifylab take turns for `--rounds` rounds and the best of each counts, so that a busy moment hits
both. The checksums of both must agree.
"""

import argparse
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np

from verifylab import key

RUST_SOURCE = Path(__file__).with_name("rule.rs")
WIDTHS = (2, 8, 32)
DEEPEST = (4, 9)
SMALL_COUNTS = (1, 16, 256)


def make_batches(elements, n, deepest, seed):
    """Distinct slots out of a pool twice as large, depths from 2 to `deepest`."""
    rng = np.random.default_rng(seed)
    count = elements // n
    pool = np.broadcast_to(np.arange(2 * n), (count, 2 * n))
    slots = rng.permuted(pool, axis=1)[:, :n].copy()
    return slots, rng.integers(2, deepest + 1, (count, n))


def seconds(call, repeats=1):
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def build_rust(folder):
    """Give the binary, or None with the reason printed."""
    rustc = shutil.which("rustc")
    if rustc is None:
        print("no rustc here: the Rust column is skipped")
        return None
    binary = folder / "rule"
    command = [rustc, "--edition", "2021", "-O", "-o", binary, RUST_SOURCE]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        print(
            f"rustc could not build {RUST_SOURCE.name}: the Rust column is skipped\n{built.stderr}"
        )
        return None
    return binary


def run_rust(binary, data, shape, canonical):
    """Give (seconds, checksum) of one pass."""
    command = [binary, data, *map(str, shape), str(int(canonical)), "1"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    best, checksum = done.stdout.split()
    return float(best), int(checksum)


def checksum(made):
    """Give what rule.rs sums: position times value + 1 over order and words, batch by batch."""
    values = np.concatenate([made.order.astype(np.uint64), made.words], axis=1, dtype=np.uint64)
    positions = np.arange(1, values.size + 1, dtype=np.uint64)
    return int((positions * (values.ravel() + np.uint64(1))).sum(dtype=np.uint64))


def general(call):
    """Run `call` with the readable NumPy form instead of the compiled rule."""
    with mock.patch.object(key, "compiled_rule", lambda *_: None):
        return call()


def one_thread(call):
    from verifylab import _fast_rule

    with mock.patch.object(_fast_rule, "_MAX_THREADS", 1):
        return call()


def compare(args, binary, folder):
    print("\nmillion batches a second, and how many times Rust's that is")
    print(f"{'n':>3} {'depths':>6} {'arm':>11} {'Rust':>8} {'NumPy':>15} "
          f"{'one thread':>15} {'verifylab':>15}")  # fmt: skip
    for n in WIDTHS:
        for deepest in DEEPEST:
            slots, depths = make_batches(args.elements, n, deepest, args.seed)
            data = folder / "data"
            np.concatenate([slots, depths]).astype("<i8").tofile(data)
            for canonical in (True, False):

                def call(slots=slots, depths=depths, canonical=canonical):
                    return key.batch_keys(slots, depths, canonical, False)

                times = {"rust": [], "numpy": [], "one": [], "all": []}
                for _ in range(args.rounds):
                    if binary:
                        took, rust_sum = run_rust(binary, data, slots.shape, canonical)
                        times["rust"].append(took)
                        same = len(times["rust"]) > 1 or rust_sum == checksum(call())
                        assert same, "Rust and verifylab disagree"
                    times["numpy"].append(seconds(lambda: general(call)))  # noqa: B023
                    times["one"].append(seconds(lambda: one_thread(call)))  # noqa: B023
                    times["all"].append(seconds(call))
                print(row(n, deepest, canonical, len(slots), times))


def row(n, deepest, canonical, count, times):
    best = {name: min(taken) for name, taken in times.items() if taken}
    cells = []
    for name in ("numpy", "one", "all"):
        ratio = f"{best['rust'] / best[name]:6.1f}x" if "rust" in best else "      -"
        cells.append(f"{count / best[name] / 1e6:8.2f}{ratio}")
    rust = f"{count / best['rust'] / 1e6:8.2f}" if "rust" in best else "       -"
    arm = "canonical" if canonical else "arrangement"
    return f"{n:>3} {f'2..{deepest}':>6} {arm:>11} {rust} {' '.join(cells)}"


def small_calls(args):
    """Why the compiled rule, once loaded, is taken at every size."""
    print("\nmicroseconds a call on few batches: NumPy, compiled")
    for n in WIDTHS:
        cells = []
        for count in SMALL_COUNTS:
            slots, depths = make_batches(count * n, n, 4, args.seed)

            def call(slots=slots, depths=depths):
                return key.batch_keys(slots, depths, True, False)

            numpy_us, compiled_us = (
                min(seconds(lambda: wrap(call), 200) for _ in range(args.rounds)) * 1e6  # noqa: B023
                for wrap in (general, lambda call: call())
            )
            cells.append(f"{count:>5} batches {numpy_us:6.0f} {compiled_us:6.0f}")
        print(f"{n:>3} {'   '.join(cells)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--elements", type=int, default=1 << 21, help="sequences in each data set")
    parser.add_argument("--rounds", type=int, default=5, help="the best of this many counts")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    def load():
        from verifylab import _fast_rule  # noqa: F401

    print(f"loading the compiled rule: {seconds(load):.2f} s, once per process")
    with tempfile.TemporaryDirectory() as folder:
        compare(args, build_rust(Path(folder)), Path(folder))
    small_calls(args)


if __name__ == "__main__":
    main()
