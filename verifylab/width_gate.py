"""The main job: for every width and threshold, what the gate does to keys, captures and tok/s.

`Config` is the notebook's parameter cell, checked at once. `width_gate` runs the study and
returns tables; `save` writes them. The notebook only shows them.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from verifylab.checks import fraction, whole, whole_list
from verifylab.counters import SCALARS
from verifylab.dcut import (
    DEFAULT_LADDER,
    DEFAULT_RATIO,
    ROW_BUDGET,
    DraftLadder,
    chunk_ranges,
    dcut_applies,
)
from verifylab.device import Choice, choose
from verifylab.experiment import MAX_CAPACITY, MAX_WIDTH, UNPRUNED, Settings, grid
from verifylab.gate import Gate
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.graph_price import graph_ms_of, profile_at
from verifylab.keyspace import key_space
from verifylab.machine import MachineProfile
from verifylab.measured import measure
from verifylab.paths import write_files
from verifylab.recommend import NEVER, Recommendation, recommend, recommend_measured
from verifylab.stats import interval, paired, with_times
from verifylab.verify_shape import SHAPES
from verifylab.workload import MODES, OUTPUT_TOKENS, Workload, calibrated, spread_nodes

__all__ = ["Config", "WidthGate", "save", "width_gate"]

#: Steps that a drain may take; it ends by itself long before.
DRAIN_STEPS = 10_000_000


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters of `02_width_gate.ipynb`.

    Parameters
    ----------
    widths : list of int
        Batch widths to study, 1 to `experiment.MAX_WIDTH`, each once.
    min_widths : list of int
        Candidate thresholds, 0 or more, each once.
    graph_capacity : int
        Graphs that the cache holds.
    dcut_ratio : float
        0 to 1; snaps to 0.25, 0.5, 0.75 or 1.
    drafts : str or int
        A ladder such as ``"4:3,8:3,16:1"`` or one number for every width.
    first_seed : int
        The seeds are this and the following ones; a sweep's repeats count on from it.
    seeds, steps, warmup_steps : int
        Seeds (2 or more: intervals come from them), steps counted for each, steps before those.
    mode : {"steady", "drain"}
        In a drain the width is where it starts, and steps and warm-up do not apply.
    device : {"auto", "model", "host", "cuda"}
    machine : str
        Machine profile for modelled time.
    output_tokens, row_budget : int
        Tokens a request asks for; rows of a dispatch at most.
    graph_ms : float or None
        Milliseconds of one capture and eviction of a graph of `graph_price.NODES_PER_GRAPH` nodes;
        None: the machine's own. Modelled time only: a device that computes has graphs of its own.
    confidence_spread : float or None
        None: as calibrated, its uncertainty included in the probability.
    draws : int
        Draws behind the probability; 100 or more.
    shape : {"tiny", "small", "gdn27b"}
        Size of the real verify step; measuring devices only.
    weight_bytes : int
        Bytes of dense weights that every dispatch streams beside the GDN layers, in equal parts
        after each; measuring devices only. 0: the GDN layers run alone, so a step is shorter, and
        captures weigh more, than in a whole model.
    """

    widths: list[int] = dataclasses.field(default_factory=lambda: [1, 2, 3, 4, 5, 6, 7, 8, 16, 32])
    min_widths: list[int] = dataclasses.field(
        default_factory=lambda: [0, 2, 3, 4, 5, 6, 7, 8, 9, 33]
    )
    graph_capacity: int = VERIFY_BATCHED_GRAPH_CAP
    dcut_ratio: float = DEFAULT_RATIO
    drafts: str | int = str(DEFAULT_LADDER)
    first_seed: int = 0
    seeds: int = 20
    steps: int = 2000
    warmup_steps: int = 200
    mode: str = "steady"
    device: str = "auto"
    machine: str = "gb10-published"
    output_tokens: int = OUTPUT_TOKENS
    row_budget: int = ROW_BUDGET
    graph_ms: float | None = None
    confidence_spread: float | None = None
    draws: int = 2000
    shape: str = "small"
    weight_bytes: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (("widths", 1, MAX_WIDTH), ("min_widths", 0, 2**63 - 1)):
            object.__setattr__(self, name, whole_list(name, getattr(self, name), low, high))
        whole("graph_capacity", self.graph_capacity, 1, MAX_CAPACITY)
        whole("first_seed", self.first_seed, 0, 2**31)
        whole("seeds", self.seeds, 2, 10_000)
        whole("steps", self.steps, 1, 10**9)
        whole("warmup_steps", self.warmup_steps, 0, 10**9)
        whole("draws", self.draws, 100, 10**6)
        whole("output_tokens", self.output_tokens, 1, 10**6)
        whole("row_budget", self.row_budget, 2, 2**20)
        whole("weight_bytes", self.weight_bytes, 0, 2**40)
        if self.shape not in SHAPES:
            raise ValueError(f"shape must be one of {', '.join(SHAPES)}, got {self.shape!r}")
        fraction("dcut_ratio", self.dcut_ratio)
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if choose(self.device).name != "model" and self.graph_ms is not None:
            raise ValueError(
                f"graph_ms prices modelled time, and device {self.device!r} measures what graphs "
                "cost: set device = 'model', or graph_ms = None"
            )
        self.profile()
        workload = self.workload()
        for width in self.widths:
            settings = self.settings(width)
            for passed in settings.widths(workload):
                settings.drafts_and_keep(workload, passed)

    @classmethod
    def from_parameters(cls, parameters: dict[str, Any]) -> Config:
        """Build from a mapping; an unknown name is refused with the nearest known one.

        ``out`` (where a notebook writes) is not a parameter of the study and is ignored.
        """
        known = [f.name for f in dataclasses.fields(cls)]
        given = {name: value for name, value in parameters.items() if name != "out"}
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
                raise ValueError(f"unknown parameter {name!r}{hint}")
        return cls(**given)

    def all_seeds(self) -> range:
        """Return the seeds, in order."""
        return range(int(self.first_seed), int(self.first_seed) + int(self.seeds))

    def profile(self) -> MachineProfile:
        """Return the machine profile, with graphs that cost `graph_ms`."""
        return profile_at(self.machine, self.graph_ms)

    def workload(self) -> Workload:
        """Return the calibrated workload with this configuration's changes."""
        changes: dict[str, Any] = {
            "mode": self.mode,
            "output_tokens": int(self.output_tokens),
            "ladder": DraftLadder.parse(self.drafts),
        }
        if self.confidence_spread is not None:
            changes["confidence_spread"] = self.confidence_spread
        return calibrated(**changes)

    def spreads(self) -> list[float]:
        """Return the central spread, then the nodes of its uncertainty (none when it is given)."""
        if self.confidence_spread is not None:
            return [float(self.confidence_spread)]
        return list(dict.fromkeys([self.workload().confidence_spread, *spread_nodes()]))

    def settings(self, width: int) -> Settings:
        """Return the run settings at one width."""
        drain = self.mode == "drain"
        return Settings(
            width,
            steps=DRAIN_STEPS if drain else int(self.steps),
            warmup_steps=0 if drain else int(self.warmup_steps),
            capacity=int(self.graph_capacity),
            ratio=float(self.dcut_ratio),
            row_budget=int(self.row_budget),
        )


@dataclass(frozen=True, slots=True)
class WidthGate:
    """What the study found.

    Attributes
    ----------
    config : Config
    choice : Choice
        The device, and why.
    gates : DataFrame
        One row a width and threshold: ``width, min_width, canonical, reachable_keys, keys_seen,
        capture_fraction, tokens_per_step, launches_per_layer, step_ms, tok_s, tok_s_low,
        tok_s_high, gain_pct, gain_low, gain_high, seeds, time, machine, date``. `tokens_per_step`
        is per sequence; `reachable_keys` is counted, in a drain over all widths down to 1. (Where
        D-Cut applies it counts whole batches: a row budget that splits those gives more.)
    arms : DataFrame
        One row a width and arm, the same columns with ``policy`` and ``bound_tok_s``: the arm
        with its captures free, which no policy that keeps every sequence's own depth can beat by
        caching. A third arm, ``unpruned``, verifies every draft (D-Cut at ratio 1): one key, all
        rows paid. ``extrapolated``: the width lies beyond those the machine was fitted to.
        ``graph_ms``: what a capture and eviction cost in the model; missing where measured.
    differences : DataFrame
        `stats.paired`, canonical minus arrangement, split by cause.
    recommendation : Recommendation
    """

    config: Config
    choice: Choice
    gates: pd.DataFrame
    arms: pd.DataFrame
    differences: pd.DataFrame
    recommendation: Recommendation
    provenance: str

    def summary(self) -> str:
        """Return the result as text: the recommendation on the first line, table, provenance."""
        shown = self.gates[
            ["width", "min_width", "canonical", "reachable_keys", "keys_seen", "capture_fraction",
             "tokens_per_step", "launches_per_layer", "tok_s", "tok_s_low", "tok_s_high"]
        ]  # fmt: skip
        # Thresholds that decide alike at a width give the same row: show each decision once.
        shown = shown.drop_duplicates([c for c in shown.columns if c != "min_width"])
        text = shown.to_string(
            index=False,
            formatters={
                "canonical": lambda v: "yes" if v else "no",
                "keys_seen": "{:.0f}".format,
                "capture_fraction": "{:.3f}".format,
                "tokens_per_step": "{:.3f}".format,
                "launches_per_layer": "{:.1f}".format,
                "tok_s": "{:.2f}".format,
                "tok_s_low": "{:.2f}".format,
                "tok_s_high": "{:.2f}".format,
            },
        )
        return (
            f"{self.recommendation.sentence()}\n\n{text}\n(one line a decision; min_width is the "
            f"first threshold that makes it)\n\n{self.provenance}\n"
        )


def width_gate(config: Config) -> WidthGate:
    """Run the study.

    Raises
    ------
    DeviceError
        When the device cannot run it.
    """
    choice = choose(config.device)
    machine = config.profile()
    if choice.name == "model":
        runs, arms = _simulate(config, machine)
        central = config.spreads()[0]
        recommendation = recommend(runs, machine, draws=config.draws)
        middle = with_times(runs[runs.spread == central], machine)
        unpruned = grid(
            config.workload(), config.widths, machine, config.settings(config.widths[0]),
            seeds=config.all_seeds(), arms=[(UNPRUNED, None)], spreads=[central],
        )  # fmt: skip
        arm_runs = with_times(
            pd.concat([arms[arms.spread == central], unpruned], ignore_index=True), machine
        )
        time, where = "modelled", machine.name
        fitted: tuple[int, int] | None = machine.fitted_widths
        cost = graph_ms_of(machine)
        ran = f"Modelled time on {machine.name} ({machine.gpu}), {cost:.1f} ms a graph"
    else:
        cost = float("nan")
        measured = measure(config, choice.name)
        middle, arm_runs = measured.runs, measured.arms
        recommendation = recommend_measured(middle, draws=config.draws)
        time, where, ran = "measured", measured.machine, measured.ran
        fitted = None
    stamp = {
        "seeds": config.seeds,
        "time": time,
        "machine": where,
        "date": dt.date.today().isoformat(),
    }
    gates = _gate_table(middle, config).assign(**stamp)
    provenance = (
        f"{ran}, decode only; {config.mode}; n = {config.seeds} seeds"
        + ("" if config.mode == "drain" else f" x {config.steps} steps")
        + f"; {stamp['date']}. Device: {choice.name} ({choice.why})."
    )
    return WidthGate(
        config,
        choice,
        gates,
        _arm_table(arm_runs, config, fitted).assign(**stamp, graph_ms=cost),
        paired(arm_runs, machine).assign(**stamp),
        recommendation,
        provenance,
    )


def _simulate(config: Config, machine: MachineProfile) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs by threshold (for the gate), and of the two arms."""

    def simulated(arms: list[tuple[str, Gate | None]]) -> pd.DataFrame:
        return grid(
            config.workload(), config.widths, machine, config.settings(config.widths[0]),
            seeds=config.all_seeds(), arms=arms, spreads=config.spreads(),
        )  # fmt: skip

    arms = simulated([("arrangement", None), ("canonical", None)])
    base = arms[arms.policy == "arrangement"].assign(min_width=NEVER)
    if config.mode == "drain":
        # The width falls through the thresholds: every one is a run of its own.
        gated = simulated([("gated", Gate(m)) for m in config.min_widths])
        return pd.concat([base, gated], ignore_index=True), arms
    parts = [base]
    for threshold in config.min_widths:
        gate = Gate(threshold)
        decided = arms.width.map(lambda w, g=gate: "canonical" if g.canonical(w) else "arrangement")
        parts.append(arms[arms.policy == decided].assign(min_width=threshold, policy="gated"))
    return pd.concat(parts, ignore_index=True), arms


def _reachable(config: Config, width: int, gate: Gate, ratio: float | None = None) -> int:
    """Keys that a run at `width` can meet under `gate` (counted, no simulation)."""
    ladder = config.workload().ladder
    ratio = config.dcut_ratio if ratio is None else ratio
    total = 0
    uniform: set[tuple[int, int, int]] = set()
    for w in range(1, width + 1) if config.mode == "drain" else (width,):
        drafts = ladder.drafts(w)
        if dcut_applies(w, drafts):
            space = key_space(w, drafts, ratio, config.row_budget)
            total += space.canonical_keys if gate.canonical(w) else space.arrangement_keys
        else:
            uniform.update(_uniform_keys(w, drafts + 1, config.row_budget))
    return total + len(uniform)


@cache
def _uniform_keys(width: int, rows: int, row_budget: int) -> list[tuple[int, int, int]]:
    """Keys of slots 0 to `width` - 1, all at one depth: a chunk's range and that depth."""
    return [(*chunk, rows) for chunk in chunk_ranges([rows] * width, row_budget)]


def _cell(rows: pd.DataFrame) -> dict[str, Any]:
    """Means over the seeds of one cell, with the interval of tok/s."""
    total = rows[list(SCALARS)].sum()
    tok_s, low, high = interval(rows.tok_s.to_numpy())
    return {
        "keys_seen": float(rows.keys_seen.mean()),
        "capture_fraction": float(total.capture_steps / total.steps),
        "tokens_per_step": float(total.tokens / total.sequences),
        "launches_per_layer": float(total.layer_launches / total.steps),
        "step_ms": float(rows.total_ms.sum() / total.steps),
        "tok_s": tok_s,
        "tok_s_low": low,
        "tok_s_high": high,
    }


def _gate_table(runs: pd.DataFrame, config: Config) -> pd.DataFrame:
    out = []
    for width in config.widths:
        at = runs[runs.width == width]
        base = at[at.min_width == NEVER].sort_values("seed").tok_s.to_numpy()
        for threshold in config.min_widths:
            rows = at[at.min_width == threshold].sort_values("seed")
            gate = Gate(threshold)
            gain = interval(100 * (rows.tok_s.to_numpy() / base - 1))
            out.append(
                {
                    "width": width,
                    "min_width": threshold,
                    "canonical": gate.canonical(width),
                    "reachable_keys": _reachable(config, width, gate),
                    **_cell(rows),
                    **dict(zip(("gain_pct", "gain_low", "gain_high"), gain, strict=True)),
                }
            )
    return pd.DataFrame(out)


def _arm_table(
    runs: pd.DataFrame, config: Config, fitted_widths: tuple[int, int] | None
) -> pd.DataFrame:
    out = []
    low, high = fitted_widths or (1, MAX_WIDTH)  # what is measured is no extrapolation
    for width in config.widths:
        for name, gate, ratio in (
            ("arrangement", Gate(enabled=False), None),
            ("canonical", Gate(0), None),
            (UNPRUNED, Gate(enabled=False), 1.0),
        ):
            rows = runs[(runs.width == width) & (runs.policy == name)]
            if rows.empty:  # a measured sweep runs the two arms alone
                continue
            free = rows.tokens / (rows.total_ms - rows.captures_ms) * 1e3
            out.append(
                {
                    "width": width,
                    "policy": name,
                    "reachable_keys": _reachable(config, width, gate, ratio),
                    **_cell(rows),
                    "bound_tok_s": float(free.mean()),
                    "extrapolated": not low <= width <= high,
                }
            )
    return pd.DataFrame(out)


def save(result: WidthGate, folder: str | Path) -> list[Path]:
    """Write ``result.parquet`` (the gates table), the other tables as CSV, and ``summary.txt``."""
    return write_files(
        folder,
        {
            "result.parquet": result.gates.to_parquet(index=False),
            "arms.csv": result.arms.to_csv(index=False),
            "differences.csv": result.differences.to_csv(index=False),
            "recommendation.csv": result.recommendation.table.to_csv(index=False),
            "summary.txt": result.summary(),
        },
    )
