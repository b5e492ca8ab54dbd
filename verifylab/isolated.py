"""One notebook in processes of its own: started, watched, and nothing left of it afterwards."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifylab.gridfile import OUT
from verifylab.processes import TOKEN_VARIABLE, kill_run
from verifylab.published import DataError, data_dir

__all__ = ["Ending", "execute"]

#: File in the run's folder that holds what its processes said, papermill's log included.
LOG = "log.txt"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended: one of `verifylab.store.STATUSES`, and one line unless it is ``ok``."""

    status: str
    error: str = ""


def execute(notebook: Path, parameters: dict[str, Any], folder: Path, timeout_s: float) -> Ending:
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
    timeout_s : float
        Wall seconds, the kernel's start included.
    """
    token = secrets.token_hex(16)
    scratch = folder / ".scratch"
    scratch.mkdir()
    runner: subprocess.Popen[bytes] | None = None
    # The runner ends when this process does, however that comes about: it reads the pipe's end.
    read_end, write_end = os.pipe()
    try:
        job = _write_job(notebook, parameters, folder, scratch)
        with (folder / LOG).open("wb") as log:
            runner = subprocess.Popen(
                [sys.executable, "-m", "verifylab._run_notebook", str(job), str(read_end)],
                cwd=notebook.parent,
                env=_environment(scratch, token),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(read_end,),
                start_new_session=True,  # the terminal's Ctrl-C is ours to handle
            )
        code = runner.wait(timeout_s)
        return _ending(scratch / "outcome.json", code)
    except subprocess.TimeoutExpired:
        return Ending("timeout", f"took longer than timeout_s = {timeout_s:g}")
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


def _write_job(notebook: Path, parameters: dict[str, Any], folder: Path, scratch: Path) -> Path:
    # Relative, so that the executed notebook names no folder of this machine.
    out = os.path.relpath(folder.resolve(), notebook.parent.resolve())
    job = scratch.resolve() / "job.json"
    body = {
        "notebook": notebook.name,
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
    quiet = ["--HistoryManager.enabled=False"]  # no shared history file to wait for
    body = {"argv": kernel + quiet, "display_name": "Python 3 (ipykernel)", "language": "python"}
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
