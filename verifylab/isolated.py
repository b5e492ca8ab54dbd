"""One notebook in processes of its own: started, watched, and nothing left of it afterwards."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from verifylab.grid_rows import OUT
from verifylab.processes import TOKEN_VARIABLE, kill_run
from verifylab.published import DataError, data_dir

__all__ = ["LOG", "Ending", "Limits", "Stop", "execute"]

#: File in the run's folder that holds what its processes said, papermill's log included.
LOG = "log.txt"

#: Seconds between looks at a run: at its time, its memory, and whether it is to stop.
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended: one of `verifylab.store.STATUSES`, and one line unless it is ``ok``."""

    status: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may take: wall seconds, and megabytes of resident memory (None: any)."""

    timeout_s: float
    memory_mb: float | None = None


class Stop(Protocol):
    """Says that a run is to end now; a `threading.Event` does."""

    def is_set(self) -> bool:
        """Whether it is."""


def execute(
    notebook: Path,
    parameters: dict[str, Any],
    folder: Path,
    limits: Limits,
    *,
    source: bytes,
    variables: Mapping[str, str] | None = None,
    stop: Stop | None = None,
) -> Ending:
    """Run a notebook; it writes into `folder`, which is given to it as its parameter ``out``.

    It runs in the notebook's own folder, as in JupyterLab, with the kernel of this interpreter
    whatever kernels are installed. Ctrl-C ends it with status ``interrupted`` and is swallowed.

    Parameters
    ----------
    notebook : Path
    parameters : dict
        JSON-able.
    folder : Path
        Exists; also gets ``notebook.ipynb`` and the log.
    limits : Limits
        Time, the kernel's start included, and memory.
    source : bytes
        The notebook's content: what is run, whatever the file holds by now.
    variables : mapping, optional
        For the environment of its processes.
    stop : Stop, optional
        Ends it with status ``interrupted``.
    """
    token = secrets.token_hex(16)
    scratch = folder / ".scratch"
    scratch.mkdir()
    runner: subprocess.Popen[bytes] | None = None
    killed_before = _killed_for_memory()
    # The runner ends when this process does, however that comes about: it reads the pipe's end.
    read_end, write_end = os.pipe()
    try:
        job = _write_job(notebook, source, parameters, folder, scratch)
        with (folder / LOG).open("wb") as log:
            runner = subprocess.Popen(
                [sys.executable, "-m", "verifylab._run_notebook", str(job), str(read_end)],
                cwd=notebook.parent,
                env={**_environment(scratch, token), **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(read_end,),
                start_new_session=True,  # the terminal's Ctrl-C is ours to handle
            )
        ending = _watch(runner, limits, stop or threading.Event())
        if ending is None:
            ending = _ending(scratch / "outcome.json", runner.returncode)
        if ending.status == "died" and _killed_for_memory() > killed_before:
            note = "the system killed a process for want of memory meanwhile"
            ending = Ending("died", f"{ending.error}; {note}")
        return ending
    except KeyboardInterrupt:
        return Ending("interrupted", "interrupted from outside")
    finally:
        kill_run(token)
        if runner is not None:
            with suppress(subprocess.TimeoutExpired):
                runner.wait(10)
        os.close(read_end)
        os.close(write_end)
        shutil.rmtree(scratch, ignore_errors=True)


def _watch(runner: subprocess.Popen[bytes], limits: Limits, stop: Stop) -> Ending | None:
    """Wait for the runner's end; return how the run ended where that is not for it to say."""
    deadline = time.monotonic() + limits.timeout_s
    while True:
        try:
            runner.wait(max(0.0, min(_LOOK_S, deadline - time.monotonic())))
            return None
        except subprocess.TimeoutExpired:
            pass
        if stop.is_set():
            return Ending("interrupted", "interrupted from outside")
        if time.monotonic() >= deadline:
            return Ending("timeout", f"took longer than timeout_s = {limits.timeout_s:g}")
        if limits.memory_mb is not None and (used := _resident_mb(runner.pid)) > limits.memory_mb:
            return Ending(
                "died",
                f"killed for its memory: {used:.0f} MB, memory_mb = {limits.memory_mb:g} allows "
                "no more",
            )


def _resident_mb(pid: int) -> float:
    """Resident memory of a process and all below it; what they share counts for each."""
    total = 0
    with suppress(psutil.Error):
        leader = psutil.Process(pid)
        for process in (leader, *leader.children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_info().rss
    return total / 1e6


def _killed_for_memory() -> int:
    """How many processes the system has killed for want of memory; 0 where it does not say."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _write_job(
    notebook: Path, source: bytes, parameters: dict[str, Any], folder: Path, scratch: Path
) -> Path:
    # Relative, so that the executed notebook names no folder of this machine.
    out = os.path.relpath(folder.resolve(), notebook.parent.resolve())
    job = scratch.resolve() / "job.json"
    copy = job.with_name("source.ipynb")
    copy.write_bytes(source)
    body = {
        "notebook": notebook.name,
        "source": str(copy),
        "executed": os.path.join(out, "notebook.ipynb"),
        "parameters": {**parameters, OUT: out},
        "outcome": str(job.with_name("outcome.json")),
    }
    job.write_text(json.dumps(body), encoding="utf-8")
    return job


def _environment(scratch: Path, token: str) -> dict[str, str]:
    """Return the runner's environment, with a kernel of this interpreter in front of all others."""
    scratch = scratch.resolve()
    spec = scratch / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    kernel = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.append("--HistoryManager.enabled=False")  # no shared history file to wait for
    kernel.append("--Session.packer=verifylab._kernel_json.pack")
    kernel.append("--IPKernelApp.kernel_class=verifylab._kernel.Kernel")
    body = {"argv": kernel, "display_name": "Python 3 (ipykernel)", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(body), encoding="utf-8")
    environment = {
        **os.environ,
        TOKEN_VARIABLE: token,
        "IPYTHONDIR": str(scratch / "ipython"),  # no start-up files of the user's
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    _put_in_front(environment, "JUPYTER_PATH", scratch / "jupyter")
    package = Path(__file__).resolve().parent.parent
    if package.name not in ("site-packages", "dist-packages"):
        _put_in_front(environment, "PYTHONPATH", package)  # a checkout that is not installed
    with suppress(DataError):
        environment["VERIFYLAB_DATA"] = str(data_dir().resolve())
    return environment


def _put_in_front(environment: dict[str, str], name: str, path: Path) -> None:
    others = environment.get(name)
    environment[name] = f"{path}{os.pathsep}{others}" if others else str(path)


def _ending(outcome: Path, code: int) -> Ending:
    try:
        report = json.loads(outcome.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        return Ending("died", f"its process ended {how} before it could report; see {LOG}")
    return Ending(report["status"], report["error"])
