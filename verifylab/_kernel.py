"""The kernel of a run: ipykernel's own, which ends when it is told to."""

from __future__ import annotations

import atexit
from typing import Any

from ipykernel.ipkernel import IPythonKernel

__all__ = ["Kernel"]


class Kernel(IPythonKernel):
    """A Python kernel whose threads end in an order in which none waits for another for ever.

    Told to shut down, ipykernel 7.4 ends the thread that publishes while the one that was told may
    still publish that it did, and hangs half of the time: papermill then kills it, after 2.5 s.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        atexit.register(self._end_control)  # comes before what the application has registered

    def _end_control(self) -> None:
        thread = self.control_thread
        if thread is not None and thread.is_alive():
            thread.stop()
            thread.join()
