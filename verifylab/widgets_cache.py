"""The tab *Cache live*: a workload played step by step through the places of the graph cache."""

from __future__ import annotations

from typing import Any

import ipywidgets as ipw

from verifylab.cache_player import Playback, play
from verifylab.exploration import Exploration
from verifylab.key_choices import arm_keys
from verifylab.live_cache import cache_view
from verifylab.widgets_common import Controls, Tab, row

__all__ = ["CacheTab"]

NAMES = (
    "width", "drafts", "dcut_ratio", "graph_capacity", "cache_policy", "threshold", "play_steps",
    "seed", "confidence_spread",
)  # fmt: skip


class CacheTab(Tab):
    """Keys arriving, hits, captures and evictions."""

    title = "Cache live"

    def __init__(self, controls: Controls) -> None:
        super().__init__(controls, NAMES, self._html)
        self.played: Playback | None = None
        self._reachable = 0
        last = controls.start.play_steps
        self.player = ipw.Play(min=1, max=last, value=1, interval=250, description="play")
        self.at, self._tie = self._slider(1, last)
        self._moving = row(self.player, self.at)
        c = controls
        self.box.children = (
            row(c["cache_policy"], c["width"]),
            row(c["graph_capacity"], c["threshold"]),
            row(c["drafts"], c["dcut_ratio"]),
            row(c["play_steps"], c["seed"]),
            self._moving,
            self.message,
            self.view,
        )

    def _slider(self, value: int, last: int) -> tuple[ipw.IntSlider, ipw.link]:
        at = ipw.IntSlider(
            value=value, min=1, max=last, description="step", readout=False,
            style={"description_width": "150px"},
            layout=ipw.Layout(width="600px", max_width="100%"),
        )  # fmt: skip
        at.observe(self._moved_to, "value")
        # Tied in the kernel: a page that was opened late sees where the player stands.
        return at, ipw.link((self.player, "value"), (at, "value"))

    def _html(self, settings: Exploration) -> str:
        self.played = play(settings)
        self._reachable = arm_keys(settings)
        last = len(self.played.frames)
        if last != self.at.max:
            # A new one: on a page the keys Home and End keep to the range that it began with.
            self._tie.unlink()
            gone, self.player.max = self.at, last
            self.at, self._tie = self._slider(min(self.player.value, last), last)
            self._moving.children = (self.player, self.at)
            gone.close()
        return self._frame()

    def _frame(self) -> str:
        assert self.played is not None
        at = min(self.at.value, len(self.played.frames)) - 1
        return cache_view(self.played, at, self._reachable)

    def _moved_to(self, change: Any) -> None:
        if self.played is not None and not self.stale:
            self.view.value = self._frame()
