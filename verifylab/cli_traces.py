"""``verifylab import`` and ``verifylab inspect``: foreign files, stored or told about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from verifylab._console import json_line

__all__ = ["COMMANDS", "import_command", "inspect_command"]

#: A screen holds this many warnings; the others are counted.
_SHOWN = 8
_json = click.option("--json", "as_json", is_flag=True, help="JSON Lines: one object on each line.")


@click.command("inspect")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_json
def inspect_command(files: tuple[Path, ...], as_json: bool) -> None:
    """Say what is in a log, profile, bench file or step trace.

    The format is found from the content. With --json: format, steps, events, and counts by kind.
    """
    from verifylab.traces import inspect

    for number, path in enumerate(files):
        found = inspect(path)
        if as_json:
            json_line(found)
        else:
            click.echo(("\n" if number else "") + _screen(found))


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="Run folder to make; it must not exist yet."
)
@_json
def import_command(files: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Store logs, profiles, bench files or step traces like a run.

    The default folder is runs/imported/NAME, after the first file.
    """
    from verifylab.trace_file import plain
    from verifylab.traces import import_files, load

    name = "".join(c if c.isprintable() else "_" for c in files[0].name.split(".")[0])
    target = out or Path("runs") / "imported" / (name or "trace")
    for trace in load(import_files(files, target)):
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
