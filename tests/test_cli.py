"""The command line: what it prints, and that no mistake of the user's gives a traceback."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from verifylab import cli, explain, keyspace
from verifylab._console import DEBUG_VARIABLE, table, whole_numbers
from verifylab.gate import Gate
from verifylab.key import parse_graph_key

ROOT = Path(__file__).parent.parent


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, list(arguments))


def rows(*arguments: str) -> list[dict]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def refused(*arguments: str) -> str:
    """Check the shape of a refusal and return its sentence."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_keyspace_gives_the_published_counts():
    found = rows("keyspace")
    assert [list(row) for row in found] == [list(keyspace.TABLE_COLUMNS)] * 3
    assert [row["arrangement_keys"] for row in found] == [2, 10, 266]
    assert [row["canonical_keys"] for row in found] == [1, 2, 3]


def test_keyspace_takes_a_ladder_and_keeps_the_order_of_widths():
    found = rows("keyspace", "--widths", "16,4", "--drafts", "4:3,16:1")
    assert [(row["width"], row["rows"]) for row in found] == [(16, 32), (4, 14)]


def test_keyspace_passes_ratio_and_row_budget_on():
    given = ("--widths", "8", "--drafts", "8", "--ratio", "0.5", "--row-budget", "40")
    (row,) = rows("keyspace", *given)
    frame = keyspace.key_space_table([8], 8, 0.5, 40)
    assert row == {name: int(frame[name][0]) for name in frame}


def test_integers_beyond_64_bits_stay_exact(monkeypatch):
    huge = 3**200
    values = {**dict.fromkeys(keyspace.TABLE_COLUMNS, 2), "arrangement_keys": huge}
    frame = pd.DataFrame({name: pd.Series([v], dtype=object) for name, v in values.items()})
    monkeypatch.setattr(keyspace, "key_space_table", lambda *_: frame)
    assert rows("keyspace")[0]["arrangement_keys"] == huge
    assert f"{huge:,}" in run("keyspace").stdout


def test_keyspace_table_is_aligned():
    lines = run("keyspace").stdout.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 4


def test_the_widest_batches_count_at_once():
    found = rows("keyspace", "--widths", ",".join(["1024"] * 200), "--drafts", "8")
    assert found[0]["arrangement_keys"] == 1


EXAMPLE = ("explain", "--slots", "7,2,5,0,3", "--depths", "2,4,2,3,4")


def test_explain_gives_both_arms(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    arrangement, canonical = rows(*EXAMPLE)
    assert arrangement["arm"] == "arrangement" and canonical["arm"] == "canonical"
    assert arrangement["order"] == [1, 4, 3, 2, 0] and canonical["order"] == [3, 1, 4, 2, 0]
    assert arrangement["depths"] == canonical["depths"] == [4, 4, 3, 2, 2]
    assert arrangement["runs"][0] == {"start": 0, "length": 2, "depth": 4, "fast": True}
    assert canonical["runs"][0]["fast"] is False
    assert arrangement["launches_per_layer"] == 2 + 6 + 8
    assert canonical["launches_per_layer"] == 16 + 6 + 8
    pairs, wy_tables_null = parse_graph_key(bytes.fromhex(canonical["key_hex"]))
    assert pairs == ((0, 4), (2, 4), (3, 3), (5, 2), (7, 2)) and not wy_tables_null
    assert (arrangement["gate"], canonical["gate"]) == (True, False)


@pytest.mark.parametrize(
    ("environ", "given", "taken"),
    [
        ({}, ["--min-width", "5"], "canonical"),
        ({}, ["--min-width", "6"], "arrangement"),
        ({"ATLAS_CANONICAL_KEY_MIN_WIDTH": "2"}, [], "canonical"),
        ({"ATLAS_CANONICAL_KEY_MIN_WIDTH": "2"}, ["--min-width", "6"], "arrangement"),
        ({"ATLAS_NO_CANONICAL_VERIFY_KEY": ""}, ["--min-width", "0"], "arrangement"),
    ],
)
def test_explain_asks_the_gate(monkeypatch, environ, given, taken):
    monkeypatch.setattr(os, "environ", environ)
    assert [row["arm"] for row in rows(*EXAMPLE, *given) if row["gate"]] == [taken]


def test_explain_in_words():
    text = run(*EXAMPLE, "--min-width", "0").stdout
    assert "canonical   <- taken by the gate: canonical from width 0 up" in text
    assert "declined" in text and "fast" in text and "launches  16 a layer" in text
    assert rows(*EXAMPLE)[0]["key_hex"] in text


def test_a_batch_of_several_dispatches_has_a_key_for_each():
    slots, depths = ",".join(map(str, range(40))), ",".join(["2"] * 40)
    for arm in rows("explain", "--slots", slots, "--depths", depths):
        assert arm["key_hex"] is None
        assert [(part["start"], part["stop"]) for part in arm["dispatches"]] == [(0, 32), (32, 40)]
        assert sum(p["launches_per_layer"] for p in arm["dispatches"]) == arm["launches_per_layer"]
        # One depth on consecutive slots would be one run: but none crosses a dispatch.
        assert [run["start"] for run in arm["runs"]] == [0, 32]


def test_explain_is_a_function_for_notebooks_too():
    arms = explain.explain([0], [1], Gate(min_width=0))
    assert [arm.gate for arm in arms] == [False, True]
    with pytest.raises(ValueError, match="same length"):
        explain.explain([0], [], Gate())
    with pytest.raises(ValueError, match="got none"):
        explain.explain([], [], Gate())
    with pytest.raises(ValueError, match="1 to 9 rows"):
        explain.explain([0], [10], Gate())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["keyspace", "--widths", "0"], "--widths must be from 1 to 1024, got 0"),
        (["keyspace", "--widths", "1025"], "--widths must be from 1 to 1024, got 1025"),
        (["keyspace", "--widths", "9" * 9999], "--widths must be from 1 to 1024, got 999"),
        (["keyspace", "--widths", "-4"], "--widths must be from 1 to 1024, got -4"),
        (["keyspace", "--widths", "2,,x"], "--widths must be whole numbers"),
        (["keyspace", "--widths", ""], "--widths must be whole numbers"),
        (["keyspace", "--widths", "2.5"], "--widths must be whole numbers"),
        (["keyspace", "--drafts", "9"], "--drafts must be at most 8, got 9"),
        (["keyspace", "--drafts", "4:3,8:99"], "--drafts must be at most 8, got 99"),
        (["keyspace", "--drafts", "0"], "drafts must be 1 or more, got 0"),
        (["keyspace", "--drafts", "8:3,4:3"], "widths must ascend"),
        (["keyspace", "--drafts", "three"], "must read like"),
        (["keyspace", "--ratio", "nan"], "ratio must be from 0 to 1, got nan"),
        (["keyspace", "--ratio", "1.5"], "ratio must be from 0 to 1, got 1.5"),
        (["keyspace", "--ratio=-0.1"], "ratio must be from 0 to 1, got -0.1"),
        (["keyspace", "--ratio", "half"], "'half' is not a valid float"),
        (["keyspace", "--row-budget", "1"], "row_budget must be 2 or more, got 1"),
        (["keyspace", "--row-budget", "9999999"], "--row-budget must be at most"),
        (["explain", "--slots", "1,1", "--depths", "2,2"], "got 1 more than once"),
        (["explain", "--slots", "1,2", "--depths", "2"], "2 slots and 1 depths"),
        (["explain", "--slots", "1,2", "--depths", "2,0"], "--depths must be from 1 to 9, got 0"),
        (["explain", "--slots", "1,2", "--depths", "2,10"], "--depths must be from 1 to 9"),
        (["explain", "--slots", "-1", "--depths", "2"], "--slots must be from 0"),
        (["explain", "--slots", str(2**32), "--depths", "2"], "--slots must be from 0"),
        (["explain", "--slots", "", "--depths", ""], "--slots must be whole numbers"),
        (["explain", "--slots", "1", "--depths", "2", "--min-width", "-1"], "min_width must be 0"),
        (["explain", "--depths", "2"], "Missing option '--slots'"),
        (["explain", "--slots", ",".join(["1"] * 1025), "--depths", "2"], "at most 1024 numbers"),
        (["sweep"], "Missing argument 'GRID.toml'"),
        (["sweep", "nowhere.toml"], "grid file nowhere.toml does not exist"),
        (["sweep", "/"], "grid file / cannot be read"),
        (["sweep", "x.toml", "--out", ""], "--out must name a folder"),
        (["keyspac"], "No such command 'keyspac'"),
        (["keyspace", "--width", "2"], "No such option"),
    ],
)
def test_a_mistake_gives_one_sentence(arguments, sentence):
    assert sentence in refused(*arguments)


def test_a_bug_of_ours_gives_one_sentence_unless_debugging(monkeypatch):
    # The type of a user's mistake, but raised by Python itself: nobody's text.
    monkeypatch.setattr(keyspace, "key_space_table", lambda *_: int("x"))
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
    result = run("keyspace")
    assert result.exit_code == 1 and result.stdout == ""
    assert result.stderr.startswith("error: verifylab met a bug of its own (ValueError: ")
    assert "VERIFYLAB_DEBUG=1" in result.stderr and result.stderr.count("\n") == 1
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    assert isinstance(run("keyspace").exception, ValueError)


def test_a_file_that_cannot_be_used_is_named(monkeypatch):
    def missing(*_):
        raise FileNotFoundError(2, "No such file or directory", "some/file")

    monkeypatch.setattr(keyspace, "key_space_table", missing)
    assert refused("keyspace") == "error: some/file: No such file or directory\n"


def test_ctrl_c_says_so(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(keyspace, "key_space_table", interrupted)
    result = run("keyspace")
    assert (result.exit_code, result.stderr.strip()) == (130, "error: interrupted")


def test_fit_writes_and_checks(monkeypatch, tmp_path):
    from verifylab import fit, published

    def write(folder: Path | None = None) -> list[Path]:
        path = (folder or tmp_path) / "machines" / "m.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"a": [1.0, "x"], "b": 2}))
        return [path]

    monkeypatch.setattr(fit, "write", write)
    monkeypatch.setattr("verifylab.refit.data_dir", lambda: tmp_path)
    assert issubclass(published.DataError, ValueError)
    assert "stored fit machines/m.json cannot be read" in refused("fit", "--check")
    result = run("fit")
    assert result.exit_code == 0 and result.stdout.startswith("wrote ")
    assert run("fit", "--check").exit_code == 0
    stored = tmp_path / "machines" / "m.json"
    stored.write_text(json.dumps({"a": [1.00000001, "x"], "b": 2}))
    assert run("fit", "--check").exit_code == 0  # another CPU's last digits
    stored.write_text(json.dumps({"a": [1.1, "y"], "b": True}))
    result = run("fit", "--check")
    assert result.exit_code == 1
    assert "machines/m.json: a[0]: stored 1.1, fitted again 1.0" in result.stdout
    assert "a[1]: stored 'y', fitted again 'x'" in result.stdout
    stored.write_text(json.dumps({"a": [1.0, "x"]}))
    assert "only one of the stored and the new fit has b" in run("fit", "--check").stdout


def test_validate_prints_a_table_with_notes_under_it(monkeypatch):
    from verifylab import validation

    values = {
        "figure": ["keys", "tok/s"],
        "published": ["2 / 1", "+1 %"],
        "ours": ["2 / 1", "+2 %"],
        "role": ["derived", "held out"],
        "verdict": ["equal", "same sign"],
        "source": ["a.csv", "b.csv"],
        "note": ["", "other build"],
    }
    monkeypatch.setattr(validation, "published_against_ours", lambda: pd.DataFrame(values))
    text = run("validate").stdout
    assert text.splitlines()[0].split() == ["figure", "published", "ours", "role", "verdict"]
    assert text.endswith("\n\n- tok/s (b.csv): other build\n")
    assert [list(row) for row in rows("validate")] == [list(values)] * 2
    values["published"] = [0.5, None]
    monkeypatch.setattr(validation, "published_against_ours", lambda: pd.DataFrame(values))
    assert [row["published"] for row in rows("validate")] == [0.5, None]


def test_help_of_every_command():
    assert run().output == run("--help").output
    for name in cli.main.commands:
        result = run(name, "--help")
        assert result.exit_code == 0 and "Usage:" in result.stdout


def test_whole_numbers():
    assert whole_numbers("--n", " 2, +4 ,08", 1, 8) == [2, 4, 8]
    with pytest.raises(ValueError, match="--n must have at most 1 number, got 2"):
        whole_numbers("--n", "1,2", 1, 8, most=1)


def test_table_aligns_numbers_right_and_text_left():
    text = table(
        [{"n": 1234, "what": "a", "x": 0.5}, {"n": 5, "what": "long", "x": None}],
        ["n", "what", "x"],
    )
    assert text.splitlines() == ["    n  what    x", "1,234  a     0.5", "    5  long    -"]
    assert table([], ["n", "what"]) == "n  what"
    assert table([{"n": 1, "what": "two words"}], ["n", "what"], 5).splitlines() == [
        "n  what",
        "1  two",
        "   words",
    ]


# The real thing, in processes of its own.


def test_python_dash_m_works():
    done = subprocess.run(
        [sys.executable, "-m", "verifylab", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("verifylab, version ")


def test_importing_the_command_line_loads_nothing_heavy():
    heavy = {"numpy", "pandas", "numba", "scipy", "papermill", "matplotlib", "psutil"}
    code = "import sys, verifylab.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())


def test_a_reader_that_stops_reading_is_no_error():
    command = [sys.executable, "-m", "verifylab", "keyspace", "--widths", ",".join(["8"] * 1000)]
    with subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1


@pytest.mark.skipif(os.name == "nt", reason="a shell closes streams otherwise there")
def test_a_folder_that_is_gone_and_a_name_that_is_no_text_are_sentences(tmp_path):
    python = [sys.executable, "-m", "verifylab"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    folder = tmp_path / "gone"
    folder.mkdir()
    for line in ('"$@" keyspace', '"$@" sweep g.toml', '"$@" doctor'):
        script = f'cd "{folder}" && rmdir "{folder}" && {line}'
        said = subprocess.run(["sh", "-c", script, "sh", *python], capture_output=True, env=env)
        told = b"error: the current folder does not exist any more: change to one that does\n"
        assert (said.returncode, said.stderr) == (2, told)
        folder.mkdir()
    command = [*map(os.fsencode, python), b"sweep", b"g.toml", b"--out", b"a\xff"]
    said = subprocess.run(command, capture_output=True, env=env, cwd=folder)
    assert said.returncode == 2 and b"is not UTF-8 text: give the file another name" in said.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_closed_streams_are_no_error(closed):
    line = f'"{sys.executable}" -m verifylab keyspace {closed}'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "old", "new", "note"),
    [
        ("workloads/published.json", '"residuals"', '"rest"', "lacks the field 'residuals'"),
        ("workloads/published.json", '"fitted": 2.5335', '"fitted": null', "got None"),
        ("published/acceptance.csv", "p1", "p9", "lacks the column 'p1'"),
    ],
)
def test_damaged_data_is_one_sentence(tmp_path, monkeypatch, file, old, new, note):
    shutil.copytree(Path(__file__).parents[1] / "data", tmp_path / "data")
    path = tmp_path / "data" / file
    assert old in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    monkeypatch.setenv("VERIFYLAB_DATA", str(tmp_path / "data"))
    for line in (["validate"], ["fit", "--check"])[: 2 if file.startswith("published") else 1]:
        done = CliRunner().invoke(cli.main, line)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
        assert path.name in done.stderr and note in done.stderr
