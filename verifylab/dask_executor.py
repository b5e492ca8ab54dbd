"""Runs on a Dask cluster that is there already; the extra ``cluster`` brings what this needs.

The notebook travels with the task and the finished folder comes back as bytes, so workers need no
file system in common with this machine, only the same verifylab. A run on a GPU takes one unit of
the resource ``GPU`` (``dask worker --resources GPU=1``). Where a worker is lost, the scheduler
starts its run again on another one, up to its own limit (``allowed-failures``); the run's
``attempts`` and ``notes`` say so. Where the scheduler is lost, the runs at hand are
``interrupted``.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from verifylab._dask_worker import Parcel, perform_parcel
from verifylab.executors import Ended
from verifylab.isolated import Ending
from verifylab.provenance import library_hash
from verifylab.tasks import Finished, Task, failure

__all__ = ["RESOURCE", "DaskExecutor"]

#: Worker resource of which a run on a GPU takes one unit.
RESOURCE = "GPU"

#: Seconds in which the scheduler must answer, and between looks at what the workers told.
_ANSWER_S, _LOOK_S = 5, 0.5
#: Seconds beyond a run's own time-out after which its worker is taken for hung.
_GRACE_S = 60.0


class _SchedulerLost(Exception):
    """Nothing more is to be heard of any run."""


class DaskExecutor:
    """A Dask cluster; a context manager.

    Parameters
    ----------
    address : str
        Of the scheduler, for example ``tcp://127.0.0.1:8786``, or the path of its scheduler file.

    Raises
    ------
    ValueError
        When ``distributed`` is not installed or no scheduler answers.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise ValueError(
                "--dask needs the package distributed: pip install 'verifylab[cluster]'"
            ) from None
        _quieten()
        where = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
        try:
            self._client = Client(**where, timeout=_ANSWER_S, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise ValueError(
                f"--dask: no scheduler answers at {address!r}: {' '.join(str(error).split())}"
            ) from None

    def __enter__(self) -> DaskExecutor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    @property
    def automatic(self) -> str:
        """``cuda`` where a worker offers the resource `RESOURCE`, else ``model``."""
        return "cuda" if self._offers_gpu() else "model"

    def run(
        self,
        tasks: Iterable[Task],
        begin: Callable[[str], Path],
        on_start: Callable[[Task], None],
        stop: threading.Event | None = None,
    ) -> Iterator[Ended]:
        """Run tasks; see `verifylab.executors.Executor.run`."""
        tasks = list(tasks)
        if any(task.gpu for task in tasks) and self._workers() and not self._offers_gpu():
            raise ValueError(
                f"no worker of the cluster offers the resource {RESOURCE}: start one with "
                f"dask worker --resources {RESOURCE}=1"
            )
        topic, automatic = f"verifylab-{secrets.token_hex(6)}", self.automatic
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        waiting: dict[Any, Task] = {}
        starts: dict[str, list[float]] = {}
        hung = None
        try:
            for task in tasks:
                future = self._submit(task, topic, automatic)
                waiting[future] = task
                future.add_done_callback(ended.put)
            while waiting:
                if stop is not None and stop.is_set():
                    raise KeyboardInterrupt
                future = _next(ended)
                self._note_starts(topic, starts, waiting.values(), on_start)
                if future is None:
                    future = hung = _hung(waiting, starts)
                if future not in waiting:
                    continue
                attempts = len(starts.get(waiting[future].name, ()))
                ended_run = _unpacked(
                    waiting[future], begin, future, attempts, given_up=future is hung
                )
                del waiting[future]
                yield ended_run
                future.release()
        except KeyboardInterrupt:
            with suppress(_SchedulerLost):
                self._note_starts(topic, starts, waiting.values(), lambda task: None)
            self._cancel(waiting)
            for task in waiting.values():
                if task.name in starts:
                    yield task, None, _interrupted(task, "interrupted from outside")
        except _SchedulerLost:
            # Those that never started are as they were; where none did, the first one says why.
            begun = [task for task in waiting.values() if task.name in starts]
            for task in begun or list(waiting.values())[:1]:
                yield task, None, _interrupted(task, "the scheduler was lost")
        finally:
            self._cancel(waiting)

    def _cancel(self, futures: Iterable[Any]) -> None:
        if self._client.status == "running":
            self._client.cancel(list(futures), force=True)

    def _submit(self, task: Task, topic: str, automatic: str) -> Any:
        parcel = Parcel(
            task=replace(task, parameters=_settled(task, automatic)),
            library=library_hash(),
            topic=topic,
        )
        return self._client.submit(
            perform_parcel,
            parcel,
            key=f"{topic}-{task.number}",
            resources={RESOURCE: 1} if task.gpu else None,
            priority=-task.number,
            pure=False,
        )

    def _note_starts(
        self,
        topic: str,
        starts: dict[str, list[float]],
        waiting: Iterable[Task],
        on_start: Callable[[Task], None],
    ) -> None:
        """Read what the workers told of the runs that they started; when, by our own clock."""
        by_name = {task.name: task for task in waiting}
        for name, times in Counter(name for _, name in self._events(topic)).items():
            if name not in starts and name in by_name:
                on_start(by_name[name])
            seen = starts.setdefault(name, [])
            seen += [time.monotonic()] * (times - len(seen))

    def _events(self, topic: str) -> Iterable[tuple[float, str]]:
        # A client that has lost its scheduler has cancelled all runs, even if it finds it again.
        if self._client.status == "running":
            with suppress(OSError, RuntimeError):
                return self._client.get_events(topic)
        raise _SchedulerLost

    def _workers(self) -> dict[str, Any]:
        return self._client.scheduler_info(n_workers=-1)["workers"]

    def _offers_gpu(self) -> bool:
        return any(worker.get("resources", {}).get(RESOURCE) for worker in self._workers().values())


def _quieten() -> None:
    """Keep the client's tracebacks to itself: what becomes of a run is in its record."""
    for name in ("distributed", *logging.root.manager.loggerDict):
        if name.split(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _settled(task: Task, automatic: str) -> dict[str, Any]:
    """Parameters with ``auto`` made one device: workers must not each find one for themselves."""
    if task.all_parameters.get("device") != "auto" or automatic == "cuda":
        return task.parameters  # with the resource comes a GPU, and auto finds it
    return {**task.parameters, "device": automatic}


def _next(ended: queue.SimpleQueue[Any]) -> Any:
    try:
        return ended.get(timeout=_LOOK_S)
    except queue.Empty:
        return None


def _hung(waiting: dict[Any, Task], starts: dict[str, list[float]]) -> Any:
    """Give a run up whose worker answers to the scheduler but never ends it."""
    now = time.monotonic()
    for future, task in waiting.items():
        times = starts.get(task.name)
        if times and now - times[-1] > task.limits.timeout_s + _GRACE_S:
            future.cancel(force=True)
            return future
    return None


def _interrupted(task: Task, why: str) -> Finished:
    return failure(task, Ending("interrupted", why))


def _unpacked(
    task: Task, begin: Callable[[str], Path], future: Any, attempts: int, *, given_up: bool
) -> Ended:
    """Take a finished folder into the store."""
    from distributed import KilledWorker

    attempts = max(1, attempts)
    folder: Path | None = None
    try:
        finished, files, out = future.result(timeout=_ANSWER_S if future.cancelled() else None)
        error = finished.ending.error.replace(os.path.basename(out), task.name)
        finished = replace(finished, ending=replace(finished.ending, error=error))
        folder = begin(task.name)
        here = os.path.relpath(folder.resolve(), task.notebook.parent.resolve())
        for name, content in files.items():
            path = folder / name
            if not path.resolve().is_relative_to(folder.resolve()):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if name in ("notebook.ipynb", "summary.txt"):
                content = content.replace(out.encode(), here.encode())
            path.write_bytes(content)
    except KilledWorker:
        ending = Ending("died", f"its worker was lost each time, {attempts} times")
        return task, folder, replace(failure(task, ending), attempts=attempts)
    except CancelledError as error:
        if getattr(error, "reason", "") == "scheduler-connection-lost":
            raise _SchedulerLost from None
        ending = Ending("interrupted", "the cluster cancelled it")
        if given_up:
            limit = f"timeout_s = {task.limits.timeout_s:g}"
            ending = Ending("timeout", f"took longer than {limit}, and its worker did not end it")
        return task, folder, replace(failure(task, ending), attempts=attempts)
    except OSError as error:
        ending = Ending("failed", f"OSError: {error.strerror or error}")
        return task, folder, replace(failure(task, ending), attempts=attempts)
    except Exception as error:  # whatever the cluster raises is this run's result
        ending = Ending("failed", f"on the cluster: {type(error).__name__}: {error}")
        return task, folder, replace(failure(task, ending), attempts=attempts)
    lost = attempts - 1
    notes = (f"run again elsewhere after {lost} lost worker{'s'[: lost > 1]}",) if lost else ()
    return task, folder, replace(finished, attempts=attempts, notes=notes)
