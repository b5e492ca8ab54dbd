"""What each source can honestly say, as tables; and, in words, what it cannot.

Functions take a `Trace` and return a DataFrame. A trace of another format is refused with a
`TraceError` that lists what it has.
"""

from __future__ import annotations

from verifylab.answers_keys import capture_windows, keys_per_width, reuse
from verifylab.answers_profile import device_time, graph_api, launch_counts, profile_steps
from verifylab.answers_serving import capture_sizes, modes, padding, throughput

__all__ = [
    "CANNOT",
    "GIVES",
    "capture_sizes",
    "capture_windows",
    "device_time",
    "graph_api",
    "keys_per_width",
    "launch_counts",
    "modes",
    "padding",
    "profile_steps",
    "reuse",
    "throughput",
]

_PROFILE_GIVES = (
    "graph API time by call, per step and as a share of the wall",
    "GPU busy time and gaps",
    "kernels launched one by one against those replayed by a graph",
)
_PROFILE_CANNOT = (
    "keys: a profile does not say under which key a graph is cached",
    "tokens, acceptance, depths and slots",
    "a capture's own host work, but for the calls between its begin and its end",
    "kernels within graphs that were traced as a whole (Nsight Systems, unless told otherwise)",
)
_BENCH_CANNOT = (
    "engine flags: the gate, the D-Cut ratio and the policy are not in the file",
    "decode speed apart from prefill: tok/s is all tokens over the wall time of the rung",
    "keys, captures and steps",
)
#: By format: what can be asked of it.
GIVES: dict[str, tuple[str, ...]] = {
    "atlas_log": (
        "keys per width, captured",
        "capture fraction and live keys in windows of steps, evictions inferred from them",
        "bounds on what another policy or capacity would have captured",
        "fast-path, D-Cut and acceptance figures as logged",
    ),
    "vllm_log": (
        "padding waste by size, runtime modes, eager share",
        "capture sizes never used",
        "throughput and acceptance as logged",
    ),
    "chrome_trace": _PROFILE_GIVES,
    "nsys_sqlite": _PROFILE_GIVES,
    "bench_ladder": ("tok/s by concurrency with its spread", "rungs short of tokens"),
    "vllm_bench_serve": ("tok/s by concurrency, latencies as reported",),
    "step_trace": (
        "keys, reuse distances and the miss-ratio curve, exactly",
        "captures and launches under every key policy and cache",
        "tokens under every policy, as bounds where it verifies deeper than was logged",
    ),
}
#: By format: what it does not hold, so that nobody guesses it.
CANNOT: dict[str, tuple[str, ...]] = {
    "atlas_log": (
        "which key a replayed step had: reuse distances and hit ratios are bounds",
        "confidences and own depths: tokens under another policy",
        "evictions one by one: a normal eviction logs nothing",
        "what a capture cost in milliseconds",
    ),
    "vllm_log": (
        "the order of steps: only counts in each interval",
        "depths and slots: keys of this study",
        "times of captures (vLLM captures at start-up)",
    ),
    "chrome_trace": _PROFILE_CANNOT,
    "nsys_sqlite": _PROFILE_CANNOT,
    "bench_ladder": _BENCH_CANNOT,
    "vllm_bench_serve": (*_BENCH_CANNOT, "a spread: one run each"),
    "step_trace": (
        "milliseconds: they come from a machine profile",
        "acceptance beyond the rows that were verified",
        "how the batches themselves would have differed under another policy",
    ),
}
