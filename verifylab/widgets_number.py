"""A number to type, with a slider beside it."""

from __future__ import annotations

import math
from typing import Any

import ipywidgets as ipw
import traitlets

__all__ = ["Number"]

#: Whole numbers below this are the same as floats.
_EXACT = 2.0**53
GROWS = {"flex": "1 1 100px", "width": "auto"}


class Number(ipw.HBox):
    """A labelled number; the slider, where there is one, and the number follow each other.

    What is typed stays as it was typed: `Exploration` says whether it is right. Beyond its range
    the slider stands at its end. NaN and infinity, which only a program can set, are in `value`
    alone: a page cannot hold them.

    Parameters
    ----------
    value : float
    description : str
        Label.
    slider : (low, high, step), optional
    whole : bool
        Whether whole numbers are asked for.
    """

    value = traitlets.CFloat()

    def __init__(
        self,
        value: float,
        description: str,
        slider: tuple[float, float, float] | None = None,
        *,
        whole: bool = True,
    ) -> None:
        self.description, self.whole, self._range = description, whole, slider
        self.text = ipw.FloatText(
            value=value, description=description, continuous_update=False,
            step=slider[2] if slider else 1, style={"description_width": "150px"},
            layout={"flex": "0 0 auto", "width": "230px"} if slider else GROWS,
        )  # fmt: skip
        children: list[ipw.Widget] = [self.text]
        if slider:
            low, high, step = slider
            self.slider = ipw.FloatSlider(
                min=low, max=high, step=step, readout=False, continuous_update=False,
                layout=GROWS,
            )  # fmt: skip
            children.append(self.slider)
        super().__init__(children, layout={"width": "424px", "max_width": "100%"})
        self.add_class("vl-number")
        self.value = value
        self.observe(self._follow, "value")
        self.text.observe(self._typed, "value")
        if slider:
            self.slider.value = self._place()
            self.slider.observe(self._slid, "value")

    @property
    def given(self) -> float:
        """What was typed; an int where whole numbers are asked for and it is one."""
        fits = self.whole and abs(self.value) < _EXACT and self.value.is_integer()
        return int(self.value) if fits else self.value

    def _place(self) -> float:
        assert self._range is not None
        low, high, _ = self._range
        return min(max(self.value, low), high)

    def _follow(self, change: Any) -> None:
        if math.isfinite(self.value):
            self.text.value = self.value
            if self._range:
                self.slider.value = self._place()

    def _typed(self, change: Any) -> None:
        typed = change["new"]
        if not (math.isnan(typed) and math.isnan(self.value)):  # it differs from itself, for ever
            self.value = typed

    def _slid(self, change: Any) -> None:
        if change["new"] != self._place():
            self.value = round(change["new"], 6)
