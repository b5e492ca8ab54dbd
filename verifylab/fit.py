"""Fit the workload and the `gb10-published` machine to published figures.

`fit_workload` and `fit_machine` only read `data/published`; `write` stores what they return, with
residuals, where the rest of the library loads it. Neither sees the canonical A/B or the measured
key counts: those are validation (`verifylab.validation`).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verifylab.dcut import RATIOS, select
from verifylab.draws import request_words
from verifylab.machine import Coefficient, MachineProfile
from verifylab.paths import write_aside
from verifylab.published import DataError, data_dir, figure, number, table
from verifylab.published_schema import numbers
from verifylab.workload import QUANTILES, Workload

__all__ = ["SpreadFit", "fit_acceptance", "fit_machine", "fit_spread", "fit_workload", "write"]

#: Batches simulated for each point of the spread's grid: the standard error of a difference in
#: tokens per step between two ratios is then below 0.003, against 0.02 between published repeats.
BATCHES = 8000
#: Updating an executable graph against building it: 0.1 ms against 13.7 ms
#: (`data/published/api_costs.csv`, row ``exec_update`` of imp PR 1895).
UPDATE_SHARE = 0.1 / 13.7
GRID = np.round(np.arange(0.02, 1.0, 0.02), 2)


def _range(row: Any, column: str) -> tuple[float, float]:
    """Both ends of a range in a row of acceptance.csv; of a single number, that number twice."""
    values = numbers(row[column])
    if not values:
        raise DataError(
            f"acceptance.csv, line {int(row.name) + 2}: {column} must be a number or a range, "
            f"got {row[column]!r}"
        )
    return values[0], values[-1]


def fit_acceptance() -> dict[str, Any]:
    """Conditional acceptance of drafts 1 to 3 at width 8, from `acceptance.csv`.

    p1 and the tokens per step of the row n = 8, 3 drafts are taken as they stand. Together they
    fix p2 (1 + p3); within the published ranges of p2 and p3 (the row n = 1) only a short stretch
    of that curve remains, and its middle is taken.

    Returns
    -------
    dict
        ``values`` (p1, p2, p3), ``p2_range`` and ``p3_range`` (what the figures leave open),
        ``target`` and ``how``.
    """
    rows = table("acceptance")
    target = rows[(rows.n == 8) & (rows.drafts == 3)].iloc[0]
    ranges = rows[(rows.n == 1) & (rows.drafts == 3)].iloc[0]
    p1, tokens = (number("acceptance", target, name) for name in ("p1", "tokens_per_step"))
    product = (tokens - 1.0) / p1 - 1.0  # p2 + p2 p3
    p2_low, p2_high = _range(ranges, "p2_given_1")
    p3_low, p3_high = _range(ranges, "p3_given_2")
    low = max(p2_low, product / (1.0 + p3_high))
    high = min(p2_high, product / (1.0 + p3_low))
    if low > high:
        raise DataError(
            f"acceptance.csv: tokens_per_step {tokens} with p1 {p1} leaves no p2 within "
            f"{p2_low} to {p2_high}"
        )
    p2 = (low + high) / 2.0
    p3 = product / p2 - 1.0
    return {
        "values": [p1, round(p2, 6), round(p3, 6)],
        "p2_range": [round(low, 6), round(high, 6)],
        "p3_range": [round(product / high - 1.0, 6), round(product / low - 1.0, 6)],
        "target": {"n": 8, "drafts": 3, "p1": p1, "tokens_per_step": tokens},
        "how": "p1 and tokens per step of acceptance.csv n=8 drafts=3 as published; p2 and p3 at "
        "the middle of what the ranges of its row n=1 leave open",
    }


def ratio_curve(workload: Workload, ratios: tuple[float, ...], width: int = 8) -> np.ndarray:
    """Mean tokens a sequence emits in a step at each ratio, every sequence keeping its own depth.

    Takes expectations over acceptance given the confidences, so only the confidences are sampled
    (`BATCHES` batches, the same for every workload and ratio).

    Returns
    -------
    ndarray of float64, shape (len(ratios),)
    """
    drafts = workload.ladder.drafts(width)
    tables = workload.tables()
    n = BATCHES * width
    words = request_words(0, np.arange(n), np.zeros(n, np.int64), drafts)[..., 0]
    bins = (words >> np.uint64(20)).astype(np.int64)
    depth = np.arange(drafts)
    logs = tables.log_reported[depth, bins].reshape(BATCHES, width, drafts)
    true = tables.accept_below[depth, bins] / 2.0**32
    emitted = np.cumprod(true, axis=-1).reshape(BATCHES, width, drafts)
    out = np.empty(len(ratios))
    for i, ratio in enumerate(ratios):
        kept = select(logs, drafts, ratio)
        out[i] = 1.0 + (emitted * (depth < kept[..., None])).sum(-1).mean()
    return out


@dataclass(frozen=True, slots=True)
class SpreadFit:
    """Posterior of the confidence spread over a grid.

    Attributes
    ----------
    grid, weight : ndarray of float64, shape (len(GRID),)
        Spreads and their posterior probabilities.
    curves : ndarray of float64, shape (len(GRID), ratios)
        Tokens per step before the level is fitted.
    ratios : tuple of float
    published : ndarray of float64, shape (ratios,)
    level : ndarray of float64, shape (len(GRID),)
        Fitted factor on accepted drafts: that day's level against the acceptance target's.
    rss : ndarray of float64, shape (len(GRID),)
        Residual sum of squares, (tokens per step) squared.
    """

    grid: np.ndarray
    weight: np.ndarray
    curves: np.ndarray
    ratios: tuple[float, ...]
    published: np.ndarray
    level: np.ndarray
    rss: np.ndarray

    @property
    def best(self) -> float:
        """Spread of least residual, refined by a parabola through its neighbours."""
        i = int(np.clip(self.rss.argmin(), 1, len(self.grid) - 2))
        a, b, c = self.rss[i - 1 : i + 2]
        shift = 0.5 * (a - c) / (a - 2 * b + c)
        return float(self.grid[i] + shift * (self.grid[1] - self.grid[0]))

    def quantile(self, q: float) -> float:
        """Posterior quantile."""
        return float(np.interp(q, np.cumsum(self.weight) - self.weight / 2, self.grid))

    def residuals(self) -> np.ndarray:
        """Fitted minus published tokens per step at the best grid point, shape (ratios,)."""
        i = int(self.rss.argmin())
        return 1.0 + self.level[i] * (self.curves[i] - 1.0) - self.published


def fit_spread(acceptance: tuple[float, ...]) -> SpreadFit:
    """Pin `confidence_spread` with the tokens per step of the ratio sweep (`dcut_ratio.csv`).

    Its level is a free factor (the sweep of that day emitted 2.52 where the acceptance figure
    says 2.606); the noise is unknown and integrated out (Jeffreys prior), so are the level (flat
    prior) and, over the grid, the spread (flat prior).
    """
    rows = table("dcut_ratio")
    rows = rows[(rows.concurrency == 8) & rows.tok_step.notna() & (rows.ratio != "off")]
    ratios = tuple(float(r) for r in rows.ratio)
    if sorted(ratios) != sorted(RATIOS):
        raise DataError(f"dcut_ratio.csv: need tok_step at the ratios {RATIOS}, got {ratios}")
    published = rows.tok_step.to_numpy(float)
    curves = np.array([ratio_curve(Workload(acceptance, float(s)), ratios) for s in GRID])
    extra = curves - 1.0
    level = (extra * (published - 1.0)).sum(1) / (extra**2).sum(1)
    rss = ((level[:, None] * extra - (published - 1.0)) ** 2).sum(1)
    weight = (extra**2).sum(1) ** -0.5 * rss ** (-(len(ratios) - 1) / 2)
    return SpreadFit(GRID, weight / weight.sum(), curves, ratios, published, level, rss)


def fit_workload() -> dict[str, Any]:
    """Fit acceptance and spread; the content of ``data/workloads/published.json``."""
    acceptance = fit_acceptance()
    fit = fit_spread(tuple(acceptance["values"]))
    i = int(fit.rss.argmin())
    sweep = [
        {
            "ratio": r,
            "published": float(p),
            "fitted": round(float(p + e), 4),
            "residual": round(float(e), 4),
        }
        for r, p, e in zip(fit.ratios, fit.published, fit.residuals(), strict=True)
    ]
    rows = table("acceptance")
    held = rows[(rows.n == 4) & (rows.drafts == 3)].iloc[0]
    workload = Workload(tuple(acceptance["values"]), fit.best)
    return {
        "schema": 1,
        "acceptance": acceptance,
        "confidence_spread": {
            "value": round(fit.best, 4),
            "low": round(fit.quantile(0.025), 4),
            "high": round(fit.quantile(0.975), 4),
            "nodes": [round(fit.quantile(q), 4) for q in (0.1, 0.3, 0.5, 0.7, 0.9)],
            "level": round(float(fit.level[i]), 4),
            "sigma": round(math.sqrt(fit.rss[i] / (len(fit.published) - 2)), 4),
            "how": "tokens per step of dcut_ratio.csv (2026-07-29, n=8) at four ratios; least "
            "squares over spread and level; interval and the five equal-probability nodes from "
            "the posterior with level and noise integrated out",
            "residuals": sweep,
        },
        "held_out": [
            {
                "figure": "tokens per step at n=4, 3 drafts",
                "published": number("acceptance", held, "tokens_per_step"),
                "ours": round(workload.expected_tokens(3), 4),
                "source": "acceptance.csv",
            }
        ],
        "quantiles": QUANTILES,
        "assumed": "drafts deeper than 3 take p3; draws are independent between steps, and a "
        "sequence has no character of its own beyond its drafts' confidences",
    }


def _step(term: str) -> float:
    return figure("step_breakdown", term, "ms_per_added_sequence")


def _nsys(quantity: str) -> float:
    return figure("nsys_c8", quantity, "value")


def fit_machine() -> MachineProfile:
    """Fit `gb10-published` to `step_breakdown.csv` and `nsys_c8.csv`."""
    steps, captures = _nsys("steps"), _nsys("captures")
    wall1, wall8 = _step("step_wall_c1"), _step("step_wall_c8")
    added_rows = 28 - 4  # rows at C=8 less rows at C=1, as the two wall figures are noted
    rows_per_sequence = added_rows / 7

    # Nodes: published as "about 4-5 thousand" for the 8-sequence graph of the arrangement arm.
    launches = table("gdn_launches")
    eight = launches[launches.n == 8]
    keys = [168 if "5,2,1" in m else 70 if "4,4,0" in m else 28 for m in eight.multiset_k4_k3_k2]
    mean_launches = float(np.average(eight.arrangement_mean, weights=keys))
    layers = int(figure("model_dims", "gdn_layers", "value"))
    nodes8 = 4500.0
    other = round(nodes8 - layers * mean_launches)
    nodes1 = layers * 8 + other  # one sequence of 4 rows declines: 8 launches a layer

    # Device time of a replayed node: what is idle at C=1 and is not host sampling.
    idle1, sampling = _step("idle_c1"), _step("host_sampling")
    node_us = (idle1 - sampling) / nodes1 * 1e3
    borrowed_us = figure("api_costs", "replay_per_node", "value")

    # GDN reads a slot's state once and writes one snapshot a row: the bytes split its time.
    gdn = _step("gdn_recurrent") / (1.0 + rows_per_sequence)
    weight, attention = _step("weight_gemm"), _step("attention_elementwise")
    per_row = (weight + attention) / rows_per_sequence + gdn
    drafter = _step("drafter_gemm")
    launch_d2d = _step("eager_launch_and_d2d")
    graph_ms = _step("graph_instantiate_destroy")
    terms = weight + graph_ms + gdn * (1 + rows_per_sequence) + sampling + drafter
    terms += launch_d2d + attention
    extra_nodes = (nodes8 - nodes1) * node_us / 1e3
    rest = (wall8 - wall1) - 7 * terms - extra_nodes
    if rest < 0:
        raise DataError("step_breakdown.csv: its terms add up to more than the walls differ by")
    named = gdn + sampling + drafter
    per_sequence = named + rest / 7
    base = wall1 - 4 * per_row - per_sequence - nodes1 * node_us / 1e3

    ladder = table("ladder_rounds")
    rounds = ladder[ladder["round"].str.match(r"r\d+$")]["C1"].astype(float)
    repeat = (rounds.max() - rounds.min()) / 2 / rounds.mean()

    per_capture = steps / captures
    record = 7 * launch_d2d * per_capture
    record_high = record + (rest + extra_nodes) * per_capture

    def us(total_ms: float) -> float:
        return total_ms * 1e3 / nodes8

    def api(quantity: str) -> Coefficient:
        value = us(_nsys(quantity) * per_capture)
        return Coefficient(
            _r(value),
            _r(0.9 * value),
            _r(1.1 * value),
            f"nsys_c8.csv {quantity}: ms a step x {steps:.0f}/{captures:.0f} captures "
            f"over {nodes8:.0f} nodes. One graph size is published, so the cost is taken "
            "proportional to nodes; "
            "10 % either way is assumed (tracing overhead is not published)",
        )

    update = api("cuGraphInstantiate").value * UPDATE_SHARE
    update_high = 0.036e3 / 16.5

    none = Coefficient(0.0, 0.0, 0.0, "one graph size is published: no intercept can be told apart")
    launch_us, launch_node_us = 2.5, figure("api_costs", "launch_per_node_cuda_12_6", "value") * 1e3
    coefficients = {
        "step_base_ms": Coefficient(
            _r(base), _r(base * (1 - repeat)), _r(base * (1 + repeat)),
            f"step_wall_c1 less 4 rows, 1 sequence and {nodes1} nodes; interval: half the range of "
            "C1 over the rounds of ladder_rounds.csv",
        ),
        "per_row_ms": Coefficient(
            _r(per_row), _r(weight / rows_per_sequence), _r(per_row + rest / added_rows),
            "weight_gemm + attention_elementwise over 24/7 rows an added sequence, plus the row "
            "share of gdn_recurrent; low: weight_gemm alone; high: the unattributed time in rows",
        ),
        "per_sequence_ms": Coefficient(
            _r(per_sequence), _r(named), _r(2 * per_sequence - named),
            "host_sampling + drafter_gemm + the state-load share of gdn_recurrent + the "
            f"unattributed {rest:.2f} ms over 7; low: without it; high: as far above",
        ),
        "per_node_us": Coefficient(
            _r(node_us), _r(min(borrowed_us, node_us)), _r(idle1 / nodes1 * 1e3),
            f"idle_c1 less one host_sampling over {nodes1} nodes; low: a published replay on an "
            "RTX 5070 Ti Laptop (api_costs.csv); high: all of idle_c1",
        ),
        "launch_base_us": Coefficient(
            launch_us, 1.0, 3.6,
            "api_costs.csv launch_per_node_cuda_12_6 (2.5 us + 1 ns a node, another machine); "
            "low and high: other published launches",
        ),
        "launch_per_node_us": Coefficient(
            _r(launch_node_us), 0.0, _r(launch_node_us), "api_costs.csv launch_per_node_cuda_12_6"
        ),
        "record_base_ms": none,
        "record_per_node_us": Coefficient(
            _r(us(record)), 0.0, _r(us(record_high)),
            "eager_launch_and_d2d x 7 x 167/149 over the nodes (it includes copies: an upper "
            "reading of that row); low: all copies; high: the unattributed time is recording too",
        ),
        "instantiate_base_ms": none,
        "instantiate_per_node_us": api("cuGraphInstantiate"),
        "update_base_ms": none,
        "update_per_node_us": Coefficient(
            _r(update), 0.0, _r(update_high),
            "borrowed: api_costs.csv exec_update 0.1 ms against a 13.7 ms build, as a share of "
            "cuGraphInstantiate here; high: 0.036 ms for about 16.5 nodes on a V100",
        ),
        "exec_destroy_base_ms": none,
        "exec_destroy_per_node_us": api("cuGraphExecDestroy"),
        "graph_destroy_base_ms": none,
        "graph_destroy_per_node_us": api("cuGraphDestroy"),
        "eager_per_node_us": Coefficient(
            4.0, 2.6, 6.4,
            "borrowed: 227 to 418 us for 79 to 91 kernels (H100) and 6.4 us a launch (RTX 5070 Ti "
            "Laptop); no figure for this machine",
        ),
    }  # fmt: skip
    return MachineProfile(
        name="gb10-published",
        gpu="NVIDIA GB10 (published figures)",
        date="2026-08-17",
        kind="published",
        gdn_layers=layers,
        other_nodes=other,
        coefficients=coefficients,
        figures=_figures(),
        fitted_widths=(1, 8),
        notes="Every time computed from this profile is modelled. Decode only: published tok/s "
        "include prefill. Fitted between C=1 and C=8: wider batches are extrapolated, and "
        "published ones are faster than that. The date is that of the last published round; the "
        "profile's own nsys session is older (binary b508679e4).",
    )


def _r(value: float) -> float:
    return float(f"{value:.6g}")


def _figures() -> tuple[dict[str, str], ...]:
    fitted = [
        ("step_breakdown.csv", "weight_gemm, attention_elementwise", "per_row_ms"),
        ("step_breakdown.csv", "gdn_recurrent", "per_row_ms, per_sequence_ms (split by bytes)"),
        ("step_breakdown.csv", "host_sampling, drafter_gemm", "per_sequence_ms"),
        ("step_breakdown.csv", "eager_launch_and_d2d", "record_per_node_us"),
        ("step_breakdown.csv", "step_wall_c1, step_wall_c8", "step_base_ms, per_sequence_ms"),
        ("step_breakdown.csv", "idle_c1", "per_node_us"),
        ("nsys_c8.csv", "steps, captures, cuGraphInstantiate, cuGraphExecDestroy, cuGraphDestroy",
         "instantiate_, exec_destroy_, graph_destroy_per_node_us"),
        ("gdn_launches.csv", "arrangement_mean at n=8", "other_nodes"),
        ("api_costs.csv", "instantiate (its setting: about 4-5 thousand nodes)", "other_nodes"),
        ("api_costs.csv", "launch_per_node_cuda_12_6, replay_per_node", "launch_, per_node_us low"),
        ("api_costs.csv", "exec_update", "update_per_node_us (borrowed from other machines)"),
        ("ladder_rounds.csv", "C1 over rounds", "interval of step_base_ms"),
    ]  # fmt: skip
    held = [
        ("canonical_ab.csv", "every row"),
        ("key_counts.csv", "keys_measured"),
        ("nsys_c8.csv", "captures / steps as a fraction (used only to turn ms a step into ms a "
         "capture; the simulated fraction is not fitted)"),
        ("nsys_c8.csv", "tok_s_control, tok_s_dcut_off"),
        ("step_breakdown.csv", "idle_c2"),
        ("dcut_ratio.csv", "tok_s at every ratio"),
        ("ladder_rounds.csv", "r6, C1 to C32"),
    ]  # fmt: skip
    unused = [
        ("step_breakdown.csv", "capture_event_wall",
         "C=32 drain tail, the forward's host work included"),
        ("nsys_c8.csv", "gpu_busy_before, gpu_busy_after", "other readings of the same session"),
    ]  # fmt: skip
    return (
        *({"file": f, "figure": w, "role": "fitted", "into": c} for f, w, c in fitted),
        *({"file": f, "figure": w, "role": "held out"} for f, w in held),
        *({"file": f, "figure": w, "role": "not used", "why": y} for f, w, y in unused),
    )


def write(folder: Path | None = None) -> list[Path]:
    """Refit both and write them under `folder` (default: the project's ``data/``).

    Each file is replaced as a whole, and none before both fits are done.
    """
    folder = data_dir() if folder is None else folder
    out = []
    for path, text in (
        (folder / "workloads" / "published.json", json.dumps(fit_workload(), indent=1) + "\n"),
        (folder / "machines" / "gb10-published.json", fit_machine().to_json()),
    ):
        out.append(write_aside(path, text))
    return out
