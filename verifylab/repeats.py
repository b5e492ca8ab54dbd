"""Repeats of a grid's runs, interleaved so that a drifting clock or a warming GPU favours none.

Each repeat is a block that holds every parameter set once, in an order drawn anew for it
(a randomised complete block design). The draw is seeded: a sweep started again keeps its order.

What differs between repeats: their index, from 0, is in ``params.json`` and in ``load``'s column
``repeat``. A notebook that has a parameter `REPEAT` is given it. One that has `FIRST_SEED` is given
a range of seeds of its own: ``first_seed + repeat * seeds``, where ``seeds`` is its parameter of
that name (1 where it has none). Any other notebook gets the same parameters each time, which tells
how far a measured time scatters, and of a modelled time nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from verifylab.grid_rows import Row
from verifylab.notebook import UNKNOWN

__all__ = ["FIRST_SEED", "REPEAT", "interleaved"]

REPEAT, FIRST_SEED = "repeat", "first_seed"


def interleaved(
    rows: Iterable[Row], repeats: int, order_seed: int, defaults: Mapping[str, Any]
) -> Iterator[Row]:
    """Yield every row `repeats` times, block by block; one repeat keeps the file's order.

    Parameters
    ----------
    rows : iterable of Row
    repeats, order_seed : int
    defaults : mapping
        The notebook's parameters.

    Raises
    ------
    ValueError
        When the grid itself sets `REPEAT`, or `FIRST_SEED` cannot be counted on from.
    """
    rows = list(rows)
    if repeats == 1:
        yield from rows
        return
    for row in rows:
        if REPEAT in row.given:
            raise ValueError(f"repeats sets the parameter {REPEAT!r}: leave it out of the tables")
    # A generator of its own, whose shuffle is the same in every version of Python.
    draw = random.Random(order_seed)
    for repeat in range(repeats):
        block = [_repeated(row, repeat, defaults) for row in rows]
        for last in range(len(block) - 1, 0, -1):
            other = int(draw.random() * (last + 1))
            block[last], block[other] = block[other], block[last]
        yield from block


def _repeated(row: Row, repeat: int, defaults: Mapping[str, Any]) -> Row:
    # The first repeat is the run as it stands, so that raising `repeats` keeps what is stored.
    changed: dict[str, Any] = {}
    if REPEAT in defaults:
        changed[REPEAT] = repeat
    elif FIRST_SEED in defaults and repeat:
        first = row.parameters.get(FIRST_SEED, UNKNOWN)
        seeds = row.parameters.get("seeds", UNKNOWN if "seeds" in defaults else 1)
        for name, value in ((FIRST_SEED, first), ("seeds", seeds)):
            if value is UNKNOWN:
                raise ValueError(
                    f"repeats needs a whole number as {name!r}, and the notebook's own is known to "
                    "its cell alone: set it in [parameters]"
                )
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"repeats needs a whole number as {name!r}, got {value!r}")
        changed[FIRST_SEED] = first + repeat * seeds
    return replace(
        row,
        name=f"{row.name}-r{repeat}" if repeat else row.name,
        given={**row.given, **changed},
        parameters={**row.parameters, **changed},
        repeat=repeat,
    )
