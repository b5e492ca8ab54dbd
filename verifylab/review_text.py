"""What the design review says in words: the verdict, what it rests on, the words it uses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from verifylab.dcut import DCUT_WIDTH_CAP
from verifylab.experiment import UNPRUNED, in_words
from verifylab.loading import Stored
from verifylab.paths import printable, shown
from verifylab.recommend import spans
from verifylab.review_settings import Setting, is_measured, other_parameters
from verifylab.run_files import text
from verifylab.stored_runs import StoredRun
from verifylab.trace_file import plain

__all__ = [
    "WORDS",
    "Study",
    "bad_runs",
    "drains",
    "kernels_kept",
    "passed_over",
    "summary",
    "verdict",
]

WORDS = (
    "Arrangement: every sequence verifies the depth it earned, deepest first; a graph is kept for "
    "each order of slots. Canonical: depths are dealt out deepest first along ascending slots. "
    "Indirect: own depths, slots read from a table on the device. Redraw: what is uncertain "
    "drawn anew, and the answer computed again."
)


#: Runs of one sweep that are passed over one by one; more are told together.
_FEW = 4


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """The run that a study's figures are drawn from.

    Attributes
    ----------
    sweep : str
        Grid file whose runs hold such tables.
    run : StoredRun
    tables : dict of str to DataFrame
    setting : Setting
    candidates : tuple of StoredRun
        All runs that hold such tables.
    """

    sweep: str
    run: StoredRun
    tables: dict[str, pd.DataFrame]
    setting: Setting
    candidates: tuple[StoredRun, ...]

    def other_than(self, base: Study, *, mode: bool = True) -> str:
        """Say at what other settings than `base` its numbers hold, as a sentence; "" at none."""
        other = self.setting.other_than(base.setting, mode=mode)
        named = "the width gate's" if base.sweep == "width_gate" else f"{base.run.short}'s"
        return f"Not at {named} settings: {other}." if other else ""


def verdict(used: Sequence[Study], drain: Study | None = None) -> tuple[str, ...]:
    """Return the sentences above the figures.

    Parameters
    ----------
    used : sequence of Study
        In reading order; the others are held against the first.
    drain : Study, optional
        A run that drains: what its gate is.
    """
    by_sweep = {study.sweep: study for study in used}
    said: list[str] = []
    if gate := by_sweep.get("width_gate"):
        said += [*summary(gate.run)[:1], *_by_width(gate.tables), _drain(gate, drain)]
    said[1:1] = map(_one_of, used)
    if why := by_sweep.get("why_it_costs"):
        # Its first line is the gate at fewer widths; the width-gate study owns that.
        told, kept = _told(why, used[0], 1), kernels_kept(why.tables["map"])
        said += [*told, kept if told else f"{why.other_than(used[0])} {kept}".strip()]
    if caches := by_sweep.get("cache_policies"):
        said += _told(caches, used[0], 0)
    said += [_basis(used), WORDS]
    return tuple(filter(None, said))


def _told(study: Study, base: Study, line: int) -> list[str]:
    """Return a line of its summary, after the settings at which it holds where others do."""
    other = study.other_than(base)
    return [f"{other} {said}".strip() for said in summary(study.run)[line : line + 1]]


def _one_of(study: Study) -> str:
    """Say that runs of other parameters could have been drawn, and which parameters those are."""
    others = {told for r in study.candidates if (told := other_parameters(r, study.run))}
    if not others:
        return ""
    return (
        f"{study.run.label} is drawn, one of {len(others) + 1} settings of such runs here; to draw "
        "another, name its folder."
    )


def passed_over(
    runs: Sequence[StoredRun], used: Sequence[Study], bad: Sequence[Stored] = ()
) -> tuple[str, ...]:
    """Name the runs that no figure is drawn from, and why.

    Parameters
    ----------
    runs : sequence of StoredRun
        Good ones, by name.
    used : sequence of Study
    bad : sequence of Stored
        The others.
    """
    left = [run for run in runs if run.folder not in {study.run.folder for study in used}]
    by_sweep = [list(group) for _, group in groupby(left, lambda run: run.sweep)]
    return (*(line for group in by_sweep for line in _left(group, used)), *bad_runs(bad))


def bad_runs(bad: Sequence[Stored]) -> Iterator[str]:
    """Name runs that hold nothing to draw from, and what is the matter with them.

    Parameters
    ----------
    bad : sequence of Stored
    """
    if len(bad) <= _FEW:
        for run in bad:
            error = plain(run.error, 200)
            yield f"{_named(run)}: {run.status}" + (f", {error}" if error else "")
    else:
        counts = Counter(run.status for run in bad)
        said = ", ".join(f"{n} {status}" for status, n in counts.items())
        yield f"{said}, such as {_named(bad[0])} (verifylab runs SWEEP/RUN --show says why)"


def _named(run: Stored) -> str:
    return printable(f"{run.sweep}/{run.run}")


def _left(runs: list[StoredRun], used: Sequence[Study]) -> Iterator[str]:
    whys = [_why_not(run, used) for run in runs]
    if len(runs) <= _FEW:
        for run, why in zip(runs, whys, strict=True):
            yield f"{run.label} ({run.ended or 'no date'}): {why}"
    else:
        reasons = list(dict.fromkeys(whys))
        few = "; ".join(reasons[:_FEW])
        if len(reasons) > _FEW:
            few += f"; and {len(reasons) - _FEW} more"
        yield f"{len(runs)} runs of {runs[0].sweep}, such as {runs[0].label}: {few}"


def _why_not(run: StoredRun, used: Sequence[Study]) -> str:
    instead = [study.run for study in used if run in study.candidates]
    if not instead:
        return "no table of these figures"
    named = instead[0].short if instead[0].label != run.label else shown(instead[0].folder)
    if other := other_parameters(run, instead[0]):
        return f"{other}, unlike {named}"
    extent = other_parameters(run, instead[0], extent=True)
    also = f" (this one: {extent})" if extent else ""
    if run.when < instead[0].when:
        return f"{named} ended later{also}"
    if run.when == instead[0].when:
        return f"{named} is taken, which of the two ended later is not known{also}"
    return f"{named} holds more of the figures{also}"


def kernels_kept(table: pd.DataFrame) -> str:
    """Return what the policy map's winners need, and the best policies that keep the kernels.

    Parameters
    ----------
    table : DataFrame
        The stored map: ``width, graph_ms, policy, gain_pct, map``; "" without its part
        ``kernels kept``.
    """
    if "map" not in table or "kernels kept" not in set(table["map"]):
        return ""
    kept = table[(table["map"] == "kernels kept") & (table.width <= DCUT_WIDTH_CAP)]
    own = table[table["map"] == "ratio"].graph_ms
    levels = sorted(set(kept.graph_ms))
    level = min(levels, key=lambda v: abs(v - own.iloc[0])) if len(own) else levels[-1]
    kept = kept[kept.graph_ms == level].sort_values("width")
    gains = [
        f"{in_words(row.policy)} {row.gain_pct:+z.1f} % at {row.width}"
        for row in kept.itertuples()
        if row.gain_pct >= 0.05
    ]
    best = ", ".join([*gains, "else arrangement"])
    near = ""
    if len(own) and abs(level - own.iloc[0]) >= 0.05:
        near = f" (the map's nearest to the machine's {own.iloc[0]:.1f})"
    return (
        "Indirect, sglang_ragged and trtllm need new kernels (slots read from a table); with the "
        f"kernels kept, at {level:g} ms a graph{near}, the best against arrangement: {best}."
    )


def _by_width(tables: dict[str, pd.DataFrame]) -> list[str]:
    """Both ways to have few keys, against arrangement, at every width that D-Cut prunes."""
    rate = tables["arms"].pivot_table(index="width", columns="policy", values="tok_s")
    rate = rate[rate.index <= DCUT_WIDTH_CAP]
    canonical = 100 * (rate.canonical / rate.arrangement - 1)
    if "differences" in tables:  # the mean over seeds, as its figure has it
        canonical = tables["differences"].set_index("width").delta_pct[rate.index]
    said = [f"Canonical against arrangement, tok/s: {_listed(canonical)}."]
    if UNPRUNED in rate:
        off = 100 * (rate.unpruned / rate.arrangement - 1)
        better = [int(w) for w in rate.index if rate.unpruned[w] > rate.canonical[w]]
        said.append(
            f"D-Cut off (every draft verified) against arrangement: {_listed(off)}; it "
            + (f"beats canonical at {spans(better)}." if better else "never beats canonical.")
        )
    return said


def _listed(percent: pd.Series) -> str:
    return ", ".join(f"{value:+z.1f} % at {width}" for width, value in percent.items())


def drains(run: StoredRun) -> bool:
    """Whether finished requests are not replaced in it."""
    return run.parameters.get("mode") == "drain"


def _drain(study: Study, drain: Study | None) -> str:
    form = "The model's form is not redrawn"
    if is_measured(study.tables):
        form = "Only the seeds are redrawn"
    if drains(study.run):
        return (
            f"{study.run.short} drains: finished requests are not replaced. {form}, and a server "
            "that refills may want another gate: see the README, how sure and limits."
        )
    if drain is None:
        return (
            f"{form}, and a server that drains instead of refilling may want another gate: see the "
            "README, how sure and limits."
        )
    where = [drain.run.short, drain.setting.other_than(study.setting, mode=False)]
    if is_measured(drain.tables) and not is_measured(study.tables):
        where.append("measured")
    said = "; ".join(filter(None, where))
    return f"As a drain ({said}): {summary(drain.run)[0]} {form}."


def _basis(used: Sequence[Study]) -> str:
    base = used[0]
    named = dict.fromkeys(
        str(s.run.parameters.get("machine", "an unknown machine"))
        for s in used
        if not is_measured(s.tables)
    )
    modelled = f"modelled on {' and '.join(named)}"
    words = f"All times are {modelled}, no step ran on a GPU"
    if is_measured(base.tables):
        words = f"Times of the width gate are measured on {base.setting.machine}"
        if len(used) > 1:
            words += f", those of the other studies {modelled}"
    mixed = any(study.other_than(base) for study in used)
    what = (
        f"{'the width gate' if base.sweep == 'width_gate' else base.run.short} at " if mixed else ""
    )
    return f"{words}; {what}{base.setting.sentence()}."


def summary(run: StoredRun) -> list[str]:
    """Return the lines of a run's summary that say something."""
    said = text(run.folder, "summary.txt").splitlines()
    lines = (re.sub(r"-(0\.0+)(?!\d)", r"+\1", line.strip()) for line in said)
    return [line for line in lines if line]
