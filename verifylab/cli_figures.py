"""``verifylab figures``: the design-review set from stored runs."""

from __future__ import annotations

from pathlib import Path

import click

from verifylab._console import json_line

__all__ = ["figures"]


@click.command()
@click.argument("sweeps", metavar="SWEEP...", nargs=-1, required=True)
@click.option(
    "--out", default="runs/design_review", show_default=True, help="Folder to write into."
)
@click.option("--json", "as_json", is_flag=True, help="JSON Lines: one object a figure.")
def figures(sweeps: tuple[str, ...], out: str, as_json: bool) -> None:
    """Draw the design-review set from stored runs: folders of a run, a sweep or all sweeps.

    Six figures as SVG, PNG, PDF and the CSV behind each, light and dark, with index.html (one page,
    the verdict on top) and handout.pdf. Nothing is run; a figure that no run holds the tables for
    is named, with the sweep that stores them.

    JSON keys: figure, title, caption, sweep, run, commit, date.
    """
    from verifylab.paths import shown, writable_folder
    from verifylab.review import collect
    from verifylab.review_pages import save_review

    # Files beside folders come from runs/*.
    folders = [sweep for sweep in sweeps if not Path(sweep).is_file()] or list(sweeps)
    for sweep in sweeps:
        if sweep not in folders:
            click.echo(f"passed over {sweep}: a file", err=True)
    if not out:
        raise ValueError("--out must be the name of a folder, got ''")
    review = collect(folders)
    written = save_review(review, writable_folder(out, name="--out"))
    for label in dict.fromkeys(drawn.run.label for drawn in review.drawn):
        names = ", ".join(d.panel.name for d in review.drawn if d.run.label == label)
        click.echo(f"used {label}: {names}", err=True)
    for line in review.passed_over:
        click.echo(f"passed over {line}", err=True)
    if as_json:
        for row in review.contents().to_dict("records"):
            json_line({str(name): value for name, value in row.items()})
        return
    for line in review.verdict:
        click.echo(f"{line}\n")
    for drawn in review.drawn:
        click.echo(f"{drawn.panel.name:18s} {drawn.caption}")
    for panel in review.missing:
        click.echo(f"{panel.name:18s} not in these runs: sweep data/sweeps/{panel.sweep}.toml")
    click.echo(f"\npage      {shown(written[0])}\nhand-out  {shown(written[1])}")
