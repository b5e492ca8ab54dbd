"""``gc`` takes what sweeps wrote and is not ok, and nothing else that lies about."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from verifylab import cli
from verifylab.collecting import collect, garbage
from verifylab.loading import load, passed_over, scan
from verifylab.provenance import library_hash
from verifylab.store import Record, Store
from verifylab.stored_runs import stored_runs

OK = Record("r", "ok", "", 1.0, "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:01+00:00", "i")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def put(sweep: str, run: str, status: str = "ok") -> Path:
    record = replace(OK, run=run, status=status, library=library_hash())
    with Store("runs", sweep) as store:
        aside = store.begin(run)
        pd.DataFrame({"x": [1]}).to_parquet(aside / "result.parquet")
        return store.commit(aside, record, {}, {})


def gc(*arguments: str) -> str:
    result = CliRunner().invoke(cli.main, ["gc", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def seen() -> dict[str, str]:
    return {f"{run.sweep}/{run.run}": run.status for run in scan("runs")}


def test_single_runs_beside_sweeps_hide_none_of_them():
    put("s", "a")
    put("t", "b")
    bad = put("t", "c", "failed")
    imported = put("x", "y")
    shutil.move(imported, "runs/imported")
    shutil.rmtree("runs/x")
    mine = Path("runs/mine")  # as plain papermill leaves it
    mine.mkdir()
    shutil.copy(imported.parents[1] / "s" / "a" / "result.parquet", mine)
    Path("runs/notes").mkdir()
    Path("runs/notes/todo.txt").write_text("a user's own")
    for _ in range(2):  # the second time beside the lock that the first may have left
        assert seen() == {
            "s/a": "ok", "t/b": "ok", "t/c": "failed",
            "runs/imported": "ok",
        }  # fmt: skip
        assert passed_over("runs") == [mine]
        assert gc("--yes", "--status", "corrupt").startswith("0 folders")
        assert gc().splitlines()[0].startswith("would remove runs/t/c: status failed")
        gc("mine", "--yes")  # named, so it goes
        assert mine.exists() is False
        shutil.copytree("runs/s/a", mine)
        for name in ("status.json", "params.json", "provenance.json"):
            (mine / name).unlink()
    gc("--yes")
    assert not bad.exists() and mine.exists() and Path("runs/notes/todo.txt").exists()
    assert set(seen()) == {"s/a", "t/b", "runs/imported"}


def test_what_plain_papermill_left_is_told_of_and_is_no_run_until_it_is_named():
    shutil.copytree(put("s", "a"), "runs/mine")
    for name in ("status.json", "params.json", "provenance.json"):
        os.unlink(f"runs/mine/{name}")
        told = CliRunner().invoke(cli.main, ["runs"])
        last = name == "provenance.json"
        assert ("passed over runs/mine: it has no record" in told.stderr) == last
        assert seen() == {"s/a": "ok"} | ({} if last else {"runs/mine": "corrupt"})
    assert set(load("runs").run) == {"a"}
    assert gc("--yes").startswith("0 folders") and Path("runs/mine/result.parquet").is_file()
    assert [run.status for run in scan("runs/mine")] == ["corrupt"]
    shutil.rmtree("runs/s/a")
    shutil.move("runs/mine", "runs/s/a")  # there a sweep put it: its records are lost
    assert seen() == {"s/a": "corrupt"} and passed_over("runs") == []


def test_a_whole_result_beside_a_table_that_was_saved_again_stays():
    for run in ("a", "b"):
        with Store("runs", "s") as store:
            aside = store.begin(run)
            pd.DataFrame({"x": [1]}).to_parquet(aside / "result.parquet")
            (aside / "figures").mkdir(exist_ok=True)
            (aside / "figures" / "f.t.csv").write_text("x\n1.0\n")
            record = replace(OK, run=run, library=library_hash())
            store.commit(aside, record, {}, {})
    Path("runs/s/a/figures/f.t.csv").write_text("x\n1\n")
    assert seen() == {"s/a": "ok", "s/b": "ok"} and len(load("runs")) == 2
    for look in ({"deep": True}, {"tables": True}):
        assert {r.run: r.status for r in scan("runs", **look)} == {"a": "corrupt", "b": "ok"}
    assert [r.run for r in stored_runs("runs")] == ["b"], "who reads the table is told"
    assert gc("--yes").startswith("0 folders")
    with Store("runs", "s") as store:  # and no sweep puts another result in its place
        assert store.find("a", "i")[1] == store.find("b", "i")[1] == ""
    Path("runs/s/a/result.parquet").write_bytes(b"PAR1")
    gc("--yes")
    assert seen() == {"s/b": "ok"}


def test_a_folder_that_holds_other_runs_is_no_garbage():
    bad = put("s", "bad", "failed")
    shutil.move(put("t", "good"), bad / "good")
    gc("s", "--yes")
    assert (bad / "good" / "status.json").exists()


def test_what_became_ok_meanwhile_stays():
    bad = put("s", "r", "failed")
    found = garbage([Path("runs/s")])
    assert [one.run for one in found] == ["r"]
    put("s", "r")
    assert collect(found) == [] and (bad / "result.parquet").exists()


def test_a_half_replaced_run_is_put_back_and_not_called_removed():
    folder = put("s", "r")
    os.rename(folder, folder.with_name(".old-r"))
    assert gc("--yes").startswith("0 folders")
    with Store("runs", "s"):
        assert seen() == {"s/r": "ok"}


def test_an_imported_file_is_a_run_like_others_and_gc_leaves_it():
    sample = Path(__file__).parent / "data" / "l38_r7_c8.json"
    for out in ("runs/mine", "runs/imported/l38"):
        done = CliRunner().invoke(cli.main, ["import", str(sample), "--out", out])
        assert done.exit_code == 0, done.output
    assert seen() == {"runs/mine": "ok", "imported/l38": "ok"}
    frame = load("runs")
    assert set(frame.status) == {"ok"} and set(frame.file) == {sample.name}
    assert gc("--yes").startswith("0 folders") and len(seen()) == 2
