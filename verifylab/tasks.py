"""One run from start to end, on whatever machine: what an executor does with each task."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from verifylab.gpu_state import gpu_state
from verifylab.grid_rows import OUT
from verifylab.isolated import LOG, Ending, Limits, Stop, execute
from verifylab.provenance import automatic_device, provenance
from verifylab.records import result_problem
from verifylab.run_folder import settle

__all__ = ["Finished", "Task", "failure", "needs_gpu", "now", "perform"]

_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be run.

    Attributes
    ----------
    number : int
        Its place in the grid.
    name : str
        Of the run.
    notebook : Path
    source : bytes
        The notebook's content: this is run, whatever becomes of the file meanwhile.
    parameters : dict
        What the grid sets; given to the notebook.
    all_parameters : dict
        The notebook's defaults with these, for the records.
    limits : Limits
    gpu : bool
        Whether it computes on a GPU, which it then has for itself.
    command : str
        For the provenance.
    """

    number: int
    name: str
    notebook: Path
    source: bytes
    parameters: dict[str, Any]
    all_parameters: dict[str, Any]
    limits: Limits
    gpu: bool
    command: str


@dataclass(frozen=True, slots=True)
class Finished:
    """How a task ended.

    Attributes
    ----------
    ending : Ending
    started, ended : str
        UTC, ISO 8601.
    seconds : float
        Wall time.
    origin : dict
        For ``provenance.json``.
    attempts : int
        How often it was started.
    notes : tuple of str
        As in `verifylab.records.Record`.
    """

    ending: Ending
    started: str
    ended: str
    seconds: float
    origin: dict[str, Any]
    attempts: int = 1
    notes: tuple[str, ...] = ()


def needs_gpu(parameters: Mapping[str, Any], automatic: str | None = None) -> bool:
    """Whether a notebook's parameter ``device`` means a GPU.

    Parameters
    ----------
    parameters : mapping
        All of a run.
    automatic : str, optional
        What ``"auto"`` means where it will run; default: what it means here.
    """
    asked = parameters.get("device")
    if asked == "auto":
        return (automatic or automatic_device()) == "cuda"
    return asked == "cuda"


def perform(task: Task, folder: Path, gpu: str | None = None, stop: Stop | None = None) -> Finished:
    """Run a task; its results are in `folder` afterwards. Whatever goes wrong is its ending.

    Parameters
    ----------
    task : Task
    folder : Path
        From `verifylab.store.Store.begin`.
    gpu : str, optional
        UUID of the GPU that is its own; only this one is visible to it.
    stop : Stop, optional
        Ends it with status ``interrupted``.
    """
    started, clock = now(), time.monotonic()
    before = gpu_state(gpu) if gpu else None
    variables = {_VISIBLE: gpu} if gpu else {}
    try:
        ending = execute(
            task.notebook,
            task.parameters,
            folder,
            task.limits,
            source=task.source,
            variables=variables,
            stop=stop,
        )
        problem = settle(folder)
        if ending.status == "ok" and problem:
            ending = Ending("failed", problem)
        elif ending.status == "ok" and (problem := result_problem(folder, deep=True)):
            reason = f"the notebook ended well, but its folder {OUT!r} has {problem}"
            ending = Ending("failed", reason)
        if ending.status == "ok":
            (folder / LOG).unlink(missing_ok=True)
    except OSError as error:  # a full disk, most of all
        ending = Ending("failed", f"OSError: {error.strerror or error}")
    origin = provenance(task.command, task.all_parameters)
    if before:
        after = gpu_state(gpu) if gpu else None
        moments = {"before": before.pop("now"), "after": after and after["now"]}
        origin["gpu"] = {**before, **moments}
    ended, seconds = now(), round(time.monotonic() - clock, 3)
    return Finished(ending, started, ended, seconds, {**origin, "started": started, "ended": ended})


def failure(task: Task, ending: Ending) -> Finished:
    """Describe a task that could not even be started."""
    at = now()
    origin = {**provenance(task.command, task.all_parameters), "started": at, "ended": at}
    return Finished(ending, at, at, 0.0, origin)


def now() -> str:
    """Return the time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
