"""A device that several arms share: what one of them sees of it, with clocks of its own."""

from __future__ import annotations

from typing import Any

from verifylab.device.base import Body, StepDevice, Timings

__all__ = ["ArmDevice"]


class ArmDevice:
    """One arm's view of a device: own timings, own stopwatch, own device time.

    The stopwatch runs from a dispatch's first device call (capturing and evicting included) to the
    end of a wait after its launch: an engine copies the sampled tokens back there, and blocks.
    Between dispatches it stands still. Device time is between events around the launch, on its
    stream; recording the first of them pauses the stopwatch, the second overlaps with the step.

    Parameters
    ----------
    inner : StepDevice

    Attributes
    ----------
    wall_ms, device_ms : float
        The stopwatch, and the time between the events.
    """

    def __init__(self, inner: StepDevice) -> None:
        self.inner = inner
        self.name, self.measured = inner.name, inner.measured
        self.timings = Timings()
        self.wall_ms = self.device_ms = 0.0
        self._since: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def clock(self) -> float:
        """Milliseconds on the stopwatch, which stands still between dispatches."""
        return self.wall_ms

    def capture(self, body: Body) -> Any:
        """Capture on the shared device."""
        self._start()
        return self.inner.capture(body)

    def destroy(self, graph: Any) -> None:
        """Destroy on the shared device."""
        self._start()
        self.inner.destroy(graph)

    def launch(self, graph: Any) -> None:
        """Replay, and wait: the dispatch ends here."""
        first = self._begin()
        self.inner.launch(graph)
        self._end(first)

    def run(self, body: Body) -> None:
        """Run eagerly, and wait: the dispatch ends here."""
        first = self._begin()
        self.inner.run(body)
        self._end(first)

    def _start(self) -> float:
        if self._since is None:
            self.inner.timings = self.timings
            self._since = self.inner.clock()
        return self._since

    def _begin(self) -> Any:
        since = self._start()
        before = self.inner.clock()
        first = self.inner.mark()
        # No engine records this event: the stopwatch stands still meanwhile.
        self._since = since + self.inner.clock() - before
        return first

    def _end(self, first: Any) -> None:
        last = self.inner.mark()
        self.inner.synchronise()
        self.wall_ms += self.inner.clock() - self._start()
        self._since = None
        self.device_ms += self.inner.elapsed_ms(first, last)
