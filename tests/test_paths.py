"""Files: written whole or not at all, and refused before the work."""

import json
import os
import stat
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from verifylab import fit, paths, plots
from verifylab.paths import writable_folder, write_aside, write_files

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def test_a_file_is_written_whole_with_the_usual_rights(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("x")
    done = write_files(tmp_path / "new" / "folder", {"a.txt": "ä", "b.bin": b"\0"})
    assert [p.name for p in done] == ["a.txt", "b.bin"]
    assert done[0].read_bytes() == "ä".encode() and done[1].read_bytes() == b"\0"
    assert stat.S_IMODE(done[0].stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert sorted(p.name for p in done[0].parent.iterdir()) == ["a.txt", "b.bin"]


def full(*arguments, **options):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_was_there_survives_a_failure_that_names_the_file(tmp_path, monkeypatch, step):
    target = tmp_path / "result.csv"
    target.write_text("old")
    monkeypatch.setattr(paths.os, step, full)
    with pytest.raises(OSError, match="cannot be written: No space left") as caught:
        write_aside(target, "new")
    assert caught.value.filename == str(target)
    assert target.read_text() == "old" and os.listdir(tmp_path) == ["result.csv"]


def test_a_set_that_is_interrupted_while_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    write_files(tmp_path, {"a": "old", "b": "old", "c": "old"})
    real, calls = os.fsync, []

    def second(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(handle)

    monkeypatch.setattr(paths.os, "fsync", second)
    with pytest.raises(KeyboardInterrupt):
        write_files(tmp_path, {"a": "new", "b": "new", "c": "new"})
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == dict.fromkeys("abc", "old")


def test_a_folder_is_not_replaced_by_a_file(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="cannot be written"):
        write_aside(tmp_path / "taken", "x")
    assert os.listdir(tmp_path) == ["taken"]


def test_a_refit_that_fails_keeps_both_fits(tmp_path, monkeypatch):
    for name in ("workloads/published.json", "machines/gb10-published.json"):
        write_aside(tmp_path / name, "old")
    monkeypatch.setattr(fit, "fit_workload", lambda: {})
    monkeypatch.setattr(fit, "fit_machine", lambda: full())
    with pytest.raises(OSError):
        fit.write(tmp_path)
    assert {p.read_text() for p in tmp_path.rglob("*.json")} == {"old"}


def test_a_figure_that_fails_keeps_the_old_files(tmp_path, monkeypatch):
    frame = pd.DataFrame({"x": [1]})
    plots.save_figure(Figure(), tmp_path, "one", {"t": frame})
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert set(before) == {"one.svg", "one.png", "one.t.csv"}
    monkeypatch.setattr(frame.__class__, "to_csv", full)
    with pytest.raises(OSError):
        plots.save_figure(Figure(figsize=(1, 1)), tmp_path, "one", {"t": frame})
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_nothing_is_written_into_a_stored_run(tmp_path):
    (tmp_path / "status.json").write_text("{}")
    with pytest.raises(ValueError, match="is a stored run: name another folder as out"):
        writable_folder(tmp_path)


def test_a_folder_to_write_into_need_not_exist(tmp_path):
    assert writable_folder("") == ""
    assert writable_folder(tmp_path / "a" / "b") == str(tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("out", [5, None, True, ["x"], b"x", "a\0b", "x" * 300])
def test_what_names_no_folder_is_refused(out):
    with pytest.raises(ValueError, match=r"^(out must be the name of a folder|cannot write into)"):
        writable_folder(out)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("kept")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="cannot write into .*; name another folder as out"):
            writable_folder(str(out))
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_checks_out_before_it_works(path):
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"]
             if c["cell_type"] == "code"]  # fmt: skip
    names: dict[str, object] = {}
    exec("".join(cells[0]["source"]), names)
    with pytest.raises(ValueError, match="out must be the name of a folder"):
        exec("".join(cells[1]["source"]), {**names, "out": 5})
