"""The design-review set: six figures in one style, from stored runs alone.

`collect` looks in stored runs for the tables that each figure needs and draws what is there;
`verifylab.review_pages` writes figures, tables, the page and the hand-out. No study is run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from verifylab.dcut import DCUT_WIDTH_CAP
from verifylab.experiment import UNPRUNED
from verifylab.gate import CANONICAL_KEY_MIN_WIDTH
from verifylab.loading import passed_over as foreign
from verifylab.loading import scan, told_of
from verifylab.paths import shown
from verifylab.plots import (
    STYLE,
    draw_collapse,
    draw_difference,
    draw_key_counts,
    draw_probability,
)
from verifylab.plots_caches import draw_capacity, draw_memory
from verifylab.plots_why import draw_policy_map
from verifylab.records import GOOD
from verifylab.review_checks import BOUNDS, contradiction, named_gate
from verifylab.review_settings import Setting, is_measured
from verifylab.review_text import (
    Study,
    bad_runs,
    drains,
    kernels_kept,
    passed_over,
    summary,
    verdict,
)
from verifylab.stored_runs import StoredRun, good_runs

__all__ = ["PANELS", "Drawn", "Panel", "Review", "as_stored", "collect", "marked_threshold"]


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
    reading : str
        How to read it.
    size : (float, float)
        Inches.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    sweep: str
    reading: str
    size: tuple[float, float] = (9.6, 7.0)


PANELS = (
    Panel(
        "1_key_space", "Key space against width", ("arms",), "width_gate",
        "What lies above the dashed line does not fit the cache. {off}",
    ),
    Panel(
        "2_collapse", "Collapse against throughput", ("arms",), "width_gate",
        "An arrow a width, from its arrangement keys to its canonical keys; up is faster. Right of "
        "the dashed line the keys do not fit the cache.",
    ),
    Panel(
        "3_gate", "Where the gate should sit", ("recommendation", "arms"), "width_gate",
        "How often each threshold comes out best when {redrawn} redrawn; the model's form is not.",
    ),
    Panel(
        "4_split", "What it costs and saves", ("differences", "arms"), "width_gate",
        "The difference split exactly by cause, over seeds. Green ticks: own depths kept, captures "
        "free. {crosses}",
    ),
    Panel(
        "5_capacity_memory", "A larger cache instead", ("result", "harmless"), "cache_policies",
        "Where arrangement under LRU meets canonical, capacity alone does as well. In "
        "GPU memory: filled marks hold every arrangement key, open marks every canonical key.",
        (9.6, 12.0),
    ),
    Panel(
        "6_policy_map", "Which policy wins", ("map",), "why_it_costs",
        "Against the arrangement arm, by what a graph costs. {kept}",
    ),
)  # fmt: skip


_OFF = (
    "Above the dotted line D-Cut is off: every sequence verifies all its drafts, and one key is "
    "left."
)
_CROSSES = "Crosses: D-Cut off, every draft verified; above the diamond it beats canonical."
#: Studies in reading order: the first one that there is, is what the others are held against.
_STUDIES = tuple(dict.fromkeys(panel.sweep for panel in PANELS))


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
    reading : str
        How to read it; first, where it holds for other settings than the width gate.
    setting : Setting
    """

    panel: Panel
    run: StoredRun
    caption: str
    tables: dict[str, pd.DataFrame]
    reading: str
    setting: Setting

    def figure(self, *, reading: bool = True) -> Figure:
        """Draw it anew, with its caption and how to read it."""
        with matplotlib.style.context(STYLE):
            figure = Figure(figsize=self.panel.size)
            with as_stored(self.run):
                _DRAW[self.panel.name](self, figure)
            for ax in figure.axes:
                for text in [t for t in ax.texts if " | " in t.get_text()]:
                    text.remove()  # the panel's own stamp: the caption says more
            tall = self.panel.size[1]
            said = textwrap.fill(self.reading, 122) if reading else ""
            foot = 1.45 + 0.17 * (said.count("\n") + 1)
            figure.subplots_adjust(
                left=0.11, right=0.97, top=1 - 0.5 / tall, bottom=foot / tall, hspace=0.32
            )
            # As it is spelled: a name may hold a dollar sign.
            small: dict[str, Any] = {"fontsize": 9.5, "color": "#555555", "parse_math": False}
            figure.text(0.015, 0.16 / tall, self.caption, **small)
            figure.text(0.015, 0.36 / tall, said, va="bottom", **small)
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
        What the runs say, what it rests on, and the words used.
    passed_over : tuple of str
        Runs that no figure is drawn from, and why.
    """

    drawn: tuple[Drawn, ...]
    missing: tuple[Panel, ...]
    verdict: tuple[str, ...]
    passed_over: tuple[str, ...] = ()

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

    All figures of one study are drawn from one run. Where several runs hold its tables, the one
    with the most of its figures is taken, a steady one before a drain, and then the one that ended
    last. The others are named, with what they were run with that it was not.

    Raises
    ------
    ValueError
        When one is no folder, there is no stored run, none of them has a figure in it, or tables
        contradict each other, the run's parameters or its summary.
    """
    if isinstance(folders, (str, Path)):
        folders = [folders]
    if not isinstance(folders, Iterable) or not all(isinstance(f, (str, Path)) for f in folders):
        raise ValueError(f"sweeps must be a list of folders, got {folders!r}")
    if not folders:
        raise ValueError("sweeps must name at least one folder of stored runs")
    for folder in folders:
        if folder == "" or not Path(folder).is_dir():
            named = shown(folder) if folder else "''"
            raise ValueError(f"{named} is no folder of stored runs: name runs/SWEEP")
    seen = scan(folders, tables=True)
    runs = good_runs(seen)
    bad = [run for run in seen if run.status not in GOOD]
    named = ", ".join(map(str, folders))
    if not runs:
        why = "".join(f" ({line})" for line in bad_runs(bad))
        raise ValueError(
            f"no good stored run in {named}{why}: make sweep stores one in runs/width_gate"
        )
    used = [study for sweep in _STUDIES if (study := _study(sweep, runs))]
    if not used:
        raise ValueError(
            f"no stored run in {named} holds a table that a figure needs: run the sweeps "
            f"{', '.join(sorted(_STUDIES))} of data/sweeps"
        )
    drain = None
    if not drains(used[0].run):
        told = [r for r in runs if drains(r) and r.has("recommendation", "arms") and summary(r)]
        drain = _study("width_gate", told)
    drawn = [figure for study in used for figure in _drawn(study, used[0])]
    with as_stored(*(study.run for study in used)):
        said = verdict(used, drain)
    missing = [panel for panel in PANELS if panel not in {d.panel for d in drawn}]
    over = (*passed_over(runs, used, bad), *map(told_of, foreign(folders)))
    return Review(tuple(drawn), tuple(missing), said, over)


def _study(sweep: str, runs: Sequence[StoredRun]) -> Study | None:
    """Choose and read the run that a study's figures are drawn from; None where there is none."""
    panels = [panel for panel in PANELS if panel.sweep == sweep]
    held = {run.folder: [p for p in panels if run.has(*p.needs)] for run in runs}
    having = [run for run in runs if held[run.folder]]
    if not having:
        return None

    def order(run: StoredRun) -> tuple[Any, ...]:
        return len(held[run.folder]), not drains(run), run.when, run.label

    run = max(having, key=order)
    if not run.parameters:
        raise ValueError(f"{run.label}: its params.json is missing or holds no parameters")
    names = dict.fromkeys(name for panel in held[run.folder] for name in panel.needs)
    tables = {name: run.numbers(name, *BOUNDS[name]) for name in names}
    with as_stored(run):
        setting = Setting.of(run, tables)
        wrong = contradiction(run, tables, "".join(summary(run)[:1]))
    if wrong:
        raise ValueError(f"{run.label}: {wrong}")
    return Study(sweep, run, tables, setting, tuple(having))


def _drawn(study: Study, base: Study) -> Iterator[Drawn]:
    other = study.other_than(base)
    for panel in PANELS:
        if panel.sweep == study.sweep and set(panel.needs) <= set(study.tables):
            tables = {name: study.tables[name] for name in panel.needs}
            with as_stored(study.run):
                caption = _caption(panel, study, tables)
                reading = _reading(panel, tables, study.setting)
            if other:
                reading = f"{other} {reading}"
            yield Drawn(panel, study.run, caption, tables, reading, study.setting)


class _NotAsStored(ValueError):
    """Names the run already."""


@contextmanager
def as_stored(*runs: StoredRun) -> Iterator[None]:
    """Name the run where its tables do not hold what a sweep stores."""
    try:
        yield
    except _NotAsStored:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        named = ", ".join(run.label for run in runs)
        raise _NotAsStored(
            f"{named}: its tables are not as a sweep stores them ({type(error).__name__}: {said})"
        ) from None


def _caption(panel: Panel, study: Study, tables: dict[str, pd.DataFrame]) -> str:
    first, run = tables[panel.needs[0]].iloc[0], study.run
    seeds = first.get("seeds", run.parameters.get("seeds", "?"))
    how = f"{'measured' if is_measured(study.tables) else 'modelled'} on {study.setting.machine}"
    if panel.name == "1_key_space":
        how = "counted"
    parts = [how, run.short, f"commit {run.commit or 'unknown'}", run.date or "no date"]
    if how != "counted":
        parts.append(f"n = {seeds} seeds")
    return " | ".join(parts)


def _reading(panel: Panel, tables: dict[str, pd.DataFrame], setting: Setting) -> str:
    redrawn = {
        "seeds": "the seeds are",
        "seeds, machine": "seeds and machine are",
        "seeds, spread, machine": "seeds, confidence spread and machine are",
    }[_redrawn(tables, setting)]
    kept = kernels_kept(tables["map"]) if "map" in tables else ""
    wide = "arms" in tables and tables["arms"].width.max() > DCUT_WIDTH_CAP
    crosses = "arms" in tables and UNPRUNED in set(tables["arms"].policy)
    said = panel.reading.format(
        redrawn=redrawn, kept=kept, off=_OFF if wide else "", crosses=_CROSSES if crosses else ""
    )
    return said.strip()


def _redrawn(tables: dict[str, pd.DataFrame], setting: Setting) -> str:
    if is_measured(tables):
        return "seeds"
    return "seeds, spread, machine" if setting.spread is None else "seeds, machine"


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
    setting = drawn.setting
    draw_key_counts(spaces, setting.capacity, figure.subplots(), setting=setting.workload())


def _collapse(drawn: Drawn, figure: Figure) -> None:
    draw_collapse(drawn.tables["arms"], drawn.setting.capacity, figure.subplots())


def _gate(drawn: Drawn, figure: Figure) -> None:
    table = drawn.tables["recommendation"]
    said = "".join(summary(drawn.run)[:1])
    gate = named_gate(said)
    if gate is None and not said.startswith("No difference"):
        gate = marked_threshold(table)
    draw_probability(
        table, gate, sorted(set(drawn.tables["arms"].width)), figure.subplots(),
        redrawn=_redrawn(drawn.tables, drawn.setting),
    )  # fmt: skip


def _split(drawn: Drawn, figure: Figure) -> None:
    draw_difference(drawn.tables["differences"], figure.subplots(), arms=drawn.tables["arms"])


def _capacity_memory(drawn: Drawn, figure: Figure) -> None:
    capacity, harmless = drawn.tables["result"], drawn.tables["harmless"]
    axes: list[Axes] = list(figure.subplots(2, 1))
    width = int(harmless.width.iloc[-1])
    draw_capacity(capacity, harmless, width, drawn.setting.capacity, axes[0])
    draw_memory(capacity, harmless, axes[1])


def _policy_map(drawn: Drawn, figure: Figure) -> None:
    table = drawn.tables["map"]
    if "map" in table:
        table = table[table["map"] == "cost"]
    draw_policy_map(
        table, "graph_ms", figure.subplots(), title="Best policy: gain over arrangement"
    )


_DRAW: dict[str, Callable[[Drawn, Figure], None]] = {
    "1_key_space": _key_space,
    "2_collapse": _collapse,
    "3_gate": _gate,
    "4_split": _split,
    "5_capacity_memory": _capacity_memory,
    "6_policy_map": _policy_map,
}
