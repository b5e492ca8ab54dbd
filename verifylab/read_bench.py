"""Read benchmark results: concurrency ladders, and ``vllm bench serve``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from verifylab.json_stream import load_text, salvage
from verifylab.trace_file import Limits, Notes, Trace, TraceError, blocks, plain

__all__ = ["FORMAT_LADDER", "FORMAT_SERVE", "read_bench"]

FORMAT_LADDER = "bench_ladder"
FORMAT_SERVE = "vllm_bench_serve"
#: Largest file that is parsed whole; real ones have some kilobytes.
MAX_BYTES = 1 << 28
#: Relative difference between a stated number and the one computed that is let pass.
_SAME = 1e-3

#: No server writes more tokens in a second: where a file makes it more, a time in it is wrong.
MAX_TOK_S = 1e9
_NAN = float("nan")

_REP = ("wall_s", "completion_tokens", "tok_s", "n_ok", "n_err", "ttft_p50_ms", "tpot_p50_ms",
        "e2e_p50_s")  # fmt: skip
_SERVE = (
    "max_concurrency", "num_prompts", "completed", "duration", "total_output_tokens",
    "output_throughput", "mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "mean_tpot_ms",
    "median_tpot_ms", "p99_tpot_ms", "mean_itl_ms", "median_itl_ms", "p99_itl_ms",
)  # fmt: skip
#: By which a result of ``vllm bench serve`` is known.
SERVE_KEYS = frozenset(("output_throughput", "total_output_tokens"))


def read_bench(path: str | Path, *, limits: Limits | None = None) -> Trace:
    """Read a ladder's JSON, or results of ``vllm bench serve`` (one, a list, or JSON Lines).

    Returns
    -------
    Trace
        Format ``bench_ladder``:

        - ``reps``: ``concurrency, rep, wall_s, completion_tokens, tok_s, n_ok, n_err,
          ttft_p50_ms, tpot_p50_ms, e2e_p50_s, asked_tokens`` (``osl`` for each request)
        - ``rungs``: ``concurrency, reps, tok_s_mean, tok_s_median, tok_s_min, tok_s_max,
          tok_s_spread_pct`` (largest less smallest, of the mean; NaN: one rep),
          ``completion_tokens, asked_tokens, short_tokens, errors``; all computed from the reps

        Format ``vllm_bench_serve``: ``rungs`` with a row a result: ``concurrency, tok_s_mean``
        (output tokens over the duration) and the file's own figures; `concurrency` is NaN where
        none was set.

        `tok_s` includes prefill. A rung with fewer tokens than were asked for has a warning.

    Raises
    ------
    TraceError
        When the file is neither.
    """
    path = Path(path)
    notes = Notes()
    data = bytearray()
    for block in blocks(path, notes, limits=limits):
        data += block
        if len(data) > MAX_BYTES:
            raise TraceError(f"{path.name} is over {MAX_BYTES:,} bytes: no bench result is")
    body = _parse(path.name, data.decode("utf-8-sig", "replace"), notes)
    results = body if isinstance(body, list) else [body]
    if len(results) == 1 and isinstance(results[0], dict) and "rungs" in results[0]:
        return _ladder(path.name, results[0], notes)
    served = [r for r in results if isinstance(r, dict) and r.keys() >= SERVE_KEYS]
    if not served:
        raise TraceError(f"{path.name} is JSON, but neither a ladder nor of vllm bench serve")
    if left := len(results) - len(served):
        notes.add("other", f"{left:,} entries are no result of vllm bench serve, left out")
    return _served(path.name, served, notes)


def _parse(name: str, text: str, notes: Notes) -> Any:
    if not text.strip():
        raise TraceError(f"{name} is empty")
    try:
        return load_text(text)
    except ValueError as error:
        reason = error
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].rstrip().endswith("}"):
        found = []
        for number, line in enumerate(lines, 1):
            try:
                found.append(load_text(line))
            except ValueError as error:
                notes.add("line", f"line {number:,}: {error}, left out")
        if found:
            return found
    try:
        body = salvage(text)
    except ValueError:
        raise TraceError(f"{name}: {reason}") from None
    notes.add("cut", f"{reason}: cut off or damaged, what is complete before it is kept")
    return body


def _number(value: Any) -> float:
    """Return a number, given as one or as text; NaN: none, or none that can be."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = float(value)
        except ValueError:
            return _NAN
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return _NAN
    return float(value) if abs(value) < 2**63 and isfinite(value) else _NAN


def _concurrency(value: Any) -> float:
    """Return requests at once, a whole number of 1 or more; else NaN."""
    number = _number(value)
    return number if number >= 1 and number == int(number) else _NAN


def _rate(tokens: float, seconds: float) -> float:
    """Return tokens over seconds; NaN where that is no speed."""
    rate = tokens / seconds if seconds > 0 else _NAN
    return rate if 0 <= rate <= MAX_TOK_S else _NAN


def _differs(a: float, b: float) -> bool:
    return a == a and b == b and abs(a - b) > _SAME * max(abs(a), abs(b))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _ladder(name: str, body: Mapping[str, Any], notes: Notes) -> Trace:
    import pandas as pd

    osl = _number(body.get("osl"))
    reps: list[dict[str, Any]] = []
    rungs: list[dict[str, Any]] = []
    for index, rung in enumerate(map(_mapping, _list(body["rungs"]))):
        concurrency = _concurrency(rung.get("concurrency"))
        if concurrency != concurrency:
            notes.add(
                "rung", f"rung {index}: concurrency {rung.get('concurrency')!r:.40}, left out"
            )
            continue
        mine = []
        for number, rep in enumerate(map(_mapping, _list(rung.get("reps")))):
            row = {key: _number(rep.get(key)) for key in _REP}
            where = f"C={concurrency:.0f}, rep {number}"
            computed = _rate(row["completion_tokens"], row["wall_s"])
            if _differs(computed, row["tok_s"]):
                notes.add(
                    "tok_s", f"{where}: tok_s says {row['tok_s']:.2f}, tokens over wall time make "
                    f"{computed:.2f}; the latter is used",
                )  # fmt: skip
            if computed == computed:
                row["tok_s"] = computed
            elif row["wall_s"] == row["wall_s"] and row["completion_tokens"] >= 0:
                notes.add("wall", f"{where}: wall_s {row['wall_s']:g} makes no speed, not used")
            if not 0 <= row["tok_s"] <= MAX_TOK_S:
                notes.add("rep", f"{where}: neither tok_s nor tokens and wall time, left out")
                continue
            mine.append(
                {"concurrency": int(concurrency), "rep": number, **row,
                 "asked_tokens": osl * concurrency}
            )  # fmt: skip
        reps += mine
        if mine:
            rungs.append(_rung(int(concurrency), mine, rung, notes))
        else:
            notes.add("rung", f"C={concurrency:.0f}: no readable rep, left out")
    if not rungs:
        raise TraceError(f"{name} is a ladder with 0 readable rungs")
    about = {
        k: plain(body[k], 80) for k in ("label", "model", "isl", "osl", "started_utc") if k in body
    }
    counts = {"rungs": len(rungs), "reps": len(reps)}
    tables = {"rungs": pd.DataFrame(rungs), "reps": pd.DataFrame(reps)}
    return Trace(FORMAT_LADDER, name, tables, counts, 0, len(reps), notes.texts(), about)


def _rung(
    concurrency: int, reps: list[dict[str, Any]], said: Mapping[str, Any], notes: Notes
) -> dict[str, Any]:
    series = [r["tok_s"] for r in reps]
    mean = statistics.fmean(series)
    tokens = sum(r["completion_tokens"] for r in reps)
    asked = sum(r["asked_tokens"] for r in reps)
    errors = sum(r["n_err"] for r in reps if r["n_err"] == r["n_err"])
    short = [r for r in reps if r["completion_tokens"] < r["asked_tokens"]]
    if short:
        notes.add(
            "short", f"C={concurrency}: {asked - tokens:,.0f} of {asked:,.0f} tokens asked for did "
            f"not come, in {len(short)} of {len(reps)} reps, with {errors:.0f} errors reported",
        )  # fmt: skip
    if _differs(mean, stated := _number(said.get("tok_s_mean"))):
        notes.add(
            "mean", f"C={concurrency}: tok_s_mean says {stated:.2f}, its reps make "
            f"{mean:.2f}; the latter is used",
        )  # fmt: skip
    return {
        "concurrency": concurrency,
        "reps": len(reps),
        "tok_s_mean": mean,
        "tok_s_median": statistics.median(series),
        "tok_s_min": min(series),
        "tok_s_max": max(series),
        "tok_s_spread_pct": (
            100 * (max(series) - min(series)) / mean if mean and len(series) > 1 else _NAN
        ),
        "completion_tokens": tokens,
        "asked_tokens": asked,
        "short_tokens": max(asked - tokens, 0.0),
        "errors": int(errors),
    }


def _served(name: str, results: Sequence[Mapping[str, Any]], notes: Notes) -> Trace:
    import pandas as pd

    rows = []
    for index, result in enumerate(results):
        row = {key: _number(result.get(key)) for key in _SERVE}
        row["max_concurrency"] = _concurrency(said := result.get("max_concurrency"))
        if said is not None and row["max_concurrency"] != row["max_concurrency"]:
            notes.add("concurrency", f"result {index}: max_concurrency {said!r:.40} is none")
        computed = _rate(row["total_output_tokens"], row["duration"])
        if _differs(computed, row["output_throughput"]):
            notes.add(
                "tok_s", f"result {index}: output_throughput says {row['output_throughput']:.2f}, "
                f"tokens over duration make {computed:.2f}; the latter is used",
            )  # fmt: skip
        if row["completed"] < row["num_prompts"]:
            notes.add(
                "short", f"result {index}: {row['completed']:.0f} of {row['num_prompts']:.0f} "
                "prompts completed",
            )  # fmt: skip
        tok_s = computed if computed == computed else row["output_throughput"]
        if not 0 <= tok_s <= MAX_TOK_S:
            what = "neither output_throughput nor output tokens and duration, left out"
            notes.add("result", f"result {index}: {what}")
            continue
        rows.append({"concurrency": row["max_concurrency"], "tok_s_mean": tok_s, **row})
    if not rows:
        raise TraceError(f"{name} has 0 readable results of vllm bench serve")
    first = results[0]
    about = {k: plain(first[k], 80) for k in ("model_id", "backend", "request_rate") if k in first}
    tables = {"rungs": pd.DataFrame(rows)}
    return Trace(
        FORMAT_SERVE, name, tables, {"rungs": len(rows)}, 0, len(rows), notes.texts(), about
    )
