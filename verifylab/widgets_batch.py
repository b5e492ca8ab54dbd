"""The tab *One batch*: slots, depths, arm and threshold in; order, runs, key and sharing out."""

from __future__ import annotations

from typing import Any

import ipywidgets as ipw
import numpy as np

from verifylab.explain import ArmExplained, explain
from verifylab.exploration import Exploration
from verifylab.gate import Gate
from verifylab.live_views import batch_view
from verifylab.sharing import sharing
from verifylab.widgets_common import Controls, Tab, row

__all__ = ["BatchTab", "shown_arm"]


def shown_arm(settings: Exploration) -> ArmExplained:
    """Return the arm that is asked for, or the one that the gate takes."""
    arms = explain(settings.slots, settings.depths, Gate(settings.threshold))
    return next(a for a in arms if (a.gate if settings.arm == "gate" else a.arm == settings.arm))


def _draw(settings: Exploration) -> str:
    arm = shown_arm(settings)
    shared = sharing(settings.slots, settings.depths) if len(arm.dispatches) == 1 else None
    return batch_view(arm, settings.slots, shared)


class BatchTab(Tab):
    """One batch, in either arm."""

    title = "One batch"

    def __init__(self, controls: Controls) -> None:
        super().__init__(controls, ("slots", "depths", "arm", "threshold"), _draw)
        self.shuffle = ipw.Button(
            description="Shuffle depths",
            tooltip="Deal the same depths to other sequences: another arrangement",
        )
        self.shuffle.on_click(self._shuffle)
        self._rng = np.random.default_rng(controls.start.seed)
        c = controls
        self.box.children = (
            row(c["slots"], c["depths"], self.shuffle),
            row(c["arm"], c["threshold"]),
            self.message,
            self.view,
        )

    def _shuffle(self, button: Any) -> None:
        parts = self.controls["depths"].value.split(",")
        self.controls["depths"].value = ", ".join(
            parts[i].strip() for i in self._rng.permutation(len(parts))
        )
