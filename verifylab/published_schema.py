"""What the published tables must hold, so that a damaged one is named before it is computed with.

A kind is ``number`` (finite), ``positive``, ``range`` (``1.5`` or ``0.54-0.57``, above 0),
``ratio`` (a number from 0 to 1, or ``off``) or ``text``; a ``?`` after it allows an empty cell.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "ROWS", "fault", "numbers"]

#: Columns that are read, by table, and their kinds. A table may have more.
COLUMNS: dict[str, dict[str, str]] = {
    "acceptance": {
        "n": "positive", "drafts": "positive", "p1": "range", "p2_given_1": "range?",
        "p3_given_2": "range?", "tokens_per_step": "positive?",
    },
    "api_costs": {
        "operation": "text", "value": "range", "unit": "text", "setting": "text?", "source": "text",
    },
    "canonical_ab": {
        "concurrency": "positive", "tok_s_canonical_on": "positive",
        "tok_s_canonical_off": "positive", "delta_pct": "number", "note": "text?",
    },
    "dcut_ratio": {
        "concurrency": "positive", "ratio": "ratio", "tok_s": "positive", "tok_step": "positive?",
        "when": "text",
    },
    "gdn_launches": {"n": "positive", "multiset_k4_k3_k2": "text", "arrangement_mean": "positive"},
    "key_counts": {
        "n": "positive", "drafts": "positive", "ratio": "positive?",
        "keys_arrangement": "positive", "keys_canonical": "positive", "keys_measured": "range?",
    },
    "ladder_rounds": {
        "round": "text", **{f"C{width}": "positive" for width in (1, 2, 4, 8, 16, 32)},
    },
    "model_dims": {"name": "text", "value": "positive"},
    "nsys_c8": {"quantity": "text", "value": "positive"},
    "step_breakdown": {"term": "text", "ms_per_added_sequence": "positive"},
}  # fmt: skip

#: Rows that are read by what they hold in these columns.
ROWS: dict[str, tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]] = {
    "acceptance": (("n", "drafts"), ((1, 3), (4, 3), (8, 3))),
    "api_costs": (
        ("operation",), (("replay_per_node",), ("launch_per_node_cuda_12_6",)),
    ),
    "dcut_ratio": (
        ("concurrency", "when", "ratio"),
        tuple(
            (8, when, ratio)
            for when in ("2026-07-29", "2026-08-17")
            for ratio in (0.25, 0.5, 0.75, 1.0)
        ),
    ),
    "gdn_launches": (("n",), ((8,),)),
    "ladder_rounds": (("round",), (("r6",),)),
    "model_dims": (("name",), (("gdn_layers",),)),
    "nsys_c8": (
        ("quantity",),
        (
            ("steps",), ("captures",), ("cuGraphInstantiate",), ("cuGraphExecDestroy",),
            ("cuGraphDestroy",), ("tok_s_control",), ("tok_s_dcut_off",),
        ),
    ),
    "step_breakdown": (
        ("term",),
        (
            ("step_wall_c1",), ("step_wall_c8",), ("idle_c1",), ("idle_c2",), ("host_sampling",),
            ("gdn_recurrent",), ("weight_gemm",), ("attention_elementwise",), ("drafter_gemm",),
            ("eager_launch_and_d2d",), ("graph_instantiate_destroy",),
        ),
    ),
}  # fmt: skip

_RIGHT = {
    "number": "a number",
    "positive": "a number above 0",
    "range": "a number above 0, or a range like 0.54-0.57",
    "ratio": "a ratio from 0 to 1, or off",
    "text": "text",
}


def numbers(cell: Any) -> list[float]:
    """Return the number of a cell, or both ends of its range; empty where it holds neither."""
    try:
        values = [float(cell)]
    except (TypeError, ValueError):
        try:
            values = [float(part) for part in str(cell).split("-")]
        except ValueError:
            return []
    return values if len(values) <= 2 and all(map(math.isfinite, values)) else []


def fault(name: str, frame: pd.DataFrame) -> str:
    """Say what is wrong with a table, in words that follow its name; "" where nothing is."""
    if not len(frame):
        return "has no rows"
    columns = COLUMNS.get(name, {})
    for column, kind in columns.items():
        if column not in frame.columns:
            return f"lacks the column {column!r} (it has {', '.join(map(str, frame.columns))})"
        for line, cell in enumerate(frame[column], 2):
            if not _fits(cell, kind):
                right = _RIGHT[kind.rstrip("?")]
                return f"line {line}: {column} must be {right}, got {_shown(cell)}"
    keys, needed = ROWS.get(name, ((), ()))
    held = {tuple(map(_plain, row)) for row in frame[list(keys)].itertuples(index=False)}
    for row in needed:
        if row not in held:
            wanted = ", ".join(f"{k} {v}" for k, v in zip(keys, row, strict=True))
            return f"lacks the row with {wanted}"
    return ""


def _fits(cell: Any, kind: str) -> bool:
    if isinstance(cell, float) and math.isnan(cell):
        return kind.endswith("?")
    values = numbers(cell)
    match kind.rstrip("?"):
        case "text":
            return isinstance(cell, str)
        case "range":
            return bool(values) and min(values) > 0
        case "ratio":
            return cell == "off" or (len(values) == 1 and 0 <= values[0] <= 1)
        case "positive":
            return len(values) == 1 and values[0] > 0
    return len(values) == 1


def _shown(cell: Any) -> str:
    return "nothing" if isinstance(cell, float) and math.isnan(cell) else repr(cell)


def _plain(cell: Any) -> Any:
    """Return a number as a float, so that 8, 8.0 and "8" are one key."""
    values = numbers(cell)
    return values[0] if len(values) == 1 else cell
