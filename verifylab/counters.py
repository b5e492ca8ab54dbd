"""What a run counts. Times follow from these integers and a machine profile, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from verifylab.machine import MachineProfile
from verifylab.workload import MAX_DRAFTS

__all__ = ["SCALARS", "Counters", "StepTimes", "times"]


@dataclass(slots=True)
class Counters:
    """Integer counts over the counted steps of a run.

    A *dispatch* is one chunk of a step: one key, one graph launch (or one eager body). A step of
    up to `MAX_VERIFY_WIDTH` sequences within the row budget is one dispatch.
    """

    steps: int = 0
    #: Steps in which at least one dispatch captured.
    capture_steps: int = 0
    dispatches: int = 0
    tokens: int = 0
    sequences: int = 0
    rows: int = 0
    hits: int = 0
    captures: int = 0
    evictions: int = 0
    eager: int = 0
    #: Cached executables updated in place to another key, and wider graphs replayed for a key.
    updates: int = 0
    borrowed: int = 0
    #: Graph launches: one a replayed dispatch, or one a piece.
    graph_launches: int = 0
    #: Rows computed beyond those verified (`rows` counts them too).
    filler_rows: int = 0
    #: Sequences of a borrowed graph that nobody is behind; each costs what a sequence costs.
    ghosts: int = 0
    #: Launches in one GDN layer, over all dispatches.
    layer_launches: int = 0
    #: Nodes of every launched, captured, evicted graph, of every eager body, of every update.
    nodes_launched: int = 0
    nodes_captured: int = 0
    nodes_evicted: int = 0
    nodes_eager: int = 0
    nodes_updated: int = 0
    #: Different keys met, warm-up included (a lower bound when `keys_overflow`).
    keys_seen: int = 0
    keys_overflow: int = 0
    #: Compaction moves between slots.
    moves: int = 0
    finished_requests: int = 0
    #: By depth: drafts verified whose predecessors were all accepted, and those accepted.
    reached: np.ndarray = field(default_factory=lambda: np.zeros(MAX_DRAFTS, np.int64))
    accepted: np.ndarray = field(default_factory=lambda: np.zeros(MAX_DRAFTS, np.int64))

    @property
    def tokens_per_sequence_step(self) -> float:
        """Tokens that a sequence emits in a step."""
        return self.tokens / self.sequences if self.sequences else 0.0

    @property
    def capture_fraction(self) -> float:
        """Share of steps that captured."""
        return self.capture_steps / self.steps if self.steps else 0.0

    @property
    def launches_per_layer(self) -> float:
        """Mean launches in one GDN layer, per step."""
        return self.layer_launches / self.steps if self.steps else 0.0

    def acceptance(self) -> np.ndarray:
        """Conditional acceptance by depth, shape (MAX_DRAFTS,); NaN where nothing was reached."""
        out = np.full(MAX_DRAFTS, np.nan)
        np.divide(self.accepted, self.reached, out=out, where=self.reached > 0)
        return out

    def as_dict(self) -> dict[str, Any]:
        """Return the scalar counts by name."""
        return {name: getattr(self, name) for name in SCALARS}


#: Names of the scalar counters, in the order of the fast path's array.
SCALARS = tuple(f.name for f in fields(Counters) if f.name not in ("reached", "accepted"))


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Milliseconds of a run by cause; `total_ms` is their sum.

    `work_ms` is what rows, sequences and dispatches cost, `launches_ms` the replayed nodes and the
    graph launches (or eager launches), `captures_ms` recording, instantiating, updating and
    destroying.
    """

    work_ms: Any
    launches_ms: Any
    captures_ms: Any

    @property
    def total_ms(self) -> Any:
        """Their sum."""
        return self.work_ms + self.launches_ms + self.captures_ms


def times(
    counts: Counters | Mapping[str, Any], machine: MachineProfile | Mapping[str, Any]
) -> StepTimes:
    """Return the modelled time of a run.

    Parameters
    ----------
    counts : Counters or mapping
        Counts by name (numbers, or arrays that broadcast against the coefficients).
    machine : MachineProfile or mapping
        Coefficients by name (numbers, or arrays such as `MachineProfile.sample` returns).
    """
    c = counts.as_dict() if isinstance(counts, Counters) else counts
    m = machine.values() if isinstance(machine, MachineProfile) else machine
    work = (
        m["step_base_ms"] * c["dispatches"]
        + m["per_row_ms"] * c["rows"]
        + m["per_sequence_ms"] * (c["sequences"] + c["ghosts"])
    )
    launches = (
        m["per_node_us"] * (c["nodes_launched"] + c["nodes_eager"])
        + m["launch_base_us"] * c["graph_launches"]
        + m["launch_per_node_us"] * c["nodes_launched"]
        + m["eager_per_node_us"] * c["nodes_eager"]
    ) / 1e3
    captures = (
        (m["record_base_ms"] + m["instantiate_base_ms"]) * c["captures"]
        + (m["record_per_node_us"] + m["instantiate_per_node_us"]) * c["nodes_captured"] / 1e3
        + (m["record_base_ms"] + m["update_base_ms"]) * c["updates"]
        + (m["record_per_node_us"] + m["update_per_node_us"]) * c["nodes_updated"] / 1e3
        + (m["exec_destroy_base_ms"] + m["graph_destroy_base_ms"]) * c["evictions"]
        + (m["exec_destroy_per_node_us"] + m["graph_destroy_per_node_us"])
        * c["nodes_evicted"]
        / 1e3
    )
    return StepTimes(work, launches, captures)
