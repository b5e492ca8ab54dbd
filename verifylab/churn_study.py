"""An hour of churn: slot sets, keys, and how often a depth run finds consecutive slots."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from verifylab.churn import ORDERS, Churn, ChurnRun, churn
from verifylab.counters import Counters, times
from verifylab.dcut import DEFAULT_RATIO
from verifylab.machine import MachineProfile
from verifylab.miss_curves import miss_ratio_curve
from verifylab.workload import Workload

__all__ = ["POOLS", "ROUNDS", "ChurnStudy", "churn_study"]

#: Slot pools compared, by the name that figures show.
POOLS: dict[str, dict[str, Any]] = {
    "LIFO, compaction": {"pool": "lifo", "compaction": True},
    "lowest first, compaction": {"pool": "lowest", "compaction": True},
    "LIFO, no compaction": {"pool": "lifo", "compaction": False},
    "lowest first, no compaction": {"pool": "lowest", "compaction": False},
}
#: Two rounds of 16 requests: what could lie behind the published count, which is of both rounds.
ROUNDS: dict[str, dict[str, Any]] = {
    "one prompt, prefills together": {"same_text": True},
    "one prompt, prefills in turn, no compaction": {
        "same_text": True, "serial_prefill": True, "compaction": False,
    },
    "one prompt, prefills in turn": {"same_text": True, "serial_prefill": True},
    "16 prompts, equal lengths": {},
    "16 prompts, lengths vary": {"lengths": "geometric"},
}  # fmt: skip
#: Largest cache of the churn curves, in graphs.
LARGEST = 4096


@dataclass(frozen=True, slots=True)
class ChurnStudy:
    """What churn does; times are modelled, counts are counted.

    Attributes
    ----------
    pools : DataFrame
        One row a pool, over the second half of the time: mean width, share of steps with the batch
        on consecutive slots, share of depth runs on the fast path and launches in a layer for each
        dispatch order; over all of it: slot sets, keys of both arms, hours.
    curves : DataFrame
        One row a pool, arm and capacity: ``miss_ratio`` of LRU over the second half.
    rounds : DataFrame
        One row a scenario and round: ``pair_steps`` and ``declined`` of them in arrival and in
        slot order.
    """

    pools: pd.DataFrame
    curves: pd.DataFrame
    rounds: pd.DataFrame


def churn_study(
    workload: Workload,
    machine: MachineProfile,
    *,
    slots: int = 8,
    load: float = 0.8,
    prefill_steps: int = 4,
    hours: float = 1.0,
    ratio: float = DEFAULT_RATIO,
    seed: int = 0,
) -> ChurnStudy:
    """Run every pool through the same arrivals, and the two rounds.

    Parameters
    ----------
    workload : Workload
        `output_tokens` is the mean length; lengths are geometric.
    machine : MachineProfile
        Says how many steps an hour has: those of the LIFO pool, captures left out.
    slots, prefill_steps, ratio, seed
        As `verifylab.churn.Churn`.
    load : float
        Sequences held on average, prefill included, as a share of the slots; below 1.
    hours : float
    """
    base: dict[str, Any] = {
        "slots": slots, "mean_tokens": workload.output_tokens, "prefill_steps": prefill_steps,
        "ratio": ratio, "seed": seed, "mode": "open", "windows": 12,
    }  # fmt: skip
    pilot = churn(workload, Churn(**base | {"mode": "closed", "clients": slots, "steps": 2000}))
    total = pilot.totals()
    held_steps = workload.output_tokens * total.sequences / total.tokens + prefill_steps
    base["arrivals_per_step"] = float(load * slots / held_steps)
    pilot = churn(workload, Churn(**base, steps=4000))
    steps = max(12, round(hours * 3.6e6 / _step_ms(pilot, machine)))
    rows, curves = [], []
    for name, pool in POOLS.items():
        run = churn(workload, Churn(**base, **pool, steps=steps))
        rows.append({"pool": name, **_summary(run, machine)})
        for arm, ids, launches in (
            ("arrangement", run.arrangement_ids, run.arrangement_launches),
            ("canonical", run.canonical_ids, run.canonical_launches),
        ):
            nodes = machine.gdn_layers * launches + machine.other_nodes
            curve = miss_ratio_curve(ids, nodes, skip=len(ids) // 2)
            capacities = np.arange(1, LARGEST + 1)
            at = np.minimum(capacities, len(curve.hits)) - 1
            curves.append(
                pd.DataFrame(
                    {
                        "pool": name, "policy": arm, "capacity": capacities,
                        "keys": len(launches), "miss_ratio": curve.miss_ratio[at],
                    }
                )
            )  # fmt: skip
    stamp = {
        "time": "counted, hour modelled", "machine": machine.name,
        "date": dt.date.today().isoformat(), "seeds": 1,
    }  # fmt: skip
    return ChurnStudy(
        pd.DataFrame(rows).assign(**stamp),
        pd.concat(curves, ignore_index=True).assign(**stamp),
        _two_rounds(workload, prefill_steps, seed).assign(
            **stamp | {"time": "counted", "machine": "no machine"}
        ),
    )


def _step_ms(run: ChurnRun, machine: MachineProfile) -> float:
    """Milliseconds of a step of the arrangement arm, captures left out."""
    total = run.totals()
    nodes = machine.gdn_layers * total.depth_launches + machine.other_nodes * total.steps
    counts = Counters(
        dispatches=total.steps, rows=total.rows, sequences=total.sequences, hits=total.steps,
        graph_launches=total.steps, nodes_launched=nodes,
    )  # fmt: skip
    spent = times(counts, machine)
    # A step without a batch waits for a request; give it the time of a step.
    return float(spent.total_ms / total.steps)


def _summary(run: ChurnRun, machine: MachineProfile) -> dict[str, Any]:
    half = run.totals(len(run.windows) // 2)
    out: dict[str, Any] = {
        "hours": run.config.steps * _step_ms(run, machine) / 3.6e6,
        "mean_width": half.sequences / half.steps,
        "contiguous": half.contiguous_steps / half.pair_steps,
        "slot_sets": int(run.slot_set_ids.max()) + 1,
        "canonical_keys": len(run.canonical_launches),
        "arrangement_keys": len(run.arrangement_launches),
        "moves_per_request": half.moves / max(half.finished, 1),
    }
    for order in ORDERS:
        out[f"{order}_fast"] = half[f"{order}_fast_runs"] / half[f"{order}_runs"]
        out[f"{order}_launches"] = half[f"{order}_launches"] / half.steps
    return out


def _two_rounds(workload: Workload, prefill_steps: int, seed: int) -> pd.DataFrame:
    rows = []
    for name, changes in ROUNDS.items():
        base: dict[str, Any] = {
            "slots": 16, "clients": 16, "mode": "rounds", "windows": 2, "lengths": "fixed",
            "mean_tokens": workload.output_tokens, "steps": 20_000, "seed": seed,
            "prefill_steps": prefill_steps,
        }  # fmt: skip
        config = Churn(**base | changes)
        for window in churn(workload, config).windows.itertuples():
            rows.append(
                {
                    "scenario": name,
                    "round": window.window + 1,
                    "pair_steps": window.pair_steps,
                    "arrival_declined": window.arrival_declined_steps,
                    "slot_declined": window.slot_declined_steps,
                }
            )
    return pd.DataFrame(rows)
