"""Sweeps: the runs of a grid file, one after the other, each in processes of its own.

A fault of one run is that run's result and never ends the sweep. A run is judged by what its
process reported and by what it wrote, not by the notebook that it saved.
"""

from __future__ import annotations

import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from verifylab.gridfile import OUT, Grid, Row
from verifylab.isolated import LOG, Ending, execute
from verifylab.paths import check_writable, shown
from verifylab.provenance import identity, provenance
from verifylab.store import Record, Store, result_problem

__all__ = ["Outcome", "Plan", "interruptible", "plan", "run_sweep"]

_FIGURES = (".svg", ".png", ".pdf")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sweep would do with one row: `run` it, and why, or show what is stored."""

    row: Row
    run: bool
    why: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of a sweep, done now or stored before.

    Attributes
    ----------
    row : Row
    record : Record
    folder : Path
        Where it lies. A failure beside an older good result is in ``<run>.failed``.
    stored : bool
        True when it was done before and only looked up.
    """

    row: Row
    record: Record
    folder: Path
    stored: bool

    @property
    def ok(self) -> bool:
        """Whether the run is whole and good."""
        return self.record.status == "ok"

    @property
    def summary(self) -> str:
        """The run's ``summary.txt``, empty when it wrote none."""
        try:
            return (self.folder / "summary.txt").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    @property
    def figures(self) -> list[Path]:
        """Figure files, by name."""
        return [p for p in sorted(self.folder.glob("figures/*")) if p.suffix in _FIGURES]

    @property
    def data(self) -> Path | None:
        """``result.parquet``, if there is one."""
        return self._existing("result.parquet")

    @property
    def notebook(self) -> Path | None:
        """The executed notebook, as far as it got."""
        return self._existing("notebook.ipynb")

    def _existing(self, name: str) -> Path | None:
        return self.folder / name if (self.folder / name).is_file() else None


def plan(grid: Grid, out: str | Path = "runs", *, force: bool = False) -> list[Plan]:
    """Say what `run_sweep` would do, without doing it.

    Raises
    ------
    ValueError
        When results could not be written into `out`.
    """
    store = Store(out, grid.name)
    check_writable(store.folder)
    return [_plan(store, grid, row, force)[0] for row in grid.rows]


def run_sweep(
    grid: Grid,
    out: str | Path = "runs",
    *,
    force: bool = False,
    command: str | None = None,
    on_start: Callable[[Row, int], None] | None = None,
) -> Iterator[Outcome]:
    """Run a grid, yielding each run as it ends.

    A run whose identity is stored with status ``ok`` is not run again. Ctrl-C ends the run at
    hand, which is recorded and yielded as ``interrupted``, and then the sweep.

    Parameters
    ----------
    grid : Grid
        From `verifylab.gridfile.read_grid`.
    out : path
        Folder of all sweeps.
    force : bool
        Run also what is stored.
    command : str, optional
        For the provenance; default: the one that does this.
    on_start : callable, optional
        Called with the row and its number, from 1, before it is run.

    Raises
    ------
    ValueError
        When results cannot be written into `out`, or another sweep is at it.
    """
    command = command or shlex.join(["verifylab", "sweep", shown(grid.path)])
    with Store(out, grid.name) as store:
        for number, row in enumerate(grid.rows, 1):
            todo, sought, record = _plan(store, grid, row, force)
            if not todo.run and record is not None:
                yield Outcome(row, record, store.folder / row.name, stored=True)
                continue
            if on_start:
                on_start(row, number)
            outcome = _run(store, grid, row, sought, command)
            yield outcome
            if outcome.record.status == "interrupted":
                return


@contextmanager
def interruptible() -> Iterator[None]:
    """Treat SIGTERM, and SIGHUP unless ignored as under nohup, as Ctrl-C: the run is recorded."""
    signals = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _plan(store: Store, grid: Grid, row: Row, force: bool) -> tuple[Plan, str, Record | None]:
    sought = identity(grid.notebook, row)
    record, why = store.find(row.name, sought)
    if record and not force:
        return Plan(row, False, f"stored, done {record.ended}"), sought, record
    return Plan(row, True, why or "asked for with --force"), sought, record


def _run(store: Store, grid: Grid, row: Row, sought: str, command: str) -> Outcome:
    aside = store.begin(row.name)
    started, clock = _now(), time.monotonic()
    ending = execute(grid.notebook.path, row.given, aside, grid.timeout_s)
    if ending.status == "ok" and (problem := result_problem(aside)):
        ending = Ending("failed", f"the notebook ended well, but its folder {OUT!r} has {problem}")
    record = Record(
        run=row.name,
        status=ending.status,
        error=_one_line(ending.error).replace(aside.name, row.name),
        seconds=round(time.monotonic() - clock, 3),
        started=started,
        ended=_now(),
        identity=sought,
    )
    if ending.status == "ok":
        (aside / LOG).unlink(missing_ok=True)
    times = {"started": record.started, "ended": record.ended}
    origin = {**provenance(command, row.parameters), **times}
    folder = store.commit(aside, record, row.parameters, origin)
    return Outcome(row, record, folder, stored=False)


def _one_line(text: str) -> str:
    """One line of an error, without colours and not too long."""
    return " ".join(_COLOURS.sub("", text).split())[:500]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
