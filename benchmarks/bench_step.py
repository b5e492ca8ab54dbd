"""What a step costs beyond its body on a hit: planning, key, cache and every line of Python.

On the host device, so no GPU is measured. Two sums are held against the target of 30 us a step:
the hit alone (on a graph of no launches), and the hit with what the experiment does for each step:
order, depths, chunks, launch counts, key (`GatedPolicy.step`). Drawing and D-Cut's selection belong
to the workload and are printed beside.
"""

import statistics
import time

import numpy as np

from verifylab.dcut import select
from verifylab.device.host import HostDevice
from verifylab.graph_cache import GraphCache
from verifylab.policy import policy
from verifylab.verify_step import VerifyStep

TARGET_US = 30.0
SLOTS, ROWS = np.arange(8), np.array([4, 3, 4, 4, 2, 4, 4, 3])


def microseconds(call, repeats: int = 2000) -> float:
    for _ in range(50):
        call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def main() -> None:
    device = HostDevice()
    cache = GraphCache(device)
    step = VerifyStep(device, "tiny", pool_slots=8, max_rows=32)

    hit = microseconds(lambda: cache.step("empty", lambda on: None))
    print(f"hit alone                               {hit:8.2f} us")
    for arm in ("arrangement", "canonical"):
        rule = policy(arm)

        def whole(rule=rule) -> None:
            for dispatch in rule.step(SLOTS, ROWS).dispatches:
                # A graph of no launches under the real key: all that is left is our own.
                cache.step(dispatch.key, lambda on: None)

        print(line(f"plan, key and hit, n = 8, {arm}", microseconds(whole)))
    logs = -np.random.default_rng(0).random((8, 3))
    chosen = microseconds(lambda: select(logs, 3, 0.75, 96))
    print(f"D-Cut's selection (the workload's)      {chosen:8.2f} us")

    real = GraphCache(device)
    (dispatch,) = policy("canonical").step(SLOTS, ROWS).dispatches
    body = step.body(dispatch.slots, dispatch.depths)
    bare = device.capture(body)
    calls = bare._calls

    def body_alone() -> None:
        for call in calls:
            call()

    replayed = microseconds(lambda: real.step(dispatch.key, body), 300)
    alone = microseconds(body_alone, 300)
    print(f"hit on a step of {bare.nodes:3d} launches           {replayed:8.1f} us")
    print(f"the same launches alone                 {alone:8.1f} us (their noise is the larger)")


def line(what: str, us: float) -> str:
    verdict = "met" if us < TARGET_US else "MISSED"
    return f"{what:39s} {us:8.2f} us  ({us / TARGET_US:.2f} of the {TARGET_US:.0f} us, {verdict})"


if __name__ == "__main__":
    main()
