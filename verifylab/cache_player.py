"""A run, recorded dispatch by dispatch with the places of its graph cache.

`play` traces the keys of one policy (`verifylab.key_trace`) and follows them with the rule of
`GraphCache` (least recently used out first), so that a player can show who lies where. A test holds
the frames equal to those of the readable run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verifylab.experiment import Settings
from verifylab.exploration import Exploration
from verifylab.gate import Gate
from verifylab.key import parse_graph_key
from verifylab.key_trace import key_trace
from verifylab.machine import load_profile
from verifylab.policy import POLICIES, Baked, policy

__all__ = ["Frame", "Playback", "play"]

EMPTY = -1


@dataclass(frozen=True, slots=True)
class Frame:
    """One dispatch.

    Attributes
    ----------
    step : int
        From 0.
    key : int
        Number of its key, in the order of first appearance.
    outcome : str
        ``hit``, ``capture`` or ``eager``.
    place : int
        Where its graph lies; `EMPTY` when eager.
    evicted : int
        Key that it drove out; `EMPTY` for none.
    idle : int
        Dispatches since `evicted` was last used.
    hits, captures, evictions, eager : int
        So far, this one included.
    """

    step: int
    key: int
    outcome: str
    place: int
    evicted: int
    idle: int
    hits: int
    captures: int
    evictions: int
    eager: int


@dataclass(frozen=True, slots=True, eq=False)
class Playback:
    """A recorded run.

    Attributes
    ----------
    frames : tuple of Frame
    capacity : int
        Places of the cache, at most one a frame: further ones cannot be filled.
    rows : tuple of tuple of int
        By key: the rows of its sequences, by ascending slot.
    beyond : int
        Places of the cache that such a run cannot fill.
    """

    frames: tuple[Frame, ...]
    capacity: int
    rows: tuple[tuple[int, ...], ...]
    beyond: int = 0

    def held(self, at: int) -> dict[int, tuple[int, int]]:
        """Return, by place, the key that lies there after frame `at` and when it was last used."""
        used = enumerate(self.frames[: at + 1])
        return {f.place: (f.key, t) for t, f in used if f.place != EMPTY}


def play(settings: Exploration) -> Playback:
    """Run `settings.cache_policy` from an empty cache and record every dispatch."""
    steps, keys, rows = _traced(settings)
    sightings = POLICIES[settings.cache_policy].sightings
    lying: dict[int, tuple[int, int]] = {}  # key: place and last use, oldest use first
    seen = [0] * len(rows)
    so_far = dict.fromkeys(("hit", "capture", "eviction", "eager"), 0)
    frames: list[Frame] = []
    for now, (step, key) in enumerate(zip(steps, keys, strict=True)):
        seen[key] += 1
        place = evicted = EMPTY
        idle = 0
        if key in lying:
            outcome = "hit"
            place, _ = lying.pop(key)
        elif seen[key] < sightings:
            outcome = "eager"
        else:
            outcome = "capture"
            place = len(lying)
            if len(lying) == settings.graph_capacity:
                evicted = next(iter(lying))
                place, used = lying.pop(evicted)
                idle = now - used
                so_far["eviction"] += 1
        so_far[outcome] += 1
        if place != EMPTY:
            lying[key] = place, now
        frames.append(Frame(step, key, outcome, place, evicted, idle, *so_far.values()))
    fillable = min(settings.graph_capacity, len(frames))
    return Playback(tuple(frames), fillable, rows, settings.graph_capacity - fillable)


def _traced(settings: Exploration) -> tuple[list[int], list[int], tuple[tuple[int, ...], ...]]:
    """Return step and key of every dispatch, and by key the rows of its sequences."""
    # What such a key bakes is the rows of an arrangement key without its slots.
    bare = POLICIES[settings.cache_policy].baked is Baked.RUNS
    name = "arrangement" if bare else settings.cache_policy
    chosen = Settings(
        settings.width, steps=settings.play_steps, warmup_steps=0, seed=settings.seed,
        ratio=settings.dcut_ratio,
    )  # fmt: skip
    key_policy = policy(
        name, Gate(settings.threshold) if name == "gated" else None,
        row_budget=chosen.row_budget, max_width=chosen.max_width,
    )  # fmt: skip
    trace = key_trace(settings.workload(), key_policy, chosen, load_profile(settings.machine))
    known: dict[object, int] = {}
    numbers, widths = [], []
    rows: list[tuple[int, ...]] = []
    for key in trace.keys:
        pairs, _ = parse_graph_key(key)
        baked = tuple(depth for _, depth in pairs) if bare else key
        numbers.append(known.setdefault(baked, len(known)))
        widths.append(len(pairs))
        if numbers[-1] == len(rows):
            rows.append(tuple(depth for _, depth in sorted(pairs)))
    steps = (np.cumsum(np.array(widths)[trace.ids]) - 1) // settings.width
    return steps.tolist(), np.array(numbers)[trace.ids].tolist(), tuple(rows)
