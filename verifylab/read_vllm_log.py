"""Read a vLLM log: CUDA-graph statistics (``--cudagraph-metrics``), throughput, acceptance.

Every stats interval prints a settings block and a Markdown table of padded against unpadded
tokens; counters start again after each. Blocks of several engines may interleave: the prefix of
the line, such as ``(APIServer pid=66)``, keeps them apart. The table's own header says which
column is which, so that added or missing columns do no harm.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from verifylab.log_prefix import collected
from verifylab.trace_file import (
    MOST,
    Limits,
    Notes,
    Trace,
    hits,
    line_blocks,
    nothing_readable,
    whole_column,
)

__all__ = ["FORMAT", "NEEDLES", "RUNTIME_MODES", "read_vllm_log", "readable"]

FORMAT = "vllm_log"
#: ``NONE`` ran eager.
RUNTIME_MODES = ("FULL", "PIECEWISE", "NONE")
#: What tells the format.
NEEDLES = (b"CUDAGraph Stats", b"CUDAGraph Config", b"Avg generation throughput:")
_NEEDLES = (b"CUDAGraph ", b"Capture sizes:", b"Mode:", b"generation throughput:", b"cceptance")
#: What rows of the table hold, where a bar does not tell them: each line of `docker compose logs`
#: has one.
_ROW_NEEDLES = (b"FULL", b"PIECEWISE", b"NONE", b"Unpadded")
_MAX_TEXT, _MEMO_ENTRIES, _SAMPLE = 1 << 14, 1 << 14, 1 << 16
#: Statistics kept; a log has one block of a few rows every ten seconds.
MAX_ROWS = 5_000_000

_ANSI = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
#: At the start, or behind a collector's prefix of another form.
_PREFIX = re.compile(r"\A\s*(\([^()]{1,64}\))|(\([\w-]{1,48} pid=\d{1,12}\))")
_CLOCK = re.compile(r"\b(\d\d-\d\d \d\d:\d\d:\d\d)\b")
_ENGINE = re.compile(r"\bEngine (\d{1,6}):")
_HEADER = {
    "unpadded tokens": "unpadded",
    "padded tokens": "padded",
    "num paddings": "paddings",
    "runtime mode": "runtime_mode",
    "count": "count",
}
_USUAL = tuple(_HEADER.values())
_WHOLE = re.compile(r"\d{1,15}")
_RATE = {
    name: re.compile(pattern)
    for name, pattern in {
        "prompt_tok_s": r"prompt throughput: (\d{1,12}(?:\.\d{1,9})?)",
        "generation_tok_s": r"generation throughput: (\d{1,12}(?:\.\d{1,9})?)",
        "running": r"Running: (\d{1,9})",
        "waiting": r"Waiting: (\d{1,9})",
    }.items()
}
_LENGTH = re.compile(r"[Mm]ean acceptance length: (\d{1,6}(?:\.\d{1,9})?)")
_POSITIONS = re.compile(r"[Pp]er-position acceptance rate: ([\d., ]{1,1024})")
_RATE_OF_ONE = re.compile(r"\d\.\d{1,9}")
_MODE = re.compile(r"Mode: (?:CUDAGraphMode\.)?([A-Z_]{1,32})")
_SIZES = re.compile(r"Capture sizes: \[([\d, ]*)\]")


@dataclass(slots=True)
class _Engine:
    """Where one engine's lines stand: its block, and the columns that its header named."""

    block: int = -1
    columns: tuple[str, ...] = _USUAL
    mode: str = ""
    sizes: tuple[int, ...] = ()


@dataclass(slots=True)
class _Reader:
    notes: Notes
    engines: dict[str, _Engine] = field(default_factory=dict)
    graphs: list[tuple] = field(default_factory=list)
    settings: list[tuple] = field(default_factory=list)
    throughput: list[tuple] = field(default_factory=list)
    acceptance: list[tuple] = field(default_factory=list)
    rows: dict[tuple, tuple] = field(default_factory=dict)
    headers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    blocks: int = 0
    #: Rows of a block come with one head: the last one seen, and what was found in it.
    head: str | None = None
    found: tuple[str, str] = ("", "")

    def _head(self, text: str) -> tuple[str, str]:
        """Return clock and engine of a line, from what stands before its text."""
        before = text.partition("[")[0]  # the file that logs: what stands before it comes again
        if before == self.head:
            return self.found
        text = text.partition("|")[0][:256]
        prefix, clock = _PREFIX.search(text), _CLOCK.search(text[:160])
        name = prefix[1] or prefix[2] if prefix else ""
        found = clock.group(1) if clock else "", name
        if clock and max(clock.end(), prefix.end() if prefix else 0) < len(before) < len(text):
            self.head, self.found = before, found
        return found

    def line(self, text: str, offset: int, number: int) -> None:
        """Read one line that holds one of the needles."""
        text = _ANSI.sub("", text) if "\x1b" in text else text
        collector, text = collected(text)
        clock, name = self._head(text)
        name = f"{collector} {name}".strip()
        if len(self.engines) > 1000 and name not in self.engines:
            name = ""
        engine = self.engines.get(name)
        if engine is None:
            engine = self.engines[name] = _Engine()
        at = (offset, clock, name)
        if "|" in text:
            self._row(engine, at, text, number)
        elif "CUDAGraph Config Settings" in text:
            engine.mode, engine.sizes = "", ()
        elif "CUDAGraph Stats" in text:
            engine.block, engine.columns = self.blocks, _USUAL
            self.blocks += 1
            self.settings.append((*at, engine.block, engine.mode, engine.sizes))
        elif found := _SIZES.search(text):
            sizes = found.group(1).replace(",", " ").split()
            engine.sizes = tuple(int(s) for s in sizes if len(s) <= 15)
        elif "generation throughput:" in text:
            rates = [_float(pattern.search(text)) for pattern in _RATE.values()]
            index = found.group(1) if (found := _ENGINE.search(text)) else ""
            if rates[1] == rates[1]:
                self.throughput.append((*at, index, *rates))
            else:
                self.notes.add("cut", f"line {number:,}: a throughput message is cut off")
        elif "cceptance" in text:
            length, listed = _float(_LENGTH.search(text)), _POSITIONS.search(text)
            positions = [float(r) for r in _RATE_OF_ONE.findall(listed[1])] if listed else []
            if length == length or positions:
                self.acceptance.append((*at, length, positions))
        elif found := _MODE.search(text):
            engine.mode = found.group(1)

    def _row(self, engine: _Engine, at: tuple, text: str, number: int) -> None:
        cells = text[text.index("|") :]
        if cells.startswith(("|--", "| --")):
            return  # the rule under a header
        if (columns := self.headers.get(cells)) is not None:
            engine.columns = columns
            return
        same = cells, engine.columns
        values = self.rows.get(same)
        if values is None:
            values = self._parse(engine, same[0], number)
            if values is None:
                return
            if len(self.rows) < _MEMO_ENTRIES:
                self.rows[same] = values
        if len(self.graphs) >= MAX_ROWS:
            self.notes.add("rows", f"line {number:,}: more than {MAX_ROWS:,} rows, not kept")
            return
        self.graphs.append((*at, engine.block, *values))

    def _parse(self, engine: _Engine, text: str, number: int) -> tuple | None:
        """Return (unpadded, padded, paddings, mode, count) of a row; None when it is none."""
        closed = text.rstrip().endswith("|")
        cells = [c.strip() for c in text[1:].rstrip(" |\r\n\t").split("|")]
        if any(c.lower() in _HEADER for c in cells):
            engine.columns = tuple(_HEADER.get(c.lower(), "") for c in cells)
            if len(self.headers) < _MEMO_ENTRIES:
                self.headers[text] = engine.columns
            return None
        row = dict(zip(engine.columns, cells, strict=False))
        mode = row.get("runtime_mode", "").rpartition(".")[2]
        if mode not in RUNTIME_MODES:
            return None  # some other table, or text with a bar in it
        unpadded, padded, paddings, count = (
            int(row[c]) if _WHOLE.fullmatch(row.get(c, "")) else None
            for c in ("unpadded", "padded", "paddings", "count")
        )
        if count is None or padded is None or not closed:
            self.notes.add("cut", f"line {number:,}: a row of CUDA-graph statistics is cut off")
            return None
        if (most := max(count, padded, unpadded or 0, paddings or 0)) > MOST:
            self.notes.add("absurd", f"line {number:,}: {most} is no count, the row is left out")
            return None
        if paddings is None and unpadded is not None:
            paddings = padded - unpadded
        elif unpadded is None and paddings is not None:
            unpadded = padded - paddings
        elif unpadded is not None and padded - unpadded != paddings:
            self.notes.add(
                "sum",
                f"line {number:,}: {padded} padded tokens less {unpadded} unpadded are not "
                f"{paddings} paddings",
            )
        return unpadded, padded, paddings, mode, count

    def tables(self) -> dict[str, Any]:
        """Return `graphs` and `settings` always, the others where there are any."""
        import pandas as pd

        head = ["offset", "clock", "engine"]
        names = [*head, "block", "unpadded", "padded", "paddings", "runtime_mode", "count"]
        columns = dict(zip(names, zip(*self.graphs, strict=True), strict=False))
        numbers = ("unpadded", "padded", "paddings", "count")
        graphs = pd.DataFrame(
            {
                name: whole_column(np.array(columns.get(name, ()), float))
                if name in numbers
                else columns.get(name, ())
                for name in names
            }
        )
        out = {
            "graphs": graphs,
            "settings": pd.DataFrame(
                self.settings, columns=[*head, "block", "mode", "capture_sizes"]
            ),
        }
        if self.throughput:
            out["throughput"] = pd.DataFrame(
                self.throughput, columns=[*head, "engine_index", *_RATE]
            )
        if self.acceptance:
            out["acceptance"] = pd.DataFrame(
                self.acceptance, columns=[*head, "mean_length", "by_position"]
            )
        return out


def _first_bars(data: bytes) -> np.ndarray:
    """Where the first bar of each line is that has one."""
    found: list[int] = []
    at = data.find(b"|")
    while at >= 0:
        found.append(at)
        end = data.find(b"\n", at)
        at = data.find(b"|", end) if end >= 0 else -1
    return np.array(found, np.int64)


def _float(found: re.Match[str] | None) -> float:
    return float(found.group(1)) if found else float("nan")


_READABLE = re.compile(rb"CUDAGraph (?:Stats|Config)|Avg generation throughput: \d")


def readable(data: bytes) -> int:
    """Count the messages in `data` that can be read, of the first thousand."""
    return sum(1 for _ in itertools.islice(_READABLE.finditer(data), 1000))


def read_vllm_log(path: str | Path, *, limits: Limits | None = None) -> Trace:
    """Read a vLLM log, gzip or not.

    Parameters
    ----------
    path : path
        Streamed.
    limits : Limits, optional
        How far gzip data may grow.

    Returns
    -------
    Trace
        All have ``offset`` (bytes), ``clock`` (text, vLLM writes no year), ``engine`` (the line's
        prefix).

        - ``graphs``: ``block`` (number of the stats block), ``unpadded, padded, paddings``
          (tokens), ``runtime_mode`` (see `RUNTIME_MODES`), ``count`` (steps)
        - ``settings``: ``block, mode, capture_sizes`` (tokens), one row a block
        - ``throughput``: ``engine_index, prompt_tok_s, generation_tok_s, running, waiting``
        - ``acceptance``: ``mean_length`` (tokens a step), ``by_position`` (list of rates)

    Raises
    ------
    TraceError
        When the file cannot be opened or has no message of this format.
    """
    path = Path(path)
    notes = Notes()
    reader = _Reader(notes)
    size = 0
    for block in line_blocks(path, notes, limits=limits):
        data, size = block.data, block.offset + len(block.data)
        # A sample tells which needles are quick; both find every row.
        bars_are_rare = 2 * data.count(b"|", 0, _SAMPLE) < data.count(b"\n", 0, _SAMPLE)
        at = hits(data, _NEEDLES if bars_are_rare else (*_NEEDLES, *_ROW_NEEDLES))[:, 0]
        if bars_are_rare:
            at = np.append(at, _first_bars(data))
        if not len(at):
            continue
        feeds = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        starts = np.append(0, feeds + 1)
        for index in np.unique(np.searchsorted(feeds, at)).tolist():
            start = int(starts[index])
            end = int(feeds[index]) if index < len(feeds) else len(data)
            text = data[start : min(end, start + _MAX_TEXT)].decode("utf-8", "replace")
            reader.line(text, block.offset + start, block.line + index)
    found_any = reader.graphs or reader.settings or reader.throughput or reader.acceptance
    if not found_any:
        raise nothing_readable(path, "vLLM's statistics", size, notes)
    tables = reader.tables()
    graphs = tables["graphs"]
    by_mode = graphs.groupby("runtime_mode")["count"].sum()
    counts = {"stats_blocks": reader.blocks, "graph_rows": len(graphs)}
    counts |= {f"steps_{mode.lower()}": int(by_mode.get(mode, 0)) for mode in RUNTIME_MODES}
    counts |= {name: len(tables[name]) for name in ("throughput", "acceptance") if name in tables}
    events = len(graphs) + sum(counts.get(n, 0) for n in ("stats_blocks", "throughput"))
    return Trace(
        FORMAT,
        path.name,
        tables,
        {k: v for k, v in counts.items() if v},
        int(graphs["count"].sum()),
        events + counts.get("acceptance", 0),
        notes.texts(),
    )
