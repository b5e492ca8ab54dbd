"""Counting the key space at n = 32, where listing it is out of reach: time and size."""

import timeit

from verifylab.dcut import RATIOS
from verifylab.keyspace import count_arrangements, count_multisets

WIDTH, LIMIT_MS = 32, 10.0
#: Wide enough that the ratio decides, not the rows.
ROW_BUDGET = 10_000


def best_ms(function, *arguments):
    timer = timeit.Timer(lambda: function(*arguments))
    return 1000 * min(timer.repeat(repeat=5, number=20)) / 20


def main():
    print(f"width {WIDTH}, best of 5; the limit is {LIMIT_MS:g} ms")
    print("drafts ratio   multisets  arrangements  multisets_ms  arrangements_ms  share_of_limit")
    worst = 0.0
    for drafts in (3, 5, 8):
        for ratio in RATIOS:
            case = (WIDTH, drafts, ratio, ROW_BUDGET)
            multisets, arrangements = count_multisets(*case), count_arrangements(*case)
            multisets_ms = best_ms(count_multisets, *case)
            arrangements_ms = best_ms(count_arrangements, *case)
            share = (multisets_ms + arrangements_ms) / LIMIT_MS
            worst = max(worst, share)
            print(
                f"{drafts:6d} {ratio:5.2f} {multisets:11.4g} {arrangements:13.4g} "
                f"{multisets_ms:13.4f} {arrangements_ms:16.4f} {share:15.4f}"
            )
    print(f"slowest case: {worst:.3f} of the limit")


if __name__ == "__main__":
    main()
