"""Ending a run's processes, all of them.

A Jupyter kernel leads a session of its own, so killing the process group that started it does not
reach it; and when its parent dies first it is nobody's child. So every run gets a token in its
environment, which its descendants inherit whatever session they are in, and whoever carries the
token is killed, with all below it: a process may be started with an empty environment. Where such
a one's parent ends, Linux hands it to the run's own process (`adopt_orphans`), which carries it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress

import psutil

__all__ = ["TOKEN_VARIABLE", "adopt_orphans", "kill_run", "processes_of"]

#: Environment variable that carries a run's token.
TOKEN_VARIABLE = "VERIFYLAB_RUN_TOKEN"

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_ONE_AT_A_TIME = threading.Lock()  # psutil's list of processes is shared between threads


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends; nothing where not on Linux."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def processes_of(token: str) -> list[psutil.Process]:
    """Return the live processes that carry `token` and all below them, the youngest first.

    The calling process is never among them.
    """
    with _ONE_AT_A_TIME:
        processes = list(psutil.process_iter())
    below: dict[int, list[psutil.Process]] = {}
    found: dict[int, psutil.Process] = {}
    for process in processes:
        with suppress(psutil.Error, OSError):  # gone meanwhile, or someone else's
            below.setdefault(process.ppid(), []).append(process)
            if process.environ().get(TOKEN_VARIABLE) == token:
                found[process.pid] = process
    look_below = list(found)
    while look_below:
        for process in below.get(look_below.pop(), []):
            if process.pid not in found:
                found[process.pid] = process
                look_below.append(process.pid)
    found.pop(os.getpid(), None)
    return sorted(filter(_alive, found.values()), key=psutil.Process.create_time, reverse=True)


def _alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def kill_run(token: str, patience_s: float = 10.0) -> None:
    """Kill every process of `processes_of`, and wait for their end.

    Parameters
    ----------
    token : str
    patience_s : float
        Seconds after which it gives up on processes that do not die (stuck in the kernel).
    """
    deadline = time.monotonic() + patience_s
    while (found := processes_of(token)) and time.monotonic() < deadline:
        # The eldest last, when it is alone: while it lives, what its children leave comes to it.
        late = time.monotonic() > deadline - 1.0
        for process in found if late else found[:-1] or found:
            with suppress(psutil.Error):
                process.kill()
        # Not wait_procs: a killed orphan stays a zombie for as long as its new parent likes.
        time.sleep(0.02)
