"""The design-review set: six figures in one style, from stored runs alone.

`collect` looks in stored runs for the tables that each figure needs and draws what is there;
`verifylab.review_pages` writes figures, tables, the page and the hand-out. No study is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from verifylab.gate import CANONICAL_KEY_MIN_WIDTH
from verifylab.plots import (
    STYLE,
    draw_collapse,
    draw_difference,
    draw_key_counts,
    draw_probability,
)
from verifylab.plots_caches import draw_capacity, draw_memory
from verifylab.plots_why import draw_policy_map
from verifylab.stored_runs import StoredRun, stored_runs

__all__ = ["PANELS", "Drawn", "Panel", "Review", "collect", "marked_threshold"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of the set.

    Attributes
    ----------
    name, title : str
        Of its files, and above it.
    needs : tuple of str
        Tables that a run must hold.
    sweep : str
        Grid file whose runs hold them.
    size : (float, float)
        Inches.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    sweep: str
    size: tuple[float, float] = (9.6, 6.6)


PANELS = (
    Panel("1_key_space", "Key space against width", ("arms",), "width_gate"),
    Panel("2_collapse", "Collapse against throughput", ("arms",), "width_gate"),
    Panel("3_gate", "Where the gate should sit", ("recommendation", "arms"), "width_gate"),
    Panel("4_split", "What it costs and saves", ("differences", "arms"), "width_gate"),
    Panel("5_capacity_memory", "A larger cache instead", ("result", "harmless"),
          "cache_policies", (9.6, 11.6)),
    Panel("6_policy_map", "Which policy wins", ("map",), "why_it_costs", (9.6, 6.6)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A figure that could be drawn.

    Attributes
    ----------
    panel : Panel
    run : StoredRun
    caption : str
        One line: counted, modelled or measured, machine, run, commit, date, n.
    tables : dict of str to DataFrame
        All that it shows.
    """

    panel: Panel
    run: StoredRun
    caption: str
    tables: dict[str, pd.DataFrame]

    def figure(self) -> Figure:
        """Draw it anew, with its caption."""
        with matplotlib.style.context(STYLE):
            figure = Figure(figsize=self.panel.size)
            _DRAW[self.panel.name](self, figure)
            for ax in figure.axes:
                for text in [t for t in ax.texts if " | " in t.get_text()]:
                    text.remove()  # the panel's own stamp: the caption says more
            tall = self.panel.size[1]
            figure.subplots_adjust(
                left=0.11, right=0.97, top=1 - 0.5 / tall, bottom=1.2 / tall, hspace=0.32
            )
            figure.text(0.015, 0.16 / tall, self.caption, fontsize=9.5, color="#555555")
        return figure


@dataclass(frozen=True, slots=True)
class Review:
    """The set.

    Attributes
    ----------
    drawn : tuple of Drawn
        In reading order.
    missing : tuple of Panel
        Figures that no run has the tables for.
    verdict : tuple of str
        Sentences of the runs' summaries.
    """

    drawn: tuple[Drawn, ...]
    missing: tuple[Panel, ...]
    verdict: tuple[str, ...]

    def contents(self) -> pd.DataFrame:
        """Return a table of contents: ``figure, title, caption, sweep, run, commit, date``."""
        return pd.DataFrame(
            [
                {"figure": d.panel.name, "title": d.panel.title, "caption": d.caption,
                 "sweep": d.run.sweep, "run": d.run.run, "commit": d.run.commit,
                 "date": d.run.date}
                for d in self.drawn
            ]
        )  # fmt: skip


def collect(folders: Sequence[str | Path]) -> Review:
    """Look for what the six figures need in folders of runs, sweeps or all sweeps.

    Where several runs hold a figure's tables, the newest is taken, and named in the caption.

    Raises
    ------
    ValueError
        When there is no stored run, or none of them has a figure in it.
    """
    runs = stored_runs(*folders)
    named = ", ".join(map(str, folders))
    if not runs:
        raise ValueError(f"no good stored run in {named}: make sweep stores one in runs/width_gate")
    drawn, missing = [], []
    for panel in PANELS:
        having = [run for run in runs if run.has(*panel.needs)]
        if not having:
            missing.append(panel)
            continue
        run = max(having, key=lambda r: (r.date, r.label))
        tables = {name: run.table(name) for name in panel.needs}
        drawn.append(Drawn(panel, run, _caption(panel, run, tables), tables))
    if not drawn:
        raise ValueError(
            f"no stored run in {named} holds a table that a figure needs: run the sweeps "
            f"{', '.join(sorted({p.sweep for p in PANELS}))} of data/sweeps"
        )
    return Review(tuple(drawn), tuple(missing), _verdict(drawn))


def _caption(panel: Panel, run: StoredRun, tables: dict[str, pd.DataFrame]) -> str:
    first = tables[panel.needs[0]].iloc[0]
    time = str(first.get("time", "modelled"))
    machine = str(first.get("machine", run.parameters.get("machine", "unknown machine")))
    seeds = first.get("seeds", run.parameters.get("seeds", "?"))
    how = "counted" if panel.name == "1_key_space" else f"{time} on {machine}"
    parts = [how, run.label, f"commit {run.commit or 'unknown'}", run.date or "no date"]
    if how != "counted":
        parts.append(f"n = {seeds} seeds")
    return " | ".join(parts)


def _verdict(drawn: Sequence[Drawn]) -> tuple[str, ...]:
    """First lines of the summaries: the gate's, the cache's, and the other policies'."""
    said: dict[str, list[str]] = {}
    for one in drawn:
        lines = _summary(one.run)
        # The policy study says the gate first, at fewer widths; the width-gate study owns that.
        said[one.panel.sweep] = lines[1:2] if one.panel.sweep == "why_it_costs" else lines[:1]
    order = ("width_gate", "why_it_costs", "cache_policies")
    return tuple(line for sweep in order for line in said.get(sweep, []))


def _summary(run: StoredRun) -> list[str]:
    try:
        text = (run.folder / "summary.txt").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def marked_threshold(table: pd.DataFrame) -> int | None:
    """Return the threshold with the most gain, as `recommend.recommend` names it among equals.

    None where none makes a difference.

    Parameters
    ----------
    table : DataFrame
        ``min_width, gain_pct``: a stored recommendation.
    """
    best = table.gain_pct.max()
    alike = sorted(int(m) for m in table.min_width[(table.gain_pct - best).abs() < 1e-9])
    if len(alike) == len(table) or not alike:
        return None
    if CANONICAL_KEY_MIN_WIDTH in alike:
        return CANONICAL_KEY_MIN_WIDTH
    return min(alike) if abs(best) < 1e-9 else max(alike)


def _key_space(drawn: Drawn, figure: Figure) -> None:
    arms = drawn.tables["arms"]
    counts = arms.pivot_table(index="width", columns="policy", values="reachable_keys")
    spaces = pd.DataFrame(
        {
            "width": counts.index.to_numpy(),
            "arrangement_keys": counts["arrangement"].to_numpy(int),
            "canonical_keys": counts["canonical"].to_numpy(int),
        }
    )
    draw_key_counts(spaces, _capacity(drawn), figure.subplots())


def _collapse(drawn: Drawn, figure: Figure) -> None:
    draw_collapse(drawn.tables["arms"], _capacity(drawn), figure.subplots())


def _gate(drawn: Drawn, figure: Figure) -> None:
    table = drawn.tables["recommendation"]
    arms = drawn.tables["arms"]
    measured = "time" in arms and arms.time.iloc[0] == "measured"
    draw_probability(
        table, marked_threshold(table), int(arms.width.max()), figure.subplots(),
        redrawn="seeds" if measured else "seeds, spread, machine",
    )  # fmt: skip


def _split(drawn: Drawn, figure: Figure) -> None:
    draw_difference(drawn.tables["differences"], figure.subplots(), arms=drawn.tables["arms"])


def _capacity_memory(drawn: Drawn, figure: Figure) -> None:
    capacity, harmless = drawn.tables["result"], drawn.tables["harmless"]
    axes: list[Axes] = list(figure.subplots(2, 1))
    width = int(harmless.width.iloc[-1])
    draw_capacity(capacity, harmless, width, _capacity(drawn), axes[0])
    draw_memory(capacity, harmless, axes[1])


def _policy_map(drawn: Drawn, figure: Figure) -> None:
    table = drawn.tables["map"]
    if "map" in table:
        table = table[table["map"] == "cost"]
    draw_policy_map(table, "graph_ms", figure.subplots(), title="Best policy by width and cost")


def _capacity(drawn: Drawn) -> int:
    value: Any = drawn.run.parameters.get("graph_capacity", 32)
    return int(value)


_DRAW: dict[str, Callable[[Drawn, Figure], None]] = {
    "1_key_space": _key_space,
    "2_collapse": _collapse,
    "3_gate": _gate,
    "4_split": _split,
    "5_capacity_memory": _capacity_memory,
    "6_policy_map": _policy_map,
}
