"""What the design review says in words: the verdict, what it rests on, the words it uses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from verifylab.dcut import DCUT_WIDTH_CAP
from verifylab.run_files import text
from verifylab.stored_runs import StoredRun

__all__ = ["WORDS", "kernels_kept", "verdict"]

WORDS = (
    "Arrangement: every sequence verifies the depth it earned, deepest first; a graph is kept for "
    "each order of slots. Canonical: depths are dealt out deepest first along ascending slots. "
    "Indirect: own depths, slots read from a table on the device. Redraw: what is uncertain "
    "drawn anew, and the answer computed again."
)
_GENERAL = (
    "The model's form is not redrawn, and a server that drains instead of refilling may want "
    "another gate: see the README, how sure and limits."
)


def verdict(
    used: Mapping[str, tuple[StoredRun, dict[str, pd.DataFrame]]], runs: Sequence[StoredRun]
) -> tuple[str, ...]:
    """Return the sentences above the figures.

    Parameters
    ----------
    used : mapping of str to (StoredRun, dict of DataFrame)
        By sweep: the run that figures were drawn from, and its last figure's tables.
    runs : sequence of StoredRun
        All good runs: one that drains says what a drain wants.
    """
    said: list[str] = []
    if "width_gate" in used:
        run, tables = used["width_gate"]
        said += [*_summary(run)[:1], *_by_width(tables), _drain(run, runs)]
    if "why_it_costs" in used:
        run, tables = used["why_it_costs"]
        # Its first line is the gate at fewer widths; the width-gate study owns that.
        said += [*_summary(run)[1:2], kernels_kept(tables["map"])]
    if "cache_policies" in used:
        said += _summary(used["cache_policies"][0])[:1]
    said += [_basis(used), WORDS]
    return tuple(filter(None, said))


def kernels_kept(table: pd.DataFrame) -> str:
    """Return what the policy map's winners need, and the best policies that keep the kernels.

    Parameters
    ----------
    table : DataFrame
        The stored map: ``width, graph_ms, policy, gain_pct, map``; "" without its part
        ``kernels kept``.
    """
    if "map" not in table or "kernels kept" not in set(table["map"]):
        return ""
    kept = table[(table["map"] == "kernels kept") & (table.width <= DCUT_WIDTH_CAP)]
    level = _level(table)
    kept = kept[kept.graph_ms == level].sort_values("width")
    gains = [
        f"{row.policy} {row.gain_pct:+z.1f} % at {row.width}"
        for row in kept.itertuples()
        if row.gain_pct >= 0.05
    ]
    best = ", ".join([*gains, "else arrangement"])
    return (
        "Indirect, sglang_ragged and trtllm need new kernels (slots read from a table); with the "
        f"kernels kept, at {level:g} ms a graph, the best against arrangement: {best}."
    )


def _level(table: pd.DataFrame) -> float:
    """Graph cost on the map that is nearest to the machine's own, at which ratios are compared."""
    levels = sorted(set(table[table["map"] == "kernels kept"].graph_ms))
    own = table[table["map"] == "ratio"].graph_ms
    return min(levels, key=lambda v: abs(v - own.iloc[0])) if len(own) else levels[-1]


def _by_width(tables: dict[str, pd.DataFrame]) -> list[str]:
    """Both ways to have few keys, against arrangement, at every width that D-Cut prunes."""
    rate = tables["arms"].pivot_table(index="width", columns="policy", values="tok_s")
    rate = rate[rate.index <= DCUT_WIDTH_CAP]
    canonical = 100 * (rate.canonical / rate.arrangement - 1)
    said = [f"Canonical against arrangement, tok/s: {_listed(canonical)}."]
    if "unpruned" in rate:
        off = 100 * (rate.unpruned / rate.arrangement - 1)
        better = [str(w) for w in rate.index if rate.unpruned[w] > rate.canonical[w]]
        said.append(
            f"D-Cut off (every draft verified) against arrangement: {_listed(off)}; it "
            + (f"beats canonical at {', '.join(better)}." if better else "never beats canonical.")
        )
    return said


def _listed(percent: pd.Series) -> str:
    return ", ".join(f"{value:+z.1f} % at {width}" for width, value in percent.items())


def _drain(run: StoredRun, runs: Sequence[StoredRun]) -> str:
    drains = [r for r in runs if r.parameters.get("mode") == "drain" and _summary(r)]
    if run.parameters.get("mode") == "drain":
        return f"{run.label} drains: finished requests are not replaced. {_GENERAL}"
    if not drains:
        return _GENERAL
    last = max(drains, key=lambda r: (r.ended, r.label))
    return f"As a drain ({last.label}): {_summary(last)[0]} The model's form is not redrawn."


def _basis(used: Mapping[str, tuple[StoredRun, dict[str, pd.DataFrame]]]) -> str:
    run, tables = used.get("width_gate") or next(iter(used.values()))
    first = next(iter(tables.values())).iloc[0]
    time, machine = first.get("time", "modelled"), run.parameters.get("machine", "unknown machine")
    words = f"All times are modelled on {machine}, no step ran on a GPU"
    if time == "measured":
        words = (
            f"Times of the width gate are measured on {first.get('machine', machine)}, "
            f"the other figures modelled on {machine}"
        )
    parts = [
        words,
        run.setting(),
        f"{run.parameters['graph_capacity']} graphs" if "graph_capacity" in run.parameters else "",
    ]
    if "why_it_costs" in used:
        own = used["why_it_costs"][1]["map"]
        own = own[own["map"] == "ratio"].graph_ms if "map" in own else own.graph_ms[:0]
        parts.append(f"{own.iloc[0]:.1f} ms a capture and eviction" if len(own) else "")
    return "; ".join(filter(None, parts)) + "."


def _summary(run: StoredRun) -> list[str]:
    said = text(run.folder, "summary.txt").splitlines()
    lines = (re.sub(r"-(0\.0+)(?!\d)", r"+\1", line.strip()) for line in said)
    return [line for line in lines if line]
