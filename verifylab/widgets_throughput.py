"""The tab *Throughput*: a quick look follows every control; a full run is a button's.

Graph cost and threshold only price and gate what was counted. The full run works in a thread, in
pieces, with progress and a Stop.
"""

from __future__ import annotations

import threading
from typing import Any

import ipywidgets as ipw
import pandas as pd

from verifylab.exploration import Exploration
from verifylab.live_curves import throughput_view
from verifylab.live_throughput import Curves, Runs, curves, published_here, simulate
from verifylab.review_settings import Setting, is_measured
from verifylab.stored_runs import StoredRun, stored_runs
from verifylab.widgets_common import Controls, Tab, row

__all__ = ["ThroughputTab"]

#: Parameters that need new counts.
COUNTED = ("widths", "graph_capacity", "confidence_spread", "policy", "drafts", "dcut_ratio")
PRICED = ("threshold", "graph_ms")
#: Largest gain of a stored run, percent: a choice, beyond which its file must be damaged.
MOST_PCT = 1e6


class ThroughputTab(Tab):
    """Throughput by width, why, and where the gate should sit."""

    title = "Throughput"

    def __init__(self, controls: Controls) -> None:
        super().__init__(controls, (*COUNTED, *PRICED), self._html)
        self.curves: Curves | None = None
        self._halt = threading.Event()
        self.worker = threading.Thread()
        self._runs: tuple[tuple[Any, ...], Runs] | None = None
        self._stored = {r.label: r for r in stored_runs(controls.start.runs) if _overlay(r)}
        self.overlay = ipw.Dropdown(
            options=["none", *self._stored], description="stored run",
            style={"description_width": "150px"}, layout=ipw.Layout(width="420px"),
        )  # fmt: skip
        self.overlay.observe(self._moved, "value")
        tip = f"{controls.start.seeds} seeds x {controls.start.steps} steps at every width"
        self.run = ipw.Button(description="Run in full", tooltip=tip, button_style="primary")
        self.stop = ipw.Button(description="Stop", disabled=True)
        self.reset = ipw.Button(
            description="As calibrated", tooltip="Graph cost and spread back to the profile's"
        )
        self.progress = ipw.IntProgress(min=0, max=1, description="", layout={"width": "200px"})
        self.status = ipw.Label("")
        self.run.on_click(self._start)
        self.stop.on_click(self._end)
        self.reset.on_click(lambda button: controls.calibrate())
        c = controls
        self.box.children = (
            row(c["widths"], c["policy"]),
            row(c["threshold"], c["graph_capacity"]),
            row(c["graph_ms"], c["confidence_spread"]),
            row(c["drafts"], c["dcut_ratio"]),
            row(self.overlay, self.reset),
            row(self.run, self.stop, self.progress, self.status),
            self.message,
            self.view,
        )

    def counted(self, settings: Exploration) -> Runs:
        """Return the counts at these settings: those at hand, or those of a quick look."""
        key = _counted_key(settings)
        if self._runs is None or self._runs[0] != key:
            runs = simulate(settings)
            assert runs is not None
            self._runs = (key, runs)
        return self._runs[1]

    def run_in_full(self) -> None:
        """Count the seeds and steps of the settings of now.

        Raises
        ------
        ValueError
            When a text is wrong: one sentence.
        """
        settings = self.controls.settings()
        runs = simulate(settings, full=True)
        assert runs is not None
        self._runs = (_counted_key(settings), runs)
        self.update()

    def _html(self, settings: Exploration) -> str:
        runs = self.counted(settings)
        self.curves = curves(runs, settings.profile(), settings.threshold)
        if not self.worker.is_alive():
            self.progress.value = self.progress.max if runs.full else 0
            self.status.value = "done" if runs.full else ""
        stored = pd.DataFrame({"width": [], "delta_pct": [], "label": [], "other": []})
        if chosen := self._stored.get(self.overlay.value):
            table = chosen.numbers("differences", "width", "delta_pct")
            if (most := table.delta_pct.abs().max()) > MOST_PCT:
                raise ValueError(
                    f"{chosen.label}: delta_pct in its table 'differences' must be at most "
                    f"{MOST_PCT:g} either way, got {most:g}"
                )
            own = {"arms": chosen.table("arms")} if chosen.has("arms") else {}
            other = Setting.of(chosen, own).other_than(Setting.explored(settings))
            label = f"{chosen.short} (measured)" if is_measured(own) else chosen.short
            stored = table[["width", "delta_pct"]].assign(label=label, other=other)
        return throughput_view(
            self.curves, settings.threshold, settings.shown_graph_ms(), settings.machine,
            published_here(settings), stored,
        )  # fmt: skip

    def _start(self, button: Any) -> None:
        if self.worker.is_alive():
            return
        try:
            settings = self.controls.settings()
        except ValueError:
            self.update()
            return
        self._halt.clear()
        self.run.disabled, self.stop.disabled = True, False
        self.status.value = "running ..."
        self.worker = threading.Thread(target=self._work, args=(settings,), daemon=True)
        self.worker.start()

    def _end(self, button: Any) -> None:
        with self.controls.drawing:
            if not self.stop.disabled:
                self.status.value, self.stop.disabled = "stopping ...", True
                self._halt.set()

    def _work(self, settings: Exploration) -> None:
        def progress(done: int, total: int) -> bool:
            self.progress.max, self.progress.value = total, done
            return not self._halt.is_set()

        said = "stopped"
        try:
            runs = simulate(settings, full=True, progress=progress, halt=self._halt)
            if runs is not None:
                self._runs = (_counted_key(settings), runs)
                said = "done"
                self.update()  # a control moved meanwhile: a quick look at what it says now
        except Exception as error:  # a thread's traceback would reach nobody
            said = f"failed: {error}"
        finally:
            with self.controls.drawing:  # what is said then is true of what is shown then
                if said == "done" and self.stale:
                    said = "done: shown once every setting is right"
                elif said == "done" and not (self.curves and self.curves.runs.full):
                    said = "done, but a control was moved meanwhile: this is a quick look"
                self.status.value = said
                if said != "done":
                    self.progress.value = 0
                self.run.disabled, self.stop.disabled = False, True


def _overlay(run: StoredRun) -> bool:
    return run.has("differences")


def _counted_key(settings: Exploration) -> tuple[Any, ...]:
    return tuple(
        tuple(value) if isinstance(value := getattr(settings, name), list) else value
        for name in (*COUNTED, "machine")
    )
