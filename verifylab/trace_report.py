"""From a file to the verdict: the parameters of `06_traces.ipynb`, and what it shows.

`report` asks of a source what it can give and puts the answer into sentences; each number in them
is from the tables beside. `verifylab.trace_plots` draws them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verifylab import trace_answers as answers
from verifylab.dcut import DEFAULT_LADDER, DEFAULT_RATIO, ROW_BUDGET, DraftLadder
from verifylab.graph_cache import VERIFY_BATCHED_GRAPH_CAP
from verifylab.keyspace import key_space
from verifylab.log_bounds import bounds
from verifylab.machine import MachineProfile, load_profile
from verifylab.policy import policy
from verifylab.published import data_dir
from verifylab.replay import replayable
from verifylab.replay_report import between, step_trace_report
from verifylab.step_trace import FORMAT as STEP_TRACE
from verifylab.trace_file import Trace, TraceError, plain
from verifylab.traces import FORMATS, read

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Config", "Report", "find", "report", "report_all", "save"]

#: Policies that an engine log bounds; several engines in one file: the first three.
BOUNDED = ("arrangement", "canonical", "indirect", "exec_update", "capture_on_second_use",
           "padded", "sglang_ragged", "vllm_piecewise", "trtllm")  # fmt: skip
#: Sizes named in a sentence.
_LISTED = 16
#: Stretches of a log that have sentences of their own; the clock may go back a thousand times.
_TOLD = 8


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters of `06_traces.ipynb`.

    Parameters
    ----------
    files : list of str
        Files to read; a relative one is sought here, then in the project's checkout.
    graph_capacity : int
        Graphs of the cache to replay through.
    min_widths : list of int
        Thresholds of the gate to try on a step trace.
    machine : str
        Machine profile for modelled time.
    dcut_ratio : float
        For the exact key counts beside those found.
    drafts : str or int
        Likewise; a ladder or one number.
    from_start : bool
        Whether an engine log begins with its engine, the cache cold.
    """

    files: list[str]
    graph_capacity: int = VERIFY_BATCHED_GRAPH_CAP
    min_widths: list[int] = field(default_factory=lambda: [0, 2, 4, 8, 9, 33])
    machine: str = "gb10-published"
    dcut_ratio: float = DEFAULT_RATIO
    drafts: str | int = str(DEFAULT_LADDER)
    from_start: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.files, str) or not self.files:
            raise ValueError(f"files must be a list with at least one name, got {self.files!r}")
        if not isinstance(self.graph_capacity, int) or self.graph_capacity < 1:
            raise ValueError(f"graph_capacity must be 1 or more, got {self.graph_capacity!r}")
        if not self.min_widths or any(
            not isinstance(w, int) or isinstance(w, bool) or w < 0 for w in self.min_widths
        ):
            raise ValueError(
                f"min_widths must be whole numbers of 0 or more, got {self.min_widths}"
            )
        if not 0 <= self.dcut_ratio <= 1:
            raise ValueError(f"dcut_ratio must be from 0 to 1, got {self.dcut_ratio}")
        self.profile()
        DraftLadder.parse(self.drafts)

    def profile(self) -> MachineProfile:
        """Return the machine profile."""
        return load_profile(self.machine)


@dataclass(frozen=True, slots=True)
class Report:
    """What a file says.

    Attributes
    ----------
    trace : Trace
    config : Config
    sentences : tuple of str
        The verdict first.
    tables : mapping of str to DataFrame
        What the sentences and the figure are made of.
    """

    trace: Trace
    config: Config
    sentences: tuple[str, ...]
    tables: Mapping[str, pd.DataFrame]

    def markdown(self) -> str:
        """Return the report's words as Markdown."""
        t = self.trace
        lines = [f"### {plain(t.source)}: {FORMATS[t.format]}", ""]
        lines += [f"**{self.sentences[0]}**", ""]
        lines += [f"- {sentence}" for sentence in self.sentences[1:]]
        lines += ["- Cannot be said from it: " + "; ".join(answers.CANNOT[t.format]) + "."]
        lines += [f"- warning: {w}" for w in t.warnings[:5]]
        return "\n".join(lines)


def find(name: str) -> Path:
    """Return the path of a file named here or in the project's checkout.

    Raises
    ------
    TraceError
        When it is in neither place.
    """
    for path in (Path(name), data_dir().parent / name):
        if path.is_file():
            return path
    raise TraceError(f"{name}: no such file here or in the project's folder")


def report(name: str, config: Config) -> Report:
    """Read a file and say what it says.

    Raises
    ------
    TraceError
        When it cannot be read.
    """
    trace = read(find(name))
    if trace.format == STEP_TRACE:
        trace = replayable(trace)
    make = {
        "atlas_log": _engine_log,
        "step_trace": _step_trace,
        "vllm_log": _vllm_log,
        "bench_ladder": _bench,
        "vllm_bench_serve": _bench,
        "chrome_trace": _profile,
        "nsys_sqlite": _profile,
    }[trace.format]
    sentences, tables = make(trace, config)
    return Report(trace, config, tuple(sentences), tables)


def report_all(config: Config) -> tuple[list[Report], list[str]]:
    """Report on every file of the parameters; one that fails does not stop the others.

    Returns
    -------
    reports : list of Report
    failed : list of str
        A sentence for each file that failed: its name, and why.

    Raises
    ------
    TraceError
        When every file failed.
    """
    reports, failed = [], []
    for name in config.files:
        try:
            reports.append(report(name, config))
        except TraceError as error:
            failed.append(plain(error))
        except Exception as error:  # whatever a foreign file brings about, the others are told
            failed.append(plain(f"{Path(name).name}: {type(error).__name__}: {error}"))
    if not reports:
        raise TraceError("no file could be read: " + "; ".join(failed))
    return reports, failed


def save(reports: Sequence[Report], folder: str | Path, failed: Sequence[str] = ()) -> list[Path]:
    """Write ``result.parquet`` (a row a sentence: ``file, format, sentence``) and ``summary.txt``.

    The summary ends with the files that `failed`. The tables behind each figure are written with
    it (`plots.save_figure`).
    """
    import pandas as pd

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(r.trace.source, r.trace.format, s) for r in reports for s in r.sentences]
    result, summary = folder / "result.parquet", folder / "summary.txt"
    pd.DataFrame(rows, columns=["file", "format", "sentence"]).to_parquet(result, index=False)
    first = [f"{plain(r.trace.source)}: {' '.join(r.sentences[:2])}" for r in reports]
    first += [f"not read: {why}" for why in failed]
    summary.write_text("\n".join(first) + "\n", encoding="utf-8")
    return [result, summary]


def _spaces(widths: list[int], config: Config) -> pd.DataFrame:
    """Exact key counts of one slot set at the widths found, for the ratio and drafts asked for."""
    import pandas as pd

    ladder = DraftLadder.parse(config.drafts)
    rows = []
    for width in widths:
        space = key_space(width, ladder.drafts(width), config.dcut_ratio, ROW_BUDGET)
        rows.append(
            {"width": width, "dcut_ratio": config.dcut_ratio, "drafts": ladder.drafts(width),
             "arrangement_keys": space.arrangement_keys, "canonical_keys": space.canonical_keys}
        )  # fmt: skip
    columns = ["width", "dcut_ratio", "drafts", "arrangement_keys", "canonical_keys"]
    return pd.DataFrame(rows, columns=columns)


def _engine_log(trace: Trace, config: Config) -> tuple[list[str], dict[str, Any]]:
    import pandas as pd

    widths = answers.keys_per_width(trace)
    tables = {"keys": widths, "spaces": _spaces(widths.n.tolist(), config)}
    known = config.graph_capacity, config.profile(), config.from_start or None
    few = trace.table("captures").engine.nunique() > 1
    tables["bounds"] = pd.concat(
        [bounds(trace, policy(p), *known) for p in BOUNDED[: 3 if few else None]],
        ignore_index=True,
    )
    keys, left = int(widths["keys"].sum()), int(widths.keys_if_canonical.sum())
    at = f", at widths {', '.join(map(str, widths.n))}" if keys else ""
    would = f"canonical at every width would leave {left:,}"
    words = [f"{keys:,} different keys were captured{at}; {would}."]
    if "windows" in trace.tables:
        windows = answers.capture_windows(trace)
        tables["windows"] = windows
        seen = f"{keys:,} different keys in the log; {would}"
        words = [_captured_words(windows, seen), _evicted_words(windows)]
    canonical = tables["bounds"][tables["bounds"].policy == "canonical"]
    cold = bounds(trace, policy("canonical"), *known[:2], from_start=True)
    told = zip(canonical.itertuples(), cold.itertuples(), strict=True)
    for row, if_cold in itertools.islice(told, _TOLD):
        engine = f"{row.engine}: " if row.engine else ""
        cost = ""
        if not np.isnan(getattr(row, "captures_ms_high", np.nan)):
            cost = f", {between(row.captures_ms_low / 1e3, row.captures_ms_high / 1e3, '.2f')} s"
        words.append(
            f"{engine}Canonical at every width with {row.capacity} graphs would have made "
            f"{between(row.captures_low, row.captures_high)} captures of the "
            f"{row.captures_logged:,} logged{cost} (modelled){'; ' if row.why else ''}{row.why}."
        )
        if if_cold.captures_high - if_cold.captures_low < row.captures_high - row.captures_low:
            words.append(
                f"If the log begins with its engine, set from_start: then it is "
                f"{between(if_cold.captures_low, if_cold.captures_high)} captures."
            )
    if (more := len(canonical) - _TOLD) > 0:
        words.append(f"And {more:,} more stretches of the log: see the table of bounds.")
    words.append(
        "What canonical costs in tokens is not in a log of keys: a step trace has it, or see "
        "02_width_gate for the calibrated answer."
    )
    return words, tables


def _captured_words(windows: pd.DataFrame, seen: str) -> str:
    """Say how many steps captured, of the windows that say both."""
    counted = windows[windows.counted]
    steps = sum(map(int, counted.steps))
    if not steps:
        return f"No window says how many of its steps captured a graph ({seen})."
    share = 100 * sum(map(int, counted.capture)) / steps
    words = f"{share:.1f} % of {steps:,} steps captured a graph ({seen})"
    if left := len(windows) - len(counted):
        words += f"; left out, without both counts: {left:,} of {len(windows):,} windows"
    return words + "."


def _evicted_words(windows: pd.DataFrame) -> str:
    low = float(windows.evictions_low.sum())
    high = float(windows.evictions_high.sum(skipna=False))
    if np.isnan(high):
        return f"Evictions, inferred: {low:,.0f} at least; not every window says its captures."
    return f"Evictions, inferred: {between(low, high)}."


def _step_trace(trace: Trace, config: Config) -> tuple[list[str], dict[str, Any]]:
    words, tables = step_trace_report(
        trace, config.profile(), config.graph_capacity, config.min_widths
    )
    tables["spaces"] = _spaces(tables["keys"].n.tolist(), config)
    return words, tables


def _vllm_log(trace: Trace, config: Config) -> tuple[list[str], dict[str, Any]]:
    padding, modes = answers.padding(trace), answers.modes(trace)
    sizes = answers.capture_sizes(trace)
    tables = {"padding": padding, "modes": modes, "sizes": sizes}
    if not len(modes):
        has = " and ".join(n for n in ("throughput", "acceptance") if n in trace.tables)
        if blocks := trace.counts.get("stats_blocks", 0):
            many = f"{blocks:,} block{'s' * (blocks > 1)} of CUDA-graph statistics"
            return [
                f"The log has {has + ' and ' if has else ''}{many} without a readable row."
            ], tables
        return [f"The log has {has}, but no CUDA-graph statistics."], tables
    tokens, filler = (float(padding[c].astype(float).sum()) for c in ("tokens", "padding"))
    eager = float(modes.steps_pct[modes.runtime_mode == "NONE"].sum())
    words = [
        f"{100 * filler / max(tokens + filler, 1):.1f} % of all token rows are padding; "
        f"{eager:.1f} % of {int(modes.steps.sum()):,} steps ran eager.",
        f"Captured sizes never used: {_unused(sizes)}.",
    ]
    return words, tables


def _unused(sizes: pd.DataFrame) -> str:
    """List the sizes never used, by engine where there are several."""
    words = []
    for engine, mine in sizes[sizes.never_used].groupby("engine"):
        some = [str(size) for size in mine["size"][:_LISTED]]
        more = f" and {len(mine) - _LISTED} more" if len(mine) > _LISTED else ""
        name = f"{plain(engine)}: " if sizes.engine.nunique() > 1 else ""
        words.append(f"{name}{', '.join(some)}{more}")
    return "; ".join(words) or "none"


def _bench(trace: Trace, config: Config) -> tuple[list[str], dict[str, Any]]:
    table = answers.throughput(trace)
    best = table.loc[table.tok_s_mean.idxmax()]
    at_once = f"at {best.concurrency:.0f} at once"
    if np.isnan(best.concurrency):
        at_once = "with no limit set on requests at once"
    words = [f"{best.tok_s_mean:.1f} tok/s at most, {at_once} (measured)."]
    spread = table.tok_s_spread_pct.max()
    if single := int((table.reps == 1).sum()):
        which = (
            "One rep" if single == len(table) else f"{single} of {len(table)} rungs have one rep"
        )
        words.append(f"{which}, no spread: whether a difference says anything cannot be known.")
    if not np.isnan(spread):
        words.append(
            f"The reps of one rung spread over up to {spread:.1f} %: a smaller difference between "
            "two files says nothing."
        )
    return words, {"throughput": table}


def _profile(trace: Trace, config: Config) -> tuple[list[str], dict[str, Any]]:
    api, steps = answers.graph_api(trace), answers.profile_steps(trace)
    tables = {
        "graph_api": api,
        "steps": steps,
        "launches": answers.launch_counts(trace),
        "device": answers.device_time(trace),
    }
    launches = tables["launches"].iloc[0]
    making = api[api.kind != "graph_launch"]
    share = float(making.wall_pct.sum())
    made = f"Making and ending graphs takes {share:.1f} % of the wall"
    replayed = (
        f"{launches.kernels_replayed:,.0f} kernels, {launches.kernels_eager:,.0f} ran outside"
    )
    if launches.graph_launches and not launches.kernels_replayed:
        replayed = f"kernels that were not traced, {launches.kernels_eager:,.0f} others ran outside"
    words = [
        f"{made if len(making) else 'No graph was made or ended here'}; "
        f"{launches.graph_launches:,.0f} graph launches replayed {replayed}."
    ]
    if len(steps):
        how = "annotated" if steps.how.iloc[0] == "ranges" else "from graph launch to graph launch"
        words.append(
            f"{len(steps)} steps ({how}), {steps.dur_us.median() / 1e3:.1f} ms at the median, "
            f"{int((steps.captures > 0).sum())} with a capture."
        )
    for row in tables["device"].itertuples():
        words.append(f"Device {row.device}: {row.busy_pct:.1f} % busy with kernels or graphs.")
    return words, tables
