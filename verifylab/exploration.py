"""What the explorer is set to: checked at once, and given back as parameters.

`Exploration` is the parameter cell of ``explorer.ipynb``. `parameter_cell` writes it out again for
papermill or for pasting, `grid_file` writes what the width-gate notebook takes of it as a sweep.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass, field, fields
from typing import Any

from verifylab.advise import CANDIDATES
from verifylab.checks import fraction, is_number, whole, whole_list
from verifylab.dcut import DCUT_WIDTH_CAP, MAX_VERIFY_WIDTH, DraftLadder
from verifylab.experiment import ARMS, MAX_CAPACITY, UNPRUNED
from verifylab.explain import explain
from verifylab.gate import Gate
from verifylab.graph_price import graph_ms_of, profile_at
from verifylab.machine import MachineProfile
from verifylab.policy import POLICIES
from verifylab.workload import MAX_DRAFTS, Workload, calibrated

__all__ = [
    "ARM_CHOICES",
    "CACHE_POLICIES",
    "MAX_GRAPH_MS",
    "MAX_PLAY_STEPS",
    "MAX_THRESHOLD",
    "MAX_WIDTHS",
    "POLICY_CHOICES",
    "WARMUP_STEPS",
    "Exploration",
    "grid_file",
    "parameter_cell",
]

#: Arms of one batch: as the gate decides, or one of the two.
ARM_CHOICES = ("gate", *ARMS)
#: What the throughput tab sets beside the two arms: a key policy, or every draft verified.
POLICY_CHOICES = (*(name for name in POLICIES if name not in (*ARMS, "gated")), UNPRUNED)
#: Policies that the cache player plays: one graph a key, least recently used out first.
CACHE_POLICIES = ("arrangement", "canonical", "gated", "indirect", "capture_on_second_use")
#: One above the widest dispatch: never canonical.
MAX_THRESHOLD = MAX_VERIFY_WIDTH + 1
#: Dearest graph of the slider, ms. A choice: the published one costs 31.
MAX_GRAPH_MS = 200.0
#: Widths of the throughput curves: more can neither be read side by side nor drawn within 100 ms.
MAX_WIDTHS = 16
#: Steps of every throughput run before those that are counted. A choice.
WARMUP_STEPS = 100
#: Steps that the cache player may be asked for: a step takes a few microseconds.
MAX_PLAY_STEPS = 2000


@dataclass(frozen=True, slots=True)
class Exploration:
    """Parameters of ``explorer.ipynb``.

    Parameters
    ----------
    slots, depths : list of int
        One batch of up to `MAX_VERIFY_WIDTH` sequences: slot and rows of each.
    arm : {"gate", "arrangement", "canonical"}
        Arm shown for that batch.
    threshold : int
        The gate: canonical from this width up.
    width, drafts : int
        Batch width of the key space and the cache player; drafts a sequence up to width 8 (above
        it one, as published).
    dcut_ratio : float
        0 to 1; snaps to 0.25, 0.5, 0.75 or 1.
    graph_capacity : int
        Graphs that the cache holds.
    widths : list of int
        Batch widths of the throughput curves, up to `MAX_WIDTHS` of them.
    graph_ms : float or None
        Milliseconds of one capture and eviction of a graph of 4,500 nodes; None: the machine's.
    confidence_spread : float or None
        None: as calibrated.
    policy : str
        Key policy set beside the two arms.
    cache_policy : str
        Policy that the cache player plays.
    play_steps, seed : int
        Steps of the cache player, and the seed of its draws.
    seeds, steps : int
        Of a full run: paired seeds (2 or more), and steps counted for each.
    machine : str
        Machine profile for modelled time.
    runs : str
        Folder of stored sweeps to lay over the curves; it need not exist.
    """

    slots: list[int] = field(default_factory=lambda: list(range(8)))
    depths: list[int] = field(default_factory=lambda: [4, 2, 4, 3, 4, 3, 4, 4])
    arm: str = "gate"
    threshold: int = 8
    width: int = 8
    drafts: int = 3
    dcut_ratio: float = 0.75
    graph_capacity: int = 32
    widths: list[int] = field(default_factory=lambda: [2, 4, 5, 6, 7, 8])
    graph_ms: float | None = None
    confidence_spread: float | None = None
    policy: str = "indirect"
    cache_policy: str = "arrangement"
    play_steps: int = 120
    seed: int = 0
    seeds: int = 20
    steps: int = 2000
    machine: str = "gb10-published"
    runs: str = "runs"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("threshold", 0, MAX_THRESHOLD), ("width", 1, MAX_VERIFY_WIDTH),
            ("drafts", 1, MAX_DRAFTS), ("graph_capacity", 1, MAX_CAPACITY),
            ("play_steps", 1, MAX_PLAY_STEPS), ("seed", 0, 2**32 - 1), ("seeds", 2, 200),
            ("steps", 10, 100_000),
        ):  # fmt: skip
            object.__setattr__(self, name, whole(name, getattr(self, name), low, high))
        for name in ("slots", "depths"):
            given = getattr(self, name)
            if not isinstance(given, (list, tuple)):
                raise ValueError(f"{name} must be a list of whole numbers, got {given!r}")
            if len(given) > MAX_VERIFY_WIDTH:
                raise ValueError(
                    f"{name} must have at most {MAX_VERIFY_WIDTH} numbers, got {len(given)}"
                )
            object.__setattr__(self, name, [whole(name, value, 0, 2**32 - 1) for value in given])
        explain(self.slots, self.depths, Gate(self.threshold))
        fraction("dcut_ratio", self.dcut_ratio)
        object.__setattr__(self, "widths", whole_list("widths", self.widths, 1, MAX_VERIFY_WIDTH))
        if len(self.widths) > MAX_WIDTHS:
            raise ValueError(
                f"widths must have at most {MAX_WIDTHS} numbers, got {len(self.widths)}"
            )
        for name, known in (
            ("arm", ARM_CHOICES), ("policy", POLICY_CHOICES), ("cache_policy", CACHE_POLICIES),
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        if self.confidence_spread is not None:
            fraction("confidence_spread", self.confidence_spread)
        if self.graph_ms is not None and not is_number(self.graph_ms):
            raise ValueError(
                f"graph_ms must be a number of milliseconds, or None, got {self.graph_ms!r}"
            )
        if not isinstance(self.runs, (str, os.PathLike)):
            raise ValueError(f"runs must be the name of a folder, got {self.runs!r}")
        object.__setattr__(self, "runs", os.fsdecode(self.runs))
        self.profile()
        for name in ("graph_ms", "confidence_spread", "dcut_ratio"):
            if (value := getattr(self, name)) is not None:
                # No -0.0, and nothing of NumPy's: a pasted cell has to read back.
                object.__setattr__(self, name, abs(float(value)))

    def profile(self) -> MachineProfile:
        """Return the machine with graphs that cost `graph_ms`."""
        return profile_at(self.machine, self.graph_ms)

    def ladder(self) -> DraftLadder:
        """Return `drafts` up to the width that D-Cut prunes, one draft above it, as published."""
        return DraftLadder(((DCUT_WIDTH_CAP, self.drafts), (MAX_VERIFY_WIDTH, 1)))

    def workload(self) -> Workload:
        """Return the calibrated workload, at `confidence_spread` where that is given."""
        if self.confidence_spread is None:
            return calibrated(ladder=self.ladder())
        return calibrated(confidence_spread=float(self.confidence_spread), ladder=self.ladder())

    def shown_graph_ms(self) -> float:
        """Return `graph_ms`, or what the machine's own profile says."""
        return graph_ms_of(self.profile())


_COMMENTS = {
    "slots": "one batch: slot of each sequence, no two alike",
    "depths": "one batch: rows of each sequence (drafts + 1)",
    "arm": "one batch: gate, arrangement or canonical",
    "threshold": "the gate: canonical from this width up (sequences)",
    "width": "key space and cache: batch width (sequences)",
    "drafts": "drafts a sequence up to width 8; above it 1",
    "dcut_ratio": "share of prunable drafts that D-Cut keeps: 0.25, 0.5, 0.75 or 1",
    "graph_capacity": "graphs that the cache holds",
    "widths": "throughput: batch widths of the curves (sequences)",
    "graph_ms": "ms of one capture and eviction (4,500 nodes); None: the machine's own",
    "confidence_spread": "0 to 1; None: as calibrated",
    "policy": "throughput: key policy set beside the two arms",
    "cache_policy": "cache: policy played",
    "play_steps": "cache: steps played",
    "seed": "cache: seed of the draws",
    "seeds": "throughput, full run: paired seeds",
    "steps": "throughput, full run: verify steps counted for each seed",
    "machine": "machine profile for modelled time",
    "runs": "folder of stored sweeps to lay over the curves; it need not exist",
}


def parameter_cell(settings: Exploration) -> str:
    """Return the settings as a papermill parameter cell of ``explorer.ipynb``."""
    lines = [
        f"{f.name} = {_python(getattr(settings, f.name))}  # {_COMMENTS[f.name]}"
        for f in fields(settings)
    ]
    return "\n".join([*lines, 'out = ""  # folder to write to; "" writes nothing']) + "\n"


def grid_file(settings: Exploration, name: str = "explored") -> str:
    """Return a sweep of ``02_width_gate.ipynb`` with one row: these settings.

    Save it as ``NAME.toml`` in ``data/sweeps/`` and run ``verifylab sweep data/sweeps/NAME.toml``.
    It compares the two arms and D-Cut off: another policy stands as a comment.
    """
    row: dict[str, Any] = {
        "widths": settings.widths,
        "min_widths": sorted({0, *settings.widths, settings.threshold, max(settings.widths) + 1}),
        "graph_capacity": settings.graph_capacity,
        "dcut_ratio": float(settings.dcut_ratio),
        "drafts": str(settings.ladder()),
        "seeds": settings.seeds,
        "steps": settings.steps,
        "warmup_steps": WARMUP_STEPS,
        "machine": settings.machine,
        "device": "model",
    }
    for given in ("graph_ms", "confidence_spread"):
        if (value := getattr(settings, given)) is not None:
            row[given] = float(value)
    lines = [
        f'name = "{name}"',
        'notebook = "notebooks/02_width_gate.ipynb"',
        "",
        f"# {_others(settings)}",
        "[[rows]]",
        *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in row.items()),
    ]
    return "\n".join(lines) + "\n"


def _others(settings: Exploration) -> str:
    """Say which command compares the other policies at these settings, and whether with this one.

    Its seeds and steps are its own.
    """
    cost = "" if settings.graph_ms is None else f" --graph-ms {settings.graph_ms!r}"
    if settings.confidence_spread is not None:
        cost += f" --spread {settings.confidence_spread!r}"
    what = f"the policy {settings.policy} is not in that notebook"
    if settings.policy == UNPRUNED:
        what = "the arms and unpruned are in that notebook, other policies are not"
    elif settings.policy not in CANDIDATES:
        what += ", and of what follows only the others are"
    return (
        f"{what}: verifylab advise --widths {','.join(map(str, settings.widths))}{cost} --capacity "
        f"{settings.graph_capacity} --ratio {settings.dcut_ratio!r} --drafts {settings.ladder()} "
        f"--machine {shlex.quote(settings.machine)}"
    )


def _python(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
