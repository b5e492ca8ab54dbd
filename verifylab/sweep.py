"""Sweeps: the runs of a grid file, each in processes of its own, on whoever executes them.

A fault of one run is that run's result and never ends the sweep. A run is judged by what its
process reported and by what it wrote, not by the notebook that it saved.
"""

from __future__ import annotations

import re
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from verifylab.executors import Executor, LocalExecutor
from verifylab.gridfile import Grid, Row
from verifylab.isolated import Ending, Limits
from verifylab.paths import check_writable, shown
from verifylab.provenance import identity, library_hash, library_now
from verifylab.records import Record, StoreError
from verifylab.run_files import text
from verifylab.run_folder import remove
from verifylab.store import Store
from verifylab.tasks import Finished, Task, needs_gpu

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
        return text(self.folder, "summary.txt")

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


def plan(
    grid: Grid, out: str | Path = "runs", *, force: bool = False, executor: Executor | None = None
) -> list[Plan]:
    """Say what `run_sweep` would do, without doing it.

    Raises
    ------
    ValueError
        When results could not be written into `out`.
    """
    store = Store(out, grid.name)
    check_writable(store.folder)
    automatic = executor.automatic if executor else None
    return [_plan(store, grid, row, force, automatic)[0] for row in grid.rows]


def run_sweep(
    grid: Grid,
    out: str | Path = "runs",
    *,
    force: bool = False,
    command: str | None = None,
    on_start: Callable[[Row, int], None] | None = None,
    executor: Executor | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Outcome]:
    """Run a grid: yield what is stored already, then each run as it ends.

    A run whose identity is stored with status ``ok`` is not run again. Ctrl-C, or `stop` once it
    is set, ends the runs at hand, which are recorded and yielded as ``interrupted``, and then the
    sweep.

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
    executor : Executor, optional
        Default: this machine, one run at a time.
    stop : threading.Event, optional
        From `interruptible`.

    Raises
    ------
    ValueError
        When results cannot be written into `out`, or another sweep is at it.
    """
    command = command or shlex.join(["verifylab", "sweep", shown(grid.path)])
    executor = executor or LocalExecutor()
    with Store(out, grid.name) as store:
        tasks, sought = [], {}
        for number, row in enumerate(grid.rows, 1):
            if stop is not None and stop.is_set():
                return
            todo, identity, record = _plan(store, grid, row, force, executor.automatic)
            if not todo.run and record is not None:
                yield Outcome(row, record, store.folder / row.name, stored=True)
                continue
            sought[number] = identity
            tasks.append(_task(grid, row, number, command, executor.automatic))

        def starting(task: Task) -> None:
            if on_start:
                on_start(grid.rows[task.number - 1], task.number)

        for task, folder, finished in executor.run(tasks, store.begin, starting, stop):
            row = grid.rows[task.number - 1]
            if finished.ending.status == "ok":
                finished = _as_begun(grid, row, sought[task.number], finished, executor.automatic)
            yield _stored(store, grid, row, sought[task.number], folder, finished)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Set an event on SIGINT (Ctrl-C), on SIGTERM, and on SIGHUP unless ignored as under nohup.

    An exception could strike where it loses the runs at hand. Only a second signal raises one.
    """
    stop = threading.Event()
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)

    def interrupt(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _plan(
    store: Store, grid: Grid, row: Row, force: bool, automatic: str | None
) -> tuple[Plan, str, Record | None]:
    sought = identity(grid.notebook, row, automatic)
    record, why = store.find(row.name, sought)
    if record and not force:
        return Plan(row, False, f"stored, done {record.ended}"), sought, record
    return Plan(row, True, why or "asked for with --force"), sought, record


def _task(grid: Grid, row: Row, number: int, command: str, automatic: str | None) -> Task:
    return Task(
        number=number,
        name=row.name,
        notebook=grid.notebook.path,
        source=grid.notebook.content,
        parameters=row.given,
        all_parameters=row.parameters,
        limits=Limits(grid.timeout_s, grid.memory_mb),
        gpu=needs_gpu(row.parameters, automatic),
        command=command,
    )


def _as_begun(
    grid: Grid, row: Row, sought: str, finished: Finished, automatic: str | None
) -> Finished:
    """Make a run a failed one where it would be stored as the result of what it was not."""
    if library_now() != library_hash():
        why = "the library changed while it ran, or earlier in this sweep: start the sweep again"
    elif identity(grid.notebook, row, automatic) != sought:
        why = "a file that its parameters name changed while it ran"
    else:
        return finished
    return replace(finished, ending=Ending("failed", why))


def _stored(
    store: Store, grid: Grid, row: Row, sought: str, folder: Path | None, finished: Finished
) -> Outcome:
    """Store a run. Where even that cannot be done, as on a full disk, that is its result."""
    error = _one_line(finished.ending.error)
    record = Record(
        run=row.name,
        status=finished.ending.status,
        error=error.replace(folder.name, row.name) if folder else error,
        seconds=finished.seconds,
        started=finished.started,
        ended=finished.ended,
        identity=sought,
        repeat=row.repeat,
        attempts=finished.attempts,
        notes=finished.notes,
        notebook=shown(grid.notebook.path),
        notebook_source=grid.notebook.source_hash,
        library=library_hash(),
    )
    problem = ""
    while True:
        try:
            folder = folder or store.begin(row.name)
            final = store.commit(folder, record, row.parameters, finished.origin)
            return Outcome(row, record, final, stored=False)
        except (OSError, StoreError) as error_:
            if folder is not None:  # its room may do for the records alone
                remove(folder)
                folder = None
            if problem:
                return Outcome(row, record, store.folder / row.name, stored=False)
            why = getattr(error_, "strerror", None) or error_
            problem = f"could not be stored: {why}"
            told = "; ".join(filter(None, (record.error, problem)))
            status = "failed" if record.status == "ok" else record.status
            record = replace(record, status=status, error=told)


def _one_line(text: str) -> str:
    """One line of an error, of Unicode, without colours and not too long."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return " ".join(_COLOURS.sub("", text).split())[:500]
