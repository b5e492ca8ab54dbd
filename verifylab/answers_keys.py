"""From an engine log or a step trace: keys per width, reuse, capture fraction, evictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from verifylab.trace_file import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["capture_windows", "keys_per_width", "reuse"]


def keys_per_width(trace: Trace) -> pd.DataFrame:
    """Keys by width.

    Returns
    -------
    DataFrame
        ``n, uses, keys, multisets, logged_canonical, keys_if_canonical``: from an engine log `uses`
        are captures and `keys` those captured; from a step trace every dispatch with a key, `n` its
        sequences. Of the keys, `logged_canonical` have canonical form as they were logged, and
        `keys_if_canonical` would be left if the depths of each were dealt out canonically.
    """
    import pandas as pd

    keys, stream = _key_stream(trace)
    uses = pd.Series(stream).value_counts()
    table = keys.assign(uses=keys.key_id.map(uses).fillna(0).astype(int))
    table["multiset"] = [tuple(sorted(d, reverse=True)) for d in table.depths]
    table["dealt"] = [(*sorted(s), *d) for s, d in zip(table.slots, table.multiset, strict=True)]
    return (
        table.groupby("n")
        .agg(
            uses=("uses", "sum"),
            keys=("key_id", "nunique"),
            multisets=("multiset", "nunique"),
            logged_canonical=("canonical", "sum"),
            keys_if_canonical=("dealt", "nunique"),
        )
        .reset_index()
    )


def _key_stream(trace: Trace) -> tuple[pd.DataFrame, np.ndarray]:
    """Table of keys, and the key id of each capture (log) or step (step trace)."""
    if trace.format == "step_trace":
        from verifylab.replay import logged_keys

        return logged_keys(trace)
    captures = trace.table("captures")
    return trace.table("keys"), captures.key_id.to_numpy()[captures.key_id.to_numpy() >= 0]


def reuse(trace: Trace) -> pd.DataFrame:
    """Reuse distances: how many other keys came between two uses of a key.

    Returns
    -------
    DataFrame
        A row for every second and later use: ``key_id, distance, at_least``. From a step trace
        `distance` is exact, and `at_least` equal to it. From an engine log it is the number of
        other keys *captured* in between, and `at_least` what the true distance cannot be less
        than: captured again, so evicted, so as many others were used as the cache holds
        (1 where the log does not say how many).
    """
    import pandas as pd

    from verifylab.miss_curves import reuse_distances

    _, stream = _key_stream(trace)
    distance = reuse_distances(stream)
    again = distance >= 0
    out = pd.DataFrame({"key_id": stream[again], "distance": distance[again]})
    out["at_least"] = out.distance
    if trace.format != "step_trace":
        known = trace.tables.get("windows")
        sizes = [] if known is None else known.capacity.dropna().tolist()
        out["at_least"] = min(sizes, default=1)
    return out


def capture_windows(trace: Trace) -> pd.DataFrame:
    """Capture fraction, live keys and inferred evictions of each window of steps.

    Returns
    -------
    DataFrame
        The log's ``windows`` with ``counted`` (whether steps and captures are both known),
        ``capture_fraction``, ``captures_high`` (what the known counts leave), ``evictions_low``
        and ``evictions_high``: captures less the growth in live keys. These two differ where it is
        not known how many keys were live before, or how many were captured. NaN: no upper end.
    """
    windows = trace.table("windows").copy()
    capture, steps = windows.capture.astype(float), windows.steps.astype(float)
    others = windows[["replay", "borrow", "eager"]].astype(float).sum(axis=1)
    windows["counted"] = capture.notna() & steps.notna()
    windows["capture_fraction"] = capture / steps.where(steps > 0)
    windows["captures_high"] = capture.fillna((steps - others).clip(lower=0))
    live, capacity = windows.live_keys.astype(float), windows.capacity.astype(float).max()
    before = live.groupby([windows.engine, windows.segment], observed=True).shift()
    growth_low = live.fillna(0) - before.fillna(capacity)
    growth_high = live.fillna(capacity) - before.fillna(0)
    most = (windows.captures_high - growth_low).fillna(windows.captures_high)
    windows["evictions_low"] = (capture.fillna(0) - growth_high).fillna(0).clip(lower=0)
    windows["evictions_high"] = most.clip(lower=0, upper=windows.captures_high)
    return windows
