"""The tab *Key space*: width, drafts, ratio and capacity in; counted keys and multisets out."""

from __future__ import annotations

from verifylab.exploration import Exploration
from verifylab.key_choices import choices
from verifylab.live_views import space_view
from verifylab.widgets_common import Controls, Tab, row

__all__ = ["SpaceTab"]


def _draw(settings: Exploration) -> str:
    return space_view(choices(settings))


class SpaceTab(Tab):
    """The keys that a width can produce."""

    title = "Key space"

    def __init__(self, controls: Controls) -> None:
        super().__init__(controls, ("width", "drafts", "dcut_ratio", "graph_capacity"), _draw)
        c = controls
        self.box.children = (
            row(c["width"], c["drafts"]),
            row(c["dcut_ratio"], c["graph_capacity"]),
            self.message,
            self.view,
        )
