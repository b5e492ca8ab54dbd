"""Who runs the tasks of a sweep: an executor takes them all and yields each as it ends.

`LocalExecutor` is this machine, `verifylab.dask_executor.DaskExecutor` a cluster. What a run is
(`verifylab.tasks.perform`) and what becomes of it (`verifylab.sweep`) is the same for both.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from verifylab.gpu_state import gpu_uuids
from verifylab.isolated import Ending, Stop
from verifylab.records import StoreError
from verifylab.tasks import Finished, Task, failure, perform

__all__ = ["MAX_JOBS", "Executor", "LocalExecutor"]

#: Runs at a time on one machine: a choice of this module, so that a typo cannot fill its memory.
MAX_JOBS = 1024

#: A task that ended, the folder that it wrote (None: there was no room for one), and how it ended.
Ended = tuple[Task, Path | None, Finished]


class Executor(Protocol):
    """Runs tasks."""

    @property
    def automatic(self) -> str | None:
        """What ``device = "auto"`` means where it runs them; None: what it means here."""

    def run(
        self,
        tasks: Iterable[Task],
        begin: Callable[[str], Path],
        on_start: Callable[[Task], None],
        stop: threading.Event | None = None,
    ) -> Iterator[Ended]:
        """Run tasks, about in their order, and yield them as they end.

        Ctrl-C, and `stop` once it is set, ends those at hand, which are yielded as
        ``interrupted``, and starts no other.

        Parameters
        ----------
        tasks : iterable of Task
        begin : callable
            Makes the folder that a run of this name is to write.
        on_start : callable
            Called, in this thread, with each task that starts.
        stop : threading.Event, optional
        """


class LocalExecutor:
    """Runs tasks on this machine: up to `jobs` runs at a time, and never two on one GPU.

    Parameters
    ----------
    jobs : int
    gpus : iterable of str, optional
        UUIDs of GPUs, one slot each; default: those that ``nvidia-smi`` lists and
        ``CUDA_VISIBLE_DEVICES`` allows. Without any, runs on a GPU share one slot.
    """

    automatic: str | None = None

    def __init__(self, jobs: int = 1, gpus: Iterable[str] | None = None) -> None:
        if not 1 <= jobs <= MAX_JOBS:
            raise ValueError(f"--jobs must be from 1 to {MAX_JOBS}, got {jobs}")
        self.jobs = jobs
        self._gpus = None if gpus is None else list(gpus)

    def run(
        self,
        tasks: Iterable[Task],
        begin: Callable[[str], Path],
        on_start: Callable[[Task], None],
        stop: threading.Event | None = None,
    ) -> Iterator[Ended]:
        """Run tasks; see `Executor.run`."""
        waiting = deque(tasks)
        free: list[str | None] = []
        if any(task.gpu for task in waiting):
            free = [*(gpu_uuids() if self._gpus is None else self._gpus)] or [None]
        running: set[threading.Thread] = set()
        ended: queue.SimpleQueue[tuple[threading.Thread, str | None, Ended]] = queue.SimpleQueue()
        ending = stop or threading.Event()

        def work(task: Task, gpu: str | None) -> None:
            ended.put((threading.current_thread(), gpu, _performed(task, begin, gpu, ending)))

        def collected() -> Ended:
            thread, gpu, result = ended.get()
            running.discard(thread)
            if result[0].gpu:
                free.append(gpu)
            return result

        try:
            while (waiting and not ending.is_set()) or running:
                while (
                    not ending.is_set()
                    and len(running) < self.jobs
                    and (task := _next(waiting, bool(free)))
                ):
                    on_start(task)
                    thread = threading.Thread(
                        target=work, args=(task, free.pop(0) if task.gpu else None)
                    )
                    running.add(thread)
                    thread.start()
                yield collected()
        except KeyboardInterrupt:
            ending.set()
            while running:
                yield collected()
        finally:
            if running:
                ending.set()
            for thread in running:
                thread.join()


def _next(waiting: deque[Task], gpu: bool) -> Task | None:
    """Take the first task that can start: one that waits for a GPU does not hold up the others."""
    for task in waiting:
        if gpu or not task.gpu:
            waiting.remove(task)
            return task
    return None


def _performed(task: Task, begin: Callable[[str], Path], gpu: str | None, stop: Stop) -> Ended:
    folder: Path | None = None
    try:
        folder = begin(task.name)
        return task, folder, perform(task, folder, gpu, stop)
    except OSError as error:
        ending = Ending("failed", f"OSError: {error.strerror or error}")
    except StoreError as error:
        ending = Ending("failed", str(error))
    except Exception as error:  # a bug of ours must not end the sweep, nor leave it waiting
        ending = Ending("failed", f"verifylab's own {type(error).__name__}: {error}")
    return task, folder, failure(task, ending)
