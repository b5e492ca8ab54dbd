"""Under what a stored run's numbers were made, in words, and how two runs differ in that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from verifylab.checks import fraction, is_number, whole
from verifylab.dcut import DEFAULT_LADDER, DEFAULT_RATIO, ROW_BUDGET, DraftLadder, snap_ratio
from verifylab.exploration import Exploration
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.graph_price import graph_ms_of
from verifylab.machine import load_profile
from verifylab.stored_runs import StoredRun
from verifylab.workload import OUTPUT_TOKENS

__all__ = ["Setting", "is_measured", "other_parameters"]

#: Parameters that say how long a run was or where it wrote, not what it was a run of.
_EXTENT = ("out", "first_seed", "seeds", "steps", "warmup_steps", "draws")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run's numbers hold for.

    Attributes
    ----------
    machine : str
        Its profile; where it was measured, the GPU.
    ratio : float
        D-Cut's, snapped.
    drafts : str
        Ladder, rungs of as many drafts made one.
    capacity : int
        Graphs that the cache holds.
    graph_ms : float or None
        Milliseconds of a capture and eviction in the model; None: measured, or not known.
    spread : float or None
        None: as calibrated.
    mode : str
        ``steady`` or ``drain``.
    output_tokens, row_budget : int
        Tokens that a request asks for; rows of a dispatch at most.
    """

    machine: str
    ratio: float
    drafts: str
    capacity: int
    graph_ms: float | None
    spread: float | None
    mode: str
    output_tokens: int = OUTPUT_TOKENS
    row_budget: int = ROW_BUDGET

    @classmethod
    def of(cls, run: StoredRun, tables: Mapping[str, pd.DataFrame]) -> Setting:
        """Read it from a run's parameters and tables; what its notebook does not ask is a default.

        Raises
        ------
        ValueError
            When a parameter is out of range.
        """
        given = run.parameters
        spread = given.get("confidence_spread")
        return cls(
            _machine(run, tables),
            snap_ratio(given.get("dcut_ratio", DEFAULT_RATIO)),
            DraftLadder.parse(given.get("drafts", str(DEFAULT_LADDER))).in_words(),
            whole("graph_capacity", given.get("graph_capacity", VERIFY_BATCHED_GRAPH_CAP), 1),
            _graph_ms(run, tables),
            None if spread is None else fraction("confidence_spread", spread),
            str(given.get("mode", "steady")),
            whole("output_tokens", given.get("output_tokens", OUTPUT_TOKENS), 1),
            whole("row_budget", given.get("row_budget", ROW_BUDGET), 1),
        )

    @classmethod
    def explored(cls, settings: Exploration) -> Setting:
        """Read it from what the explorer is set to."""
        return cls(
            settings.profile().name,
            snap_ratio(settings.dcut_ratio),
            settings.ladder().in_words(),
            settings.graph_capacity,
            settings.shown_graph_ms(),
            settings.confidence_spread,
            "steady",
        )

    def workload(self) -> str:
        """Say ratio and drafts."""
        ladder = " (width up to : drafts)" if ":" in self.drafts else ""
        return f"D-Cut ratio {self.ratio:g}, drafts {self.drafts}{ladder}"

    def sentence(self) -> str:
        """Say all but the machine, and of the rest what was not as usual."""
        words = self._words()
        left_out = {words["machine"], words["ratio"], words["drafts"], *_USUAL}
        return "; ".join([self.workload(), *(w for w in words.values() if w not in left_out)])

    def other_than(self, base: Setting, *, mode: bool = True) -> str:
        """Say what differs from `base`, and what that has; "" where nothing does.

        Parameters
        ----------
        base : Setting
        mode : bool
            Whether a drain differs from a steady run.
        """
        mine, there = self._words(), base._words()
        unlike = [name for name in mine if mine[name] != there[name]]
        if not mode and "mode" in unlike:
            unlike.remove("mode")
        said = {name: f"{mine[name]}, not {there[name]}" for name in unlike}
        if _UNPRICED == mine["graph_ms"]:
            said.pop("graph_ms", None)
        elif _UNPRICED == there["graph_ms"]:
            said["graph_ms"] = f"{mine['graph_ms']}, modelled"
        return "; ".join(said.values())

    def _words(self) -> dict[str, str]:
        return {
            "machine": f"times of {self.machine}",
            "ratio": f"D-Cut ratio {self.ratio:g}",
            "drafts": f"drafts {self.drafts}",
            "capacity": f"{self.capacity} graphs",
            "graph_ms": _UNPRICED if self.graph_ms is None else _cost(self.graph_ms),
            "spread": _CALIBRATED if self.spread is None else f"confidence spread {self.spread:g}",
            "mode": _STEADY if self.mode == "steady" else f"a {self.mode}",
            "output_tokens": f"{self.output_tokens} tokens a request",
            "row_budget": f"{self.row_budget} rows a dispatch at most",
        }


_UNPRICED = "graphs without a modelled cost"
_CALIBRATED, _STEADY = "confidence spread as calibrated", "a steady run"
_ROWS, _TOKENS = f"{ROW_BUDGET} rows a dispatch at most", f"{OUTPUT_TOKENS} tokens a request"
_USUAL = (_UNPRICED, _CALIBRATED, _STEADY, _ROWS, _TOKENS)


def _cost(graph_ms: float) -> str:
    exact = f"{graph_ms:.1f}" if graph_ms >= 1 or graph_ms == 0 else f"{graph_ms:.2g}"
    return f"{exact} ms a capture and eviction"


def is_measured(tables: Mapping[str, pd.DataFrame]) -> bool:
    """Whether the arms of a width-gate run were timed on a device."""
    arms = tables.get("arms")
    return arms is not None and "time" in arms and arms.time.iloc[0] == "measured"


def _machine(run: StoredRun, tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the machine's own name: parameters may name a profile by its path."""
    for table in tables.values():
        if "machine" in table:
            return str(table.machine.iloc[0])
    named = str(run.parameters.get("machine", "an unknown machine"))
    return Path(named).stem if named.endswith(".json") else named


def _graph_ms(run: StoredRun, tables: Mapping[str, pd.DataFrame]) -> float | None:
    """Return what the run says that a graph cost, else its parameter, else its machine's cost."""
    arms, policies = tables.get("arms"), tables.get("map")
    if is_measured(tables):
        return None
    if arms is not None and "graph_ms" in arms:
        return float(arms.graph_ms.iloc[0])
    if policies is not None and "map" in policies:
        own = policies[policies["map"] == "ratio"].graph_ms
        if len(own):
            return float(own.iloc[0])
    given = run.parameters.get("graph_ms")
    if given is not None and is_number(given):
        return float(given)
    try:
        return graph_ms_of(load_profile(str(run.parameters.get("machine"))))
    except ValueError:
        return None  # a profile that is not at hand here


def other_parameters(run: StoredRun, base: StoredRun, *, extent: bool = False) -> str:
    """Say which parameters of `run` differ from those of `base`; "" where none does.

    One that either lacks came later: it had its default then.

    Parameters
    ----------
    run, base : StoredRun
    extent : bool
        Whether seeds and steps are told, and nothing else.
    """
    mine, there = run.parameters, base.parameters
    names = [n for n in mine if n in there and n != "out" and (n in _EXTENT) == extent]
    return ", ".join(f"{n} {_short(mine[n])}" for n in names if mine[n] != there[n])


def _short(value: Any) -> str:
    said = value if isinstance(value, str) else json.dumps(value)
    return said if len(said) <= 40 else f"{said[:37]}..."
