"""The text of a trace as a workload: every arm replays the same positions of the same sequences.

A request is a stretch of one sequence. Where it starts is drawn from (seed, request) with the
Philox of `verifylab.draws`, uniformly over all positions of the trace; it runs on from there,
past the sequence's end from its beginning. So at every position of a request each row of the trace
is equally likely, a request keeps the character of its sequence, and the row behind a token
position depends on nothing that an arm does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verifylab.dcut import DEFAULT_LADDER, DraftLadder
from verifylab.draft_trace import TRACE_DRAFTS, DraftTrace
from verifylab.draws import philox4x32
from verifylab.workload import MAX_OUTPUT_TOKENS, MODES, OUTPUT_TOKENS

__all__ = ["TraceWorkload"]

_LOW32 = np.uint64(0xFFFFFFFF)
_SHIFT32 = np.uint64(32)


@dataclass(frozen=True, slots=True)
class TraceWorkload:
    """Requests and drafts, replayed from a trace. The role of `verifylab.workload.Workload`.

    Parameters
    ----------
    trace : DraftTrace
    output_tokens : int
        Tokens that a request asks for; 1 or more.
    mode : {"steady", "drain"}
        As in `Workload`.
    ladder : DraftLadder
        Drafts by batch width, at most `TRACE_DRAFTS`: deeper ones were not recorded.
    stretch : int or None
        Tokens after which a request goes on in another drawn place. None: the shortest sequence's
        length, so that no request sees a row twice before it moves on. 1: every position is drawn
        by itself, which keeps each row's confidences and outcome and drops what ties neighbours
        together.

    Raises
    ------
    ValueError
        Naming the field, its value and what would be right.
    """

    trace: DraftTrace
    output_tokens: int = OUTPUT_TOKENS
    mode: str = "steady"
    ladder: DraftLadder = DEFAULT_LADDER
    stretch: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.output_tokens <= MAX_OUTPUT_TOKENS:
            raise ValueError(
                f"output_tokens must be from 1 to {MAX_OUTPUT_TOKENS}, got {self.output_tokens}"
            )
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        deepest = max(drafts for _, drafts in self.ladder.rungs)
        if deepest > TRACE_DRAFTS:
            raise ValueError(
                f"drafts must be from 1 to {TRACE_DRAFTS} (what trace {self.trace.name} "
                f"recorded), got {deepest}"
            )
        if self.stretch is None:
            object.__setattr__(self, "stretch", int(self.trace.lengths.min()))
        elif isinstance(self.stretch, bool) or not 1 <= self.stretch <= MAX_OUTPUT_TOKENS:
            raise ValueError(
                f"stretch must be from 1 to {MAX_OUTPUT_TOKENS} or None, got {self.stretch}"
            )

    def rows(self, seed: int, request: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Return the trace's row behind each token position.

        Parameters
        ----------
        seed : int
            0 to 2**64 - 1; the Philox key.
        request, position : ndarray of int, shape (n,)
            Request numbers (below 2**64) and tokens emitted so far (below 2**32).

        Returns
        -------
        ndarray of int64, shape (n,)
        """
        trace = self.trace
        wide = np.asarray(request, np.uint64)
        block, within = np.divmod(np.asarray(position, np.int64), self.stretch or 1)
        counter = np.stack(
            [block.astype(np.uint64), wide & _LOW32, wide >> _SHIFT32, np.zeros_like(wide)], -1
        )
        word = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))[..., 0]
        drawn = ((word * np.uint64(trace.rows)) >> _SHIFT32).astype(np.int64)
        sequence = np.searchsorted(trace.offsets, drawn, side="right") - 1
        first = trace.offsets[sequence]
        return first + (drawn - first + within) % trace.lengths[sequence]

    def draw(
        self, seed: int, request: np.ndarray, position: np.ndarray, drafts: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what a step at these positions drafts, and how much of it would be accepted.

        Parameters
        ----------
        seed, request, position
            As in `rows`.
        drafts : int
            1 to `TRACE_DRAFTS`.

        Returns
        -------
        log_confidences : ndarray of float64, shape (n, drafts)
        prefix : ndarray of int64, shape (n,)
            Accepted drafts, 0 to `drafts`.

        Raises
        ------
        ValueError
            When `drafts` is out of range.
        """
        if not 1 <= drafts <= TRACE_DRAFTS:
            raise ValueError(
                f"drafts must be from 1 to {TRACE_DRAFTS} (what trace {self.trace.name} "
                f"recorded), got {drafts}"
            )
        rows = self.rows(seed, request, position)
        logs = self.trace.log_confidences[rows, :drafts]
        return logs, np.minimum(self.trace.accepted[rows], drafts)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.uint64]:
        """Return what the compiled `_fast_drafts.draw_trace` takes, in its order.

        Returns
        -------
        log_confidences : float64 (rows, TRACE_DRAFTS)
        accepted, sequence_of : int64 (rows,)
        offsets : int64 (sequences + 1,)
        stretch : uint64
        """
        trace = self.trace
        return (
            trace.log_confidences,
            trace.accepted,
            trace.sequence_of,
            trace.offsets,
            np.uint64(self.stretch or 1),
        )

    def expected_tokens(self, drafts: int) -> float:
        """Return the mean tokens of a step that verifies `drafts`, over all rows of the trace."""
        return 1.0 + float(np.minimum(self.trace.accepted, drafts).mean())
