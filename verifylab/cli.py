"""The command line: a thin skin over functions that a notebook can call.

Whatever is slow to import is imported inside the command that needs it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

import verifylab
from verifylab import _cli_text, cli_runs
from verifylab._console import FAILED, INTERRUPTED, Commands, json_line, table, whole_numbers
from verifylab.cli_calibrate import calibrate
from verifylab.cli_figures import figures
from verifylab.cli_traces import COMMANDS

if TYPE_CHECKING:
    from verifylab.executors import Executor

__all__ = ["main"]

_json = click.option("--json", "as_json", is_flag=True, help="JSON Lines: one object on each line.")


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(verifylab.__version__, prog_name="verifylab")
@click.pass_context
def main(context: click.Context) -> None:
    """Where canonical depth-to-slot assignment pays in batched speculative verify, and why.

    Exit codes: 0 all well, 1 a run or a check is not ok, 2 a mistake in what was asked.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


main.add_command(calibrate)
main.add_command(figures)
for command in COMMANDS:
    main.add_command(command)


@main.command()
@click.option("--widths", default="2,4,8", show_default=True, help="Batch widths.")
@click.option(
    "--drafts",
    default="3",
    show_default=True,
    help="Drafts a sequence, or a ladder like 4:3,8:3,16:1 (width up to : drafts).",
)
@click.option("--ratio", default=0.75, show_default=True, help="D-Cut's ratio, 0 to 1.")
@click.option("--row-budget", default=96, show_default=True, help="Rows of one dispatch at most.")
@_json
def keyspace(widths: str, drafts: str, ratio: float, row_budget: int, as_json: bool) -> None:
    """Count the keys that each width can produce, exactly.

    Counts are of one slot set: every set of slots that a batch may occupy has as many of its own.
    Columns, and keys of JSON: width; keep, the drafts that D-Cut keeps beyond each sequence's
    first; rows, the rows of a step; multisets; arrangement_keys; canonical_keys.
    """
    from verifylab.dcut import DraftLadder
    from verifylab.experiment import MAX_WIDTH
    from verifylab.keyspace import TABLE_COLUMNS, key_space_table
    from verifylab.workload import MAX_DRAFTS

    wanted = whole_numbers("--widths", widths, 1, MAX_WIDTH, most=MAX_WIDTH)
    ladder = DraftLadder.parse(drafts)
    for _, count in ladder.rungs:
        if count > MAX_DRAFTS:
            raise ValueError(f"--drafts must be at most {MAX_DRAFTS}, got {count}")
    if row_budget > 2**20:
        raise ValueError(f"--row-budget must be at most {2**20}, got {row_budget}")
    frame = key_space_table(wanted, ladder, ratio, row_budget)
    rows = [dict(zip(TABLE_COLUMNS, map(int, row), strict=True)) for row in frame.to_numpy(object)]
    _print(rows, TABLE_COLUMNS, as_json)


@main.command()
@click.option("--slots", required=True, help="Slot of each sequence, like 7,2,5,0,3.")
@click.option("--depths", required=True, help="Rows of each sequence (drafts + 1), like 4,2,4,2,3.")
@click.option(
    "--min-width",
    type=int,
    help="Width from which the gate is canonical; default: the environment's, else 8.",
)
@_json
def explain(slots: str, depths: str, min_width: int | None, as_json: bool) -> None:
    """Show what both arms make of one batch, and which of them the gate takes.

    The gate is the engine's: ATLAS_NO_CANONICAL_VERIFY_KEY, whatever its value, turns it off,
    ATLAS_CANONICAL_KEY_MIN_WIDTH sets its width, --min-width overrides that.

    JSON gives one object an arm: arm, gate, order, depths, runs (start, length, depth, fast),
    launches_per_layer, key_hex, dispatches. A batch of more than 32 sequences or 96 rows takes
    several dispatches (start, stop, launches_per_layer, key_hex); its own key_hex is then null.
    """
    from verifylab.experiment import MAX_WIDTH
    from verifylab.explain import explain as explain_batch
    from verifylab.gate import Gate
    from verifylab.workload import MAX_DRAFTS

    held = whole_numbers("--slots", slots, 0, 2**32 - 1, most=MAX_WIDTH)
    rows = whole_numbers("--depths", depths, 1, MAX_DRAFTS + 1, most=MAX_WIDTH)
    gate = Gate.from_env(os.environ)
    if min_width is not None:
        gate = replace(gate, min_width=min_width)
    arms = explain_batch(held, rows, gate)
    if as_json:
        for arm in arms:
            json_line(_cli_text.arm_object(arm))
    else:
        click.echo("\n\n".join(_cli_text.arm_text(arm, held, gate) for arm in arms))


@main.command()
@click.argument("grid_file", metavar="GRID.toml")
@click.option("--out", default="runs", show_default=True, help="Folder of all sweeps.")
@click.option("--force", is_flag=True, help="Run also what is stored.")
@click.option("--dry-run", is_flag=True, help="Check everything, list what would run, and stop.")
@click.option("--jobs", default=1, show_default=True, help="Runs at a time on this machine.")
@click.option("--dask", help="Run on the Dask cluster at this address, or of this scheduler file.")
@click.option("--quiet", is_flag=True, help="No summaries: one line on stderr for each run.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="JSON Lines: one object a run, as it ends. Progress stays on stderr.",
)
@click.pass_context
def sweep(
    context: click.Context,
    grid_file: str,
    out: str,
    force: bool,
    dry_run: bool,
    jobs: int,
    dask: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Run the notebook of a grid file once for each of its rows.

    A run that is stored with the same parameters, notebook and library is not run again. The
    other runs go on when one fails; the exit code is 0 only when every run is ok. Runs on a GPU
    never share it, whatever --jobs says; on a Dask cluster they take one unit of a worker's
    resource GPU.

    JSON keys: run, status, seconds, parameters, figures, data, notebook, summary, error. A status
    is ok, failed, timeout, died or interrupted; with --dry-run, run or stored.
    """
    from verifylab.executors import LocalExecutor
    from verifylab.gridfile import read_grid
    from verifylab.progress import Progress
    from verifylab.sweep import interruptible, plan, run_sweep

    if not out:
        raise ValueError("--out must name a folder, got ''")
    grid = read_grid(grid_file)
    with ExitStack() as closing:
        if dask is None:
            executor: Executor = LocalExecutor(jobs)
        else:
            from verifylab.dask_executor import DaskExecutor

            executor = closing.enter_context(DaskExecutor(dask))
        if dry_run:
            for todo in plan(grid, out, force=force, executor=executor):
                if as_json:
                    json_line(_cli_text.plan_object(todo))
                else:
                    click.echo(_cli_text.plan_text(todo))
            return 0
        progress = closing.enter_context(Progress(len(grid.rows), grid.timeout_s))
        stop = closing.enter_context(interruptible())
        done = []
        runs = run_sweep(
            grid,
            out,
            force=force,
            command=_cli_text.command_line(context),
            on_start=progress.starting,
            executor=executor,
            stop=stop,
        )
        for outcome in runs:
            done.append(outcome)
            progress.ended(_cli_text.ending(outcome))
            if as_json:
                json_line(_cli_text.outcome_object(outcome))
            elif outcome.summary and not quiet:
                progress.echo(outcome.summary.rstrip() + "\n")
    if not as_json and not quiet:
        click.echo("\n\n".join(map(_cli_text.written, done)))
    if len(done) == len(grid.rows) and all(outcome.ok for outcome in done):
        return 0
    return INTERRUPTED if stop.is_set() else FAILED


@main.command()
@click.option("--widths", default="2,4,5,6,7,8", show_default=True, help="Batch widths to serve.")
@click.option(
    "--ratio", default=0.75, show_default=True, help="D-Cut's ratio: snaps to 0.25, 0.5, 0.75 or 1."
)
@click.option(
    "--spread", type=float, help="Confidence spread, 0 to 1; default: as calibrated, redrawn."
)
@click.option(
    "--graph-ms",
    type=float,
    help="One capture and eviction of a graph of 4,500 nodes, ms; default: the machine's own.",
)
@click.option("--capacity", default=32, show_default=True, help="Graphs that the cache holds.")
@click.option("--machine", default="gb10-published", show_default=True, help="Machine profile.")
@click.option("--drafts", default="4:3,8:3,16:1,32:1", show_default=True, help="Draft ladder.")
@click.option("--seeds", default=10, show_default=True, help="Paired seeds behind the intervals.")
@_json
def advise(
    widths: str,
    ratio: float,
    spread: float | None,
    graph_ms: float | None,
    capacity: int,
    machine: str,
    drafts: str,
    seeds: int,
    as_json: bool,
) -> None:
    """Say where the gate should sit and which key policy wins at each width: modelled.

    JSON gives one object a width and policy: width, policy, tok_s, low, high, keys,
    capture_fraction. low and high are the 95 % interval over seeds; the sentences' intervals
    also redraw the machine and, where it is not given, the confidence spread.
    """
    from verifylab.advise import advise as advise_widths
    from verifylab.experiment import MAX_WIDTH
    from verifylab.machine import load_profile

    advice = advise_widths(
        whole_numbers("--widths", widths, 1, MAX_WIDTH, most=64),
        ratio=ratio,
        spread=spread,
        graph_ms=graph_ms,
        capacity=capacity,
        machine=load_profile(machine),
        drafts=drafts,
        seeds=seeds,
    )
    rows = _cli_text.plain_rows(advice.table)
    if as_json:
        for row in rows:
            json_line(row)
        return
    click.echo("\n".join(advice.sentences) + "\n")
    shown = [
        {
            **row,
            "tok_s": f"{row['tok_s']:.1f}",
            "low": f"{row['low']:.1f}",
            "high": f"{row['high']:.1f}",
            "keys": f"{row['keys']:.0f}",
            "capture_fraction": f"{row['capture_fraction']:.3f}",
        }
        for row in rows
    ]
    click.echo(table(shown, list(advice.table.columns)))


@main.command()
@click.option("--out", default="runs", show_default=True, help="Folder that sweeps would use.")
@click.option("--gpu", is_flag=True, help="Count a GPU that does not work as broken.")
@_json
def doctor(out: str, gpu: bool, as_json: bool) -> int:
    """Show what is installed, which device a sweep would use and why, and what is broken.

    The GPU is checked in order (driver, CuPy, GPU, NVRTC, capture, kernels) up to the first that
    does not work, with its fix. No GPU is needed unless --gpu asks for one or one answers.

    JSON keys: kind, name, state, ok, note. The exit code is 1 when something needed is broken.
    """
    from verifylab.doctor import examine

    found = [asdict(finding) for finding in examine(out, gpu)]
    _print(found, ("kind", "name", "state", "ok", "note"), as_json)
    return 0 if all(finding["ok"] for finding in found) else FAILED


@main.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 where the stored fits differ.")
def fit(check: bool) -> int:
    """Fit the workload and the machine profile to the published figures again, and store both."""
    if check:
        from verifylab.refit import differences

        found = differences()
        click.echo("\n".join(found) or "the stored fits follow from the published figures")
        return FAILED if found else 0

    from verifylab.fit import write
    from verifylab.paths import shown

    for path in write():
        click.echo(f"wrote {shown(path)}")
    return 0


@main.command()
@_json
def validate(as_json: bool) -> None:
    """Hold our figures against the published ones.

    JSON keys: figure, published, ours, role, verdict, source, note.
    """
    from verifylab.validation import published_against_ours

    rows = _cli_text.plain_rows(published_against_ours())
    if as_json:
        for row in rows:
            json_line(row)
    else:
        click.echo(_cli_text.validation_text(rows))


def _print(rows: Sequence[dict[str, Any]], columns: Sequence[str], as_json: bool) -> None:
    if as_json:
        for row in rows:
            json_line(row)
    else:
        click.echo(table(rows, columns))


for _command in cli_runs.COMMANDS:
    main.add_command(_command)
