"""The store: whole runs only, and a good result is never lost to a worse one."""

import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from verifylab.gridfile import Row
from verifylab.notebook import Notebook
from verifylab.paths import check_writable, shown, unshown
from verifylab.provenance import checkout, identity, library_hash, provenance
from verifylab.records import damage
from verifylab.run_folder import settle
from verifylab.store import Record, Store, StoreError, read_record, result_problem

PARQUET = b"PAR1 and so on PAR1"
OK = Record(
    run="r",
    status="ok",
    error="",
    seconds=1.5,
    started="2026-01-01T00:00:00+00:00",
    ended="2026-01-01T00:00:01+00:00",
    identity="i" * 64,
)
FAILED = replace(OK, status="failed", error="ValueError: no")


def put(store: Store, record: Record, content: bytes = PARQUET) -> Path:
    aside = store.begin(record.run)
    (aside / "result.parquet").write_bytes(content)
    (aside / "notebook.ipynb").write_text(f'{{"out": "../{aside.name}/x"}}')
    return store.commit(aside, record, {"a": 1}, {"commit": None})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_has_its_place_and_its_records(tmp_path):
    with Store(tmp_path, "s") as store:
        aside = store.begin("r")
        assert aside.name.startswith(".") and aside.parent == tmp_path / "s"
        (aside / "figures" / "f.svg").write_text("<svg/>")
        (aside / "summary.txt").write_text(f"wrote {aside.name}/figures/f.svg\n")
        folder = store.commit(aside, OK, {"a": 1}, {"commit": "c"})
    assert folder == tmp_path / "s" / "r"
    assert read_record(folder) == OK
    assert json.loads((folder / "params.json").read_text()) == {
        "schema": 3,
        "parameters": {"a": 1},
        "repeat": 0,
    }
    assert json.loads((folder / "provenance.json").read_text()) == {"schema": 3, "commit": "c"}
    assert (folder / "summary.txt").read_text() == "wrote r/figures/f.svg\n"
    assert names(tmp_path / "s") == [".lock", "r"]


def test_a_better_or_equal_result_replaces_a_worse_one_never_the_other_way(tmp_path):
    with Store(tmp_path, "s") as store:
        assert put(store, FAILED).name == "r"
        assert put(store, FAILED).name == "r"
        assert put(store, OK, PARQUET + b"1PAR1").name == "r"
        # The good one stays, with its own records; the failure lies beside it.
        beside = put(store, replace(FAILED, identity="j" * 64))
        assert beside.name == "r.failed"
        assert '"../r.failed/x"' in (beside / "notebook.ipynb").read_text()
        assert read_record(store.folder / "r") == OK
        # The next good one clears both away.
        put(store, replace(OK, seconds=2.0), PARQUET)
        assert names(store.folder) == [".lock", "r"]
        assert (store.folder / "r" / "result.parquet").read_bytes() == PARQUET
        assert not (store.folder / "r" / "figures").exists()


def test_find_takes_whole_good_results_of_the_same_identity_only(tmp_path):
    with Store(tmp_path, "s") as store:
        assert store.find("r", OK.identity) == (None, "no result yet")
        put(store, FAILED)
        assert store.find("r", OK.identity) == (None, "last time failed")
        folder = put(store, OK)
        assert store.find("r", OK.identity) == (OK, "")
        assert store.find("r", "other")[1] == "stale: parameters, notebook or library changed"
        (folder / "result.parquet").write_bytes(PARQUET[:-2])
        assert store.find("r", OK.identity)[1] == "result.parquet has 17 bytes, 19 were written"
        assert result_problem(folder) == "a torn result.parquet"
        (folder / "result.parquet").write_bytes(PARQUET.replace(b"so", b"SO"))
        assert store.find("r", OK.identity)[1].startswith("result.parquet is not as it was written")
        # A damaged one is not worth keeping from a failure; one beside a touched record is.
        assert put(store, FAILED).name == "r"
        folder = put(store, OK)
        with (folder / "params.json").open("a") as file:
            file.write("\n")
        assert put(store, FAILED).name == "r.failed"
        folder = put(store, OK)
        (folder / "result.parquet").write_bytes(b"")
        assert result_problem(folder).startswith("a result.parquet that cannot be read")
        (folder / "result.parquet").unlink()
        assert store.find("r", OK.identity) == (None, "no result.parquet")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"run": "r"}', json.dumps({"status": "fine"}), "\xff"],
)
def test_a_damaged_record_is_no_record(tmp_path, text):
    (tmp_path / "status.json").write_text(text, encoding="latin-1")
    assert read_record(tmp_path) is None


def test_a_record_of_another_schema_or_status_is_no_record(tmp_path):
    with Store(tmp_path, "s") as store:
        newer = put(store, replace(OK, schema=99))
        assert read_record(newer) is None
        # A run would replace it, so the sweep does not go on.
        with pytest.raises(StoreError, match="a newer verifylab: schema 99, this one reads 1, 2"):
            store.find("r", OK.identity)
        shutil.rmtree(newer)
        assert read_record(put(store, replace(OK, status="splendid"))) is None


def test_what_a_killed_sweep_left_is_cleared_up(tmp_path):
    with Store(tmp_path, "s") as store:
        put(store, OK)
        put(store, replace(OK, run="q"))
        store.begin("p")
        # Killed between the two renames: the old one is aside, nothing is in its place.
        (store.folder / "r").rename(store.folder / ".old-r")
        # Killed after them: the old one is to go.
        shutil.copytree(store.folder / "q", store.folder / ".old-q")
    with Store(tmp_path, "s") as store:
        assert names(store.folder) == [".lock", "q", "r"]
        assert store.find("r", OK.identity) == (OK, "")


def test_one_sweep_at_a_time(tmp_path):
    with Store(tmp_path, "s"):
        with pytest.raises(StoreError, match="another sweep is writing into"):
            Store(tmp_path, "s").__enter__()
        with Store(tmp_path, "t"):
            pass
    with Store(tmp_path, "s"):
        pass


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import os, sys; from verifylab.store import Store; "
        "Store(sys.argv[1], 's').__enter__().begin('r'); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert len(names(tmp_path / "s")) == 2
    with Store(tmp_path, "s") as store:
        assert names(store.folder) == [".lock"]


def test_a_folder_that_cannot_be_written_is_refused_without_a_trace(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write into .*file/runs.*--out"):
        check_writable(tmp_path / "file" / "runs")
    check_writable(tmp_path / "a" / "b")
    assert names(tmp_path) == ["file"]
    with pytest.raises(ValueError, match="cannot write into"):
        Store("/proc/runs", "s").__enter__()


def test_paths_are_shown_without_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "someone"))
    (tmp_path / "someone" / "work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "someone" / "work")
    assert shown(tmp_path / "someone" / "work" / "a") == "a"
    assert shown("a/b") == os.path.join("a", "b")
    assert shown(tmp_path / "someone" / "other") == "~/other"
    assert shown("/elsewhere") == "/elsewhere"
    assert unshown("~/other") == tmp_path / "someone" / "other"
    assert unshown("~nobody/x") == Path("~nobody/x")  # a folder of that name, seen from beside it
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert unshown("~/other") == Path("~/other") and shown("a") == "a"
    assert shown("\udcff") == "\\udcff"


# Identity and provenance.


def notebook(folder: Path, source_hash: str = "n") -> Notebook:
    return Notebook(folder / "n.ipynb", {}, source_hash)


def row(**parameters) -> Row:
    return Row("r", parameters, parameters)


def test_identity_follows_parameters_and_notebook_and_nothing_else(tmp_path):
    same = identity(notebook(tmp_path), row(a=1))
    assert same == identity(notebook(tmp_path / "elsewhere"), row(a=1))
    assert same != identity(notebook(tmp_path), row(a=2))
    assert same != identity(notebook(tmp_path, "m"), row(a=1))


def test_identity_follows_the_library(monkeypatch, tmp_path):
    before = identity(notebook(tmp_path), row())
    monkeypatch.setattr("verifylab.provenance.library_hash", lambda: "other")
    assert identity(notebook(tmp_path), row()) != before


def test_identity_follows_what_auto_means_here(monkeypatch, tmp_path):
    monkeypatch.setattr("verifylab.provenance.automatic_device", lambda: "model")
    modelled = identity(notebook(tmp_path), row(device="auto"))
    named = identity(notebook(tmp_path), row(device="model"))
    monkeypatch.setattr("verifylab.provenance.automatic_device", lambda: "cuda")
    assert identity(notebook(tmp_path), row(device="auto")) != modelled
    assert identity(notebook(tmp_path), row(device="model")) == named


def test_identity_follows_the_content_of_files_that_parameters_name(tmp_path):
    (tmp_path / "profile.json").write_text("1")
    before = identity(notebook(tmp_path), row(machine="profile.json"))
    (tmp_path / "profile.json").write_text("2")
    assert identity(notebook(tmp_path), row(machine="profile.json")) != before


def test_the_library_hash_sees_code_and_data(monkeypatch, tmp_path):
    package, data = tmp_path / "verifylab", tmp_path / "data"
    for folder in (package / "device", data / "machines", data / "published"):
        folder.mkdir(parents=True)
    monkeypatch.setattr("verifylab.provenance._PACKAGE", package)
    monkeypatch.setenv("VERIFYLAB_DATA", str(data))
    seen = set()
    for path in ("verifylab/a.py", "verifylab/device/b.cu", "data/machines/m.json"):
        (tmp_path / path).write_text("x")
        seen.add(library_hash.__wrapped__())
    (tmp_path / "data" / "machines" / "m.json").write_text("y")
    seen.add(library_hash.__wrapped__())
    assert len(seen) == 4
    (package / "notes.txt").write_text("x")
    assert library_hash.__wrapped__() in seen


def test_provenance_says_what_is_needed_and_nothing_personal():
    body = provenance("verifylab sweep x.toml", {"seeds": 3})
    keys = {"commit", "dirty", "diff", "library", "versions", "cpu", "seeds", "command"}
    assert set(body) == keys
    assert set(body["versions"]) >= {"python", "verifylab", "numpy", "numba", "papermill"}
    assert body["seeds"] == 3 and body["cpu"]
    assert provenance("x", {"seed": 7})["seeds"] == 7
    assert provenance("x", {})["seeds"] is None
    text = json.dumps(body)
    assert os.uname().nodename not in text and os.path.expanduser("~") not in text


def test_a_package_inside_another_repository_has_no_commit(monkeypatch, tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr("verifylab.provenance._PACKAGE", tmp_path / "site-packages" / "verifylab")
    assert checkout.__wrapped__() == {"commit": None, "dirty": None, "diff": None}
    monkeypatch.setattr("verifylab.provenance._PACKAGE", tmp_path / "verifylab")
    clean = {"commit": None, "dirty": False, "diff": None}
    assert checkout.__wrapped__() == clean  # no commit yet
    (tmp_path / "new").write_text("")
    first = checkout.__wrapped__()
    assert first["dirty"] is True and len(first["diff"]) == 64
    (tmp_path / "new").write_text("x")  # an untracked file counts too
    assert checkout.__wrapped__()["diff"] != first["diff"]


def test_a_failure_does_not_replace_data_beside_a_torn_record(tmp_path):
    with Store(tmp_path, "s") as store:
        kept = put(store, OK)
        (kept / "status.json").write_text('{"torn')
        placed = put(store, replace(OK, status="failed"))
    assert placed.name == f"{OK.run}.failed"
    assert (kept / "result.parquet").read_bytes() == PARQUET


# What a notebook may do to its folder, or somebody to the store.


def cells_work(folder, do):
    """As a run does: the notebook's work, then what becomes of its folder."""
    do(folder)
    return settle(folder), result_problem(folder, deep=True)


def whole_parquet():
    buffer = io.BytesIO()
    pd.DataFrame({"a": [1]}).to_parquet(buffer)
    return buffer.getvalue()


def test_no_link_of_a_run_reaches_another_one(tmp_path):
    with Store(tmp_path, "s") as store:
        good = put(store, replace(OK, run="q"))
        before = {p.name: p.read_bytes() for p in good.iterdir()}
        whole = whole_parquet()

        def replaced(folder):
            shutil.rmtree(folder)
            folder.symlink_to(good)

        def records(folder):
            (folder / "result.parquet").write_bytes(whole)
            for name in ("params.json", "status.json"):
                (folder / name).symlink_to(good / name)
            (folder / "provenance.json").mkdir()
            (folder / "other.parquet").symlink_to(good / "result.parquet")

        def within(folder):
            (folder / "data").write_bytes(whole)
            (folder / "result.parquet").symlink_to(folder.absolute() / "data")
            (folder / "loop").symlink_to(folder)

        aside = store.begin("r")
        assert cells_work(aside, replaced)[0] == "the notebook replaced its folder"
        store.commit(aside, FAILED, {}, {})
        for do in (records, within):
            aside = store.begin("r")
            assert cells_work(aside, do) == ("", "")
            folder = store.commit(aside, OK, {}, {})
            assert not damage(folder, read_record(folder))
            assert (folder / "result.parquet").read_bytes() == whole
            assert not any(p.is_symlink() for p in folder.iterdir())
        assert {p.name: p.read_bytes() for p in good.iterdir()} == before


@pytest.mark.parametrize(
    ("do", "problem"),
    [
        (lambda f: os.mkfifo(f / "result.parquet"), "no result.parquet"),
        (lambda f: (f / "result.parquet").symlink_to("/dev/zero"), "no result.parquet"),
        (lambda f: (f / "result.parquet").mkdir(), "a result.parquet that is no file"),
        (lambda f: (f / "result.parquet").write_bytes(b"PAR1"), "a result.parquet that cannot"),
        (lambda f: (f / "result.parquet").write_bytes(PARQUET), "a result.parquet that cannot"),
        (lambda f: (f / "figures").rmdir(), "no result.parquet"),
        (lambda f: shutil.rmtree(f), "no result.parquet"),
    ],
)
def test_what_is_no_result_is_said_and_stored(tmp_path, do, problem):
    with Store(tmp_path, "s") as store:
        aside = store.begin("r")
        told, found = cells_work(aside, do)
        assert found.startswith(problem) and told in ("", "the notebook removed its folder")
        os.mkfifo(aside / "summary.txt")
        settle(aside)
        folder = store.commit(aside, FAILED, {}, {})
        assert read_record(folder) == replace(FAILED, checksums={})
        assert all(p.is_file() or p.is_dir() for p in folder.iterdir())


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(tmp_path):
    with Store(tmp_path, "s") as store:
        folder = put(store, OK)
        for name in ("result.parquet", "status.json"):
            (folder / name).unlink()
            os.mkfifo(folder / name)
            assert store.find("r", OK.identity)[0] is None


def test_a_link_or_a_file_in_the_place_of_a_run_is_replaced(tmp_path):
    with Store(tmp_path, "s") as store:
        folder = put(store, OK)
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "moved")
        for _ in range(2):
            assert put(store, OK) == folder and not folder.is_symlink()
        shutil.rmtree(folder)
        folder.write_text("")
        (store.folder / ".part-r-0").symlink_to(tmp_path / "moved")
        assert put(store, OK) == folder and folder.is_dir()
    with Store(tmp_path, "s"):
        assert names(tmp_path / "s") == [".lock", "r"]
    assert read_record(tmp_path / "moved") == OK


def test_a_sweep_whose_folder_is_removed_does_not_meet_another_one(tmp_path):
    with Store(tmp_path, "s") as store:
        shutil.rmtree(store.folder)
        assert put(store, OK).is_dir()  # the lock is taken anew
        shutil.rmtree(store.folder)
        with Store(tmp_path, "s"):
            for _ in range(2):
                with pytest.raises(StoreError, match="another sweep is writing into"):
                    store.begin("r")
