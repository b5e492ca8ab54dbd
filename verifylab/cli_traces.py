"""``verifylab import`` and ``verifylab inspect``: foreign files, stored or told about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from verifylab._console import MISTAKE, json_line

__all__ = ["COMMANDS", "import_command", "inspect_command"]

#: A screen holds this many warnings; the others are counted.
_SHOWN = 8
_json = click.option("--json", "as_json", is_flag=True, help="JSON Lines: one object on each line.")


@click.command("inspect")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_json
def inspect_command(files: tuple[Path, ...], as_json: bool) -> int:
    """Say what is in a log, profile, bench file or step trace.

    The format is found from the content. A file that cannot be read is named on stderr, the others
    are told about, and the exit code is 2.

    With --json: format, steps, events, and counts by kind.
    """
    from verifylab.traces import TraceError, inspect

    good = 0
    for path in files:
        try:
            found = inspect(path)
        except TraceError as error:
            click.echo(_refusal(path, error), err=True)
            continue
        if as_json:
            json_line(found)
        else:
            click.echo(("\n" if good else "") + _screen(found))
        good += 1
    return 0 if good == len(files) else MISTAKE


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="Run folder to make; it must not exist yet."
)
@_json
def import_command(files: tuple[Path, ...], out: Path | None, as_json: bool) -> int:
    """Store logs, profiles, bench files or step traces like a run.

    The default folder is runs/imported/NAME, after the first file. A file that cannot be read is
    named on stderr, the others are stored, and the exit code is 2.
    """
    from verifylab.trace_file import plain
    from verifylab.traces import TraceError, import_files, load

    name = "".join(c if c.isprintable() else "_" for c in files[0].name.split(".")[0])
    target = out or Path("runs") / "imported" / (name or "trace")
    bad = []

    def refuse(path: Path, error: TraceError) -> None:
        bad.append(path)
        click.echo(_refusal(path, error), err=True)

    try:
        stored = import_files(files, target, on_bad=refuse)
    except TraceError:
        if len(bad) < len(files):
            raise
        return MISTAKE
    for trace in load(stored):
        body = {
            "file": trace.source,
            "format": trace.format,
            "steps": trace.steps,
            "events": trace.events,
            "warnings": len(trace.warnings),
            "out": str(target),
        }
        if as_json:
            json_line(body)
        else:
            click.echo(
                f"{plain(trace.source)}: {trace.format}, {trace.steps:,} steps, "
                f"{trace.events:,} events, {len(trace.warnings)} warnings"
            )
    if not as_json:
        click.echo(f"stored in {plain(target)}")
    return MISTAKE if bad else 0


def _refusal(path: Path, error: Exception) -> str:
    """Return why a file cannot be read, with its whole path: names alone may be the same."""
    from verifylab.trace_file import plain

    name, text = plain(path.name or path), str(error)
    told = text.removeprefix(name) if text.startswith(name) else f": {text}"
    return f"error: {plain(path)}{told}"


def _screen(found: dict[str, Any]) -> str:
    """Return what `inspect` found as text that fits a screen."""
    from verifylab.trace_file import plain

    lines = [
        f"{plain(found['file'])}: {found['what']}",
        f"  steps {found['steps']:,}   events {found['events']:,}",
    ]
    lines += [f"  {name}: {plain(value)}" for name, value in found["about"].items()]
    width = max(map(len, found["counts"]), default=0)
    lines += [f"  {kind:<{width}} {count:>12,}" for kind, count in found["counts"].items()]
    lines += [f"  can say: {text}" for text in found["gives"]]
    lines += [f"  cannot:  {text}" for text in found["cannot"]]
    warnings = found["warnings"]
    lines += [f"  warning: {text}" for text in warnings[:_SHOWN]]
    if len(warnings) > _SHOWN:
        lines.append(f"  and {len(warnings) - _SHOWN} more warnings (--json has all)")
    return "\n".join(lines)


COMMANDS = (import_command, inspect_command)
