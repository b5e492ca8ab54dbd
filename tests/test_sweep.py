"""Grid files are refused before anything starts; faults of a run are that run's result."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pandas as pd
import psutil
import pytest
from click.testing import CliRunner, Result
from jupyter_client.manager import KernelManager

from verifylab import cli
from verifylab._cli_text import command_line
from verifylab.gridfile import MAX_RUNS, Grid, GridError, read_grid
from verifylab.isolated import _environment
from verifylab.notebook import UNKNOWN, read_notebook
from verifylab.parameters import fit
from verifylab.processes import TOKEN_VARIABLE, kill_run, processes_of
from verifylab.store import Store, read_record
from verifylab.sweep import plan, run_sweep

NOTEBOOKS = Path(__file__).parent / "fixtures" / "notebooks"
DEFAULTS = {"ratio": 0.5, "count": 3, "label": "a", "flag": True, "widths": [2, 4]}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def write_grid(text: str = "", notebook: str = "ok", path: str = "g.toml") -> Path:
    head = "" if "notebook" in text else f'notebook = "{NOTEBOOKS / notebook}.ipynb"\n'
    Path(path).write_text(head + text)
    return Path(path)


def grid(text: str = "", notebook: str = "ok") -> Grid:
    return read_grid(write_grid(text, notebook))


def given(text: str) -> list[dict]:
    return [row.given for row in grid(text).rows]


# What a grid file means.


def test_without_axes_or_rows_there_is_one_run_of_the_defaults():
    read = grid()
    assert (read.name, read.timeout_s) == ("g", 900.0)
    (row,) = read.rows
    assert (row.name, row.given, row.parameters) == ("default", {}, DEFAULTS)


def test_axes_are_every_combination_the_last_one_fastest():
    text = "[parameters]\nflag = false\n[axes]\nratio = [0.5, 1]\ncount = [1, 2]\n"
    assert given(text) == [
        {"flag": False, "ratio": ratio, "count": count} for ratio in (0.5, 1.0) for count in (1, 2)
    ]
    # A whole number became the float that the notebook's default is.
    assert isinstance(given(text)[2]["ratio"], float)


def test_an_axis_of_a_list_parameter_is_a_list_of_lists():
    assert given("[axes]\nwidths = [[2], [4, 8]]") == [{"widths": [2]}, {"widths": [4, 8]}]


def test_rows_are_runs_as_they_stand():
    assert given('[[rows]]\ncount = 1\n[[rows]]\nlabel = "b"\n') == [{"count": 1}, {"label": "b"}]


def test_names_are_readable_unique_and_do_not_move_when_the_grid_grows():
    few = [row.name for row in grid("[axes]\nratio = [0.5, 0.75]").rows]
    more = [row.name for row in grid("[axes]\nratio = [0.25, 0.5, 0.75]").rows]
    assert more[1:] == few and len(set(more)) == 3
    assert few[0].startswith("ratio-0.5-")
    (row,) = grid('[parameters]\nlabel = "../../etc \\u0000 ;"').rows
    assert "/" not in row.name and row.name.startswith("fixed-")
    (row,) = grid('[[rows]]\nlabel = "../../etc \\u0000 ;"').rows
    assert "/" not in row.name and not row.name.startswith(".")


def test_the_notebook_is_found_beside_the_grid_file_then_above_it_up_to_the_project():
    Path("project/data/sweeps").mkdir(parents=True)
    Path("project/pyproject.toml").write_text("")
    source = (NOTEBOOKS / "ok.ipynb").read_text()
    text = 'notebook = "n.ipynb"'
    path = write_grid(text, path="project/data/sweeps/g.toml")
    Path("n.ipynb").write_text(source)  # above the project: does not count
    with pytest.raises(GridError, match=r"'n\.ipynb' does not exist.* up to the project's root"):
        read_grid(path)
    for folder in ("project", "project/data", "project/data/sweeps"):
        Path(folder, "n.ipynb").write_text(source)
        assert read_grid(path).notebook.path == Path(folder, "n.ipynb").absolute()
    # Without a project around it, only beside it.
    Path("sub").mkdir()
    with pytest.raises(GridError, match="does not exist"):
        read_grid(write_grid(text, path="sub/g.toml"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nam = 'x'", "unknown key 'nam'; did you mean 'name'?"),
        ("repeat = 3", "unknown key 'repeat'; did you mean 'repeats'"),
        ("repeats = 0", "repeats must be a whole number from 1 to 100000, got 0"),
        ("repeats = true", "repeats must be a whole number"),
        ("repeats = 60000\n[axes]\ncount = [1, 2]", "2 runs with repeats = 60000 make 120000 runs"),
        ("order_seed = -1", "order_seed must be a whole number from 0"),
        ("memory_mb = 0", "memory_mb must be above 0 and at most 1e9, got 0"),
        ("memory_mb = 'all'", "memory_mb must be a number of megabytes, got 'all'"),
        ("a = \nb = 1", r"is not TOML: .*\(at line 2, column"),
        ("name = '../x'", "name must be a plain folder name .* got '../x'"),
        ("name = 3", "name must be a plain folder name"),
        ("timeout_s = 0", "timeout_s must be above 0 and at most 1e9, got 0"),
        ("timeout_s = nan", "timeout_s must be above 0"),
        ("timeout_s = true", "timeout_s must be a number of seconds, got True"),
        ("notebook = 3", "notebook must be the path of a notebook, got 3"),
        ("notebook = 'nowhere.ipynb'", "notebook 'nowhere.ipynb' does not exist"),
        ("[parameters]\nratoi = 1", "sets 'ratoi', which the notebook does not have; did you mean"),
        ("[parameters]\nxyz = 1", r"'xyz', .*\(there are: ratio, count, label, flag, widths\)"),
        ("[parameters]\nout = 'x'", "sets 'out', which the sweep sets itself"),
        ("[parameters]\ntimeout_s = 3", "'timeout_s', a key of the file itself: move it above"),
        ("parameters = 3", r"\[parameters\] must be a table of parameters, got 3"),
        ("[parameters]\nratio = 'high'", "ratio must be a number, like the notebook's default 0.5"),
        ("[parameters]\nratio = true", "ratio must be a number, .* got true"),
        ("[parameters]\nratio = nan", "ratio must be finite"),
        ("[parameters]\ncount = 1.0", "count must be a whole number, .* got 1.0"),
        ("[parameters]\ncount = true", "count must be a whole number"),
        ("[parameters]\nflag = 1", "flag must be true or false"),
        ("[parameters]\nlabel = 1", "label must be a string"),
        ("[parameters]\nlabel = 2026-01-01", "label must be a string"),
        ("[parameters]\nwidths = 2", "widths must be a list"),
        ("[parameters]\nwidths = [2, 'x']", "widths must be a list, each item a whole number"),
        ("[axes]\nwidths = [2, 4]", r"\[axes\] widths must be a list, .* got 2"),
        ("[axes]\nratio = []", r"axis 'ratio' must be a list of values, got \[\]"),
        ("[axes]\nratio = 1", "axis 'ratio' must be a list of values, got 1"),
        ("[axes]\nratoi = [1]", "did you mean 'ratio'"),
        ("axes = 3", r"\[axes\] must be a table of lists"),
        ("[axes]\nratio = [1, 1.0]", r"\[axes\] repeats an earlier run"),
        ("[axes]\ncount = [1]\n[[rows]]\ncount = 1", r"give \[axes\] or \[\[rows\]\], not both"),
        ("[parameters]\ncount = 1\n[axes]\ncount = [2]", "'count' is set in .* and again in"),
        ("[[rows]]\ncount = 3\n[[rows]]\nratio = 0.5", "row 2 repeats an earlier run"),
        ("[[rows]]\n[[rows]]\ncont = 1", "row 2 sets 'cont'.* did you mean 'count'"),
        ("rows = []", r"rows must be one or more \[\[rows\]\] tables"),
        ("rows = [1]", "row 1 must be a table of parameters, got 1"),
    ],
)
def test_a_wrong_grid_is_refused_in_one_sentence(text, sentence):
    with pytest.raises(GridError, match=sentence) as refusal:
        grid(text)
    assert str(refusal.value).startswith(("g.toml: ", "grid file g.toml "))


def test_a_grid_that_would_never_end_is_refused_at_once():
    axis = list(range(1000))
    with pytest.raises(GridError, match=f"make 1000000 runs, at most {MAX_RUNS}"):
        grid(f"[axes]\nratio = {axis}\ncount = {axis}")


def test_a_notebook_that_cannot_be_swept_is_refused():
    with pytest.raises(GridError, match="has no code cell tagged 'parameters'"):
        grid(notebook="no_parameters")
    with pytest.raises(GridError, match="has no parameter 'out': a notebook for sweeps needs one"):
        grid(notebook="no_out")
    for content, sentence in [("{", "is not JSON"), ("[]", "is no notebook"), ("3", "no notebook")]:
        Path("n.ipynb").write_text(content)
        with pytest.raises(GridError, match=sentence):
            grid('notebook = "n.ipynb"')


def test_parameters_are_read_not_run():
    cell = nbformat.v4.new_code_cell(
        "a = -1  # one\nb: float = 2.0\nc = len('x')\nd: int\ne = f = None\nimport os\ng, h = 1, 2",
        metadata={"tags": ["parameters"]},
    )
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), "n.ipynb")
    read = read_notebook(Path("n.ipynb")).defaults
    assert read == {"a": -1, "b": 2.0, "c": UNKNOWN, "e": None, "f": None}
    cell.source = "!ls"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), "n.ipynb")
    with pytest.raises(ValueError, match="is not plain Python"):
        read_notebook(Path("n.ipynb"))


@pytest.mark.parametrize(
    ("value", "default", "problem"),
    [
        (3, None, ""),
        ([1, "x"], UNKNOWN, ""),
        ({"a": [1.5]}, None, ""),
        (pd.Timestamp(0), None, "a number"),
        ([], [1], ""),
        ([1, 2.5], [0.5], ""),
        ([True], [1], "a list, each item a whole number"),
        ([[1], [2]], [[3]], ""),
        ([1, "x"], [1, "x"], ""),
        ([1.5], [1, 2.5], ""),
        ((), (1,), "a list"),
        ({"a": 1}, {}, ""),
        (1, {}, "a table"),
        (10**400, 0.5, "a number that fits a float"),
    ],
)
def test_fit(value, default, problem):
    found, _ = fit(value, default)
    assert found.startswith(problem) and bool(found) == bool(problem)


# Running. Every kernel costs seconds, so each of these tests looks at several things.


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["sweep", "g.toml", *arguments])


def test_a_run_is_stored_whole_and_looked_up_the_second_time(monkeypatch):
    # A kernel of that name which is some other interpreter's must not be taken.
    spec = Path("jupyter/kernels/python3")
    spec.mkdir(parents=True)
    broken = {"argv": ["/nowhere/python"], "display_name": "x", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(broken))
    monkeypatch.setenv("JUPYTER_PATH", str(Path("jupyter").absolute()))
    # A folder that papermill would take for a template.
    Path("{x} y").mkdir()
    Path("{x} y/n.ipynb").write_text((NOTEBOOKS / "ok.ipynb").read_text())
    write_grid('notebook = "{x} y/n.ipynb"\nname = "s"\n[parameters]\nratio = 1\n')
    first = invoke("--out", str(Path("my runs").absolute()), "--jobs=2")
    assert first.exit_code == 0, first.output

    (name,) = [p.name for p in Path("my runs/s").iterdir() if p.name != ".lock"]
    folder = Path("my runs/s", name)
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        ["figures", "notebook.ipynb", "params.json", "provenance.json", "result.parquet"]
        + ["status.json", "summary.txt"]
    )
    assert pd.read_parquet(folder / "result.parquet").to_dict("list") == {
        "ratio": [1.0],
        "count": [3],
    }
    assert json.loads((folder / "params.json").read_text())["parameters"] == {
        **DEFAULTS,
        "ratio": 1.0,
    }
    origin = json.loads((folder / "provenance.json").read_text())
    assert origin["command"] == "verifylab sweep g.toml --out 'my runs' --jobs 2"
    assert origin["started"] <= origin["ended"]
    # The executed notebook and the summary speak of the final place, relative.
    text = (folder / "notebook.ipynb").read_text()
    assert f'out = \\"../my runs/s/{name}\\"' in text
    assert str(Path.cwd()) not in text and ".part-" not in text
    assert first.stdout == (
        f"ratio 1.0, count 3, into {name}\n\n{name}: ok\n"
        f"  figure    my runs/s/{name}/figures/plot.svg\n"
        f"  data      my runs/s/{name}/result.parquet\n"
        f"  notebook  my runs/s/{name}/notebook.ipynb\n"
    )

    started = time.monotonic()
    again = invoke("--out", "my runs")  # what was typed is no part of a run's identity
    assert time.monotonic() - started < 2
    assert again.exit_code == 0 and again.stdout == first.stdout
    assert "stored, done" in again.stderr and "--force runs it again" in again.stderr
    (row,) = plan(read_grid("g.toml"), "my runs", force=True)
    assert row.run and row.why == "asked for with --force"


def test_a_command_line_is_stored_without_the_names_of_homes_and_hosts(monkeypatch, tmp_path):
    home = tmp_path / "alice"
    (home / "here").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "here")

    def stored(*typed: str) -> str:
        return command_line(cli.sweep.make_context("sweep", list(typed)))

    assert stored("--force", f"{home}/g.toml", "--out=../x", "--dask", "tcp://alice-pc:8786") == (
        "verifylab sweep '~/g.toml' --out '~/x' --force --dask ADDRESS"
    )
    (home / "here" / "s.json").touch()
    assert stored("g.toml", "--dask", f"{home}/here/s.json", "--json") == (
        "verifylab sweep g.toml --dask s.json --json"
    )


def test_a_fault_is_that_runs_result_and_the_others_go_on():
    write_grid('timeout_s = 60\n[axes]\nlabel = ["raise", "exit", "fine"]\n', notebook="mixed")
    planned = invoke("--dry-run", "--json")
    assert planned.exit_code == 0 and not Path("runs").exists()
    result = invoke("--json")
    assert result.exit_code == 1
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["run"] for row in rows] == [
        json.loads(line)["run"] for line in planned.stdout.splitlines()
    ]
    assert [row["status"] for row in rows] == ["failed", "died", "ok"]
    assert [row["error"] for row in rows] == ["RuntimeError: told to", "Kernel died", None]
    keys = ["run", "status", "seconds", "parameters", "figures", "data", "notebook", "summary"]
    assert all(list(row) == [*keys, "error"] for row in rows)
    assert rows[-1]["summary"].startswith("ratio ") and rows[0]["summary"] is None
    assert rows[2]["parameters"] == {**DEFAULTS, "label": "fine"}
    assert rows[2]["figures"] == [f"runs/g/{rows[2]['run']}/figures/plot.svg"]
    assert Path(rows[2]["data"]).is_file()
    for row in rows:
        assert Path(row["notebook"]).is_file()
        record = read_record(Path("runs/g", row["run"]))
        assert record and record.status == row["status"]
    log = Path("runs/g", rows[0]["run"], "log.txt").read_text()
    assert "Traceback" in log and log.rstrip().endswith("RuntimeError: told to")
    assert not Path("runs/g", rows[2]["run"], "log.txt").exists()

    listed = invoke("--dry-run")
    assert [line.split(": ")[1].split(" (")[0] for line in listed.stdout.splitlines()] == [
        "would run",
        "would run",
        "would not run",
    ]
    assert "(last time died): label = 'exit'" in listed.stdout


def test_what_was_read_is_run_and_an_error_of_several_lines_becomes_one(tmp_path):
    path = tmp_path / "n.ipynb"
    path.write_bytes((NOTEBOOKS / "raises.ipynb").read_bytes())
    read = grid('notebook = "n.ipynb"')
    (outcome,) = run_sweep(read, on_start=lambda row, number: path.write_text("{}"))
    assert (
        json.loads(outcome.notebook.read_text())["metadata"]["papermill"]["input_path"] == path.name
    )
    assert outcome.record.status == "failed"
    assert outcome.record.error == "ValueError: ratio must be right, got 0.5"


def test_nothing_written_is_no_success():
    (outcome,) = run_sweep(grid(notebook="writes_nothing"))
    assert outcome.record.status == "failed"
    assert outcome.record.error.endswith("its folder 'out' has no result.parquet")


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def assert_all_gone(pids: str) -> None:
    assert pids.split() and all(gone(int(pid)) for pid in pids.split())


def test_a_run_that_takes_too_long_is_killed_with_all_that_it_started():
    write_grid("timeout_s = 10\n", notebook="sleeps")
    result = invoke()
    assert result.exit_code == 1
    assert "default: timeout" in result.stdout
    assert "took longer than timeout_s = 10" in result.stdout
    # They led sessions of their own: neither the runner's nor the kernel's group has them.
    assert_all_gone(Path("runs/g/default/started").read_text())


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 130),
        (signal.SIGHUP, 130),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_an_interrupted_sweep_leaves_no_process_and_no_half_result(number, code):
    write_grid("[axes]\ncount = [1, 2]\n", notebook="sleeps")
    with subprocess.Popen(
        [sys.executable, "-m", "verifylab", "sweep", "g.toml"],
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs these tests may ignore SIGHUP, and then so would the sweep.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    ) as sweep:
        try:
            deadline = time.monotonic() + 60
            while not (found := list(Path("runs/g").glob(".part-*/started"))):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            while not (text := found[0].read_text()).endswith("\n"):
                time.sleep(0.01)
            sweep.send_signal(number)
            said = sweep.communicate(timeout=30)[1]
            assert sweep.returncode == code
        finally:
            sweep.kill()
    assert_all_gone(text)
    assert "Traceback" not in said
    folders = [p for p in Path("runs/g").iterdir() if not p.name.startswith(".")]
    if number != signal.SIGKILL:
        (folder,) = folders  # the second run never started
        record = read_record(folder)
        assert record and (record.status, record.error) == (
            "interrupted",
            "interrupted from outside",
        )
        assert ": interrupted after" in said
    else:
        assert folders == []
        with Store("runs", "g"):
            assert [p.name for p in Path("runs/g").iterdir()] == [".lock"]


def test_an_unwritable_folder_is_refused_before_anything_runs():
    write_grid()
    Path("file").write_text("")
    for arguments in (["--out", "file/x"], ["--out", "file"], ["--dry-run", "--out", "file"]):
        result = invoke(*arguments)
        assert result.exit_code == 2 and result.stdout == ""
        assert result.stderr.startswith("error: cannot write into file") and "\n" in result.stderr
        assert result.stderr.count("\n") == 1


def test_a_second_sweep_into_the_same_folder_is_refused():
    write_grid()
    with Store("runs", "g"):
        result = invoke()
    assert result.exit_code == 2
    assert result.stderr == "error: another sweep is writing into runs/g: wait for it to end\n"


def test_what_a_good_run_leaves_behind_ends_with_it(tmp_path):
    body = json.loads((NOTEBOOKS / "sleeps.ipynb").read_text())
    ends_well = json.loads((NOTEBOOKS / "ok.ipynb").read_text())["cells"][-1]
    cell = body["cells"][-1]
    cell["source"] = [line for line in cell["source"] if line != "time.sleep(600)"]
    body["cells"].append({**ends_well, "id": "ends-well"})
    Path("leaves.ipynb").write_text(json.dumps(body))
    (outcome,) = run_sweep(read_grid(write_grid(f'notebook = "{tmp_path / "leaves.ipynb"}"')))
    assert outcome.ok
    assert_all_gone((outcome.folder / "started").read_text())


def test_kill_run_reaches_every_session():
    token = f"test-{os.getpid()}"
    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True)"  # noqa: E501
    child = subprocess.Popen(
        [sys.executable, "-c", code, "import time; time.sleep(600)"],
        env={**os.environ, TOKEN_VARIABLE: token},
    )
    child.wait()
    (orphan,) = processes_of(token)
    kill_run(token)
    assert processes_of(token) == [] and gone(orphan.pid)


def test_a_kernel_that_is_told_to_end_ends(monkeypatch, tmp_path):
    for name, value in _environment(tmp_path, "t").items():
        monkeypatch.setenv(name, value)
    # It says that it is idle again when the application has been closing for a while.
    late = (
        "import time; kernel = get_ipython().kernel; publish = kernel._publish_status\n"
        "def late(status, channel, *more):\n"
        "    if channel == 'control': time.sleep(0.5)\n"
        "    publish(status, channel, *more)\n"
        "kernel._publish_status = late"
    )
    manager = KernelManager()
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        assert client.execute(late, reply=True, timeout=60)["content"]["status"] == "ok"
        manager.request_shutdown()
        deadline = time.monotonic() + 10
        while manager.is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not manager.is_alive()
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
