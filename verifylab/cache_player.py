"""A run of the readable path, recorded dispatch by dispatch with the places of its graph cache.

`play` runs one policy through `verifylab.experiment.run` and follows its outcomes with the rule of
`GraphCache` (least recently used out first), so that a player can show who lies where.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verifylab.counters import Counters
from verifylab.experiment import Settings, Step, run
from verifylab.exploration import Exploration
from verifylab.gate import Gate
from verifylab.graph_cache import Outcome
from verifylab.machine import load_profile

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
        Number of its key, in the order of first appearance; `EMPTY` for a dispatch without one.
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
    places : ndarray of int64, shape (frames, capacity)
        Key in each place after each frame, or `EMPTY`.
    used : ndarray of int64, shape (frames, capacity)
        Frame at which each place was last used.
    rows : tuple of tuple of int
        By key: the rows of its sequences, by ascending slot.
    counters : Counters
        Of the run itself.
    """

    frames: tuple[Frame, ...]
    places: np.ndarray
    used: np.ndarray
    rows: tuple[tuple[int, ...], ...]
    counters: Counters


def play(settings: Exploration) -> Playback:
    """Run `settings.cache_policy` from an empty cache and record every dispatch."""
    steps: list[Step] = []
    gate = Gate(settings.threshold) if settings.cache_policy == "gated" else None
    result = run(
        settings.workload(), settings.cache_policy, gate, load_profile(settings.machine),
        Settings(
            settings.width, steps=settings.play_steps, warmup_steps=0, seed=settings.seed,
            capacity=settings.graph_capacity, ratio=settings.dcut_ratio,
        ),
        path="readable", observe=steps.append,
    )  # fmt: skip
    # No more places than keys can be filled: a cache of thousands stays small here.
    capacity = min(settings.graph_capacity, sum(len(step.dispatches) for step in steps))
    keys: dict[bytes, int] = {}
    rows: list[tuple[int, ...]] = []
    lying: dict[int, int] = {}  # key: place, oldest use first
    places, used = np.full(capacity, EMPTY), np.full(capacity, EMPTY)
    frames: list[Frame] = []
    seen_places, seen_used = [], []
    so_far = dict.fromkeys(("hit", "capture", "eviction", "eager"), 0)
    for step in steps:
        for dispatch, done in zip(step.dispatches, step.outcomes, strict=True):
            key = EMPTY
            if dispatch.key is not None:
                key = keys.setdefault(dispatch.key, len(keys))
                if key == len(rows):
                    by_slot = np.argsort(dispatch.slots, kind="stable")
                    rows.append(tuple(dispatch.depths[by_slot].tolist()))
            outcome = _NAMES[done.outcome]
            place = evicted = EMPTY
            idle = 0
            if outcome == "hit":
                place = lying.pop(key)
            elif outcome == "capture":
                place = len(lying)
                if len(lying) == settings.graph_capacity:
                    evicted = next(iter(lying))
                    place = lying.pop(evicted)
                    idle = len(frames) - int(used[place])
                    so_far["eviction"] += 1
            so_far[outcome] += 1
            if place != EMPTY:
                lying[key] = place
                places[place], used[place] = key, len(frames)
            frames.append(
                Frame(
                    step.index,
                    key,
                    outcome,
                    place,
                    evicted,
                    idle,
                    so_far["hit"],
                    so_far["capture"],
                    so_far["eviction"],
                    so_far["eager"],
                )  # fmt: skip
            )
            seen_places.append(places.copy())
            seen_used.append(used.copy())
    return Playback(
        tuple(frames), np.array(seen_places), np.array(seen_used), tuple(rows), result.counters
    )


_NAMES = {Outcome.HIT: "hit", Outcome.CAPTURE: "capture", Outcome.EAGER: "eager"}
