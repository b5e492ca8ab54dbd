"""The settings as text: a parameter cell and a grid file that follow the controls."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as ipw

from verifylab.exploration import grid_file, parameter_cell
from verifylab.live_views import wrong
from verifylab.svg import FONT
from verifylab.widgets_common import Controls, row

__all__ = ["Texts"]

#: A kernel reaches no clipboard: the page copies, or says where the text is.
_COPY = (
    "const said = this.parentNode.querySelector('.vl-copied');"
    "const no = () => { said.textContent = 'The browser let nothing be copied: "
    "take it from Show as text.'; };"
    "try { navigator.clipboard.writeText(this.dataset.text).then("
    "() => { said.textContent = 'Copied.'; }, no); } catch { no(); }"
)


class Texts:
    """Both texts, to copy with a button or to read.

    Parameters
    ----------
    controls : Controls

    Attributes
    ----------
    box : ipywidgets.VBox
        What to display.
    cell, grid : ipywidgets.Textarea
        Of the settings of now, or, where `mistake` says so, of the last that were right.
    """

    def __init__(self, controls: Controls) -> None:
        self.controls = controls
        look = {"width": "auto", "height": "190px"}
        self.cell, self.grid = ipw.Textarea(layout=look), ipw.Textarea(layout=look)
        self.buttons, self.mistake = ipw.HTML(layout={"margin": "0"}), ipw.HTML()
        self.show = ipw.ToggleButton(
            description="Show as text", tooltip="Both texts, to select", layout={"width": "200px"}
        )
        self.texts = ipw.VBox(
            [
                ipw.HTML("Parameter cell of <code>explorer.ipynb</code> (papermill):"),
                self.cell,
                ipw.HTML("Grid file with one row, for <code>verifylab sweep</code>:"),
                self.grid,
            ]
        )
        self.show.observe(self._shown, "value")
        self.box = ipw.VBox([row(self.show, self.buttons), self.mistake, self.texts])
        self._shown(None)
        for widget in controls.widgets.values():
            widget.observe(self._moved, "value")
        self._moved(None)

    def _shown(self, change: Any) -> None:
        self.texts.layout.display = None if self.show.value else "none"

    def _moved(self, change: Any) -> None:
        with self.controls.drawing:
            self._write()

    def _write(self) -> None:
        said = off = ""
        try:
            settings = self.controls.settings()
        except ValueError as error:
            off = " disabled"
            said = wrong(
                f"{self.controls.mistake(error)}. The texts are out of date: of the last settings "
                "that were right."
            )
        else:
            self.cell.value, self.grid.value = parameter_cell(settings), grid_file(settings)
        self.mistake.value = said
        named = (("Copy as parameters", self.cell.value), ("Copy as grid file", self.grid.value))
        self.buttons.value = (
            f'<div style="{FONT}">'
            + "".join(
                '<button class="lm-Widget jupyter-widgets jupyter-button widget-button" '
                f'style="width:200px" data-text="{escape(text)}" onclick="{escape(_COPY)}"{off}>'
                f"{name}</button> "
                for name, text in named
            )
            + '<span class="vl-copied" role="status"></span></div>'
        )
