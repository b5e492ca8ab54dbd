"""What a Dask worker does with a run: `verifylab.dask_executor` sends it a parcel."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verifylab.gpu_state import visible_gpu
from verifylab.isolated import Ending
from verifylab.provenance import library_now
from verifylab.tasks import Finished, Task, failure, perform

__all__ = ["Parcel", "perform_parcel"]

#: Seconds between looks at whether a run is still wanted.
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Parcel:
    """A task on its way to a worker, with what the worker may not have."""

    task: Task
    library: str
    topic: str


class _Cancelled:
    """Whether the sweep no longer wants a run: it was interrupted, or is gone."""

    def __init__(self, worker: Any, key: Any) -> None:
        self._worker, self._key, self._looked, self._set = worker, key, 0.0, False

    def is_set(self) -> bool:
        now = time.monotonic()
        if not self._set and now - self._looked > _LOOK_S:
            self._looked = now
            task = self._worker.state.tasks.get(self._key)
            closing = self._worker.status.name in ("closing", "closed", "failed")
            self._set = closing or task is None or task.state in ("cancelled", "forgotten")
        return self._set


def perform_parcel(parcel: Parcel) -> tuple[Finished, dict[str, bytes], str]:
    """Run a task on this worker; return how it ended, its folder, and what it called that."""
    from distributed import get_worker

    worker, task = get_worker(), parcel.task
    worker.log_event(parcel.topic, task.name)
    if (ours := library_now()) != parcel.library:
        ending = Ending(
            "failed",
            f"the worker's verifylab ({ours[:8]}) is not the sweep's ({parcel.library[:8]}): "
            "install the same one",
        )
        return failure(task, ending), {}, "-"
    with tempfile.TemporaryDirectory(prefix="verifylab-") as scratch:
        notebook = _placed(task.notebook, task.source, Path(scratch))
        folder = Path(scratch) / f".part-{task.name}-{secrets.token_hex(6)}"
        (folder / "figures").mkdir(parents=True)
        stop = _Cancelled(worker, worker.get_current_task())
        gpu = visible_gpu() if task.gpu else None
        finished = perform(replace(task, notebook=notebook), folder, gpu, stop)
        if finished.ending.status == "ok" and library_now() != parcel.library:
            ending = Ending("failed", "the worker's library changed while it ran")
            finished = replace(finished, ending=ending)
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
        out = os.path.relpath(folder.resolve(), notebook.parent.resolve())
    return finished, files, out


def _placed(notebook: Path, source: bytes, scratch: Path) -> Path:
    """Find the notebook on a file system in common, where its neighbours are too, or write it."""
    try:
        if notebook.read_bytes() == source:
            return notebook
    except OSError:
        pass
    (scratch / notebook.name).write_bytes(source)
    return scratch / notebook.name
