"""Read an Nsight Systems SQLite export: CUDA calls, kernels, graph launches, NVTX ranges.

Only ordinary tables are read. A view or a virtual table that bears a table's name is refused, the
file is opened read-only and as immutable, and its schema is not trusted: nothing in it runs.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from verifylab.profile_calls import Columns, ProfileTables, device_number
from verifylab.step_spans import step_spans
from verifylab.trace_file import Notes, Trace, TraceError, refuse_gzip

__all__ = ["FORMAT", "MAGIC", "read_nsys"]

FORMAT = "nsys_sqlite"
MAGIC = b"SQLite format 3\0"
#: Beginning of a rollback journal that is to be played back.
_JOURNAL = bytes.fromhex("d9d505f920a163d7")
#: NVTX push/pop and start/end ranges (Nsight Systems' ``eventType``).
_NVTX_RANGES = (59, 60)
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_NVTX = "NVTX_EVENTS"
#: What makes Nsight Systems trace the kernels of a graph, and not only the graph.
NODE_TRACE = "nsys profile --cuda-graph-trace=node"
_NAN = float("nan")
#: Rows fetched at once, and rows of one table that are read at most.
_ROWS_AT_ONCE = 20_000
MAX_ROWS = 50_000_000
#: Of a damaged file even the error's own text may be undecodable.
_DAMAGE = (sqlite3.Error, UnicodeDecodeError, OverflowError)


class _Database:
    """The tables of an export, read with care."""

    def __init__(self, path: Path, notes: Notes) -> None:
        self.notes = notes
        path = path.resolve()
        _refuse_unfinished(path)
        try:
            where = f"file:{quote(str(path))}?mode=ro&immutable=1"
            self.connection = sqlite3.connect(where, uri=True)
            self.connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON"):
                self.connection.execute(f"PRAGMA {pragma}")
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 26)
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            kinds = self._kinds()
        except _DAMAGE as error:
            raise TraceError(f"{path.name} is no readable SQLite database: {error}") from None
        self.tables = {name for name, kind in kinds.items() if kind == "table"}
        for name, kind in kinds.items():
            if kind != "table" and name.upper() in (_CALLS, _KERNELS, _GRAPHS, _NVTX, "STRINGIDS"):
                notes.add("view", f"{name[:60]} is a {kind}, not a table: not read")

    def _kinds(self) -> dict[str, str]:
        """Return what each table is: ``table``, ``view`` or ``virtual table``.

        By its SQL, which SQLite itself begins in one way alone for an ordinary table, and by what
        SQLite made of it, where it can tell (3.37 and later).
        """
        master = self.connection.execute(
            "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
        )
        out = {
            str(name): "view" if kind == "view"
            else "table" if str(sql).startswith("CREATE TABLE ") else "virtual table"
            for name, kind, sql in master.fetchall()
        }  # fmt: skip
        if sqlite3.sqlite_version_info >= (3, 37):
            # It would look into views and virtual tables for their columns: not needed here.
            self.connection.set_authorizer(
                lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_SELECT
                else sqlite3.SQLITE_OK
            )  # fmt: skip
            listed = self.connection.execute("PRAGMA main.table_list").fetchall()
            self.connection.set_authorizer(None)
            found = {str(row[1]): str(row[2]) for row in listed}
            out |= {
                name: "view" if found.get(name) == "view" else "virtual table"
                for name, kind in out.items()
                if kind == "table" and found.get(name) not in ("table", "shadow")
            }
        return out

    def rows(self, table: str, wanted: tuple[str, ...], where: str = "") -> Iterator[tuple]:
        """Rows of a table, NULL for a column it lacks; nothing when there is no such table.

        `table`, `wanted` and `where` are this module's own words, never the file's.
        """
        if table not in self.tables:
            return
        try:
            # xinfo says hidden = 2 or 3 of a generated column: computed, so not read.
            known = {
                str(row[1])
                for row in self.connection.execute(f'PRAGMA table_xinfo("{table}")')
                if row[6] == 0
            }
            lacking = [c for c in wanted[:2] if c not in known]
            if lacking:
                self.notes.add("columns", f"{table} has no column {lacking[0]!r}: not read")
                return
            columns = ", ".join(f'"{c}"' if c in known else "NULL" for c in wanted)
            if "eventType" in where and "eventType" not in known:
                where = ""
            cursor = self.connection.execute(f'SELECT {columns} FROM "{table}" {where}')
        except _DAMAGE as error:
            self.notes.add("damage", f"{table} cannot be read: {error}")
            return
        many = 0
        while True:
            try:
                rows = cursor.fetchmany(_ROWS_AT_ONCE)
            except _DAMAGE as error:
                self.notes.add(
                    "damage",
                    f"{table}: reading stopped after {many:,} rows ({error}), those are kept",
                )
                return
            if not rows:
                return
            yield from rows
            many += len(rows)
            if many >= MAX_ROWS:
                self.notes.add("rows", f"{table}: only the first {many:,} rows were read")
                return


def _refuse_unfinished(path: Path) -> None:
    """Refuse a database of which a part is still in the journal beside it.

    Raises
    ------
    TraceError
        Reading the file alone would miss that part, and to fetch it would write.
    """
    for end, begins, remedy in (
        ("-wal", b"", "checkpoint it first: sqlite3 {} 'PRAGMA wal_checkpoint(TRUNCATE)'"),
        ("-journal", _JOURNAL, "roll it back first: sqlite3 {} 'PRAGMA user_version'"),
    ):
        beside = path.with_name(path.name + end)
        try:
            with beside.open("rb") as file:
                start = file.read(8)
        except OSError:
            continue
        if start and start.startswith(begins):
            raise TraceError(
                f"{path.name} is not whole, the rest is in {beside.name}: "
                + remedy.format(path.name)
            )


def _whole(value: object) -> float:
    return float(value) if type(value) is int else _NAN


def read_nsys(path: str | Path) -> Trace:
    """Read an Nsight Systems export (``nsys export --type sqlite``).

    Parameters
    ----------
    path : path
        Opened read-only; gzip is not accepted.

    Returns
    -------
    Trace
        ``calls``, ``kernels`` and ``ranges`` as `read_chrome.read_chrome` has them (NVTX ranges
        in place of annotations), and ``graph_runs`` when the export traced graphs as a whole:
        ``start_us, dur_us, device, graph_id``. Tables that the export lacks are empty, with a
        warning.

    Raises
    ------
    TraceError
        When the file is no SQLite database or has no table of an Nsight Systems export.
    """
    path = Path(path)
    refuse_gzip(path, "SQLite database")
    notes = Notes()
    base = _Database(path, notes)
    try:
        return _read(path.name, base, notes)
    except _DAMAGE as error:  # a page that even the checks above did not survive
        raise TraceError(f"{path.name} is a damaged SQLite database: {error}") from None
    finally:
        base.connection.close()


def _read(name: str, base: _Database, notes: Notes) -> Trace:
    known = [t for t in (_CALLS, _KERNELS, _GRAPHS, _NVTX) if t in base.tables]
    if not known:
        trouble = "; ".join(notes.texts())
        raise TraceError(
            f"{name} is a SQLite database without tables of an Nsight Systems export "
            f"({_CALLS}, {_KERNELS}, ...)" + (f": {trouble}" if trouble else "")
        )
    texts = {
        key: str(value)
        for key, value in base.rows("StringIds", ("id", "value"))
        if type(key) is int
    }
    out = ProfileTables(notes)
    events, failed = 0, 0
    columns = ("start", "end", "nameId", "globalTid", "correlationId", "returnValue")
    for start, end, name_id, thread, correlation, returned in base.rows(_CALLS, columns):
        events += 1
        failed += type(returned) is int and returned != 0
        if _interval(out.calls, start, end, events, _CALLS, notes):
            out.calls.name.append(out.name(texts.get(name_id, f"call {name_id}")))
            _rest(out.calls, out.lane(thread), _whole(correlation), _NAN)
    columns = ("start", "end", "shortName", "deviceId", "correlationId", "graphNodeId")
    for start, end, name_id, device, correlation, node in base.rows(_KERNELS, columns):
        events += 1
        if _interval(out.kernels, start, end, events, _KERNELS, notes):
            out.kernels.name.append(out.name(texts.get(name_id, f"kernel {name_id}")))
            # 0 is "not part of a graph" in exports that fill the column for every kernel.
            _rest(
                out.kernels,
                device_number(device),
                _whole(correlation),
                _whole(node) if node else _NAN,
            )
    for start, end, text, text_id, thread in base.rows(
        _NVTX, ("start", "end", "text", "textId", "globalTid"), f"WHERE eventType IN {_NVTX_RANGES}"
    ):
        events += 1
        if _interval(out.ranges, start, end, events, _NVTX, notes):
            out.ranges.name.append(out.name(text if text else texts.get(text_id, "")))
            _rest(out.ranges, out.lane(thread), _NAN, _NAN)
    for start, end, graph, device in base.rows(_GRAPHS, ("start", "end", "graphId", "deviceId")):
        events += 1
        if _interval(out.graph_runs, start, end, events, _GRAPHS, notes):
            out.graph_runs.name.append(out.name(""))
            _rest(out.graph_runs, device_number(device), _NAN, _whole(graph))
    for table in (_CALLS, _KERNELS):
        if table not in base.tables:
            notes.add("missing", f"the export has no table {table}")
    if failed:
        notes.add("failed", f"{failed:,} CUDA calls returned an error")
    if not events:
        raise TraceError(f"{name} has 0 events in the tables of an Nsight Systems export")
    devices = set(out.kernels.lane)
    if len(devices) == 1:  # older exports do not name the device of a graph
        only = next(iter(devices))
        out.graph_runs.lane = array("q", [only if d < 0 else d for d in out.graph_runs.lane])
    tables = out.tables()
    if "graph_runs" in tables and tables["kernels"].graph_node.isna().all():
        notes.add("graphs", f"kernels within graphs were not traced: {NODE_TRACE} traces them")
    calls = tables["calls"]
    by_kind = calls.kind[~calls.nested].value_counts(sort=False)
    counts = {str(kind): int(n) for kind, n in by_kind.items() if n}
    counts |= {table: len(frame) for table, frame in tables.items() if table != "calls"}
    counts = {key: n for key, n in counts.items() if n}
    steps = len(step_spans(calls, tables["ranges"])[0])
    return Trace(FORMAT, name, tables, counts, steps, events, notes.texts())


def _interval(
    columns: Columns, start: object, end: object, number: int, table: str, notes: Notes
) -> bool:
    """Append an interval given in nanoseconds, as microseconds; False when it is none."""
    if isinstance(start, int) and isinstance(end, int) and end >= start:
        columns.start.append(start / 1e3)
        columns.length.append((end - start) / 1e3)
        return True
    notes.add("time", f"{table}, event {number:,}: start or end is missing or wrong, left out")
    return False


def _rest(columns: Columns, lane: int, correlation: float, extra: float) -> None:
    columns.lane.append(lane)
    columns.correlation.append(correlation)
    columns.extra.append(extra)
