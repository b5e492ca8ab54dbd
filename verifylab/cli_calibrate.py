"""``verifylab calibrate``: measure what graph operations and steps cost here; write a profile."""

from __future__ import annotations

import re
from pathlib import Path

import click

from verifylab._console import json_line, table
from verifylab.paths import refuse_existing, shown, write_aside

__all__ = ["calibrate"]


@click.command()
@click.option(
    "--device",
    type=click.Choice(["auto", "host", "cuda"]),
    default="auto",
    show_default=True,
    help="auto: the GPU where one answers, else the host.",
)
@click.option("--out", help="Machine profile to write; default: named after machine and shape.")
@click.option("--samples", help="Also write every raw number here (04_graph_costs.ipynb reads it).")
@click.option("--shape", help="tiny, small or gdn27b; default: small on a GPU, tiny on the host.")
@click.option(
    "--weight-bytes", default=0, show_default=True, help="Dense-weight bytes that a step streams."
)
@click.option("--quick", is_flag=True, help="Few settings and repeats: a rehearsal.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--json", "as_json", is_flag=True, help="JSON Lines: one object on each line.")
def calibrate(
    device: str,
    out: str | None,
    samples: str | None,
    shape: str | None,
    weight_bytes: int,
    quick: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Measure graph operations, copies and verify steps, and write a machine profile.

    The profile is what `machine` of a notebook takes: its path, ending in .json. JSON keys:
    coefficient, value, low, high, unit. Progress and file names stay on stderr.
    """
    from verifylab.calibrate import calibrate as measure
    from verifylab.calibrate import write_calibration
    from verifylab.calibration_plan import open_for, plan_for
    from verifylab.measured_profile import to_profile

    if weight_bytes < 0:
        raise ValueError(f"--weight-bytes must be 0 or more, got {weight_bytes}")
    # What can be refused is refused before minutes of measuring.
    for name, file in (("--out", out), ("--samples", samples)):
        if file is not None and not file.endswith(".json"):
            raise ValueError(f"{name} must name a file that ends in .json, got {file!r}")
        if file is not None:
            refuse_existing(file, force)
    if out is not None and samples is not None and Path(out).resolve() == Path(samples).resolve():
        raise ValueError(f"--out and --samples must be two files, got {out!r} for both")
    opened, why = open_for(device)
    plan = plan_for(opened.name, quick=quick, shape=shape, weight_bytes=weight_bytes)
    path = Path(out or f"{_slug(opened.describe().get('gpu') or 'host')}-{plan.shape}.json")
    refuse_existing(path, force)
    _say(f"calibrating {opened.name} ({why}), step {plan.shape}")
    result = measure(opened, plan, _say)
    written = [write_aside(path, to_profile(result, path.stem).to_json())]
    if samples is not None:
        written.append(write_calibration(result, samples))
    rows = [
        {"coefficient": name, **{key: c[key] for key in ("value", "low", "high", "unit")}}
        for name, c in result["coefficients"].items()
    ]
    copy_gb_s = result["bandwidth"]["copy_gb_s"]
    rows.append({"coefficient": "copy", "value": copy_gb_s, "low": None, "high": None,
                 "unit": "GB/s"})  # fmt: skip
    if as_json:
        for row in rows:
            json_line(row)
    else:
        click.echo(table(rows, ["coefficient", "value", "low", "high", "unit"]))
    for done in written:
        _say(f"wrote {shown(done)}")


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _say(message: str) -> None:
    click.echo(message, err=True)
