"""One arm, and arms compared on the same draws.

`run` simulates (or, on a device that computes, really runs) one arm and returns its counts and
times. `grid` runs arms over widths, spreads and seeds into a table of counts. The readable step
below is the reference; on the model device the compiled loop of `verifylab.fastpath` counts the
same, step by step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from verifylab.checks import whole
from verifylab.counters import SCALARS, Counters, StepTimes, times
from verifylab.dcut import (
    DCUT_WIDTH_CAP,
    DEFAULT_RATIO,
    MAX_VERIFY_WIDTH,
    ROW_BUDGET,
    dcut_applies,
    keep_count,
    select,
    snap_ratio,
)
from verifylab.device.base import Body, Device
from verifylab.device.model import ModelDevice
from verifylab.gate import Gate
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP, GraphCache, Outcome
from verifylab.key import parse_graph_key
from verifylab.machine import MachineProfile, StepWork
from verifylab.policy import INDIRECT_NODES, Baked, Dispatch, GatedPolicy, Policy, policy
from verifylab.slots import SlotPool
from verifylab.trace_workload import TraceWorkload
from verifylab.workload import MAX_DRAFTS, Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ARMS",
    "MAX_WIDTH",
    "UNPRUNED",
    "Run",
    "Settings",
    "Step",
    "grid",
    "in_words",
    "run",
    "run_on",
    "running",
    "steps_of",
]

#: Widest batch that may be asked for (the published ladder ends at 128).
MAX_WIDTH = 1024
#: Largest graph cache that may be asked for.
MAX_CAPACITY = 65536
ARMS = ("arrangement", "canonical")
#: An arm of `grid` that is no key policy: every draft verified, D-Cut off.
UNPRUNED = "unpruned"
#: What `grid` writes as the spread of a recorded trace, which has the one that it has.
TRACE_SPREAD = -1.0
AnyWorkload = Workload | TraceWorkload


def in_words(arm: str) -> str:
    """Return how an arm is spoken of: `UNPRUNED` is no key policy, but D-Cut off."""
    return "D-Cut off" if arm == UNPRUNED else arm


@dataclass(frozen=True, slots=True)
class Settings:
    """How one arm is run.

    Parameters
    ----------
    width : int
        Sequences in the batch: 1 to `MAX_WIDTH`. Where a drain starts.
    steps, warmup_steps : int
        Verify steps counted (1 or more), and steps run before them that are not (0 or more;
        steady only: a drain has no warm state).
    seed : int
        0 to 2**64 - 1. Runs with one seed share every draw.
    capacity : int
        Graphs that the cache holds: 1 to `MAX_CAPACITY`.
    ratio : float
        D-Cut's ratio, 0 to 1, snapped as `dcut.snap_ratio` does.
    row_budget, max_width, width_cap : int
        Rows and sequences of a dispatch at most; widest batch that D-Cut prunes.
    """

    width: int
    steps: int = 2000
    warmup_steps: int = 200
    seed: int = 0
    capacity: int = VERIFY_BATCHED_GRAPH_CAP
    ratio: float = DEFAULT_RATIO
    row_budget: int = ROW_BUDGET
    max_width: int = MAX_VERIFY_WIDTH
    width_cap: int = DCUT_WIDTH_CAP

    def __post_init__(self) -> None:
        bounds = {
            "width": (1, MAX_WIDTH),
            "steps": (1, 2**40),
            "warmup_steps": (0, 2**40),
            "seed": (0, 2**64 - 1),
            "capacity": (1, MAX_CAPACITY),
            "row_budget": (2, 2**20),
            "max_width": (1, MAX_WIDTH),
            "width_cap": (0, MAX_WIDTH),
        }
        for name, (low, high) in bounds.items():
            object.__setattr__(self, name, whole(name, getattr(self, name), low, high))
        snap_ratio(self.ratio)

    def widths(self, workload: AnyWorkload) -> range:
        """Batch widths that a run passes through: in a drain every one, down to 1."""
        return range(1 if workload.mode == "drain" else self.width, self.width + 1)

    def drafts_and_keep(self, workload: AnyWorkload, width: int) -> tuple[int, int]:
        """Drafts at `width`, and how many D-Cut keeps beyond the mandatory ones (-1: all)."""
        drafts = workload.ladder.drafts(width)
        if self.row_budget < drafts + 1:
            raise ValueError(
                f"row_budget must hold one sequence of {drafts + 1} rows, got {self.row_budget}"
            )
        if not dcut_applies(width, drafts, self.width_cap):
            return drafts, -1
        return drafts, keep_count(width, drafts, self.ratio, self.row_budget)


@dataclass(frozen=True, slots=True)
class Run:
    """One arm, run once.

    Attributes
    ----------
    policy, device : str
    measured : bool
        False: `times` is modelled. True: read from a clock.
    settings : Settings
    counters : Counters
    times : StepTimes
        Milliseconds over the counted steps.
    """

    policy: str
    device: str
    measured: bool
    settings: Settings
    counters: Counters
    times: StepTimes

    @property
    def tok_s(self) -> float:
        """Tokens a second, decode only (no prefill)."""
        return self.counters.tokens / self.times.total_ms * 1e3

    @property
    def step_ms(self) -> float:
        """Milliseconds a step."""
        return self.times.total_ms / self.counters.steps


@dataclass(frozen=True, slots=True)
class Executed:
    """What a dispatch came to: the cache's outcome and the nodes of the graph, if any.

    `filler_rows` are rows computed but not verified, `ghosts` sequences that nobody is behind.
    """

    outcome: Outcome
    nodes: int
    filler_rows: int = 0
    ghosts: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of the readable path, for tests, players and traces.

    `order` and `depths` have shape (width,); `outcomes` one entry a dispatch; `emitted`, by input
    index, the tokens each sequence got; `slots` by input index.
    """

    index: int
    slots: np.ndarray
    log_confidences: np.ndarray
    retained: np.ndarray
    order: np.ndarray
    depths: np.ndarray
    dispatches: tuple[Dispatch, ...]
    outcomes: tuple[Executed, ...]
    emitted: np.ndarray
    prefix: np.ndarray
    moves: int
    finished: int


class _Requests:
    """The sequences in the batch, their slots and positions (the readable twin of `_retire`)."""

    def __init__(self, workload: AnyWorkload, width: int) -> None:
        self.workload = workload
        self.lanes = width
        self.pool = SlotPool(width)
        self.request = np.arange(width, dtype=np.uint64)
        self.position = np.zeros(width, np.int64)
        self.slots = np.array([self.pool.acquire(int(r)) for r in self.request], np.int64)

    def advance(self, emitted: np.ndarray) -> tuple[int, int]:
        """Move on by `emitted` tokens; return (requests finished, slots compacted)."""
        self.position += emitted
        done = self.position >= self.workload.output_tokens
        if not done.any():
            return 0, 0
        if self.workload.mode == "steady":
            for i in np.flatnonzero(done):
                # Last in, first out: the successor takes the slot that was just let go.
                slot = self.pool.release(int(self.request[i]))
                self.request[i] += np.uint64(self.lanes)
                if self.pool.acquire(int(self.request[i])) != slot:
                    raise RuntimeError("a LIFO pool must hand out the slot released last")
            self.position[done] = 0
            return int(done.sum()), 0
        for i in np.flatnonzero(done):
            self.pool.release(int(self.request[i]))
        stay = ~done
        self.request, self.position = self.request[stay], self.position[stay]
        survivors = [int(r) for r in self.request]
        moves = self.pool.compact(survivors, len(survivors))
        self.slots = np.array([self.pool.held[r] for r in survivors], np.int64)
        return int(done.sum()), len(moves)


def steps_of(
    workload: AnyWorkload,
    key_policy: GatedPolicy,
    settings: Settings,
    execute: Callable[[Dispatch, np.ndarray], Executed],
) -> Iterator[Step]:
    """Run one arm in readable form, step by step, warm-up included.

    `execute(dispatch, slots)` does a dispatch (of a batch on `slots`) and says what the cache did
    with it. Ends after ``warmup_steps +
    steps``, or when a drain is empty.
    """
    requests = _Requests(workload, settings.width)
    for index in range(settings.warmup_steps + settings.steps):
        width = len(requests.slots)
        if width == 0:
            return
        drafts, keep = settings.drafts_and_keep(workload, width)
        logs, prefix = workload.draw(settings.seed, requests.request, requests.position, drafts)
        if keep < 0:
            retained = np.full(width, drafts, np.int64)
        else:
            retained = select(logs, drafts, settings.ratio, settings.row_budget)
        slots = requests.slots.copy()
        plan = key_policy.step(slots, retained + 1, drafts)
        outcomes = tuple(execute(dispatch, slots) for dispatch in plan.dispatches)
        verified = np.empty(width, np.int64)
        verified[plan.order] = plan.depths - 1
        room = workload.output_tokens - requests.position
        emitted = np.minimum(np.minimum(prefix, verified) + 1, room)
        finished, moves = requests.advance(emitted)
        yield Step(
            index, slots, logs, retained, plan.order, plan.depths, plan.dispatches, outcomes,
            emitted, prefix, moves, finished,
        )  # fmt: skip


def add_step(
    counters: Counters,
    dispatches: Sequence[Dispatch],
    outcomes: Sequence[Executed],
    nodes_of: NodesOf,
) -> None:
    """Count what one step dispatched (evictions are the cache's to count)."""
    counters.steps += 1
    counters.capture_steps += any(e.outcome is Outcome.CAPTURE for e in outcomes)
    for dispatch, done in zip(dispatches, outcomes, strict=True):
        graph, loose, pieces = nodes_of(dispatch)
        counters.dispatches += 1
        counters.sequences += dispatch.width
        counters.layer_launches += dispatch.launches_per_layer
        counters.rows += int(dispatch.depths.sum()) + done.filler_rows
        counters.filler_rows += done.filler_rows
        counters.ghosts += done.ghosts
        if done.outcome is Outcome.EAGER:
            counters.eager += 1
            counters.nodes_eager += graph + loose
            continue
        counters.nodes_launched += done.nodes
        counters.nodes_eager += loose
        counters.graph_launches += pieces
        counters.hits += done.outcome is Outcome.HIT
        counters.borrowed += done.outcome is Outcome.BORROW
        if done.outcome is Outcome.CAPTURE:
            counters.captures += 1
            counters.nodes_captured += graph
        elif done.outcome is Outcome.UPDATE:
            counters.updates += 1
            counters.nodes_updated += graph


def _add(counters: Counters, step: Step, nodes_of: NodesOf) -> None:
    """Count one step, its tokens and requests included."""
    add_step(counters, step.dispatches, step.outcomes, nodes_of)
    counters.tokens += int(step.emitted.sum())
    counters.moves += step.moves
    counters.finished_requests += step.finished
    for p, i in enumerate(step.order):
        verified = int(step.depths[p]) - 1
        good = min(int(step.prefix[i]), verified)
        counters.reached[: min(good + 1, verified)] += 1
        counters.accepted[:good] += 1


#: Nodes in a dispatch's graph, nodes launched beside it, and graph launches.
NodesOf = Callable[[Dispatch], tuple[int, int, int]]


def nodes_of(rules: Policy, gdn_layers: int, other_nodes: int) -> NodesOf:
    """Return how a policy's dispatch comes to nodes on a machine with those layers and nodes."""
    table = INDIRECT_NODES if rules.baked in (Baked.RUNS, Baked.UNIFORM, Baked.TIER) else 0

    def count(dispatch: Dispatch) -> tuple[int, int, int]:
        layers = gdn_layers * dispatch.launches_per_layer
        if rules.piecewise:
            return other_nodes + table, layers, gdn_layers + 1
        return other_nodes + table + layers, 0, 1

    return count


def _borrower(dispatch: Dispatch, slots: np.ndarray) -> Callable[[Any], int | None]:
    """Return what serving `dispatch` with the graph of another key costs in rows, or None."""
    pairs = list(zip(dispatch.slots.tolist(), dispatch.depths.tolist(), strict=True))
    bound = 2 * (1 << (len(pairs) - 1).bit_length())
    taken = set(slots.tolist())

    def cost(key: bytes) -> int | None:
        wide, _ = parse_graph_key(key)
        further = wide[len(pairs) :]
        if not further or len(wide) > bound or list(wide[: len(pairs)]) != pairs:
            return None
        if any(slot in taken for slot, _ in further):
            return None
        return sum(rows for _, rows in further)

    return cost


def cache_for(device: Device, rules: Policy, capacity: int) -> GraphCache:
    """Return the cache that a policy asks for."""
    return GraphCache(device, capacity, sightings=max(1, rules.sightings), update=rules.update)


def executor(
    cache: GraphCache, rules: Policy, body: Callable[[Dispatch], Body]
) -> Callable[[Dispatch, np.ndarray], Executed]:
    """Return what does a dispatch through `cache`, for `steps_of`: runs and replays alike."""

    def execute(dispatch: Dispatch, slots: np.ndarray) -> Executed:
        cost = _borrower(dispatch, slots) if rules.borrow else None
        outcome = cache.step(
            dispatch.key, body(dispatch), signature=dispatch.signature, borrow=cost
        )
        filler = dispatch.rows - int(dispatch.depths.sum())
        ghosts = 0
        if outcome is Outcome.BORROW and isinstance(cache.last_key, bytes):
            pairs, _ = parse_graph_key(cache.last_key)
            filler += sum(rows for _, rows in pairs[dispatch.width :])
            ghosts = len(pairs) - dispatch.width
        nodes = cache.last.nodes if cache.last is not None else 0
        return Executed(outcome, nodes, filler, ghosts)

    return execute


def model_body(device: ModelDevice, nodes_of: NodesOf) -> Callable[[Dispatch], Body]:
    """Return what a dispatch's graph charges on the machine model."""

    def body(dispatch: Dispatch) -> Body:
        graph, loose, pieces = nodes_of(dispatch)
        return device.body(StepWork(dispatch.width, dispatch.rows, graph, pieces, loose))

    return body


def run_on(
    device: Device,
    workload: AnyWorkload,
    key_policy: GatedPolicy,
    settings: Settings,
    body: Callable[[Dispatch], Body],
    *,
    gdn_layers: int,
    other_nodes: int,
    observe: Callable[[Step], None] | None = None,
) -> Run:
    """Run one arm on `device` in readable form: `body(dispatch)` is what a graph captures.

    Times are the device's own: virtual on ``model``, read from a clock elsewhere. `observe` is
    called with every step, warm-up included.
    """
    steps = running(
        device, workload, key_policy, settings, body, gdn_layers=gdn_layers, other_nodes=other_nodes
    )
    with closing(steps):  # whatever `observe` raises, the graphs are destroyed
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                done: Run = end.value
                return done
            if observe is not None:
                observe(step)


def running(
    device: Device,
    workload: AnyWorkload,
    key_policy: GatedPolicy,
    settings: Settings,
    body: Callable[[Dispatch], Body],
    *,
    gdn_layers: int,
    other_nodes: int,
) -> Generator[Step, None, Run]:
    """Run one arm step by step, so that several can take turns; returns the `Run` at the end.

    Takes what `run_on` takes. Arms that take turns each need a `device` object of their own
    (clock, timings, destroy): see `verifylab.measured`.
    """
    _refuse_warm_drain(workload, settings)
    rules = key_policy.rules
    cache = cache_for(device, rules, settings.capacity)
    counters = Counters()
    count = nodes_of(rules, gdn_layers, other_nodes)
    does = executor(cache, rules, body)
    seen: set[bytes | None] = set()

    def execute(dispatch: Dispatch, slots: np.ndarray) -> Executed:
        seen.add(dispatch.key)
        return does(dispatch, slots)

    device.timings.reset()
    started_ms = device.clock()
    with evicted_nodes(device) as evicted:
        try:
            for step in steps_of(workload, key_policy, settings, execute):
                if step.index >= settings.warmup_steps:
                    _add(counters, step, count)
                elif step.index == settings.warmup_steps - 1:
                    device.synchronise()
                    device.timings.reset()
                    cache.reset_stats()
                    evicted.clear()
                    started_ms = device.clock()
                yield step
            device.synchronise()
            total_ms = device.clock() - started_ms
            spent = dict(device.timings.total_ms)
            counters.evictions = cache.stats.evictions
            counters.nodes_evicted = sum(evicted)
            counters.keys_seen = len(seen - {None})
        finally:
            cache.clear()
    captures_ms = sum(
        spent[op] for op in ("record", "instantiate", "update", "exec_destroy", "graph_destroy")
    )
    if isinstance(device, ModelDevice):
        split = times(counters, device.profile)
    else:
        launches_ms = spent["launch"]
        split = StepTimes(total_ms - captures_ms - launches_ms, launches_ms, captures_ms)
    return Run(key_policy.name, device.name, device.measured, settings, counters, split)


@contextmanager
def evicted_nodes(device: Device) -> Iterator[list[int]]:
    """Note the nodes of every graph that `device` destroys meanwhile."""
    nodes: list[int] = []
    destroy = device.destroy

    def noting(graph: Any) -> None:
        nodes.append(graph.nodes)
        destroy(graph)

    device.destroy = noting  # type: ignore[method-assign]
    try:
        yield nodes
    finally:
        device.destroy = destroy  # type: ignore[method-assign]


def _refuse_warm_drain(workload: AnyWorkload, settings: Settings) -> None:
    if workload.mode == "drain" and settings.warmup_steps:
        raise ValueError(
            f"warmup_steps must be 0 in mode 'drain' (there is no warm state), "
            f"got {settings.warmup_steps}"
        )


def _sealed(array: np.ndarray) -> np.ndarray:
    """Return the array read-only, as tables and traces are: one compiled version serves both."""
    array.flags.writeable = False
    return array


_NO_TABLES = (_sealed(np.zeros((MAX_DRAFTS, 1))), _sealed(np.zeros((MAX_DRAFTS, 1), np.uint64)))
_NO_TRACE = (
    _sealed(np.zeros((0, 1))),
    *(_sealed(np.zeros(0, np.int64)) for _ in range(3)),
    np.uint64(1),
)


def _fast_run(
    workload: AnyWorkload,
    key_policy: GatedPolicy,
    settings: Settings,
    profile: MachineProfile,
    halt: Event | None = None,
) -> Run:
    from verifylab.fastpath import simulate

    n = settings.width
    drafts = np.zeros(n + 1, np.int64)
    keep = np.zeros(n + 1, np.int64)
    for width in settings.widths(workload):
        drafts[width], keep[width] = settings.drafts_and_keep(workload, width)
    rules = key_policy.rules
    canonical = np.array([rules.gated and key_policy.gate.canonical(w) for w in range(n + 1)])
    flags = (
        rules.baked, rules.launches, rules.rows, rules.sightings, rules.update, rules.borrow,
        rules.piecewise,
    )  # fmt: skip
    recorded: tuple[Any, ...]
    if isinstance(workload, TraceWorkload):
        log_reported, accept_below = _NO_TABLES
        recorded = workload.arrays()
    else:
        tables = workload.tables()
        log_reported, accept_below = tables.log_reported, tables.accept_below
        recorded = _NO_TRACE
    counts, reached, accepted = simulate(
        np.uint64(settings.seed), n, settings.steps, settings.warmup_steps,
        workload.mode == "steady", workload.output_tokens, drafts, keep, canonical,
        settings.row_budget, settings.max_width, settings.capacity, profile.gdn_layers,
        profile.other_nodes, np.array(flags, np.int64), log_reported,
        accept_below, recorded, halt=halt,
    )  # fmt: skip
    counters = Counters(reached=reached, accepted=accepted)
    for name, count in zip(SCALARS, counts, strict=True):
        setattr(counters, name, int(count))
    return Run(key_policy.name, "model", False, settings, counters, times(counters, profile))


def run(
    workload: AnyWorkload,
    policy_name: str,
    gate: Gate | None,
    profile: MachineProfile,
    settings: Settings,
    *,
    path: str = "fast",
    observe: Callable[[Step], None] | None = None,
    halt: Event | None = None,
) -> Run:
    """Run one arm on the machine model.

    Parameters
    ----------
    workload : Workload
    policy_name : str
        See `verifylab.policy.POLICIES`.
    gate : Gate or None
        For ``gated``; None is the default gate.
    profile : MachineProfile
    settings : Settings
    path : {"fast", "readable"}
        The compiled loop, or the readable step that defines it. Their counts are equal.
    observe : callable, optional
        Called with every `Step` (readable path only).
    halt : threading.Event, optional
        Another thread sets it to end the run (fast path only).

    Raises
    ------
    concurrent.futures.CancelledError
        When `halt` was set.
    ValueError
        When a name or a value is out of range.
    """
    key_policy = policy(
        policy_name, gate, row_budget=settings.row_budget, max_width=settings.max_width
    )
    _refuse_warm_drain(workload, settings)
    for width in settings.widths(workload):
        settings.drafts_and_keep(workload, width)
    if path == "fast" and observe is None:
        return _fast_run(workload, key_policy, settings, profile, halt)
    if path not in ("fast", "readable"):
        raise ValueError(f"path must be 'fast' or 'readable', got {path!r}")
    device = ModelDevice(profile)
    count = nodes_of(key_policy.rules, profile.gdn_layers, profile.other_nodes)
    return run_on(
        device, workload, key_policy, settings, model_body(device, count),
        gdn_layers=profile.gdn_layers, other_nodes=profile.other_nodes, observe=observe,
    )  # fmt: skip


def grid(
    workload: AnyWorkload,
    widths: Iterable[int],
    profile: MachineProfile,
    settings: Settings,
    *,
    seeds: Iterable[int],
    arms: Iterable[tuple[str, Gate | None]] = (("arrangement", None), ("canonical", None)),
    spreads: Iterable[float] | None = None,
    jobs: int | None = None,
    halt: Event | None = None,
) -> pd.DataFrame:
    """Run every arm at every width, spread and seed on the machine model.

    Parameters
    ----------
    workload, profile, settings
        As in `run`; `settings.width` and `settings.seed` are replaced.
    widths : iterable of int
    seeds : iterable of int
        Shared by all arms: common random numbers.
    arms : iterable of (policy name, gate)
        `UNPRUNED` is the arrangement at ratio 1.
    spreads : iterable of float, optional
        Confidence spreads; default: the workload's own.
    jobs : int, optional
        Threads (the compiled loop releases the interpreter lock); default: the cores.
    halt : threading.Event, optional
        Another thread sets it to end the runs; set here where one of them fails.

    Returns
    -------
    pandas.DataFrame
        One row a run: ``width, policy, min_width, spread, seed``, then every scalar counter.
        `spread` is `TRACE_SPREAD` for a trace.
        `min_width` is -1 where the policy has none. No times: see `counters.times`.

    Raises
    ------
    concurrent.futures.CancelledError
        When `halt` was set.
    """
    import pandas as pd

    seeds, widths, arms = list(seeds), list(widths), list(arms)
    cells = []
    halt = Event() if halt is None else halt
    loads: list[tuple[float, AnyWorkload]] = []
    if isinstance(workload, TraceWorkload):
        if spreads is not None:
            raise ValueError("spreads must be None with a trace: its confidences are what they are")
        loads.append((TRACE_SPREAD, workload))
    else:
        for spread in spreads if spreads is not None else (workload.confidence_spread,):
            loads.append((float(spread), replace(workload, confidence_spread=float(spread))))
    for spread, load in loads:
        for width in widths:
            for name, gate in arms:
                for seed in seeds:
                    chosen = replace(settings, width=width, seed=seed)
                    if name == UNPRUNED:
                        chosen = replace(chosen, ratio=1.0)
                    cells.append((spread, load, name, gate, chosen))

    def one(cell: tuple[float, AnyWorkload, str, Gate | None, Settings]) -> dict[str, Any]:
        spread, load, name, gate, chosen = cell
        ran = ARMS[0] if name == UNPRUNED else name
        result = run(load, ran, gate, profile, chosen, halt=halt)
        return {
            "width": chosen.width,
            "policy": name,
            "min_width": gate.min_width if gate is not None else -1,
            "spread": spread,
            "seed": chosen.seed,
            **result.counters.as_dict(),
        }

    workers = jobs if jobs is not None else os.cpu_count() or 1
    if workers > 1 and len(cells) > 1:
        first = [one(cells[0])]  # compiles (or loads) once, before threads ask for it together
        with ThreadPoolExecutor(workers) as threads:
            try:
                rows = first + list(threads.map(one, cells[1:]))
            except BaseException:  # Ctrl-C, or one that failed: the others end too, at once
                halt.set()
                raise
    else:
        rows = [one(cell) for cell in cells]
    return pd.DataFrame(rows)
