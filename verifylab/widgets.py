"""The explorer: four tabs of controls over what the library computes.

Widgets hold no arithmetic of the study. Each tab has a pure view (`verifylab.live_views`,
`verifylab.live_curves`, `verifylab.live_cache`) and a static figure (`verifylab.plots_explorer`),
which a plain cell shows beside it, so that a notebook that is re-opened or exported still shows
something.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import ipywidgets as ipw
import pandas as pd

from verifylab.cache_player import play
from verifylab.dcut import snap_ratio
from verifylab.explain import explain
from verifylab.exploration import Exploration
from verifylab.gate import Gate
from verifylab.key_choices import choices
from verifylab.live_throughput import Curves, curves, simulate
from verifylab.widgets_batch import BatchTab
from verifylab.widgets_cache import CacheTab
from verifylab.widgets_common import Controls, Tab, spreads
from verifylab.widgets_space import SpaceTab
from verifylab.widgets_texts import Texts
from verifylab.widgets_throughput import ThroughputTab

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from verifylab.recommend import Recommendation

__all__ = ["Explorer", "explorer"]


class Explorer:
    """Four tabs that share their controls.

    Parameters
    ----------
    settings : Exploration
        Where the controls start.

    Attributes
    ----------
    box : ipywidgets.VBox
        What to display.
    """

    def __init__(self, settings: Exploration) -> None:
        self.controls = Controls(settings)
        self.batch = BatchTab(self.controls)
        self.space = SpaceTab(self.controls)
        self.throughput = ThroughputTab(self.controls)
        self.cache = CacheTab(self.controls)
        self.tabs: tuple[Tab, ...] = (self.batch, self.space, self.throughput, self.cache)
        self.tab = ipw.Tab(
            children=[t.box for t in self.tabs],
            titles=[self.batch.title, self.space.title, self.throughput.title, self.cache.title],
            selected_index=0,
        )
        self.tab.observe(self._selected, "selected_index")
        self.texts = Texts(self.controls)
        self.box = ipw.VBox([self.tab, self.texts.box])
        self.batch.show(True)
        # Loops compile (the first time on a machine) and tables fill while the first tab is read.
        self.warming = threading.Thread(target=self._warm, daemon=True)
        self.warming.start()

    def _warm(self) -> None:
        start = self.controls.start
        simulate(start)
        for spread in spreads(start):
            replace(start, confidence_spread=spread).workload().tables()

    def figures(self) -> dict[str, Figure]:
        """Return each tab as a static figure, by name, at the settings of now.

        Raises
        ------
        ValueError
            When a text is wrong: one sentence.
        """
        from verifylab import plots, plots_explorer

        settings, shown = self._shown()
        spaces = choices(settings).spaces
        return {
            "one_batch": plots_explorer.batch_figure(
                explain(settings.slots, settings.depths, Gate(settings.threshold)), settings.slots
            ),
            "key_space": plots.key_space_figure(spaces, settings.graph_capacity),
            "throughput": plots_explorer.throughput_figure(shown, settings),
            "cache_live": plots_explorer.cache_figure(play(settings)),
        }

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables behind `figures`, by figure."""
        settings, shown = self._shown()
        arms = explain(settings.slots, settings.depths, Gate(settings.threshold))
        return {
            "one_batch": pd.DataFrame(
                [
                    {"arm": a.arm, "gate": a.gate, "position": p, "slot": settings.slots[i],
                     "rows": rows}
                    for a in arms
                    for p, (i, rows) in enumerate(zip(a.order, a.depths, strict=True))
                ]
            ),
            "key_space": choices(settings).spaces,
            "throughput": shown.differences.assign(
                threshold=settings.threshold, graph_ms=settings.shown_graph_ms()
            ),
            "cache_live": pd.DataFrame([asdict(f) for f in play(settings).frames]),
        }  # fmt: skip

    def recommendation(self) -> Recommendation:
        """Return the gate that is recommended at the settings of now."""
        return self._shown()[1].recommendation

    def summary(self) -> str:
        """Say the recommended gate, and what it was counted on."""
        settings, shown = self._shown()
        runs, spread = shown.runs, settings.workload().confidence_spread
        return (
            f"{shown.recommendation.sentence()} Modelled on {settings.machine} at "
            f"{settings.shown_graph_ms():.1f} ms a capture and eviction, "
            f"{settings.graph_capacity} graphs, D-Cut ratio {snap_ratio(settings.dcut_ratio):g}, "
            f"drafts {settings.ladder().in_words()}, confidence spread {spread:g}, "
            f"{'full run' if runs.full else 'quick look'}: {runs.seeds} seeds x {runs.steps} steps."
        )

    def run_in_full(self) -> None:
        """Do what the button does, and wait for it: what is stored should be no quick look."""
        self.throughput.run_in_full()

    def _shown(self) -> tuple[Exploration, Curves]:
        settings = self.controls.settings()
        runs = self.throughput.counted(settings)
        return settings, curves(runs, settings.profile(), settings.threshold)

    def settings(self) -> Exploration:
        """Return what the controls say; what is typed wrong is as it was at the start."""
        try:
            return self.controls.settings()
        except ValueError:
            start = self.controls.start
            return Exploration(**{f.name: getattr(start, f.name) for f in fields(start)})

    def _selected(self, change: Any) -> None:
        for i, tab in enumerate(self.tabs):
            tab.show(i == change["new"])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.box)


def explorer(**parameters: Any) -> Explorer:
    """Return the explorer, set to parameters of `Exploration`.

    Raises
    ------
    ValueError
        Naming the parameter, its value and what would be right.
    """
    known = [f.name for f in fields(Exploration)]
    for name in parameters:
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}; known: {', '.join(known)}")
    return Explorer(Exploration(**parameters))
