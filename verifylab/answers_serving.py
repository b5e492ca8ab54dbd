"""From vLLM's log and from bench files: padding, modes, sizes, throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifylab.trace_file import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["capture_sizes", "modes", "padding", "throughput"]


def padding(trace: Trace) -> pd.DataFrame:
    """Sum up padding by graph size: ``runtime_mode, padded, steps, tokens, padding, waste_pct``.

    `waste_pct` is padding of all rows run; eager steps pad nothing.
    """
    graphs = trace.table("graphs")
    known = graphs.dropna(subset=["unpadded", "padded"])
    kinds = known.groupby(["runtime_mode", "padded", "unpadded", "paddings"])["count"].sum()
    table = kinds.rename("steps").reset_index().astype(object)  # products in Python's integers
    table["tokens"], table["padding"] = table.unpadded * table.steps, table.paddings * table.steps
    out = table.groupby(["runtime_mode", "padded"])[["steps", "tokens", "padding"]].sum()
    out = out.reset_index().astype({"steps": int, "padded": int})
    for name in ("tokens", "padding"):
        fits = max(out[name], default=0) < 2**63
        out[name] = out[name].astype(int if fits else float)
    rows = out.tokens.astype(float) + out.padding.astype(float)
    out["waste_pct"] = 100 * out.padding.astype(float) / rows.where(rows > 0)
    return out


def modes(trace: Trace) -> pd.DataFrame:
    """Share of steps by runtime mode: ``runtime_mode, steps, steps_pct`` (NONE ran eager)."""
    steps = trace.table("graphs").groupby("runtime_mode")["count"].sum().astype(int)
    out = steps.rename("steps").reset_index()
    out["steps_pct"] = 100 * out.steps / max(int(out.steps.sum()), 1)
    return out


def capture_sizes(trace: Trace) -> pd.DataFrame:
    """Sizes captured at start-up against those used: ``engine, size, steps, never_used``."""
    import pandas as pd

    settings, graphs = trace.table("settings"), trace.table("graphs")
    graphs = graphs[graphs.runtime_mode != "NONE"]
    rows = []
    for engine, mine in settings.groupby("engine"):
        sizes = sorted({s for sizes in mine.capture_sizes for s in sizes})
        used = graphs[graphs.engine == engine].groupby("padded")["count"].sum()
        for size in sizes:
            steps = int(used.get(size, 0))
            rows.append({"engine": engine, "size": size, "steps": steps, "never_used": not steps})
    table = pd.DataFrame(rows, columns=["engine", "size", "steps", "never_used"])
    return table.astype({"size": int, "steps": int, "never_used": bool})


def throughput(trace: Trace) -> pd.DataFrame:
    """tok/s by concurrency, prefill included, with the spread over reps where there are any.

    Returns
    -------
    DataFrame
        ``concurrency, reps, tok_s_mean, tok_s_min, tok_s_max, tok_s_spread_pct, short_tokens``.
    """
    rungs = trace.table("rungs")
    if trace.format == "vllm_bench_serve":
        rungs = rungs.assign(
            reps=1, tok_s_min=rungs.tok_s_mean, tok_s_max=rungs.tok_s_mean,
            tok_s_spread_pct=float("nan"), short_tokens=float("nan"),
        )  # fmt: skip
    columns = ["concurrency", "reps", "tok_s_mean", "tok_s_min", "tok_s_max", "tok_s_spread_pct",
               "short_tokens"]  # fmt: skip
    return rungs[columns].sort_values("concurrency", ignore_index=True)
