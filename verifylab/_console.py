"""What every command of `verifylab.cli` shares: errors in one sentence, lists, tables, JSON."""

from __future__ import annotations

import dis
import itertools
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from verifylab.strict_json import unpaired

__all__ = ["Commands", "json_line", "table", "whole_numbers"]

#: Exit codes beside 0: a run or a check that is not ok (also: our own fault, or nobody left to
#: read what is printed), the user's mistake, and Ctrl-C as a shell counts it.
FAILED, MISTAKE, INTERRUPTED = 1, 2, 130

DEBUG_VARIABLE = "VERIFYLAB_DEBUG"


class Commands(click.Group):
    """A group of commands whose errors are one sentence on stderr, never a traceback.

    A command returns its exit code, or None for 0. Only a bug of ours gives a traceback, and only
    where `DEBUG_VARIABLE` is set to something.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line; as `click.Group.main`."""
        line = (args, prog_name, complete_var, False)
        if not standalone_mode:
            return super().main(*line, **extra)
        _open_closed()
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError):
                stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        try:
            _check_surroundings(sys.argv[1:] if args is None else args)
            code = super().main(*line, **extra)
            sys.stdout.flush()  # here, where a pipe that nobody reads can still be noticed
        except Exception as error:
            code = _report(error)
        except KeyboardInterrupt:
            code = _say("interrupted", INTERRUPTED)
        sys.exit(code or 0)


def _open_closed() -> None:
    """Open what was closed before we started (``>&-``) on nothing.

    Else the next file that anyone opens takes its number, and what is printed lands in that file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


def _check_surroundings(args: Sequence[str]) -> None:
    """Refuse what would fail later, in the middle of the work and for a reason that is unclear."""
    for text in args:
        if unpaired(text):
            told = text.encode("utf-8", "backslashreplace").decode()
            raise ValueError(f"{told!r} is not UTF-8 text: give the file another name")
    try:
        os.getcwd()
    except OSError:
        raise ValueError(
            "the current folder does not exist any more: change to one that does"
        ) from None


def _report(error: Exception) -> int:
    """Print one sentence and return the exit code."""
    if isinstance(error, BrokenPipeError):
        # Python flushes stdout once more on its way out: into nothing, so that it stays quiet.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if isinstance(error, click.Abort):
        return _say("interrupted", INTERRUPTED)
    if isinstance(error, click.ClickException):
        return _say(error.format_message(), MISTAKE)
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        return _say(f"{named}{error.strerror or error}", MISTAKE)
    if _deliberate(error):
        return _say(str(error), MISTAKE)
    if os.environ.get(DEBUG_VARIABLE):
        raise error
    return _say(
        f"verifylab met a bug of its own ({type(error).__name__}: {error}); set "
        f"{DEBUG_VARIABLE}=1 to see where, and report it",
        FAILED,
    )


def _deliberate(error: Exception) -> bool:
    """Whether a ``raise`` in this package made it, so that its text is meant for the user.

    The same types come out of other libraries, and of Python itself, when we make a mistake.
    """
    from verifylab.device.base import DeviceError

    if not isinstance(error, (ValueError, TypeError, DeviceError)):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_globals["__name__"].split(".")[0] != __package__:
        return False
    code = trace.tb_frame.f_code.co_code
    return code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _say(message: str, code: int) -> int:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    return code


def whole_numbers(
    name: str, text: str, low: int, high: int, *, most: int | None = None
) -> list[int]:
    """Read ``"2,4,8"``.

    Parameters
    ----------
    name : str
        For messages, for example ``"--widths"``.
    text : str
    low, high : int
        Bounds of each number, both allowed.
    most : int, optional
        Longest list.

    Raises
    ------
    ValueError
        When it is no list of whole numbers within the bounds.
    """
    numbers = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", part):
            raise ValueError(
                f"{name} must be whole numbers with commas between them, like 2,4,8, got {text!r}"
            )
        digits = part.strip()
        # More than 20 digits are out of every bound here, and int() refuses more than 4,300.
        number = int(digits) if len(digits) <= 20 else None
        if number is None or not low <= number <= high:
            raise ValueError(f"{name} must be from {low} to {high}, got {digits[:40]}")
        numbers.append(number)
    if most is not None and len(numbers) > most:
        many = "s" * (most != 1)
        raise ValueError(f"{name} must have at most {most} number{many}, got {len(numbers)}")
    return numbers


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], wrap: int = 1000) -> str:
    """Lay rows out as text: numbers to the right, everything else to the left.

    Parameters
    ----------
    rows : iterable of mapping
    columns : sequence of str
        What of each row, in order.
    wrap : int
        Characters after which a cell goes on on the next line.
    """
    rows = list(rows)
    right = [
        bool(rows) and all(isinstance(row[name], (int, float, type(None))) for row in rows)
        for name in columns
    ]
    grid = [[[name] for name in columns]]
    grid += [[textwrap.wrap(_cell(row[name]), wrap) or [""] for name in columns] for row in rows]
    width = [
        max(len(line) for cell in column for line in cell) for column in zip(*grid, strict=True)
    ]
    return "\n".join(
        "  ".join(
            text.rjust(w) if to_right else text.ljust(w)
            for text, w, to_right in zip(line, width, right, strict=True)
        ).rstrip()
        for cells in grid
        for line in itertools.zip_longest(*cells, fillvalue="")
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def json_line(body: Mapping[str, Any]) -> None:
    """Print one object on a line of its own, at once: whoever reads need not wait for the rest."""
    click.echo(json.dumps(body, allow_nan=False))
