"""What the explorer's tabs share: their controls, one model each, and the texts of mistakes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import ipywidgets as ipw

from verifylab._console import whole_numbers
from verifylab.dcut import MAX_VERIFY_WIDTH
from verifylab.exploration import (
    ARM_CHOICES,
    CACHE_POLICIES,
    MAX_GRAPH_MS,
    MAX_THRESHOLD,
    MAX_WIDTHS,
    POLICY_CHOICES,
    Exploration,
)
from verifylab.live_views import wrong
from verifylab.widgets_number import Number
from verifylab.workload import MAX_DRAFTS, calibrated

__all__ = ["Controls", "Tab", "row", "spreads"]

_WIDE = {"description_width": "150px"}
#: Choices of D-Cut's ratio (`dcut.snap_ratio`).
RATIOS = (0.25, 0.5, 0.75, 1.0)


def spreads(settings: Exploration) -> list[float]:
    """Return the spreads that the slider reaches: every 0.05; and those of the start."""
    fixed = {round(0.05 * i, 2) for i in range(21)}
    return sorted({*fixed, calibrated().confidence_spread, settings.workload().confidence_spread})


def row(*children: ipw.Widget) -> ipw.HBox:
    """Return a line of controls that wraps where the page is narrow."""
    return ipw.HBox(list(children), layout=ipw.Layout(flex_flow="row wrap"))


def _calibrated(machine: str) -> tuple[float, float]:
    """Return graph cost (ms) and confidence spread as machine and calibration say, rounded."""
    shown = Exploration(machine=machine).shown_graph_ms()
    return round(shown, 1), round(calibrated().confidence_spread, 3)


class Controls:
    """Every control of the explorer, by the name of its parameter in `Exploration`.

    A control may stand in several tabs: it is one model, so the tabs agree.

    Parameters
    ----------
    settings : Exploration
        Where the controls start.
    """

    def __init__(self, settings: Exploration) -> None:
        self.start = settings
        # A kernel may handle two moves at once: the later must not be drawn over by the earlier.
        self.drawing = threading.RLock()
        wide = ipw.Layout(width="420px", max_width="100%")

        def whole(name: str, text: str, low: int, high: int) -> Number:
            return Number(getattr(settings, name), text, (low, high, 1))

        def choice(name: str, text: str, options: tuple[Any, ...]) -> ipw.Dropdown:
            return ipw.Dropdown(
                options=options, value=getattr(settings, name), description=text, style=_WIDE,
                layout=wide,
            )  # fmt: skip

        def text(name: str, label: str, at_once: bool = True) -> ipw.Text:
            return ipw.Text(
                value=", ".join(map(str, getattr(settings, name))), description=label,
                style=_WIDE, layout=wide, continuous_update=at_once,
            )  # fmt: skip

        graph_ms, spread = _calibrated(settings.machine)
        self.widgets: dict[str, Any] = {
            "slots": text("slots", "slots"),
            "depths": text("depths", "depths (rows)"),
            "arm": ipw.ToggleButtons(
                options=[("as the gate", "gate"), *((a, a) for a in ARM_CHOICES[1:])],
                value=settings.arm, description="arm", style=_WIDE,
            ),
            "threshold": whole("threshold", "your gate opens at (n)", 0, MAX_THRESHOLD),
            "width": whole("width", "width n (sequences)", 1, MAX_VERIFY_WIDTH),
            "drafts": whole("drafts", "drafts a sequence", 1, MAX_DRAFTS),
            "dcut_ratio": ipw.Dropdown(
                options=RATIOS, value=min(RATIOS, key=lambda r: abs(r - settings.dcut_ratio)),
                description="D-Cut ratio", style=_WIDE, layout=wide,
            ),
            "graph_capacity": Number(settings.graph_capacity, "cache (graphs)"),
            "widths": text("widths", "widths n (sequences)", at_once=False),
            "graph_ms": Number(
                graph_ms if settings.graph_ms is None else settings.graph_ms, "graph cost (ms)",
                (0, MAX_GRAPH_MS, 0.1), whole=False,
            ),
            "confidence_spread": Number(
                spread if settings.confidence_spread is None else settings.confidence_spread,
                "confidence spread", (0, 1, 0.05), whole=False,
            ),
            "policy": choice("policy", "policy beside them", POLICY_CHOICES),
            "cache_policy": choice("cache_policy", "policy", CACHE_POLICIES),
            "play_steps": Number(settings.play_steps, "steps"),
            "seed": Number(settings.seed, "seed"),
        }  # fmt: skip
        # What a control shows at the start stands for what it was given: exact, or None.
        self._exact: dict[str, dict[float, float | None]] = {
            name: {self[name].value: getattr(settings, name)}
            for name in ("graph_ms", "confidence_spread", "dcut_ratio")
        }

    def __getitem__(self, name: str) -> Any:
        return self.widgets[name]

    def settings(self) -> Exploration:
        """Return what the controls say.

        Raises
        ------
        ValueError
            When a text is wrong: one sentence.
        """
        given: dict[str, Any] = {f.name: getattr(self.start, f.name) for f in fields(self.start)}
        for name, widget in self.widgets.items():
            given[name] = widget.given if isinstance(widget, Number) else widget.value
        for name, low, high in (("slots", 0, 2**32 - 1), ("depths", 1, MAX_DRAFTS + 1)):
            given[name] = whole_numbers(name, given[name], low, high, most=MAX_VERIFY_WIDTH)
        given["widths"] = whole_numbers(
            "widths", given["widths"], 1, MAX_VERIFY_WIDTH, most=MAX_WIDTHS
        )
        for name, exact in self._exact.items():
            given[name] = exact.get(given[name], given[name])
        return Exploration(**given)

    def mistake(self, error: ValueError) -> str:
        """Say what is wrong, and at which control where its label is another word."""
        said = str(error).splitlines()[0]
        name = said.partition(" ")[0]
        label = self.widgets[name].description if name in self.widgets else name
        return said if label.startswith(name) else f"{label}: {said}"

    def calibrate(self) -> None:
        """Put graph cost and spread back to what the machine and the calibration say."""
        shown = _calibrated(self.start.machine)
        for name, value in zip(("graph_ms", "confidence_spread"), shown, strict=True):
            stood = value in self._exact[name] and self._exact[name][value] is None
            self._exact[name] = {value: None}
            if self[name].value == value and not stood:  # shows the same, means another
                self[name].notify_change(
                    {"name": "value", "old": value, "new": value, "owner": self[name],
                     "type": "change"}
                )  # fmt: skip
            self[name].value = value


class Tab:
    """One tab: controls, a message line, and what they show; redrawn only while it is looked at.

    Parameters
    ----------
    controls : Controls
    names : tuple of str
        Parameters that change what this tab shows.
    draw : callable
        Takes the settings, returns HTML; a `ValueError` is shown as a mistake, and the last good
        picture stays.
    """

    def __init__(
        self, controls: Controls, names: tuple[str, ...], draw: Callable[[Exploration], str]
    ) -> None:
        self.controls, self.draw = controls, draw
        self.message, self.view = ipw.HTML(), ipw.HTML(layout=ipw.Layout(width="100%"))
        self.active, self.stale = False, True
        self.box = ipw.VBox([])
        for name in names:
            controls[name].observe(self._moved, "value")

    def _moved(self, change: Any) -> None:
        self.stale = True
        if self.active:
            self.update()

    def show(self, active: bool) -> None:
        """Say whether the tab is looked at; what is stale is drawn then."""
        self.active = active
        if active and self.stale:
            self.update()

    def update(self) -> None:
        """Draw what the controls say."""
        with self.controls.drawing:
            try:
                self.view.value = self.draw(self.controls.settings())
            except ValueError as error:
                self.stale = True
                said = self.controls.mistake(error)
                self.message.value = wrong(f"{said}. Shown: the last settings that were right.")
            else:
                self.message.value = ""
                self.stale = False
