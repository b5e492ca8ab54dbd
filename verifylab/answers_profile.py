"""From a profile: graph API time, steps, launches eager and replayed, busy time and gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from verifylab.profile_calls import GRAPH_KINDS
from verifylab.step_spans import STEP_PATTERNS, step_spans
from verifylab.trace_file import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GAP_US", "STEP_PATTERNS", "device_time", "graph_api", "launch_counts", "profile_steps"]

#: Idle stretches on the device longer than this are counted as gaps.
GAP_US = 10.0


def _calls(trace: Trace) -> pd.DataFrame:
    calls = trace.table("calls")
    return calls[~calls.nested]


def _wall_us(trace: Trace) -> float:
    ends = [
        (t.start_us.min(), (t.start_us + t.dur_us).max())
        for t in (trace.tables.get(n) for n in ("calls", "kernels", "ranges", "graph_runs"))
        if t is not None and len(t)
    ]
    return float(max(e for _, e in ends) - min(s for s, _ in ends)) if ends else 0.0


def graph_api(trace: Trace) -> pd.DataFrame:
    """Host time in graph calls.

    Returns
    -------
    DataFrame
        ``kind, calls, total_ms, mean_us, median_us, p99_us, wall_pct, per_step_ms`` for graph
        launches and every kind of `profile_calls.GRAPH_KINDS` that occurs; nested calls left out.
        Steps are those of `profile_steps`; `per_step_ms` is NaN where there are none.
    """
    import pandas as pd

    calls, wall, steps = _calls(trace), _wall_us(trace), len(profile_steps(trace))
    rows = []
    for kind in ("graph_launch", *GRAPH_KINDS):
        length = calls.dur_us[calls.kind == kind].to_numpy(float)
        if len(length):
            total = float(length.sum())
            rows.append(
                {
                    "kind": kind,
                    "calls": len(length),
                    "total_ms": total / 1e3,
                    "mean_us": float(length.mean()),
                    "median_us": float(np.median(length)),
                    "p99_us": float(np.quantile(length, 0.99)),
                    "wall_pct": 100 * total / wall if wall else float("nan"),
                    "per_step_ms": total / 1e3 / steps if steps else float("nan"),
                }
            )
    columns = ["kind", "calls", "total_ms", "mean_us", "median_us", "p99_us", "wall_pct",
               "per_step_ms"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def profile_steps(trace: Trace, pattern: str | None = None) -> pd.DataFrame:
    """Find the steps of a profile, each with its graph calls.

    Parameters
    ----------
    trace : Trace
    pattern : str, optional
        Regular expression that names the ranges which are steps; see `step_spans.step_spans`.

    Returns
    -------
    DataFrame
        ``start_us, dur_us, graph_ms, graph_launches, captures, kernel_launches, how`` (``ranges``
        or ``launches``); `graph_ms` without launches.
    """
    import pandas as pd

    calls = _calls(trace)
    start, end, how = step_spans(trace.table("calls"), trace.table("ranges"), pattern)
    out = pd.DataFrame({"start_us": start, "dur_us": end - start})

    def within(kinds: tuple[str, ...], weigh: bool = False) -> np.ndarray:
        mine = calls[calls.kind.isin(kinds)].sort_values("start_us")
        at = mine.start_us.to_numpy(float)
        sums = np.append(0.0, np.cumsum(mine.dur_us.to_numpy(float) if weigh else np.ones(len(at))))
        return sums[np.searchsorted(at, end)] - sums[np.searchsorted(at, start)]

    out["graph_ms"] = within(GRAPH_KINDS, weigh=True) / 1e3
    for name, kind in (
        ("graph_launches", "graph_launch"),
        ("captures", "graph_instantiate"),
        ("kernel_launches", "kernel_launch"),
    ):
        out[name] = within((kind,)).astype(np.int64)
    return out.assign(how=how)


def launch_counts(trace: Trace) -> pd.DataFrame:
    """Kernels launched one by one against those that a graph replayed.

    Returns
    -------
    DataFrame
        One row: ``kernel_launches, graph_launches, kernels, kernels_replayed, kernels_eager,
        kernels_per_graph, graph_runs``. A kernel is replayed when it has a graph node, or the
        correlation id of a graph launch. `graph_runs` were traced as a whole, in place of their
        kernels.
    """
    import pandas as pd

    calls, kernels = _calls(trace), trace.table("kernels")
    launches = calls[calls.kind == "graph_launch"]
    by_launch = kernels.correlation.isin(launches.correlation.dropna())
    replayed = int((by_launch | kernels.graph_node.notna()).sum())
    row = {
        "kernel_launches": int((calls.kind == "kernel_launch").sum()),
        "graph_launches": len(launches),
        "kernels": len(kernels),
        "kernels_replayed": replayed,
        "kernels_eager": len(kernels) - replayed,
        "kernels_per_graph": replayed / len(launches) if len(launches) else float("nan"),
        "graph_runs": len(trace.tables.get("graph_runs", ())),
    }
    return pd.DataFrame([row])


def device_time(trace: Trace) -> pd.DataFrame:
    """Busy and idle time of each device between its first and last kernel or graph.

    Returns
    -------
    DataFrame
        ``device, wall_ms, busy_ms, busy_pct, gaps`` (over `GAP_US`)``, gaps_ms, longest_gap_us``;
        kernels, and graphs that were traced as a whole: copies count as idle.
    """
    import pandas as pd

    columns = ["device", "start_us", "dur_us"]
    work = [trace.tables[n][columns] for n in ("kernels", "graph_runs") if n in trace.tables]
    rows = []
    for device, mine in pd.concat(work).groupby("device"):
        mine = mine.sort_values("start_us")
        start = mine.start_us.to_numpy(float)
        reached = np.maximum.accumulate(start + mine.dur_us.to_numpy(float))
        idle = np.maximum(start[1:] - reached[:-1], 0.0)
        wall = float(reached[-1] - start[0])
        gaps = idle[idle > GAP_US]
        rows.append(
            {
                "device": device,
                "wall_ms": wall / 1e3,
                "busy_ms": (wall - float(idle.sum())) / 1e3,
                "busy_pct": 100 * (1 - float(idle.sum()) / wall) if wall else float("nan"),
                "gaps": len(gaps),
                "gaps_ms": float(gaps.sum()) / 1e3,
                "longest_gap_us": float(idle.max(initial=0.0)),
            }
        )
    columns = ["device", "wall_ms", "busy_ms", "busy_pct", "gaps", "gaps_ms", "longest_gap_us"]
    return pd.DataFrame(rows, columns=columns)
