"""Stored runs: listed, read into one table, compared, reported, thrown away."""

import datetime
import decimal
import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from verifylab import cli, report, store
from verifylab.comparing import compare_results, lower_is_better
from verifylab.loading import COLUMNS, scan
from verifylab.provenance import library_hash
from verifylab.records import SCHEMA, Record, checksums
from verifylab.store import Store, StoreError

RECORD = Record(
    run="r",
    status="ok",
    error="",
    seconds=1.5,
    started="2026-01-01T00:00:00+00:00",
    ended="2026-01-01T00:00:01+00:00",
    identity="i" * 64,
)
SVG = "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20'><rect width='40' height='20'/></svg>"  # noqa: E501


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def put(sweep: str, run: str, rows: dict | None, parameters: dict, **changed) -> Path:
    origin = changed.pop("origin", {"commit": "c" * 40, "command": "verifylab sweep x"})
    record = replace(RECORD, run=run, library=library_hash(), **changed)
    with Store("runs", sweep) as into:
        aside = into.begin(run)
        if rows is not None:
            pd.DataFrame(rows).to_parquet(aside / "result.parquet")
            (aside / "summary.txt").write_text(f"all about <{run}> & more\n")
            (aside / "figures" / "f.svg").write_text(SVG)
            (aside / "figures" / "f.png").write_bytes(b"png")
        else:
            log = f"\x1b[31m{Path.home()}/x <script>alert(1)</script>"
            (aside / "log.txt").write_text(log)
        return into.commit(aside, record, parameters, origin)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, list(arguments))


def lines(*arguments: str) -> list[dict]:
    result = invoke(*arguments, "--json")
    assert result.exit_code in (0, 1), result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def refused(*arguments: str) -> str:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    return result.stderr


def seven() -> dict[str, Path]:
    """One run of each status."""
    table = {"x": [1, 2], "tok_s": [10.0, 20.0]}
    made = {
        "ok": put("s", "ok", table, {"ratio": 0.5}),
        "stale": put("s", "stale", table, {"ratio": 0.75}),
        "corrupt": put("s", "corrupt", table, {"ratio": 1.0}),
    }
    for status in ("failed", "died", "timeout", "interrupted"):
        made[status] = put("s", status, None, {"ratio": 0.5}, status=status, error=f"was {status}")
    edit(made["stale"], library="another")
    content = (made["corrupt"] / "result.parquet").read_bytes()
    (made["corrupt"] / "result.parquet").write_bytes(content[:-9])
    return made


def edit(folder: Path, **changed) -> None:
    path = folder / "status.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def test_every_status_is_a_row_of_its_own():
    made = seven()
    found = lines("runs")
    assert {row["run"]: row["status"] for row in found} == {name: name for name in made}
    keys = ["sweep", "run", "status", "seconds", "started", "ended", "repeat", "attempts"]
    assert all(list(row) == [*keys, "parameters", "error", "folder"] for row in found)
    errors = {row["run"]: row["error"] for row in found}
    assert errors["ok"] is errors["stale"] is None and errors["died"] == "was died"
    assert re.match(r"result.parquet has \d+ bytes, \d+ were written", errors["corrupt"])
    assert invoke("runs").stdout.endswith(
        "\n7 runs: 1 corrupt, 1 died, 1 failed, 1 interrupted, 1 ok, 1 stale, 1 timeout\n"
    )


def test_runs_are_filtered_and_shown():
    seven()
    put("t", "b", {"tok_s": [1.0]}, {"ratio": 0.5, "label": "x y"})
    assert [row["run"] for row in lines("runs", "t")] == ["b"]
    picked = lines("runs", "--status", "ok", "--status", "died", "--where", "ratio=0.5")
    assert [(row["sweep"], row["run"]) for row in picked] == [
        ("s", "died"),
        ("s", "ok"),
        ("t", "b"),
    ]
    assert [row["run"] for row in lines("runs", "--where", "label=x y")] == ["b"]
    (row,) = lines("runs", "s/ok", "--show")
    assert row["headline"] == "all about <ok> & more"
    assert row["provenance"]["commit"] == "c" * 40 and row["data"] == "runs/s/ok/result.parquet"
    assert row["figures"] == ["runs/s/ok/figures/f.png", "runs/s/ok/figures/f.svg"]
    text = invoke("runs", "s/ok", "--show").stdout
    assert "headline            all about <ok> & more" in text
    assert text.startswith("s/ok: ok\n") and "commit" in text and "ratio" in text
    assert "neither in runs nor here" in refused("runs", "nowhere")
    assert "--status must be one of ok, failed" in refused("runs", "--status", "fine")
    assert "--where must be like ratio=0.5, got 'ratio'" in refused("runs", "--where", "ratio")
    assert "no stored run like this" in invoke("runs", "--where", "ratio=7").stderr
    assert "no stored run like this" in invoke("runs", "--where", f"x={'[' * 100_000}").stderr
    assert lines("runs", "--out", "empty") == []


def test_a_parameter_that_no_run_has_is_said_with_the_nearest_one():
    seven()
    result = invoke("runs", "--where", "ration=0.5", "--where", "zzz=1")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "no stored run has a parameter 'ration'; did you mean 'ratio'?\n"
        "no stored run has a parameter 'zzz' (there are: ratio)\n"
        "no stored run like this in runs\n"
    )
    assert invoke("runs", "--where", "ratio=9").stderr == "no stored run like this in runs\n"
    assert "did you mean 'ratio'" in invoke("runs", "--where", "ration=9", "--json").stderr


def test_loading_gives_all_results_and_a_row_to_every_other_run():
    seven()
    put("t", "b", {"x": ["text"], "run": [3], "more": [True]}, {"widths": [1, 2]}, repeat=2)
    frame = store.load("runs")
    assert list(frame.columns[: len(COLUMNS)]) == list(COLUMNS)
    assert frame.groupby("run", sort=False).size().to_dict() == {
        "corrupt": 1,
        "died": 1,
        "failed": 1,
        "interrupted": 1,
        "ok": 2,
        "stale": 2,
        "timeout": 1,
        "b": 1,
    }
    good = frame[frame.run == "ok"]
    assert str(frame.dtypes["tok_s"]) == "float64"
    assert good.tok_s.tolist() == [10.0, 20.0] and good.param_ratio.tolist() == [0.5, 0.5]
    assert frame[frame.status == "failed"].tok_s.isna().all()
    (last,) = frame[frame.run == "b"].to_dict("records")
    assert (last["repeat"], last["result_run"], last["param_widths"]) == (2, 3, [1, 2])
    # Any number of folders, of any kind, each run once.
    assert len(store.load(["runs/s/ok", "runs/t"])) == 3
    assert len(store.load(["runs", "runs/t", "runs/t/b"])) == len(frame)
    with pytest.raises(StoreError, match="nowhere is no folder of stored runs"):
        store.load("nowhere")


def test_what_was_changed_by_hand_is_corrupt():
    folder = put("s", "a", {"tok_s": [1.0]}, {"ratio": 0.5})
    path = folder / "result.parquet"
    before = path.read_bytes()
    assert store.load(folder).status.tolist() == ["ok"]
    path.write_bytes(before.replace(b"tok_s", b"tak_s"))  # of the same length
    frame = store.load(folder)
    assert frame.status.tolist() == ["corrupt"] and "its checksum differs" in frame.error[0]
    # A list looks at sizes alone.
    assert [scan(folder, deep=deep)[0].status for deep in (False, True)] == ["ok", "corrupt"]
    assert [row["status"] for row in lines("runs", "s/a", "--show")] == ["corrupt"]
    assert "1 corrupt" in report.render("runs/s")
    path.write_bytes(before)
    parameters = (folder / "params.json").read_text()
    (folder / "params.json").write_text(parameters.replace("0.5", "0.6"))
    assert scan(folder)[0].status == "corrupt"
    (folder / "params.json").write_text(parameters)
    edit(folder, checksums={})
    assert scan(folder)[0].status == "ok"  # as one of schema 1
    path.write_bytes(b"no parquet")
    assert scan(folder)[0].status == "corrupt"
    path.unlink()
    assert scan(folder)[0].error == "no result.parquet"
    for text, why in (
        ("{", "that is not JSON"),
        ("3", "that is no object"),
        (json.dumps({**asdict(RECORD), "seconds": "long"}), "whose 'seconds' is no number"),
        (json.dumps({**asdict(RECORD), "status": "fine"}), "whose status is 'fine'"),
        (json.dumps({**asdict(RECORD), "colour": 1}), "fields missing or unknown"),
    ):
        (folder / "status.json").write_text(text)
        (found,) = scan(folder.parent)
        assert found.status == "corrupt" and why in found.error
    (folder / "status.json").unlink()
    assert scan(folder.parent)[0].error == "no status.json"


@pytest.mark.parametrize(
    "changed",
    [
        {"checksums": {"a\0": {"bytes": 1, "sha256": ""}}},
        {"checksums": {"\ud800": {"bytes": 1, "sha256": ""}}},
        {"checksums": {"../s/b/status.json": {"bytes": 1, "sha256": ""}}},
        {"checksums": {"result.parquet": []}},
        {"seconds": 10**400},
        {"seconds": -1},
        {"repeat": True},
        {"repeat": 10**400},
        {"notes": [1]},
        {"error": "\ud800"},
        {"started": "\ud800"},
    ],
)
def test_a_record_edited_by_hand_is_corrupt_and_hides_no_other_run(changed):
    put("s", "b", {"tok_s": [1.0]}, {"ratio": 0.5})
    edit(put("s", "a", {"tok_s": [1.0]}, {"ratio": 0.5}), **changed)
    assert_one_is_corrupt()


def assert_one_is_corrupt() -> None:
    for more in ([], ["--show"]):
        assert [row["status"] for row in lines("runs", *more)] == ["corrupt", "ok"]
        assert invoke("runs", *more).exit_code == 0
    assert store.load("runs").status.tolist() == ["corrupt", "ok"]
    assert lines("report", "s") and lines("compare", "s", "s") and lines("gc")


@pytest.mark.parametrize(
    "text", ["NaN", "1e999", '"\\ud800"', "[" * 400 + "]" * 400, "[" * 9999 + "]" * 9999]
)
@pytest.mark.parametrize("name", ["params.json", "provenance.json", "status.json"])
def test_json_that_cannot_be_shown_again_is_damage(name, text):
    put("s", "b", {"tok_s": [1.0]}, {"ratio": 0.5})
    folder = put("s", "a", {"tok_s": [1.0]}, {"ratio": 0.5})
    body = json.loads((folder / name).read_text())
    edit(folder, checksums={})
    inside = body["parameters"] if name == "params.json" else body
    inside["seconds"] = "HERE"
    (folder / name).write_text(json.dumps(body).replace('"HERE"', text))
    (found,) = scan(folder, deep=True)
    assert (found.status, found.error) == ("corrupt", f"a {name} that is not JSON")
    if name != "provenance.json":  # a list does not open it
        assert_one_is_corrupt()
    assert "1 corrupt" in report.render("runs/s")
    assert invoke("runs", "--show").exit_code == invoke("report", "s").exit_code == 0


def test_a_notebook_in_nobodys_home_folder_is_one_that_is_not_found():
    put("s", "a", {"tok_s": [1.0]}, {}, notebook="~nobody/x", notebook_source="of old")
    Path("fifo").mkdir()
    os.mkfifo("fifo/x")
    put("s", "b", {"tok_s": [1.0]}, {}, notebook="fifo/x", notebook_source="of old")
    assert [row["status"] for row in lines("runs")] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pa.array([2**30, 2], pa.date32()), "year 2941775 is out of range"),
        (pa.array([1, 2], pa.timestamp("us", "Mars/Olympus")), "zone"),
        (pa.array([b"\xff", b"a"]).view(pa.string()), "UTF8"),
    ],
)
def test_values_that_pandas_cannot_hold_make_that_run_corrupt(column, told):
    put("s", "b", {"t": [1], "tok_s": [1.0]}, {})
    for run, values in (("a", column), ("c", column.take([1, 1]))):
        folder = put("s", run, {}, {})
        pq.write_table(pa.table({"t": values, "tok_s": [1.0, 2.0]}), folder / "result.parquet")
        edit(folder, checksums={})
    frame = store.load("runs")
    bad = frame[frame.status == "corrupt"]
    zone = told == "zone"  # no value of that column can be read
    assert bad.run.tolist() == (["a", "c"] if zone else ["a"])
    assert bad.error.str.contains(told).all()
    assert lines("compare", "s", "s") and lines("report", "s")


def test_columns_of_one_name_are_told_apart():
    folder = put("s", "a", {}, {"x": 1})
    names = ["tok_s", "a", "a", "a.1", "sweep", "result_sweep", "param_x"]
    table = pa.table([pa.array([n, n + 1]) for n in range(7)], names=names)
    pq.write_table(table, folder / "result.parquet")
    edit(folder, checksums={})
    assert list(store.load("runs").columns[len(COLUMNS) :]) == [
        *("param_x", "tok_s", "a", "a.2", "a.1", "result_sweep", "result_sweep.1"),
        "result_param_x",
    ]
    assert [row["class"] for row in lines("compare", "s", "s")] == ["NO CHANGE"] * 2
    assert lines("report", "s")


def test_an_older_schema_is_read_and_a_newer_one_refused():
    folder = put("s", "a", {"tok_s": [1.0]}, {"ratio": 0.5})
    first = {k: v for k, v in asdict(RECORD).items() if k in list(asdict(RECORD))[:7]}
    (folder / "status.json").write_text(json.dumps({**first, "run": "a", "schema": 1}))
    assert store.load(folder).status.tolist() == ["ok"]
    second = {**asdict(RECORD), "run": "a", "schema": 2, "checksums": checksums(folder)}
    (folder / "status.json").write_text(json.dumps(second))
    assert store.load(folder).status.tolist() == ["ok"]
    edit(folder, schema=SCHEMA + 1)
    assert scan(folder)[0].status == "corrupt"
    with pytest.raises(StoreError, match="written by a newer verifylab: schema 4, this one reads"):
        store.load("runs")


def test_a_notebook_that_changed_makes_its_runs_stale():
    notebook = Path("n.ipynb")
    cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "a = 1"}
    notebook.write_text(json.dumps({"nbformat": 4, "cells": [cell]}))
    put("s", "a", {"x": [1]}, {}, notebook="n.ipynb", notebook_source="of old")
    assert scan("runs")[0].status == "stale"
    notebook.unlink()  # seen from elsewhere: nothing is known
    assert scan("runs")[0].status == "ok"


# compare


def frame_of(sweep: str, cells: dict, scale: float = 1.0, **more) -> pd.DataFrame:
    for name, parameters in cells.items():
        seeds = range(4)
        values = [scale * (100 + at + seed) for at in (0, 50) for seed in seeds]
        rows = {"width": [2] * 4 + [4] * 4, "seed": [*seeds] * 2, "tok_s": values}
        put(sweep, name, rows, parameters, **more)
    return store.load(f"runs/{sweep}")


def test_seeds_are_replicates_and_what_differs_as_a_whole_is_compared():
    a = frame_of("a", {"x": {"ratio": 0.5, "arm": "old"}, "y": {"ratio": 0.75, "arm": "old"}})
    b = frame_of("b", {"x": {"ratio": 0.5, "arm": "new"}, "z": {"ratio": 1.0, "arm": "new"}}, 0.9)
    found = compare_results(a, b)
    assert found.differing == {"arm": ("old", "new")}
    kinds = [(d.kind, d.where) for d in found.deltas]
    assert kinds == [
        ("REGRESSION", {"ratio": 0.5, "width": 2}),
        ("REGRESSION", {"ratio": 0.5, "width": 4}),
        ("MISSING", {"ratio": 0.75, "width": 2}),
        ("MISSING", {"ratio": 0.75, "width": 4}),
        ("NEW", {"ratio": 1.0, "width": 2}),
        ("NEW", {"ratio": 1.0, "width": 4}),
    ]
    first = found.deltas[0]
    assert first.n == 4 and first.delta_pct == pytest.approx(-10)
    assert first.low_pct <= first.delta_pct <= first.high_pct
    assert {d.kind for d in compare_results(a, b, lower=["tok_s"]).deltas} == {
        "GAIN",
        "MISSING",
        "NEW",
    }
    assert compare_results(a, b, threshold_pct=11).deltas[0].kind == "NO CHANGE"
    assert {d.kind for d in compare_results(a, a).deltas} == {"NO CHANGE"}


def test_an_interval_that_reaches_zero_is_no_change_and_zero_has_no_percentage():
    put("a", "r", {"tok_s": [10.0]}, {})
    put("a", "r-r1", {"tok_s": [10.0]}, {}, repeat=1)
    put("b", "r", {"tok_s": [14.0]}, {})
    put("b", "r-r1", {"tok_s": [9.0]}, {}, repeat=1)
    (delta,) = compare_results(store.load("runs/a"), store.load("runs/b")).deltas
    assert delta.kind == "NO CHANGE" and delta.delta_pct == pytest.approx(15) and delta.n == 2
    put("c", "r", {"step_ms": [0.0]}, {})
    put("d", "r", {"step_ms": [1.0]}, {})
    (delta,) = compare_results(store.load("runs/c"), store.load("runs/d")).deltas
    assert (delta.kind, delta.delta_pct, delta.a, delta.b) == ("REGRESSION", None, 0.0, 1.0)
    assert lower_is_better("step_ms") and not lower_is_better("tok_s")
    with pytest.raises(ValueError, match="name what to compare with --metric"):
        compare_results(store.load("runs/a"), store.load("runs/c"))


def two(a: dict, b: dict, **more):
    put("a", "r", a, {})
    put("b", "r", b, {})
    return compare_results(store.load("runs/a"), store.load("runs/b"), **more)


def test_one_zero_among_replicates_does_not_make_noise_a_regression():
    seeds = range(5)
    a = {"seed": seeds, "tok_s": [0.0, 100, 100, 100, 100]}
    noise = {"seed": seeds, "tok_s": [0.0, 99.99, 100.01, 99.99, 100]}
    (delta,) = two(a, noise).deltas
    assert delta.kind == "NO CHANGE" and delta.delta_pct == pytest.approx(-0.0025)
    (delta,) = two(a, {"seed": seeds, "tok_s": [0.0, 90, 91, 90, 89]}, threshold_pct=0.1).deltas
    assert delta.kind == "REGRESSION" and delta.low_pct < delta.delta_pct < delta.high_pct < 0
    (delta,) = two({"seed": [0, 1], "tok_s": [0.0, 0]}, {"seed": [0, 1], "tok_s": [1.0, -2]}).deltas
    assert (delta.kind, delta.delta_pct) == ("NO CHANGE", None)
    (delta,) = two({"tok_s": [1e-300]}, {"tok_s": [1e60]}).deltas
    assert (delta.kind, delta.delta_pct) == ("GAIN", None)


def test_what_is_no_finite_number_is_left_out_and_never_no_change():
    infinite = float("inf")
    found = two({"n": [1, 2], "tok_s": [infinite, 1]}, {"n": [1, 2], "tok_s": [5.0, 1]})
    assert [(d.kind, d.where) for d in found.deltas] == [
        ("NO CHANGE", {"n": 2}),
        ("NEW", {"n": 1}),
    ]
    assert found.left_out == ["A: tok_s of a/r is inf"]
    assert [row["class"] for row in lines("compare", "a", "b")] == ["NO CHANGE", "NEW"]
    (delta,) = two(
        {"seed": [0, 1, 2], "tok_s": [3.0, 3, 3]},
        {"seed": [0, 1, 2], "tok_s": [3, -infinite, 1e99]},
    ).deltas
    assert (delta.kind, delta.n) == ("NO CHANGE", 1)
    put("b", "r", {"tok_s": [infinite]}, {})
    put("a", "r", {"tok_s": [infinite]}, {})
    assert "neither side has a finite number in tok_s" in refused("compare", "a", "b")


@pytest.mark.parametrize(
    "values",
    [
        pd.to_datetime(["2024-01-01", "2024-01-02"]),
        pd.to_timedelta([1, 2]),
        [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)],
        [decimal.Decimal(1), decimal.Decimal(2)],
        [b"a", b"\xff"],
        [[1], [1, float("inf")]],
        [{"a": 1, "b": [b"x"]}, {"a": 2, "b": None}],
        pd.Categorical(["a", "b"]),
        pd.period_range("2024-01", periods=2, freq="M"),
    ],
)
def test_rows_are_told_apart_by_values_of_every_kind(values):
    a, b = {"day": values, "tok_s": [1.0, 2.0]}, {"day": values, "tok_s": [1.0, 1.0]}
    assert [delta.kind for delta in two(a, b).deltas] == ["NO CHANGE", "REGRESSION"]
    assert [list(row["where"]) for row in lines("compare", "a", "b")] == [["day"]] * 2
    assert invoke("compare", "a", "b").exit_code == 1 and invoke("report", "a").exit_code == 0


def test_modelled_times_are_not_held_against_measured_ones():
    put("a", "r", {"tok_s": [1.0], "time": ["modelled"]}, {})
    put("b", "r", {"tok_s": [9.0], "time": ["measured"]}, {})
    assert "times of A are modelled, those of B measured: they cannot be" in refused(
        "compare", "a", "b"
    )
    assert lines("compare", "b", "b")


def test_compare_exits_1_on_a_regression_and_not_on_a_gain():
    frame_of("a", {"x": {"ratio": 0.5}})
    frame_of("b", {"x": {"ratio": 0.5}}, 0.9)
    put("b", "y", None, {"ratio": 0.7}, status="failed", error="no")
    worse = invoke("compare", "a", "b")
    assert worse.exit_code == 1 and "left out: B: b/y is failed" in worse.stderr
    assert worse.stdout.splitlines()[1].split()[:3] == ["REGRESSION", "tok_s", "width=2"]
    assert worse.stdout.splitlines()[-1] == ("2 REGRESSION, 0 GAIN, 0 NO CHANGE, 0 NEW, 0 MISSING")
    assert invoke("compare", "b", "a").exit_code == 0
    assert invoke("compare", "a", "b", "--threshold", "20").exit_code == 0
    assert invoke("compare", "runs/a", "runs/b", "--metric", "tok_s").exit_code == 1
    keys = ["class", "metric", "where", "a", "b", "delta_pct", "low_pct", "high_pct", "n"]
    assert [list(row) for row in lines("compare", "a", "b")] == [keys] * 2
    put("m", "old", {"tok_s": [2.0]}, {}, origin={"commit": "a1b2c3d4"})
    put("n", "new", {"tok_s": [1.0]}, {}, origin={"commit": "e5f6a7b8"})
    assert [row["class"] for row in lines("compare", "a1b2c3d", "e5f6a7b")] == ["REGRESSION"]
    assert "no sweep, run or folder 'zzz'" in refused("compare", "a", "zzz")
    without = refused("compare", "a", "b", "--metric", "x")
    assert "A has no numbers in a column 'x': there are tok_s" in without
    assert "--threshold must be 0 or more, got -1" in refused("compare", "a", "b", "--threshold=-1")


# report


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def test_a_summary_s_sentences_wrap_and_its_table_scrolls():
    text = "Gate at 7, <sure>.\nAnd more.\n\n width  tok_s\n     8   99.4\n(a note)\n\nModelled.\n"
    assert report._prose_and_tables(text) == [
        "<p>Gate at 7, &lt;sure&gt;.</p>",
        "<p>And more.</p>",
        "<pre> width  tok_s\n     8   99.4\n(a note)</pre>",
        "<p>Modelled.</p>",
    ]


def test_the_report_is_one_file_that_asks_nobody():
    seven()
    (line,) = lines("report", "s")
    assert line == {"sweep": "s", "report": "runs/s/report.html"}
    text = Path("runs/s/report.html").read_text()
    page = _Page()
    page.feed(text)
    names = [tag for tag, _ in page.tags]
    assert not {"script", "link", "iframe", "object"} & set(names)
    images = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
    # Each figure once, those of the two runs with a result.
    assert len(images) == 2 and all(src.startswith("data:image/svg+xml;base64,") for src in images)
    assert all(a["href"].startswith("#") for tag, a in page.tags if tag == "a")
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", text) and "url(" not in text
    assert "all about &lt;ok&gt; &amp; more" in text and "alert(1)&lt;/script" in text
    assert str(Path.home()) + "/x" not in text
    assert "7 runs: 1 ok, 1 failed" in text and "was timeout" in text and "c" * 40 in text
    assert [row["run"] for row in lines("runs", "s")].count("report.html") == 0
    assert "no sweep, run or folder 'nowhere'" in refused("report", "nowhere")
    Path("runs/empty").mkdir()
    assert "has no stored run to report" in refused("report", "empty")
    assert invoke("report", "s", "--output", "r.html").stdout == "wrote r.html\n"
    Path("r").mkdir()
    assert refused("report", "s", "--output", "r") == (
        "error: r is a folder: name a file as --output\n"
    )
    assert sorted(path.name for path in Path(".").iterdir()) == ["r", "r.html", "runs"]
    assert invoke("report", "s", "--output", "new/r.html").exit_code == 0
    assert "<td class=said>all about &lt;ok&gt; &amp; more</td>" in text  # in the table of all runs


def test_the_report_shows_every_column_of_a_result():
    put(
        "s",
        "a",
        {"tok_s": [1.0, None], "param_budget": [5, 6], "error": ["", "x"], "z": 1},
        {"x": 1},
    )
    text = report.render("runs/s")
    assert re.search("<th>tok_s</th><th>param_budget</th><th>result_error</th><th>z</th>", text)
    assert "<td>6</td><td>x</td><td>1</td></tr>" in text


def test_the_report_leaves_out_what_is_no_figure_and_says_so():
    folder = put("s", "a", {"tok_s": [1.0]}, {})
    figures = folder / "figures"
    (figures / "dangling.svg").symlink_to("nowhere")
    (figures / "folder.svg").mkdir()
    os.mkfifo(figures / "pipe.png")
    (figures / "device.png").symlink_to("/dev/zero")
    (folder / "summary.txt").unlink()
    os.mkfifo(folder / "summary.txt")
    bad = put("s", "b", None, {}, status="failed", error="no")
    (bad / "log.txt").unlink()
    os.mkfifo(bad / "log.txt")
    assert lines("report", "s")
    text = Path("runs/s/report.html").read_text()
    for told in (
        "dangling.svg: No such file or directory",
        "folder.svg: Is a directory",
        "pipe.png: is no file",
        "device.png: is no file",
    ):
        assert f"<p class=error>left out: figures/{told}</p>" in text
    assert text.count("<img") == 1
    assert [row["headline"] for row in lines("runs", "--show")] == [None, None]


# gc


def test_gc_never_touches_an_ok_run_unless_it_is_named():
    made = seven()
    (Path("runs/s") / ".part-x-0").mkdir()
    listed = lines("gc")
    gone = {"failed", "died", "timeout", "interrupted", "corrupt", ".part-x-0"}
    assert {row["run"] for row in listed} == gone
    assert not any(row["removed"] for row in listed) and all(f.exists() for f in made.values())
    assert "6 folders" in invoke("gc").stdout and "--yes removes them" in invoke("gc").stdout
    with Store("runs", "s"):
        assert "another sweep is writing" in refused("gc", "s", "--status", "failed", "--yes")
    assert all(row["removed"] for row in lines("gc", "--yes", "--status", "failed"))
    assert invoke("gc", "--yes").exit_code == 0
    assert sorted(p.name for p in Path("runs/s").iterdir()) == [".lock", "ok", "stale"]
    assert [row["run"] for row in lines("gc", "--status", "stale", "--yes")] == ["stale"]
    assert [row["removed"] for row in lines("gc", "s/ok", "--yes")] == [True]
    assert [p.name for p in Path("runs/s").iterdir()] == [".lock"]
    assert lines("gc", "--out", "nowhere") == []


def test_listing_opens_no_result_and_loads_nothing_heavy():
    put("s", "a", {"x": [1]}, {})
    code = (
        "import sys, builtins, io; real = io.open\n"
        "def watched(file, *a, **k):\n"
        "    assert 'result.parquet' not in str(file); return real(file, *a, **k)\n"
        "io.open = builtins.open = watched\n"
        "from verifylab.loading import scan; assert len(scan('runs')) == 1\n"
        "print(sorted({'pandas', 'pyarrow', 'numba', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_pandas_reads_the_store_without_us():
    frame_of("a", {"x": {"ratio": 0.5}, "y": {"ratio": 0.75}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = pd.concat(
            {path.parent.name: pd.read_parquet(path) for path in Path("runs").glob("*/*/*.parquet")}
        )
    assert len(read) == 16


def test_a_comparison_of_nothing_is_not_all_well():
    put("a", "x", {"tok_s": [1.0]}, {"ratio": 0.5})
    put("b", "y", {"tok_s": [1.0]}, {"ratio": 0.75})
    put("b", "z", {"tok_s": [1.0]}, {"ratio": 1.0})
    put("a", "w", {"tok_s": [1.0]}, {"ratio": 0.25})
    result = invoke("compare", "a", "b")
    assert result.exit_code == 1 and "nothing was compared" in result.stderr


def test_what_b_lacks_of_a_is_named_and_exit_1_what_it_has_beside_is_named_alone():
    for sweep in "ab":
        put(sweep, "x", {"tok_s": [1.0]}, {"ratio": 0.5})
        put(sweep, "y", {"tok_s": [1.0]}, {"ratio": 1.0})
    assert invoke("compare", "a", "b").exit_code == 0
    put("a", "x-r1", {"tok_s": [1.0]}, {"ratio": 0.5}, repeat=1)
    lacking = invoke("compare", "a", "b")
    assert lacking.exit_code == 1 and "0 MISSING" in lacking.stdout
    assert lacking.stderr == "missing in B: a/x-r1: 1 of 1 values of tok_s\n"
    beside = invoke("compare", "b", "a")
    assert beside.exit_code == 0 and beside.stderr == lacking.stderr.replace("missing", "new")
    put("a", "z", {"n": [1, 2], "tok_s": [1.0, 2.0]}, {"ratio": 2.0})
    put("b", "z", {"n": [1, 3], "tok_s": [1.0, 2.0]}, {"ratio": 2.0})
    rows = invoke("compare", "a", "b")
    assert rows.exit_code == 1 and "1 NEW, 1 MISSING" in rows.stdout
    assert "missing in B: a/z: 1 of 2 values of tok_s\n" in rows.stderr
    assert "new in B: b/z: 1 of 2 values of tok_s\n" in rows.stderr
