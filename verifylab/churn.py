"""Slots under churn: what arrivals and departures do to slot sets, keys and the fast path.

Requests arrive, hold a slot through prefill (not yet in the batch), decode, and leave; the pool
hands slots out again. Canonical keys collapse arrangements, not slot sets, so every slot set that
a server visits multiplies them; and a depth run takes the fast path only on consecutive slots.
Every sequence keeps the depth that it earned, so that the three dispatch orders see the same
requests on the same slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verifylab.caches import densify
from verifylab.checks import is_number, whole
from verifylab.dcut import DEFAULT_RATIO, MAX_VERIFY_WIDTH, ROW_BUDGET
from verifylab.experiment import Settings
from verifylab.slots import POLICIES
from verifylab.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LENGTHS", "MODES", "ORDERS", "Churn", "ChurnRun", "churn"]

MODES = ("open", "closed", "rounds")
LENGTHS = ("fixed", "uniform", "geometric")
#: Dispatch orders: as the sequences joined the batch (own depths), by slot (canonical), by depth
#: then slot (arrangement).
ORDERS = ("arrival", "slot", "depth")
#: Different request lengths drawn; request r takes length r modulo this.
_LENGTHS_DRAWN = 1 << 16


@dataclass(frozen=True, slots=True)
class Churn:
    """How requests come and how the pool hands out slots.

    Parameters
    ----------
    slots : int
        Slots of the pool, 1 to `MAX_VERIFY_WIDTH`: the widest batch.
    mode : {"open", "closed", "rounds"}
        ``open``: Poisson arrivals. ``closed``: each of `clients` asks again at once. ``rounds``:
        all clients ask together, and again when all are served.
    arrivals_per_step : float
        Open only.
    clients : int
        Closed and rounds; may exceed the slots: the rest wait in order of arrival.
    mean_tokens : int
        Tokens that a request asks for, on average.
    lengths : {"fixed", "uniform", "geometric"}
        ``uniform`` from 1 to twice the mean less 1.
    prefill_steps : int
        Verify steps that a request holds its slot before it joins the batch.
    serial_prefill : bool
        One prefill after the other, or all at once.
    same_text : bool
        All requests draw the same drafts and acceptances, as one prompt at temperature 0 does.
    pool : {"lifo", "lowest"}
        See `verifylab.slots.SlotPool`.
    compaction : bool
        Whether survivors of a retirement move into the lowest slots.
    steps, windows : int
        Steps played; equal stretches (in rounds: rounds) that are counted apart.
    ratio : float
        D-Cut's.
    seed : int
    """

    slots: int = 16
    mode: str = "closed"
    arrivals_per_step: float = 0.08
    clients: int = 16
    mean_tokens: int = 256
    lengths: str = "geometric"
    prefill_steps: int = 2
    serial_prefill: bool = False
    same_text: bool = False
    pool: str = "lifo"
    compaction: bool = True
    steps: int = 24_000
    windows: int = 12
    ratio: float = DEFAULT_RATIO
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("slots", 1, MAX_VERIFY_WIDTH), ("clients", 1, 2**20), ("mean_tokens", 1, 10**6),
            ("prefill_steps", 0, 10**6), ("steps", 1, 10**7), ("windows", 1, 10**5),
            ("seed", 0, 2**64 - 1),
        ):  # fmt: skip
            whole(name, getattr(self, name), low, high)
        for name, known in (("mode", MODES), ("lengths", LENGTHS), ("pool", POLICIES)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        if not is_number(self.arrivals_per_step) or not 0 <= self.arrivals_per_step <= 1e3:
            raise ValueError(
                f"arrivals_per_step must be from 0 to 1000, got {self.arrivals_per_step!r}"
            )

    def draws(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Arrivals by step (open; else empty) and lengths by request, in tokens."""
        rng = np.random.default_rng([self.seed, 5])
        arrivals = np.zeros(0, np.int64)
        if self.mode == "open":
            arrivals = rng.poisson(self.arrivals_per_step, self.steps)
        if self.lengths == "fixed":
            tokens = np.full(_LENGTHS_DRAWN, self.mean_tokens, np.int64)
        elif self.lengths == "uniform":
            tokens = rng.integers(1, 2 * self.mean_tokens, _LENGTHS_DRAWN)
        else:
            tokens = rng.geometric(1 / self.mean_tokens, _LENGTHS_DRAWN)
        return arrivals.astype(np.int64), tokens.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ChurnRun:
    """What the slots went through.

    Attributes
    ----------
    config : Churn
    windows : DataFrame
        One row a window (or round) with the counts of `verifylab._fast_churn.COUNTED`. Of each
        order: depth runs of two or more sequences, those on consecutive ascending slots, steps in
        which any such run declined, and launches in a GDN layer. `contiguous_steps` have their
        batch on consecutive slots; `waiting` and `in_prefill` sum sequences over steps.
    arrangement_ids, canonical_ids, slot_set_ids : ndarray of int64, shape (steps,)
        Key, or slot set, of each step that had a batch, numbered in order of first appearance.
    arrangement_launches, canonical_launches : ndarray of int64, shape (keys,)
        Launches in a GDN layer of each key.
    """

    config: Churn
    windows: pd.DataFrame
    arrangement_ids: NDArray[np.int64]
    canonical_ids: NDArray[np.int64]
    slot_set_ids: NDArray[np.int64]
    arrangement_launches: NDArray[np.int64]
    canonical_launches: NDArray[np.int64]

    def totals(self, first: int = 0) -> pd.Series:
        """Sum the windows from `first` on."""
        return self.windows.iloc[first:].drop(columns="window").sum()


def churn(workload: Workload, config: Churn, *, path: str = "fast") -> ChurnRun:
    """Run requests through the slot pool.

    Parameters
    ----------
    workload : Workload
        Gives drafts, confidences and acceptances; its `output_tokens` and `mode` play no part.
    config : Churn
    path : {"fast", "readable"}

    Raises
    ------
    ValueError
        When a full batch does not fit one dispatch (`ROW_BUDGET` rows), or `path` is unknown.
    """
    import pandas as pd

    from verifylab import _fast_churn as fast

    pool = config.slots
    settings = Settings(pool, ratio=config.ratio)
    drafts, keep = np.zeros(pool + 1, np.int64), np.zeros(pool + 1, np.int64)
    for width in range(1, pool + 1):
        drafts[width], keep[width] = settings.drafts_and_keep(workload, width)
        if width * (drafts[width] + 1) > ROW_BUDGET and keep[width] < 0:
            raise ValueError(
                f"slots must keep a full batch within one dispatch of {ROW_BUDGET} rows, "
                f"{width} sequences of {drafts[width]} drafts do not fit"
            )
    arrivals, lengths = config.draws()
    tables = workload.tables()
    if path == "readable":
        from verifylab._readable_churn import play

        counts, arrangement, canonical, played = play(
            config, arrivals, lengths, drafts, keep, tables
        )
    elif path == "fast":
        counts, arrangement, canonical, played = fast.churn(
            np.uint64(config.seed), pool, MODES.index(config.mode), config.clients, arrivals,
            lengths, config.steps, config.windows, config.prefill_steps, config.serial_prefill,
            config.same_text, config.pool == "lowest", config.compaction, drafts, keep,
            tables.log_reported, tables.accept_below,
        )  # fmt: skip
    else:
        raise ValueError(f"path must be 'fast' or 'readable', got {path!r}")
    arrangement, canonical = arrangement[:played], canonical[:played]
    table = pd.DataFrame(counts, columns=list(fast.COUNTED))
    table.insert(0, "window", np.arange(config.windows))
    own, own_first = densify(arrangement)
    paired, paired_first = densify(canonical)
    sets, _ = densify(canonical >> 8)
    return ChurnRun(
        config, table, own, paired, sets,
        _launches(arrangement[own_first]), _launches(canonical[paired_first]),
    )  # fmt: skip


def _launches(words: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count launches in a layer for keys of different widths, given as ``slot << 8 | rows``."""
    from verifylab.launches import launches_per_layer

    out = np.zeros(len(words), np.int64)
    widths = (words >= 0).sum(axis=1)
    for width in np.unique(widths):
        at = widths == width
        batch = words[at, :width]
        out[at] = launches_per_layer(batch >> 8, batch & 255)
    return out
