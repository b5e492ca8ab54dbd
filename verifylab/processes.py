"""Ending a run's processes, all of them.

A Jupyter kernel leads a session of its own, so killing the process group that started it does not
reach it; and when its parent dies first it is nobody's child. So every run gets a token in its
environment, which all its descendants inherit whatever session they are in, and whoever carries
the token is killed.
"""

from __future__ import annotations

import os
import threading
import time

import psutil

__all__ = ["TOKEN_VARIABLE", "kill_run", "processes_of"]

#: Environment variable that carries a run's token.
TOKEN_VARIABLE = "VERIFYLAB_RUN_TOKEN"

_ONE_AT_A_TIME = threading.Lock()  # psutil's list of processes is shared between threads


def processes_of(token: str) -> list[psutil.Process]:
    """Return the live processes that carry `token`, the calling one excepted."""
    found = []
    with _ONE_AT_A_TIME:
        processes = list(psutil.process_iter())
    for process in processes:
        try:
            if process.pid != os.getpid() and process.environ().get(TOKEN_VARIABLE) == token:
                found.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, a zombie, or someone else's
            continue
    return found


def kill_run(token: str, patience_s: float = 10.0) -> None:
    """Kill every process that carries `token`, the calling one excepted, and wait for their end.

    Parameters
    ----------
    token : str
    patience_s : float
        Seconds after which it gives up on processes that do not die (stuck in the kernel).
    """
    deadline = time.monotonic() + patience_s
    while (found := processes_of(token)) and time.monotonic() < deadline:
        for process in found:
            try:
                process.kill()
            except psutil.Error:
                continue
        # Not wait_procs: a killed orphan stays a zombie for as long as its new parent likes.
        time.sleep(0.02)
