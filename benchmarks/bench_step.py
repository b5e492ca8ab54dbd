"""What a hit costs beyond the body: the cache and every line of Python around it.

On the host device, so no GPU is measured. Two numbers: a hit on a graph of no launches, and the
difference between a hit on a real step and the same launches run bare. Target: under 30 us.
"""

import statistics
import time

from verifylab.device.host import HostDevice
from verifylab.graph_cache import GraphCache
from verifylab.verify_step import VerifyStep

TARGET_US = 30.0
SLOTS, DEPTHS = list(range(8)), [4, 4, 4, 4, 4, 3, 3, 2]


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
    key = bytes(4 * (2 * len(SLOTS) + 1))

    empty = microseconds(lambda: cache.step("empty", lambda on: None))
    bare = device.capture(step.body(SLOTS, DEPTHS))
    calls = bare._calls

    def body_alone() -> None:
        for call in calls:
            call()

    hit = microseconds(lambda: cache.step(key, step.body(SLOTS, DEPTHS)), 300)
    alone = microseconds(body_alone, 300)
    print(f"hit on an empty graph           {empty:8.2f} us  ({empty / TARGET_US:.2f} of target)")
    print(f"hit on a step of {bare.nodes:3d} launches   {hit:8.1f} us")
    print(f"the same launches alone         {alone:8.1f} us")
    print(f"beyond the body                 {hit - alone:8.1f} us  (noise of the body included)")
    print(f"target                          {TARGET_US:8.1f} us  {verdict(empty)}")


def verdict(empty: float) -> str:
    return "met" if empty < TARGET_US else "MISSED"


if __name__ == "__main__":
    main()
