"""The commands about stored runs: ``runs``, ``compare``, ``report``, ``gc``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from verifylab._console import FAILED, json_line, table
from verifylab._runs_text import (
    delta_object,
    delta_row,
    run_details,
    run_object,
    run_text,
)
from verifylab.paths import shown

__all__ = ["COMMANDS"]

_json = click.option("--json", "as_json", is_flag=True, help="JSON Lines: one object on each line.")
_out = click.option("--out", default="runs", show_default=True, help="Folder of all sweeps.")
_statuses = click.option(
    "--status", "statuses", multiple=True, help="Only runs of this status; may be repeated."
)


@click.command()
@click.argument("which", nargs=-1, metavar="[SWEEP|SWEEP/RUN]...")
@_out
@_statuses
@click.option("--where", multiple=True, metavar="NAME=VALUE", help="Only runs of this parameter.")
@click.option("--show", is_flag=True, help="All about each: provenance, files, the whole error.")
@_json
def runs(
    which: tuple[str, ...],
    out: str,
    statuses: tuple[str, ...],
    where: tuple[str, ...],
    show: bool,
    as_json: bool,
) -> None:
    """List what is stored, or show all about single runs.

    A status is ok, failed, timeout, died, interrupted, stale (ok, but the notebook or the library
    changed since) or corrupt (files missing, torn, or not as they were written; a list looks at
    sizes, --show at checksums).

    JSON keys: sweep, run, status, seconds, started, ended, repeat, attempts, parameters, error,
    folder; with --show also headline (the summary's first line), provenance, notes, figures, data,
    notebook.
    """
    from verifylab.grid_rows import meant
    from verifylab.loading import passed_over, scan, told_of

    _known(statuses)
    asked = [_assignment(text) for text in where]
    folders = _folders(which, out) if which or Path(out).is_dir() else []
    stored = scan(folders, deep=show)
    for folder in passed_over(folders):
        click.echo(f"passed over {told_of(folder)}", err=True)
    found = [
        run
        for run in stored
        if (not statuses or run.status in statuses)
        and all(_has(run.parameters, name, value) for name, value in asked)
    ]
    names = {name for run in stored for name in run.parameters}
    for name, _ in asked:
        if names and name not in names:
            told = f"no stored run has a parameter {name!r}{meant(name, sorted(names))}"
            click.echo(told, err=True)
    if as_json:
        for run in found:
            json_line({**run_object(run), **(run_details(run) if show else {})})
    elif show:
        click.echo("\n\n".join(map(run_text, found)))
    elif found:
        columns = ["sweep", "run", "status", "seconds", "started", "error"]
        rows = [{**run_object(run), "error": (run.error or "")[:100]} for run in found]
        click.echo(table(rows, columns))
        tally = Counter(run.status for run in found)
        counts = ", ".join(f"{n} {status}" for status, n in tally.most_common())
        click.echo(f"\n{len(found):,} run{'s' * (len(found) != 1)}: {counts}")
    else:
        click.echo(f"no stored run like this in {shown(out)}", err=True)


@click.command()
@click.argument("a")
@click.argument("b")
@_out
@click.option("--metric", "metrics", multiple=True, help="Column of the results; may be repeated.")
@click.option("--threshold", default=1.0, show_default=True, help="Percent below which is noise.")
@click.option("--lower", multiple=True, help="A metric of which less is better.")
@click.option("--all", "everything", is_flag=True, help="List also what did not change.")
@_json
def compare(
    a: str,
    b: str,
    out: str,
    metrics: tuple[str, ...],
    threshold: float,
    lower: tuple[str, ...],
    everything: bool,
    as_json: bool,
) -> int:
    """Hold the results of B against those of A, the base.

    A and B are sweeps of --out, folders of runs, or commits (their runs in --out). Deltas are
    paired by parameters, row, repeat and seed; where there are several of the last two they come
    with a 95 % interval. REGRESSION and GAIN are beyond the threshold, the interval clear of 0.

    Exit codes: 0 where B has every result of A and none is worse, though it may have gains and new
    results; 1 on a REGRESSION, or where anything of A is missing in B, be it one repeat or seed.
    Runs with a missing or a new result, and those left out for their status, are named on stderr.

    JSON keys: class, metric, where, a, b, delta_pct, low_pct, high_pct, n.
    """
    from verifylab.comparing import CLASSES, compare_results

    if not 0 <= threshold < float("inf"):
        raise ValueError(f"--threshold must be 0 or more, got {threshold}")
    sides = [_side(name, out) for name in (a, b)]
    found = compare_results(*sides, metrics=metrics, threshold_pct=threshold, lower=lower)
    counts = Counter(delta.kind for delta in found.deltas)
    if as_json:
        for delta in found.deltas:
            json_line(delta_object(delta))
    else:
        for name, (left, right) in found.differing.items():
            click.echo(f"compared: {name} = {json.dumps(right)} against {json.dumps(left)}")
        listed = [d for d in found.deltas if everything or d.kind != "NO CHANGE"]
        if listed:
            click.echo(table(map(delta_row, listed), list(delta_row(listed[0]))))
        click.echo(", ".join(f"{counts[kind]} {kind}" for kind in CLASSES))
    for line in found.left_out:
        click.echo(f"left out: {line}", err=True)
    for what, named in (("missing in B", found.missing), ("new in B", found.new)):
        for line in named:
            click.echo(f"{what}: {line}", err=True)
    if found.deltas and len(found.deltas) == counts["NEW"] + counts["MISSING"]:
        click.echo("error: nothing was compared: the two have no row in common", err=True)
        return FAILED
    return FAILED if counts["REGRESSION"] or found.missing else 0


@click.command()
@click.argument("sweep")
@_out
@click.option("--output", help="HTML file to write; default: report.html in the sweep's folder.")
@_json
def report(sweep: str, out: str, output: str | None, as_json: bool) -> None:
    """Write a sweep as one HTML file with everything inside: figures, tables, failures.

    JSON keys: sweep, report.
    """
    from verifylab.report import write_report

    (folder,) = _folders((sweep,), out)
    path = write_report(folder, output)
    if as_json:
        json_line({"sweep": folder.resolve().name, "report": shown(path)})
    else:
        click.echo(f"wrote {shown(path)}")


@click.command()
@click.argument("which", nargs=-1, metavar="[SWEEP|SWEEP/RUN]...")
@_out
@_statuses
@click.option("--yes", is_flag=True, help="Remove; without it they are listed only.")
@_json
def gc(
    which: tuple[str, ...], out: str, statuses: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Remove runs that are not ok, and what killed sweeps left.

    An ok or stale run goes only when it is named as SWEEP/RUN, or by --status.

    JSON keys: sweep, run, status, why, bytes, removed.
    """
    from verifylab.collecting import collect, garbage
    from verifylab.loading import is_run, scan

    _known(statuses)
    chosen = _folders(which, out) if which else []
    named = [folder for folder in chosen if is_run(folder)]
    sweeps = [folder for folder in chosen if folder not in named]
    if not which and Path(out).is_dir():
        sweeps = list(dict.fromkeys(run.folder.parent for run in scan(out)))
    found = garbage(sweeps, named, statuses)
    gone = collect(found) if yes else []
    for one in found:
        if as_json:
            body = {"sweep": one.sweep, "run": one.run, "status": one.status, "why": one.why}
            json_line({**body, "bytes": one.nbytes, "removed": one in gone})
        else:
            what = "removed" if one in gone else "not removed" if yes else "would remove"
            click.echo(f"{what} {shown(one.folder)}: {one.why}, {one.nbytes:,} bytes")
    if not as_json:
        listed = gone if yes else found
        total, many = sum(one.nbytes for one in listed), "s" * (len(listed) != 1)
        hint = "" if yes or not found else f"; --yes removes {'them' if many else 'it'}"
        click.echo(f"{len(listed)} folder{many}, {total:,} bytes{hint}")


COMMANDS = (runs, compare, report, gc)


def _folders(which: Iterable[str], out: str) -> list[Path]:
    """Find what is named: a sweep or a run in the folder of all sweeps, else a folder itself."""
    found = []
    for name in which:
        folder = next((f for f in (Path(out) / name, Path(name)) if name and f.is_dir()), None)
        if folder is None:
            raise ValueError(f"no sweep, run or folder {name!r}, neither in {shown(out)} nor here")
        found.append(folder)
    return found or [Path(out)]


def _side(name: str, out: str) -> Any:
    from verifylab.store import load

    try:
        return load(_folders((name,), out))
    except ValueError:
        folders = _of_commit(name, out)
        if not folders:
            raise
        return load(folders)


def _of_commit(name: str, out: str) -> list[Path]:
    from verifylab.loading import origin_of, scan

    if len(name) < 7 or not Path(out).is_dir():
        return []
    found = []
    for run in scan(out):
        origin = origin_of(run)
        if str(origin.get("commit") or "").startswith(name):
            found.append(run.folder)
    return found


def _known(statuses: Iterable[str]) -> None:
    from verifylab.records import SEEN

    for status in statuses:
        if status not in SEEN:
            raise ValueError(f"--status must be one of {', '.join(SEEN)}, got {status!r}")


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--where must be like ratio=0.5, got {text!r}")
    return name.strip(), value.strip()


def _has(parameters: dict[str, Any], name: str, value: str) -> bool:
    """Whether a parameter has this value, as JSON or as plain text."""
    if name not in parameters:
        return False
    try:
        wanted = json.loads(value)
    except (ValueError, RecursionError):
        wanted = value
    return parameters[name] == wanted or parameters[name] == value
