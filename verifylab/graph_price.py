"""What one graph costs on a machine, and the same machine with dearer or cheaper graphs."""

from __future__ import annotations

from dataclasses import replace

from verifylab.checks import is_number
from verifylab.machine import Coefficient, MachineProfile, load_profile

__all__ = ["MAX_GRAPH_MS", "NODES_PER_GRAPH", "graph_ms_of", "profile_at", "with_graph_ms"]

#: Nodes of the graph that a "graph cost" is quoted for: the published 8-sequence verify graph
#: (`data/published/api_costs.csv`, row ``instantiate``: about 4-5 thousand).
NODES_PER_GRAPH = 4500
#: Dearest graph, ms: a choice, so that a typo is told.
MAX_GRAPH_MS = 1e6
_CAPTURE_TERMS = ("record", "instantiate", "exec_destroy", "graph_destroy")


def graph_ms_of(machine: MachineProfile) -> float:
    """Return what capturing a graph of `NODES_PER_GRAPH` nodes and destroying another costs, ms."""
    return sum(machine.operation_ms(term, NODES_PER_GRAPH) for term in _CAPTURE_TERMS)


def with_graph_ms(machine: MachineProfile, graph_ms: float) -> MachineProfile:
    """Return `machine` with its capture costs scaled so that a graph costs `graph_ms`.

    Recording, instantiating and both destroys keep their proportions and relative intervals;
    updates and everything else stay.

    Raises
    ------
    ValueError
        When `graph_ms` is no number from 0 to `MAX_GRAPH_MS`, or the machine's graphs cost nothing.
    """
    if not is_number(graph_ms) or not 0 <= graph_ms <= MAX_GRAPH_MS:
        raise ValueError(
            f"graph_ms must be 0 or more milliseconds, at most {MAX_GRAPH_MS:g}, got {graph_ms!r}"
        )
    now = graph_ms_of(machine)
    if now <= 0:
        raise ValueError(f"machine {machine.name!r} captures for free: no cost to scale")
    factor = graph_ms / now
    scaled = dict(machine.coefficients)
    for term in _CAPTURE_TERMS:
        for name in (f"{term}_base_ms", f"{term}_per_node_us"):
            c = scaled[name]
            scaled[name] = Coefficient(
                c.value * factor, c.low * factor, c.high * factor, f"scaled to {graph_ms:g} ms"
            )
    return replace(machine, coefficients=scaled)


def profile_at(machine: str, graph_ms: float | None) -> MachineProfile:
    """Return a profile by name, with graphs that cost `graph_ms`; None: its own.

    Raises
    ------
    ValueError
        As `machine.load_profile` and `with_graph_ms`.
    """
    profile = load_profile(machine)
    return profile if graph_ms is None else with_graph_ms(profile, graph_ms)
