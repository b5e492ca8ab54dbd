"""The verdict: at each width, which key policy wins and by how much, on a given machine.

Policies are run once on the same draws; what a graph costs only reprices their counts, so a map
over graph cost needs no new simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from verifylab.checks import fraction, whole
from verifylab.counters import SCALARS
from verifylab.dcut import DEFAULT_LADDER, DEFAULT_RATIO, DraftLadder, snap_ratio
from verifylab.experiment import UNPRUNED, Settings, grid, in_words
from verifylab.gate import Gate
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.graph_price import NODES_PER_GRAPH, graph_ms_of, with_graph_ms
from verifylab.machine import MachineProfile
from verifylab.policy import POLICIES, Baked
from verifylab.recommend import Recommendation, log_gains, recommend_arms
from verifylab.stats import interval, with_interval, with_times
from verifylab.workload import Workload, calibrated, spread_nodes

__all__ = [
    "CANDIDATES",
    "NODES_PER_GRAPH",
    "Advice",
    "advise",
    "best_gates",
    "graph_ms_of",
    "policy_map",
    "policy_runs",
    "policy_table",
    "with_graph_ms",
]

#: Compared by default: the two arms, what keeps every own depth, no pruning, then the rest.
CANDIDATES = (
    "arrangement",
    "canonical",
    "indirect",
    UNPRUNED,
    "exec_update",
    "eager",
    "capture_on_second_use",
    "padded",
    "sglang_ragged",
    "vllm_piecewise",
    "trtllm",
)
#: Most paired seeds: every width, policy, spread and seed is kept. A choice.
MAX_SEEDS = 1000
_ARMS = ("arrangement", "canonical", "gated")


def policy_runs(
    workload: Workload,
    widths: Sequence[int],
    machine: MachineProfile,
    settings: Settings,
    *,
    policies: Sequence[str] = CANDIDATES,
    seeds: int = 10,
    spreads: Sequence[float] | None = None,
) -> pd.DataFrame:
    """Run every policy at every width on the same draws (counts, as `experiment.grid`)."""
    arms: list[tuple[str, Gate | None]] = [(name, None) for name in policies]
    return grid(workload, widths, machine, settings, seeds=range(seeds), arms=arms, spreads=spreads)


def policy_table(runs: pd.DataFrame, machine: MachineProfile) -> pd.DataFrame:
    """Return throughput and keys of every policy at every width.

    Returns
    -------
    DataFrame
        ``width, policy, tok_s, low, high, keys, capture_fraction``: tok/s with its 95 % t interval
        over seeds, different keys met, share of steps that captured. Best policy first; equals
        in the order of `runs`.
    """
    timed = with_times(runs[runs.spread == runs.spread.iloc[0]], machine)
    rows = []
    for (width, name), cell in timed.groupby(["width", "policy"], sort=False):
        tok_s, low, high = interval(cell.tok_s.to_numpy())
        total = cell[list(SCALARS)].sum()
        rows.append(
            {"width": width, "policy": name, "tok_s": tok_s, "low": low, "high": high,
             "keys": float(cell.keys_seen.mean()),
             "capture_fraction": float(total.capture_steps / total.steps)}
        )  # fmt: skip
    out = pd.DataFrame(rows)
    return out.sort_values(
        ["width", "tok_s"], ascending=[True, False], kind="stable", ignore_index=True
    )


@dataclass(frozen=True, slots=True)
class Gain:
    """A relative difference in percent with its 95 % interval over everything redrawn."""

    pct: float
    low: float
    high: float

    def __str__(self) -> str:
        return with_interval(self.pct, self.low, self.high)


@dataclass(frozen=True, slots=True)
class Advice:
    """The verdict.

    Attributes
    ----------
    table : DataFrame
        As `policy_table`.
    sentences : tuple of str
        The gate, the best policy against it, D-Cut off against it where that was compared, and
        what it rests on.
    recommendation : Recommendation
        The gate for the two arms, and how sure it is.
    gains : DataFrame
        ``width, policy, against, gain_pct, gain_low, gain_high``: every policy against the better
        of the two arms at each width.
    """

    table: pd.DataFrame
    sentences: tuple[str, ...]
    recommendation: Recommendation
    gains: pd.DataFrame

    @property
    def min_width(self) -> int:
        """The recommended threshold."""
        return self.recommendation.min_width


def policy_gains(
    runs: pd.DataFrame, machine: MachineProfile, base: str, draws: int = 1000
) -> dict[tuple[int, str], Gain]:
    """Return every policy's gain over `base` at every width, everything uncertain redrawn."""
    central, drawn, widths, names = log_gains(runs, machine, by="policy", base=base, draws=draws)
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    return {
        (w, n): Gain(*(100 * float(np.expm1(x[i, j])) for x in (central, low, high)))
        for i, w in enumerate(widths)
        for j, n in enumerate(names)
    }


def advise(
    widths: Sequence[int],
    *,
    ratio: float = DEFAULT_RATIO,
    graph_ms: float | None = None,
    capacity: int = VERIFY_BATCHED_GRAPH_CAP,
    machine: MachineProfile,
    drafts: str | int = str(DEFAULT_LADDER),
    spread: float | None = None,
    policies: Sequence[str] = CANDIDATES,
    seeds: int = 10,
    steps: int = 1500,
) -> Advice:
    """Say which gate and which policy a server of these widths should use.

    Parameters
    ----------
    widths : sequence of int
    ratio : float
        D-Cut's; snaps as `dcut.snap_ratio` does.
    graph_ms : float, optional
        What one capture and eviction costs (`NODES_PER_GRAPH` nodes); default: the machine's own.
    capacity : int
        Graphs that the cache holds.
    machine : MachineProfile
    drafts : str or int
        Ladder or one number.
    spread : float, optional
        Confidence spread, 0 to 1; default: as calibrated, and redrawn.
    policies : sequence of str
        Compared beside the two arms.
    seeds, steps : int
        Paired seeds, 2 to `MAX_SEEDS`, and steps counted for each.

    Raises
    ------
    ValueError
        When a value is out of range or a width comes twice.
    """
    widths = [int(w) for w in widths]
    if not widths or len(set(widths)) != len(widths):
        raise ValueError(f"widths must list each width once and at least one, got {widths}")
    whole("seeds", seeds, 2, MAX_SEEDS)
    priced = machine if graph_ms is None else with_graph_ms(machine, graph_ms)
    names = list(dict.fromkeys(("arrangement", "canonical", *policies)))
    ratio = snap_ratio(ratio)
    ladder = DraftLadder.parse(drafts)
    if spread is None:
        workload = calibrated(ladder=ladder)
        spreads = [workload.confidence_spread, *spread_nodes()]
        of_spread, redraw = "", "seeds, confidence spread and machine"
    else:
        workload = calibrated(
            confidence_spread=fraction("confidence spread", spread), ladder=ladder
        )
        spreads = [workload.confidence_spread]
        of_spread, redraw = f", confidence spread {spread:g}", "seeds and machine"
    settings = Settings(widths[0], steps=steps, warmup_steps=200, capacity=capacity, ratio=ratio)
    runs = policy_runs(
        workload, widths, priced, settings, policies=names, seeds=seeds, spreads=spreads
    )
    table = policy_table(runs, priced)
    over_arrangement = policy_gains(runs, priced, "arrangement")
    over_canonical = policy_gains(runs, priced, "canonical")
    rows: list[dict[str, Any]] = []
    better: dict[int, str] = {}
    for w in widths:
        wins = over_arrangement[w, "canonical"].pct > 0
        better[w] = "canonical" if wins else "arrangement"
        against = over_canonical if wins else over_arrangement
        for name in names:
            if name != better[w]:
                g = against[w, name]
                rows.append(
                    {"width": w, "policy": name, "against": better[w], "gain_pct": g.pct,
                     "gain_low": g.low, "gain_high": g.high}
                )  # fmt: skip
    gains = pd.DataFrame(rows)
    recommendation = recommend_arms(runs[runs.policy.isin(_ARMS)], priced, draws=1000)
    cost = graph_ms_of(priced)
    return Advice(
        table,
        (
            _gate_sentence(widths, recommendation, over_arrangement),
            _policy_sentence(widths, gains, table),
            *_off_sentence(widths, gains),
            f"Modelled on {machine.name} at {cost:.1f} ms a capture and eviction, {capacity} "
            f"graphs, D-Cut ratio {ratio:g}, drafts {ladder.in_words()}{of_spread}, {seeds} paired "
            f"seeds of {steps} steps; intervals redraw {redraw}.",
        ),
        recommendation,
        gains,
    )


def _best_gate(log_gain: Mapping[int, float]) -> tuple[int, float]:
    """Threshold among the widths (and above them) with the most log gain, and that sum."""
    candidates = [*sorted(log_gain), max(log_gain) + 1]
    worth = {m: sum(gain for w, gain in log_gain.items() if w >= m) for m in candidates}
    # max() takes the first of equals: go from never down, so that nothing is switched for nothing
    best = max(reversed(candidates), key=lambda m: worth[m])
    return best, worth[best]


def _gate_sentence(
    widths: Sequence[int], found: Recommendation, gain: dict[tuple[int, str], Gain]
) -> str:
    shown = ", ".join(f"{gain[w, 'canonical']} at {w}" for w in sorted(widths))
    return f"{found.sentence()} By width, canonical against arrangement: {shown}."


def _policy_sentence(widths: Sequence[int], gains: pd.DataFrame, table: pd.DataFrame) -> str:
    best = ", ".join(
        f"{in_words(row.policy)} at {row.width} ({row.tok_s:.1f} tok/s)"
        for row in table.drop_duplicates("width").itertuples()
    )
    best = f"Best of all compared: {best}."
    if "indirect" not in set(table.policy):
        return best
    return (
        "Reading slots from a device table instead (indirect: every sequence keeps its depth, the "
        "key holds the depth runs alone) gains over the better arm "
        f"{_over_better(widths, gains, 'indirect')}. {best}"
    )


def _off_sentence(widths: Sequence[int], gains: pd.DataFrame) -> list[str]:
    if UNPRUNED not in set(gains.policy):
        return []
    return [
        "D-Cut off instead (unpruned: every draft verified, no new kernels) "
        f"gains over the better arm {_over_better(widths, gains, UNPRUNED)}."
    ]


def _over_better(widths: Sequence[int], gains: pd.DataFrame, name: str) -> str:
    rows = gains[gains.policy == name].set_index("width").loc[sorted(widths)]
    return ", ".join(
        f"{with_interval(row.gain_pct, row.gain_low, row.gain_high)} at {row.Index}"
        for row in rows.itertuples()
    )


def best_gates(
    workload: Workload,
    widths: Sequence[int],
    machine: MachineProfile,
    settings: Settings,
    *,
    seeds: int = 10,
) -> pd.DataFrame:
    """Return the best gate in front of each policy whose key holds the pairs.

    Returns
    -------
    DataFrame
        ``policy, best_gate, gain_pct``, and ``gain_<width>``: what the canonical assignment gains
        there at each width, percent. `best_gate` is the threshold among the widths with the most
        mean gain (above the widest: never); `gain_pct` that mean.
    """
    names = [n for n, r in POLICIES.items() if r.baked is Baked.PAIRS and n not in _ARMS]
    arms: list[tuple[str, Gate | None]] = [("arrangement", None), ("canonical", None)]
    arms += [(name, gate) for name in names for gate in (None, Gate(0))]
    runs = with_times(
        grid(workload, widths, machine, settings, seeds=range(seeds), arms=arms), machine
    )
    total = runs.groupby(["policy", "min_width", "width"])[["tokens", "total_ms"]].sum()
    rate = (total.tokens / total.total_ms).unstack("width")
    rows = []
    for name in ("arrangement", *names):
        off = rate.loc[(name, -1)]
        on = rate.loc[("canonical", -1)] if name == "arrangement" else rate.loc[(name, 0)]
        gain = np.log(on / off)
        best, worth = _best_gate({w: float(gain[w]) for w in widths})
        rows.append(
            {"policy": name, "best_gate": best,
             "gain_pct": 100 * float(np.expm1(worth / len(widths)))}
            | {f"gain_{w}": 100 * float(np.expm1(gain[w])) for w in widths}
        )  # fmt: skip
    return pd.DataFrame(rows)


def policy_map(
    runs: pd.DataFrame, machine: MachineProfile, graph_ms: Sequence[float]
) -> pd.DataFrame:
    """Return which policy wins at each width and graph cost, and by how much.

    Returns
    -------
    DataFrame
        ``width, graph_ms, policy, gain_pct, second, lead_pct``: the winner, its gain over
        arrangement, the runner-up, and the winner's lead over it, percent. Among equals the one
        that `runs` holds first.
    """
    middle = runs[runs.spread == runs.spread.iloc[0]]
    known = list(dict.fromkeys(middle.policy))
    rows = []
    for cost in graph_ms:
        timed = with_times(middle, with_graph_ms(machine, cost))
        total = timed.groupby(["width", "policy"])[["tokens", "total_ms"]].sum()
        rate = (total.tokens / total.total_ms * 1e3).unstack()
        for width, at in rate.iterrows():
            order = at[known].sort_values(ascending=False, kind="stable")
            rows.append(
                {"width": int(width), "graph_ms": float(cost), "policy": order.index[0],
                 "gain_pct": 100 * (order.iloc[0] / at["arrangement"] - 1),
                 "second": order.index[1],
                 "lead_pct": 100 * (order.iloc[0] / order.iloc[1] - 1)}
            )  # fmt: skip
    return pd.DataFrame(rows)
