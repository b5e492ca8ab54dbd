"""One notebook, run by papermill in this process: what `verifylab.sweep` starts for each run.

``python -m verifylab._run_notebook JOB.json FD``. The job names the notebook, a copy of it that
is run, where to save the executed one, its parameters and where to write the outcome. FD is the
read end of a pipe whose other end the sweep holds: when that closes, the sweep is gone, and so must
this run be.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from verifylab.processes import TOKEN_VARIABLE, adopt_orphans, kill_run

#: Parts that papermill loads where it finds them, and this process never uses: jsonschema's check
#: of IRIs, which compiles a grammar for a second at every start, and storage on HDFS.
_NOT_NEEDED = ("rfc3987_syntax", "pyarrow")


def main(job_path: str, fd: str) -> None:
    """Run the job and write ``{"status": ..., "error": ...}`` to its outcome file."""
    watch = threading.Thread(target=_end_with_the_sweep, args=(int(fd),), daemon=True)
    watch.start()
    _first_to_go()
    adopt_orphans()
    job = json.loads(Path(job_path).read_text(encoding="utf-8"))
    status, error = run(job["source"], job["notebook"], job["executed"], job["parameters"])
    # Before this process ends, and its orphans become nobody's.
    kill_run(os.environ[TOKEN_VARIABLE])
    outcome = Path(job["outcome"])
    aside = outcome.with_suffix(".part")
    aside.write_text(json.dumps({"status": status, "error": error}), encoding="utf-8")
    aside.rename(outcome)


def run(source: str, notebook: str, executed: str, parameters: dict[str, Any]) -> tuple[str, str]:
    """Run papermill; return a status and, unless it is ``ok``, one line about the error.

    The executed notebook says that it is `notebook`, whatever copy of it is run.

    The saved notebook is never asked: after a kernel's death it says that every cell completed.
    """
    for name in _NOT_NEEDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill import execute, iorw

    # It reads the copy, and notes where the notebook itself lies.
    execute.load_notebook_node = lambda path: iorw.load_notebook_node(source)
    try:
        papermill.execute_notebook(
            _literal(notebook),
            _literal(executed),
            parameters,
            kernel_name="python3",  # the one that the sweep put in front: this interpreter
            language="python",
            progress_bar=False,
        )
    except papermill.PapermillExecutionError as error:
        with suppress(OSError):  # a full disk must not hide why the cell failed
            print(error, file=sys.stderr, flush=True)  # the cell's traceback: else in no log
        return "failed", f"{error.ename}: {error.evalue}"
    except DeadKernelError as error:
        return "died", str(error)
    except Exception as error:  # whatever the machinery raises is this run's result, not a crash
        status = "died" if "Kernel died" in str(error) else "failed"
        return status, f"{type(error).__name__}: {error}"
    return "ok", ""


def _literal(path: str) -> str:
    """Protect braces: papermill fills paths in as format strings."""
    return path.replace("{", "{{").replace("}", "}}")


def _first_to_go() -> None:
    """Where memory runs out, the system is to kill a run, not the sweep that would record it."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")


def _end_with_the_sweep(fd: int) -> None:
    os.read(fd, 1)  # nobody ever writes: this returns when the sweep's end of the pipe closes
    kill_run(os.environ[TOKEN_VARIABLE])
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
