"""What a sweep says while it runs, on stderr: one line a finished run, on a terminal more."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from verifylab.gridfile import Row

__all__ = ["Progress"]


class Progress:
    """A line for each run that ended; on a terminal also what is running, and the time left.

    Parameters
    ----------
    total : int
        Runs of the sweep.
    timeout_s : float
        That each may take.
    """

    def __init__(self, total: int, timeout_s: float) -> None:
        self._total, self._timeout_s = total, timeout_s
        self._done = 0
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            # What is stored already is over in no time: a mean over all would promise too much.
            self._bar = tqdm(
                total=total, unit="run", smoothing=0.1, leave=False, dynamic_ncols=True
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def starting(self, row: Row, number: int) -> None:
        """Say that a run starts; nothing where nobody watches."""
        if self._bar is not None:
            self.echo(f"{row.name}: running, {self._timeout_s:g} s at most ...", err=True)

    def ended(self, line: str) -> None:
        """Say how a run ended."""
        self._done += 1
        self.echo(f"[{self._done}/{self._total}] {line}", err=True)
        if self._bar is not None:
            self._bar.update()

    def echo(self, text: str, err: bool = False) -> None:
        """Print a text above the bar."""
        if self._bar is not None:
            self._bar.clear()
        click.echo(text, err=err)
        if self._bar is not None:
            self._bar.refresh()
