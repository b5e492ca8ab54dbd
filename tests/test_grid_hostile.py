"""Grid files and notebooks that a hostile tester broke once: a sentence, or the right thing."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from verifylab import cli
from verifylab.graph_costs import graph_costs
from verifylab.grid_rows import _run_name
from verifylab.gridfile import GridError, read_grid
from verifylab.machine import load_profile
from verifylab.notebook import UNKNOWN, NotebookError, read_notebook
from verifylab.provenance import _named_files
from verifylab.published import data_dir


def stored(path, *cells, source='steps = 5  # n\nout = ""  # o\n'):
    tagged = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": source}
    body = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [tagged, *cells]}
    path.write_text(json.dumps(body))
    return path


def test_two_rows_whose_names_once_met_are_told_apart():
    widths = list(range(1, 24))
    names = {_run_name({"widths": widths, "steps": s}, {"widths": widths, "steps": s})
             for s in (267, 2828)}  # fmt: skip
    assert len(names) == 2


def test_a_device_or_a_pipe_is_never_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    given = {"a": "/dev/zero", "b": "pipe", "c": "file", "d": "no such", "e": "x" * 900}
    assert list(_named_files(tmp_path, given)) == ["c"]
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(GridError, match="cannot be read: is no file"):
            read_grid(path)
        with pytest.raises(ValueError, match="calibration .* cannot be read: .*is no file"):
            graph_costs("model", calibration=str(path))
    os.mkfifo(tmp_path / "p.json")
    with pytest.raises(ValueError, match=r"'p\.json' cannot be read: is no file"):
        load_profile("p.json", tmp_path)


def test_one_value_written_two_ways_is_one_run(tmp_path):
    stored(tmp_path / "n.ipynb", source='cost = None  # ms\nout = ""  # o\n')
    grid = 'name = "g"\nnotebook = "n.ipynb"\n[axes]\n'
    (tmp_path / "g.toml").write_text(grid + "cost = [1, 1.0]\n")
    with pytest.raises(GridError, match=r"repeats an earlier run: \{'?\"?cost"):
        read_grid(tmp_path / "g.toml")
    (tmp_path / "g.toml").write_text(grid + "cost = [1, 1.5, 9007199254740993, 9007199254740992]")
    assert len(read_grid(tmp_path / "g.toml").rows) == 4


@pytest.mark.parametrize(
    "value",
    [
        *("10 * 200", "b'a'", "{1}", "...", "1e999", "[1e999]"),
        *("{1: 2, 'a': 3}", "{None: 2, 'a': 3}", "{1: 2}", "[{(1,): 2}]"),
        *("'\\ud800'", "{'\\ud800': 1}", "0x" + "f" * 6000),
    ],
)
def test_a_default_that_cannot_be_stored_is_left_to_its_cell(tmp_path, value):
    stored(tmp_path / "n.ipynb", source=f'steps = {value}  # n\nout = ""  # o\n')
    assert read_notebook(tmp_path / "n.ipynb").defaults["steps"] is UNKNOWN
    (tmp_path / "g.toml").write_text('name = "g"\nnotebook = "n.ipynb"\n')
    row = read_grid(tmp_path / "g.toml").rows[0]
    assert row.parameters == {}
    json.dumps(row.parameters)


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 6000])
def test_a_number_too_long_to_read_is_a_sentence(tmp_path, number):
    stored(tmp_path / "n.ipynb")
    grid = f'name = "g"\nnotebook = "n.ipynb"\n[parameters]\nsteps = {number}\n'
    (tmp_path / "g.toml").write_text(grid)
    with pytest.raises(GridError):
        read_grid(tmp_path / "g.toml")


@pytest.mark.parametrize(
    "cell", [5, None, {"cell_type": "code", "source": None}, {"cell_type": "code", "source": 7}]
)
def test_a_damaged_cell_is_named(tmp_path, cell):
    with pytest.raises(NotebookError, match="its cell 1 is damaged"):
        read_notebook(stored(tmp_path / "n.ipynb", cell))


@pytest.mark.parametrize("metadata", [None, 3, {"tags": None}, {"tags": 4}])
def test_odd_metadata_is_no_tag(tmp_path, metadata):
    cell = {"cell_type": "code", "source": "", "metadata": metadata}
    assert read_notebook(stored(tmp_path / "n.ipynb", cell)).defaults["steps"] == 5


def test_folders_and_dangling_links_beside_the_data_are_no_source(tmp_path, monkeypatch):
    from verifylab import provenance
    from verifylab.published import data_dir

    published = tmp_path / "published"
    published.mkdir()
    for name in ("acceptance.csv", "key_counts.csv"):
        (published / name).write_bytes((data_dir() / "published" / name).read_bytes())
    monkeypatch.setenv("VERIFYLAB_DATA", str(tmp_path))
    provenance.library_hash.cache_clear()
    before = provenance.library_hash()
    (published / ".ipynb_checkpoints").mkdir()
    (published / ".#lock.csv").symlink_to("nowhere")
    provenance.library_hash.cache_clear()
    assert provenance.library_hash() == before
    provenance.library_hash.cache_clear()


def test_a_record_with_a_number_that_json_lacks_is_damaged(tmp_path):
    from verifylab.records import read_status

    (tmp_path / "status.json").write_text('{"schema": 2, "seconds": NaN}')
    record, why = read_status(tmp_path)
    assert record is None and why == "a status.json that is not JSON"


DEEP = {
    "x": "[" * 101 + "]" * 101,
    "a.b": "[" * 98 + "]" * 98,
    ".".join(["a"] * 400): "1",
    ".".join(["b"] * 3000): "1",
    "c": "[" * 400 + "]" * 400,
    "d": "{a=" * 400 + "1" + "}" * 400,
    "e": "[" * 9000 + "]" * 9000,
}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("table", ["parameters", "axes"])
def test_a_grid_that_nests_too_deep_is_a_sentence(tmp_path, table, name):
    stored(tmp_path / "n.ipynb", source='x = None\nout = ""\n')
    text = f'notebook = "n.ipynb"\n[{table}]\n{name} = {DEEP[name]}\n'
    (tmp_path / "g.toml").write_text(text)
    with pytest.raises(GridError, match="has more than 100 levels of lists and tables"):
        read_grid(tmp_path / "g.toml")


def test_what_a_grid_may_nest_a_record_may_hold(tmp_path):
    from verifylab.strict_json import parse

    stored(tmp_path / "n.ipynb", source=f'x = None\ny = {"[" * 95 + "]" * 95}\nout = ""\n')
    deep = "[" * 98 + "]" * 98
    (tmp_path / "g.toml").write_text(f'notebook = "n.ipynb"\n[parameters]\nx = {deep}\n')
    (row,) = read_grid(tmp_path / "g.toml").rows
    body = {"schema": 2, "parameters": row.parameters}
    assert parse(json.dumps(body).encode()) == body and len(row.parameters) == 2


@pytest.mark.parametrize(
    "value", ["-" * 5000 + "1", "-" * 100_000 + "1", "+".join(["1"] * 20_000), "a" + ".b" * 20_000]
)
def test_a_parameter_cell_that_nests_too_deep_is_a_sentence(tmp_path, value):
    stored(tmp_path / "n.ipynb", source=f'x = {value}\nout = ""\n')
    with pytest.raises(NotebookError, match="is not plain Python: it nests too deep"):
        read_notebook(tmp_path / "n.ipynb")


@pytest.mark.parametrize(
    ("cell", "name"),
    [("first_seed = base", "first_seed"), ("first_seed = 0\nseeds = n()", "seeds")],
)
def test_repeats_cannot_count_on_from_what_only_the_cell_knows(tmp_path, cell, name):
    stored(tmp_path / "n.ipynb", source=f'{cell}\nout = ""\n')
    (tmp_path / "g.toml").write_text('notebook = "n.ipynb"\nrepeats = 3\n')
    with pytest.raises(GridError, match=f"a whole number as '{name}', and .*: set it in"):
        read_grid(tmp_path / "g.toml")
    with (tmp_path / "g.toml").open("a") as file:
        file.write(f"[parameters]\n{name} = 7\n")
    assert [row.parameters[name] for row in read_grid(tmp_path / "g.toml").rows][0] == 7


def test_a_message_that_is_not_unicode_keeps_the_rest_of_its_text():
    from verifylab._kernel_json import pack
    from verifylab.sweep import _one_line

    assert json.loads(pack({"evalue": "\ud800 bad", "ename": "E"})) == {
        "evalue": "? bad",
        "ename": "E",
    }
    assert json.loads(pack({"evalue": "fine \u00fc"})) == {"evalue": "fine \u00fc"}
    assert _one_line("\ud800\n bad") == "\\ud800 bad"


def test_a_machine_that_the_notebook_would_not_find_is_refused_before_anything_runs(
    tmp_path, monkeypatch
):
    profile = (data_dir() / "machines" / "gb10-published.json").read_text()
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "mine.json").write_text(profile)
    (tmp_path / "here.json").write_text(profile)
    monkeypatch.chdir(tmp_path)  # the notebook runs in its own folder: only what lies there counts
    grid = tmp_path / "g.toml"

    def read(machine, default="gb10-published"):
        source = f'machine = "{default}"\nout = ""\n'
        notebook = stored(tmp_path / "notebooks" / "n.ipynb", source=source)
        grid.write_text(f'notebook = "{notebook}"\n[axes]\nmachine = ["{default}", "{machine}"]\n')
        return read_grid(grid)

    assert len(read("mine.json").rows) == len(read("here.json", default="my laptop").rows) == 2
    with pytest.raises(GridError, match=r"g\.toml: no machine profile 'nosuch' .*there are: gb10"):
        read("nosuch")
    with pytest.raises(GridError, match=r"g\.toml: machine profile 'here\.json' cannot be read"):
        read("here.json")
    result = CliRunner().invoke(cli.main, ["sweep", str(grid), "--dry-run"])
    assert result.exit_code == 2 and "'here.json' cannot be read" in result.stderr
