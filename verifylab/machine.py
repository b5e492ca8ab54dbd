"""Machine profiles: what a verify step and its graph operations cost, and how we know.

A profile is linear in what a step does (dispatches, rows, sequences, nodes, captures, evictions),
so the time of a whole run follows from its integer counters, and a what-if on graph cost needs no
new simulation. Every coefficient carries an interval and the figures it came from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from verifylab.published import DataError, data_dir
from verifylab.run_files import content

__all__ = ["COEFFICIENTS", "Coefficient", "MachineProfile", "StepWork", "load_profile"]

SCHEMA = 1

#: Name and unit of every coefficient a profile must hold.
COEFFICIENTS: dict[str, str] = {
    "step_base_ms": "ms a dispatch",
    "per_row_ms": "ms a row",
    "per_sequence_ms": "ms a sequence",
    "per_node_us": "us a replayed node",
    "launch_base_us": "us a graph launch",
    "launch_per_node_us": "us a node launched",
    "record_base_ms": "ms a capture",
    "record_per_node_us": "us a node captured",
    "instantiate_base_ms": "ms a capture",
    "instantiate_per_node_us": "us a node captured",
    "update_base_ms": "ms an update",
    "update_per_node_us": "us a node updated",
    "exec_destroy_base_ms": "ms an eviction",
    "exec_destroy_per_node_us": "us a node evicted",
    "graph_destroy_base_ms": "ms an eviction",
    "graph_destroy_per_node_us": "us a node evicted",
    "eager_per_node_us": "us a node launched without a graph",
}
#: No coefficient comes near; it keeps sums finite and refuses infinity.
MAX_NUMBER = 1e15
#: Node counts of whole runs stay far inside 64 bits.
MAX_NODES = 2**20
#: Where a profile does not say: no width is an extrapolation.
MAX_FITTED_WIDTH = 2**20
#: What every dispatch pays: a step that costs none of them takes no time.
_STEP_COSTS = ("step_base_ms", "per_row_ms", "per_sequence_ms", "per_node_us")
KINDS = ("published", "measured", "host")


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one dispatch asks of the machine.

    Attributes
    ----------
    width, rows : int
        Sequences, and rows computed.
    nodes : int
        Graph nodes (launched one by one where there is no graph).
    pieces : int
        Graph launches it takes.
    eager_nodes : int
        Nodes that are launched one by one even where there is a graph (piecewise graphs).
    """

    width: int
    rows: int
    nodes: int
    pieces: int = 1
    eager_nodes: int = 0


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A number, the interval it is believed to lie in, and where it came from.

    `low` and `high` bound what the sources allow; `sample` draws from the triangle over them.
    """

    value: float
    low: float
    high: float
    how: str

    def __post_init__(self) -> None:
        numbers = (self.low, self.value, self.high)
        if not all(np.isfinite(numbers)) or not 0 <= self.low <= self.value <= self.high:
            raise ValueError(
                "a coefficient needs finite 0 <= low <= value <= high, "
                f"got low={self.low} value={self.value} high={self.high}"
            )


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """Costs of one machine.

    Attributes
    ----------
    name, gpu, date : str
        Which machine, and when the figures are from (ISO date).
    kind : {"published", "measured", "host"}
        Where the numbers come from. Times computed from any profile are *modelled*.
    gdn_layers : int
        Layers whose launches depend on the depth runs.
    other_nodes : int
        Graph nodes of a dispatch that do not depend on the runs.
    coefficients : dict[str, Coefficient]
        By name, see `COEFFICIENTS`.
    figures : tuple of dict
        Figure by figure: which published or measured number, and whether it was fitted or held out.
    fitted_widths : (int, int)
        Narrowest and widest batch that the coefficients were fitted to: beyond, times are
        extrapolated.
    """

    name: str
    gpu: str
    date: str
    kind: str
    gdn_layers: int
    other_nodes: int
    coefficients: Mapping[str, Coefficient]
    figures: tuple[Mapping[str, Any], ...] = ()
    notes: str = ""
    fitted_widths: tuple[int, int] = (1, MAX_FITTED_WIDTH)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        missing = COEFFICIENTS.keys() - self.coefficients.keys()
        unknown = self.coefficients.keys() - COEFFICIENTS.keys()
        if missing or unknown:
            problem = f"lacks {sorted(missing)}" if missing else f"has unknown {sorted(unknown)}"
            raise ValueError(f"profile {self.name!r} {problem}")
        widths = self.fitted_widths
        if len(widths) != 2 or not 1 <= widths[0] <= widths[1]:
            raise ValueError(f"fitted_widths must be two ascending widths, got {list(widths)}")
        if not any(self[name] > 0 for name in _STEP_COSTS):
            raise ValueError(
                f"one of {', '.join(_STEP_COSTS)} must be above 0, so that a step takes time: "
                f"all of them are 0"
            )
        for name, low in (("gdn_layers", 1), ("other_nodes", 0)):
            if not low <= getattr(self, name) <= MAX_NODES:
                raise ValueError(
                    f"{name} must be from {low} to {MAX_NODES}, got {getattr(self, name)}"
                )

    def __getitem__(self, name: str) -> float:
        return self.coefficients[name].value

    def nodes(self, launches_per_layer: int) -> int:
        """Return the graph nodes of a dispatch with that many launches in each GDN layer."""
        return self.gdn_layers * launches_per_layer + self.other_nodes

    def values(self) -> dict[str, float]:
        """Return the central values by name."""
        return {name: self.coefficients[name].value for name in COEFFICIENTS}

    def sample(self, draws: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw coefficient values within their intervals.

        Parameters
        ----------
        draws : int
        rng : numpy.random.Generator

        Returns
        -------
        dict[str, ndarray]
            Float64 of shape ``(draws,)`` by name: triangular over (low, value, high), coefficients
            drawn independently.
        """
        out = {}
        for name in COEFFICIENTS:
            c = self.coefficients[name]
            if c.low == c.high:
                out[name] = np.full(draws, c.value)
            else:
                out[name] = rng.triangular(c.low, c.value, c.high, draws)
        return out

    # -- times, all in milliseconds ---------------------------------------------------------

    def body_ms(self, work: StepWork) -> float:
        """Device time of one dispatch, replayed nodes included."""
        return (
            self["step_base_ms"]
            + self["per_row_ms"] * work.rows
            + self["per_sequence_ms"] * work.width
            + self["per_node_us"] * (work.nodes + work.eager_nodes) / 1e3
        )

    def launch_ms(self, nodes: int) -> float:
        """Host time of one graph launch."""
        return (self["launch_base_us"] + self["launch_per_node_us"] * nodes) / 1e3

    def operation_ms(self, operation: str, nodes: int) -> float:
        """Host time of ``record``, ``instantiate``, ``update`` or one of the destroys."""
        return self[f"{operation}_base_ms"] + self[f"{operation}_per_node_us"] * nodes / 1e3

    def eager_ms(self, nodes: int) -> float:
        """Host time of launching every node one by one."""
        return self["eager_per_node_us"] * nodes / 1e3

    # -- storage --------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the profile as JSON text (the format of ``data/machines/*.json``)."""
        body = {
            "schema": SCHEMA,
            "name": self.name,
            "gpu": self.gpu,
            "date": self.date,
            "kind": self.kind,
            "graph": {"gdn_layers": self.gdn_layers, "other_nodes": self.other_nodes},
            "fitted_widths": list(self.fitted_widths),
            "coefficients": {
                name: {
                    "value": c.value,
                    "low": c.low,
                    "high": c.high,
                    "unit": COEFFICIENTS[name],
                    "how": c.how,
                }
                for name, c in self.coefficients.items()
            },
            "figures": list(self.figures),
            "notes": self.notes,
        }
        return json.dumps(body, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "profile") -> MachineProfile:
        """Read a profile; `where` names it in errors.

        Raises
        ------
        DataError
            When the text is no profile of this schema: the message names the field.
        """
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:  # ValueError: also a number too long to read
            raise DataError(f"machine profile {where} is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise DataError(f"machine profile {where} must be a JSON object")
        if _field(body, "schema", int, where) != SCHEMA:
            raise DataError(
                f"machine profile {where} has schema {body['schema']}, this version reads {SCHEMA}"
            )
        graph = _field(body, "graph", dict, where)
        figures = _field(body, "figures", list, where) if "figures" in body else []
        if not all(isinstance(figure, dict) for figure in figures):
            raise DataError(f"machine profile {where}: figures must be a list of objects")
        coefficients = {}
        for name, c in _field(body, "coefficients", dict, where).items():
            part = f"{where}, coefficient {name}"
            if not isinstance(c, dict):
                raise DataError(f"machine profile {part} must be an object, got {short(c)}")
            value, low, high = (float(_field(c, k, float, part)) for k in ("value", "low", "high"))
            how = _field(c, "how", str, part) if "how" in c else ""
            try:
                coefficients[name] = Coefficient(value, low, high, how)
            except ValueError as error:
                raise DataError(f"machine profile {part}: {error}") from None
        try:
            return cls(
                name=_field(body, "name", str, where),
                gpu=_field(body, "gpu", str, where),
                date=_field(body, "date", str, where),
                kind=_field(body, "kind", str, where),
                gdn_layers=_field(graph, "gdn_layers", int, where),
                other_nodes=_field(graph, "other_nodes", int, where),
                coefficients=coefficients,
                figures=tuple(figures),
                notes=_field(body, "notes", str, where) if "notes" in body else "",
                fitted_widths=_widths(body, where),
            )
        except DataError:
            raise
        except ValueError as error:
            raise DataError(f"machine profile {where} is damaged: {error}") from None


def _field(body: dict[str, Any], name: str, kind: type[Any], where: str) -> Any:
    """Return a field of the right JSON type; a whole number serves where a float is asked for."""
    if name not in body:
        raise DataError(f"machine profile {where} lacks the field {name!r}")
    value: Any = body[name]
    kinds = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise DataError(
            f"machine profile {where}: {name} must be {_KINDS[kind]}, got {short(value)}"
        )
    if kind is float and not abs(value) <= MAX_NUMBER:
        raise DataError(
            f"machine profile {where}: {name} must be a finite number of at most {MAX_NUMBER:g}, "
            f"got {short(value)}"
        )
    return value


def _widths(body: dict[str, Any], where: str) -> tuple[int, int]:
    if "fitted_widths" not in body:
        return (1, MAX_FITTED_WIDTH)
    widths = _field(body, "fitted_widths", list, where)
    if len(widths) != 2 or not all(type(w) is int for w in widths):
        raise DataError(f"machine profile {where}: fitted_widths must be two widths, got {widths}")
    return (widths[0], widths[1])


_KINDS = {int: "a whole number", float: "a number", str: "text", dict: "an object", list: "a list"}


def load_profile(name: str, here: str | Path = "") -> MachineProfile:
    """Load a profile by name from ``data/machines/``, or from a path to a ``.json`` file.

    A relative path is looked for in `here` (default: the current folder), then in
    ``data/machines/``, then in the folder that holds ``data/``: a notebook's kernel runs in the
    notebook's folder, ``verifylab calibrate`` wrote where it was called.

    Raises
    ------
    DataError
        When there is no such profile (the message lists those there are) or it is damaged.
    """
    if not isinstance(name, str):
        raise DataError(f"machine must be the name of a profile, got {name!r}")
    folder = data_dir() / "machines"
    as_path = name.endswith(".json")
    path = _found(Path(name), folder, here) if as_path else folder / f"{name}.json"
    if not as_path and ("/" in name or "\\" in name or not os.path.isfile(path)):
        known = ", ".join(sorted(p.stem for p in folder.glob("*.json"))) or "none"
        raise DataError(f"no machine profile {short(name)} in data/machines (there are: {known})")
    try:
        text = content(path).decode("utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or no possible path
        reason = getattr(error, "strerror", None) or error
        hint = ""
        if isinstance(error, FileNotFoundError) and not os.path.isabs(name):
            hint = " here, in data/machines or in the project's folder: give the path from the root"
        raise DataError(f"machine profile {short(name)} cannot be read: {reason}{hint}") from None
    return MachineProfile.from_json(text, path.name)


def _found(path: Path, folder: Path, here: str | Path) -> Path:
    """Return where a file is, from here or beside the project's; as it was given when nowhere."""
    nearby = [here / path, folder / path, folder.parent.parent / path]
    return next((at for at in nearby if os.path.isfile(at)), nearby[0])
