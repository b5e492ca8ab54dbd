"""Key policies: from a planned batch to (dispatch order, assigned depths, key, launches).

A policy says what a captured graph bakes and what it reads from device data; the key must hold
all that is baked. `POLICIES` is the table of them; each row is a few flags, so that the readable
form below and the compiled loop of `verifylab.fastpath` read the same description.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from verifylab.dcut import MAX_VERIFY_WIDTH, ROW_BUDGET, chunk_ranges
from verifylab.gate import Gate
from verifylab.key import verify_graph_key
from verifylab.launches import FAST_LAUNCHES, launches_per_layer
from verifylab.ordering import NO_SLOT, verify_batch_order

__all__ = [
    "INDIRECT_NODES",
    "POLICIES",
    "Baked",
    "Dispatch",
    "GatedPolicy",
    "KeyPolicy",
    "Launches",
    "Policy",
    "Rows",
    "StepPlan",
    "policy",
    "token_tier",
]

#: Graph nodes that an indirection table adds: the copy that refreshes it before the step.
INDIRECT_NODES = 1


class Baked(IntEnum):
    """What the key holds, because the graph bakes it."""

    #: Each row's slot and the depth runs: the (slot, rows) pairs.
    PAIRS = 0
    #: The depth runs alone; slots are device data.
    RUNS = 1
    #: Width and the one depth that every sequence is padded to; slots are device data.
    UNIFORM = 2
    #: The total of rows, rounded up to a tier; slots and depths are device data.
    TIER = 3
    #: Each row's slot and the one depth that every sequence is padded to.
    PADDED = 4


class Launches(IntEnum):
    """How many launches a GDN layer costs."""

    #: By depth run: the fast path on consecutive slots, declined elsewhere.
    DIRECT = 0
    #: The fast path for every depth run: slots come from a table.
    INDIRECT = 1
    #: One fast run: the kernels read each sequence's slot and length from device data.
    VARLEN = 2


class Rows(IntEnum):
    """Which rows are verified and which are computed."""

    #: Those that were assigned, no more.
    OWN = 0
    #: Every sequence as many as the deepest: real drafts, verified.
    DEEPEST = 1
    #: Those assigned, plus filler up to the tier: computed, not verified.
    TIER = 2


@dataclass(frozen=True, slots=True)
class Policy:
    """One row of the table.

    Attributes
    ----------
    baked : Baked
        What the key holds.
    launches : Launches
    rows : Rows
    sightings : int
        The sighting of a key at which it is captured; before it a step runs eager. 0: never.
    update : bool
        One executable per node signature: another key of a signature that is there is recorded
        and updated into it, not instantiated.
    borrow : bool
        On a miss, a wider cached key may serve whose pairs begin with the step's and whose
        further slots are free, up to twice the next power of two; its further rows are paid.
    piecewise : bool
        GDN layers run outside the graphs, eager; the graph is cut at each layer.
    gated : bool
        Canonical assignment from the gate's width up; otherwise every sequence keeps its depth.
    data, miss : str
        What is device data, and what a miss does, in words.
    """

    baked: Baked
    launches: Launches = Launches.DIRECT
    rows: Rows = Rows.OWN
    sightings: int = 1
    update: bool = False
    borrow: bool = False
    piecewise: bool = False
    gated: bool = False
    data: str = "none"
    miss: str = "capture"


#: The table. Rules of other engines as of 2026, as far as they apply to ragged verify.
POLICIES: dict[str, Policy] = {
    "arrangement": Policy(Baked.PAIRS),
    "canonical": Policy(Baked.PAIRS, gated=True),
    "gated": Policy(Baked.PAIRS, gated=True),
    "indirect": Policy(Baked.RUNS, Launches.INDIRECT, data="slots"),
    "padded": Policy(Baked.PADDED, rows=Rows.DEEPEST),
    "borrow": Policy(Baked.PAIRS, borrow=True, miss="replay a wider key, else capture"),
    "exec_update": Policy(Baked.PAIRS, update=True, miss="record and update, else capture"),
    "eager": Policy(Baked.PAIRS, sightings=0, miss="eager, always"),
    "capture_on_second_use": Policy(Baked.PAIRS, sightings=2, miss="eager, then capture"),
    "sglang_ragged": Policy(
        Baked.TIER, Launches.VARLEN, Rows.TIER, data="slots, depths", miss="capture"
    ),
    "vllm_piecewise": Policy(
        Baked.TIER, Launches.VARLEN, Rows.TIER, piecewise=True, data="slots, depths"
    ),
    "trtllm": Policy(Baked.UNIFORM, Launches.VARLEN, Rows.DEEPEST, data="slots"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """One chunk of a step: what a single graph launch does.

    Attributes
    ----------
    start, stop : int
        Positions in dispatch order.
    slots, depths : ndarray of int64, shape (stop - start,)
        In dispatch order; `depths` are the rows that are verified.
    key : bytes or None
        What its graph is cached under; ``None`` runs eager.
    signature : bytes
        The node structure, where the policy updates by it: graphs that share it differ in kernel
        arguments alone.
    launches_per_layer : int
        Launches in each GDN layer.
    rows : int
        Rows computed: those verified, plus filler.
    """

    start: int
    stop: int
    slots: NDArray[np.int64]
    depths: NDArray[np.int64]
    key: bytes | None
    signature: bytes
    launches_per_layer: int
    rows: int

    @property
    def width(self) -> int:
        """Sequences."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """A whole step: ``order[p]`` is the input index at position p, ``depths[p]`` its rows."""

    order: NDArray[np.int64]
    depths: NDArray[np.int64]
    dispatches: tuple[Dispatch, ...]


class KeyPolicy(Protocol):
    """What the experiment asks of a policy."""

    name: str

    def step(self, slots: NDArray[np.int64], rows: NDArray[np.int64], drafts: int) -> StepPlan:
        """Turn one batch into dispatches.

        Parameters
        ----------
        slots, rows : ndarray of int64, shape (n,)
            Slot of each sequence and the rows that the planner chose for it, in input order.
        drafts : int
            Drafts that each sequence has.
        """


def token_tier(rows: int, drafts: int, piecewise: bool = False) -> int:
    """Round a total of rows up to the tier of its graph.

    Parameters
    ----------
    rows : int
        Rows of the dispatch.
    drafts : int
        Drafts of each sequence: a request spans ``drafts + 1`` tokens.
    piecewise : bool
        False: SGLang's compact verify, tiers of capture batch size times tokens a request, the
        sizes being 1 to 8, then 10 to 32 by 2, then by 4. True: vLLM's ladder 1, 2, 4, then by 8,
        each rounded up to a multiple of the tokens of a request.
    """
    span = drafts + 1
    if piecewise:
        size = next((s for s in (1, 2, 4) if s >= rows), -(-rows // 8) * 8)
        return -(-size // span) * span
    sequences = -(-rows // span)
    step = 1 if sequences <= 8 else 2 if sequences <= 32 else 4
    return -(-sequences // step) * step * span


@dataclass(frozen=True, slots=True)
class GatedPolicy:
    """A row of the table with the limits of a dispatch, ready to plan steps.

    Parameters
    ----------
    gate : Gate
        Asked with the full width; a chunk never decides for itself.
    row_budget, max_width : int
        Rows and sequences of one dispatch at most.
    wy_tables_null : bool
        Goes into the key's sentinel.
    name : str
    rules : Policy
    """

    gate: Gate
    row_budget: int = ROW_BUDGET
    max_width: int = MAX_VERIFY_WIDTH
    wy_tables_null: bool = False
    name: str = "gated"
    rules: Policy = POLICIES["gated"]

    def step(self, slots: NDArray[np.int64], rows: NDArray[np.int64], drafts: int = 0) -> StepPlan:
        """Order the batch, assign its depths, split it, key each chunk."""
        rules = self.rules
        canonical = rules.gated and self.gate.canonical(len(slots))
        order, depths = verify_batch_order(slots, rows, canonical)
        if rules.rows is Rows.DEEPEST and len(depths):
            # Every sequence is as deep as the deepest: the order is by slot then.
            order, depths = verify_batch_order(slots, np.full_like(depths, depths.max()), False)
        dispatched = np.asarray(slots)[order]
        chunks = []
        for start, stop in chunk_ranges(depths, self.row_budget, self.max_width):
            s, d = dispatched[start:stop], depths[start:stop]
            chunks.append(self._dispatch(start, stop, s, d, drafts))
        return StepPlan(order, depths, tuple(chunks))

    def _dispatch(
        self, start: int, stop: int, s: NDArray[np.int64], d: NDArray[np.int64], drafts: int
    ) -> Dispatch:
        rules = self.rules
        verified = int(d.sum())
        computed = (
            token_tier(verified, drafts, rules.piecewise) if rules.rows is Rows.TIER else verified
        )
        runs = 1 + int(np.count_nonzero(np.diff(d)))
        if rules.launches is Launches.DIRECT:
            launches = int(launches_per_layer(s, d))
        elif rules.launches is Launches.INDIRECT:
            launches = FAST_LAUNCHES * runs
        else:
            launches = FAST_LAUNCHES
        key: bytes | None
        if NO_SLOT in s or rules.sightings == 0:
            key = None
        elif rules.baked in (Baked.PAIRS, Baked.PADDED):
            pairs = list(zip(s.tolist(), d.tolist(), strict=True))
            key = verify_graph_key(pairs, self.wy_tables_null)
        else:
            words = {
                Baked.RUNS: d.tolist(),
                Baked.UNIFORM: [stop - start, int(d[0])],
                Baked.TIER: [computed],
            }[rules.baked]
            key = struct.pack(f"<{len(words)}I", *words)
        kind = signature(s, d) if rules.update else b""
        return Dispatch(start, stop, s, d, key, kind, launches, computed)


def signature(slots: NDArray[np.int64], depths: NDArray[np.int64]) -> bytes:
    """Return the node structure of a direct dispatch: (depth, length, fast) of every run.

    Two dispatches with one signature launch the same kernels on the same grids; only addresses
    differ, which an executable graph takes by update.
    """
    from verifylab.launches import depth_runs

    out = bytearray()
    for run in depth_runs(slots, depths):
        out += struct.pack("<IIB", run.depth, run.length, run.fast)
    return bytes(out)


def policy(
    name: str,
    gate: Gate | None = None,
    *,
    row_budget: int = ROW_BUDGET,
    max_width: int = MAX_VERIFY_WIDTH,
) -> GatedPolicy:
    """Return a policy by name.

    A `gate` puts the canonical assignment in front of any policy whose key holds the pairs, from
    the gate's width up: ``gated`` (default: ``Gate()``), and ``borrow``, ``exec_update``,
    ``capture_on_second_use`` and ``eager`` where one is given. ``arrangement`` and ``canonical``
    are the two arms themselves and take none, nor do policies that keep slots out of the key.

    Raises
    ------
    ValueError
        When the name is unknown.
    """
    if name not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {name!r}")
    rules = POLICIES[name]
    chosen = Gate(enabled=False)
    if name == "canonical":
        chosen = Gate(min_width=0)
    elif name == "gated":
        chosen = gate if gate is not None else Gate()
    elif name != "arrangement" and gate is not None and rules.baked is Baked.PAIRS:
        chosen, rules = gate, replace(rules, gated=True)
    return GatedPolicy(chosen, row_budget, max_width, name=name, rules=rules)
