"""What another policy or capacity would have captured, bounded from a log of captures alone.

The log gives, for each window, how many steps were replayed, and for each capture its key; not
the keys of replayed steps. Three facts bound every answer all the same.

1. *Compulsory.* From a cold cache every distinct key is captured at least once.
2. *Inclusion.* What LRU hits, a larger LRU hits too (Mattson 1970).
3. *Merging.* If the new key is a function of the logged one, then between two uses of a new key
   there are at most as many distinct new keys as there were logged ones between the two uses of
   its logged key. So a logged hit stays a hit, and only logged captures can be captures.

For a policy that updates, what is kept is the node structure: it is what the facts are about
then. One that waits for a second sighting caches what a plain LRU would, but for each key's first
use: it captures no more, and a key seen once it does not capture at all, so the first fact is
void. Borrowing depends on the order of all steps, which a log does not have: nothing can be said.
The drafts of a captured batch are taken to be its most rows less one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from verifylab.experiment import nodes_of
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.machine import MachineProfile
from verifylab.policy import POLICIES, Baked, GatedPolicy, KeyPolicy
from verifylab.trace_file import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["bounds"]


_COLUMNS = ["engine", "segment", "policy", "capacity", "steps", "keys", "captures_logged",
            "captures_low", "captures_high", "fraction_low", "fraction_high", "why"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Section:
    """One engine's run in a log: what is known of it."""

    keys: Any
    captured: int  # at least
    most: float  # captured or borrowed, at most; NaN: not known
    hidden: int  # borrowed steps: their keys are not known, and they were no captures
    steps: int
    counted: bool  # every window says its steps
    doubtful: int  # windows of which a count is missing, or contradicts the others
    capacity: int | None
    from_start: bool
    all_captures: bool


def bounds(
    trace: Trace,
    key_policy: KeyPolicy | GatedPolicy,
    capacity: int = VERIFY_BATCHED_GRAPH_CAP,
    profile: MachineProfile | None = None,
    from_start: bool | None = None,
) -> pd.DataFrame:
    """Bound the captures of a policy and an LRU capacity on the steps of an engine log.

    Parameters
    ----------
    trace : Trace
        Of format ``atlas_log``.
    key_policy : KeyPolicy
        Applied to the slots and depths of every captured key.
    capacity : int
        Graphs; 1 or more.
    profile : MachineProfile, optional
        Adds ``captures_ms_low, captures_ms_high`` (modelled).
    from_start : bool, optional
        Whether the log begins with the engine, its cache cold. None: believed only where the
        first window proves it (fewer live keys than the cache holds, all of them captured before
        in this log).

    Returns
    -------
    DataFrame
        A row for each engine and segment: ``engine, segment, policy, capacity, steps, keys``
        (known, under the policy)``, captures_logged, captures_low, captures_high,
        fraction_low, fraction_high, why``. NaN where nothing can be said, with the reason.
    """
    import pandas as pd

    if capacity < 1:
        raise ValueError(f"capacity must be 1 or more graphs, got {capacity}")
    captures = trace.table("captures")
    windows = trace.tables.get("windows", captures.iloc[:0])
    captured, counted = _by_section(captures), _by_section(windows)
    keys = trace.table("keys").set_index("key_id", drop=False)
    unreadable = bool(trace.counts.get("captures_unreadable"))
    planned: dict[int, list[tuple[bytes | None, int]]] = {}
    rows = []
    for engine, at in sorted(captured.keys() | counted.keys()):
        here = (engine, at)
        section = _section(
            captures.iloc[captured.get(here, [])],
            windows.iloc[counted.get(here, [])],
            keys,
            unreadable,
            from_start,
        )
        row: dict[str, Any] = {"engine": engine, "segment": at, "policy": key_policy.name,
                               "capacity": capacity, "steps": section.steps}  # fmt: skip
        rows.append(row | _bound(section, key_policy, capacity, profile, planned))
    return pd.DataFrame(rows, columns=None if rows else _COLUMNS)


def _by_section(table: pd.DataFrame) -> dict[tuple[str, int], Any]:
    """Return where the rows of each engine's segments stand."""
    found = table.groupby(["engine", "segment"], observed=True, sort=False).indices
    return {(str(engine), segment): rows for (engine, segment), rows in found.items()}


def _known(keys: pd.DataFrame, captures: pd.DataFrame) -> pd.DataFrame:
    """Return the keys of captures that have one, by number."""
    wanted = np.unique(captures.key_id.to_numpy())
    return keys.loc[wanted[wanted >= 0]]


def _section(
    captures: pd.DataFrame,
    windows: pd.DataFrame,
    keys: pd.DataFrame,
    unreadable: bool,
    from_start: bool | None,
) -> _Section:
    import pandas as pd

    if windows.empty:
        logged = len(captures)
        most = float("nan") if unreadable else float(logged)
        known = _known(keys, captures)
        return _Section(known, logged, most, 0, 0, False, 0, None, bool(from_start), False)
    first = windows.iloc[0]
    # Steps after the last window were not counted, so their captures are left out too.
    captures = captures[captures.offset < windows.offset.iloc[-1]]
    known = _known(keys, captures)
    before = captures[(captures.offset < first.offset) & (captures.key_id >= 0)]
    parts = windows[["replay", "borrow", "capture", "eager"]].astype(float)
    steps, total = windows.steps.astype(float), int(windows.capture.sum())
    whole = parts.sum(axis=1, skipna=False) == steps
    # A lost window makes its captures those of the next one: then the next one's count is wrong.
    ends = np.searchsorted(windows.offset.to_numpy(), captures.offset.to_numpy(), "right")
    by_window = np.bincount(ends, minlength=len(windows))
    rest = steps - parts.replay.fillna(0) - parts.eager.fillna(0)
    most = (parts.borrow + parts.capture).fillna(rest)
    most = most.where(whole | parts.isna().any(axis=1), np.maximum(most, rest))
    capacity = windows.capacity.dropna()
    proven = pd.notna(first.live_keys) and pd.notna(first.capacity)
    proven = proven and first.live_keys < first.capacity
    proven = proven and first.live_keys <= before.key_id.nunique()
    complete = whole.all() and (by_window == parts.capture).all() and (captures.key_id >= 0).all()
    return _Section(
        known,
        max(total, len(captures)),
        float(np.maximum(most, by_window).sum(skipna=False)),
        int(windows.borrow.sum()),
        int(windows.steps.sum()),
        bool(windows.steps.notna().all()),
        int((~whole).sum()),
        int(capacity.max()) if len(capacity) else None,
        bool(proven) if from_start is None else from_start,
        bool(complete) and not unreadable,
    )


def _bound(
    section: _Section,
    key_policy: KeyPolicy | GatedPolicy,
    capacity: int,
    profile: MachineProfile | None,
    planned: dict[int, list[tuple[bytes | None, int]]],
) -> dict[str, Any]:
    """Bound one section; `planned` holds what the policy makes of each key, for the next one."""
    nan = float("nan")
    nothing = {"keys": 0, "captures_logged": section.captured, "captures_low": nan,
               "captures_high": nan, "fraction_low": nan, "fraction_high": nan}  # fmt: skip
    rules = key_policy.rules if isinstance(key_policy, GatedPolicy) else POLICIES["arrangement"]
    if lost := _lost_pairing(section.keys, key_policy):
        return nothing | {"why": lost}
    if rules.borrow:
        return nothing | {"why": "what is borrowed depends on the order of all steps"}
    # Launches stand for nodes where no machine is given: only that they are there matters.
    machine = (1, 0) if profile is None else (profile.gdn_layers, profile.other_nodes)
    count = nodes_of(rules, *machine)
    new: dict[bytes | None, int] = {}
    same, parts = section.all_captures, 1
    columns = (section.keys.key_id, section.keys.key, section.keys.slots, section.keys.depths)
    for number, key, slots, depths in zip(*columns, strict=True):
        if number not in planned:
            rows = np.asarray(depths, np.int64)
            plan = key_policy.step(np.asarray(slots, np.int64), rows, int(rows.max()) - 1)
            planned[number] = [
                (d.signature if rules.update and d.key else d.key, count(d)[0])
                for d in plan.dispatches
            ]
        dispatches = planned[number]
        parts = max(parts, len(dispatches))
        for kept, nodes in dispatches:
            new[kept] = nodes
            same &= kept == key
    if rules.sightings == 0:
        none = {"captures_low": 0.0, "captures_high": 0.0, "why": "exact: it never captures"}
        if section.steps and section.counted:
            none |= {"fraction_low": 0.0, "fraction_high": 0.0}
        if profile is not None:
            none |= {"captures_ms_low": 0.0, "captures_ms_high": 0.0}
        return nothing | none
    new.pop(None, None)
    low = len(new) if section.from_start else max(0, len(new) - capacity)
    if rules.sightings > 1:
        same, low = False, 0
    reasons = (
        [] if section.from_start else ["it is not shown that the log begins with a cold cache"]
    )
    counted = section.counted and section.steps > 0
    high: float = section.steps * parts if counted else nan
    if not section.steps:
        reasons.append("no window says how many steps there were")
    elif section.doubtful:
        many = f"{section.doubtful:,} window{'s' * (section.doubtful > 1)}"
        reasons.append(f"{many} without all counts: more may have been captured than is logged")
    if same and section.capacity is not None and capacity <= section.capacity:
        low = section.captured  # the engine's own keys: a smaller cache captures no less
    if section.capacity is None:
        reasons.append("the log does not say the cache's capacity")
    elif capacity < section.capacity:
        reasons.append(f"less than the engine's {section.capacity} graphs: hits may be lost")
    elif parts > 1:
        reasons.append(f"a logged batch becomes {parts} dispatches: hits may be lost")
    else:
        high = min(high, section.most) if counted else section.most
        if same and capacity == section.capacity:
            high = low
            reasons = ["exact: what the engine did"]
        elif section.hidden:
            reasons.append(f"{section.hidden} borrowed steps have keys that were not logged")
        elif (
            section.from_start
            and section.all_captures
            and len(new) <= capacity
            and rules.sightings == 1
        ):
            high = low
            reasons.append("exact: every key is known and all fit")
        elif section.all_captures and len(new) + section.capacity <= capacity:
            high = min(high, len(new))  # with what was live before the log, all fit
    if not section.all_captures:
        reasons.append("captures are missing from the log, or no window counts them")
    row = nothing | {"keys": len(new), "captures_low": float(low), "captures_high": float(high)}
    if counted:
        row |= {"fraction_low": low / section.steps, "fraction_high": high / section.steps}
    if profile is not None and new:
        row |= {
            f"captures_ms_{end}": _capture_ms(profile, list(new.values()), captures, capacity)
            for end, captures in (("low", low), ("high", high))
        }
    return row | {"why": "; ".join(reasons)}


def _lost_pairing(keys: pd.DataFrame, key_policy: KeyPolicy | GatedPolicy) -> str:
    """Why the policy cannot be computed from these keys; empty when it can.

    A canonical engine logs re-paired depths: which sequence earned which is gone. Only a key of
    (slot, rows) pairs needs that.
    """
    if isinstance(key_policy, GatedPolicy) and (
        key_policy.rules.baked is not Baked.PAIRS or key_policy.rules.sightings == 0
    ):
        return ""
    for n, mine in keys.groupby("n"):
        mixed = mine[[len(set(d)) > 1 for d in mine.depths]]
        if (
            isinstance(key_policy, GatedPolicy)
            and key_policy.rules.gated
            and key_policy.gate.canonical(int(n))
        ):
            continue
        if len(mixed) and bool(mixed.canonical.all()):
            return (
                f"at width {n} every key of mixed depths is in canonical form, as a canonical "
                f"engine logs them: own depths are lost then, and {key_policy.name} needs them"
            )
    return ""


def _capture_ms(profile: MachineProfile, nodes: list[int], count: float, capacity: int) -> float:
    mean = int(np.mean(nodes))
    build = sum(profile.operation_ms(op, mean) for op in ("record", "instantiate"))
    destroy = sum(profile.operation_ms(op, mean) for op in ("exec_destroy", "graph_destroy"))
    return count * build + max(count - capacity, 0) * destroy
