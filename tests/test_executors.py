"""Executors: how many at a time, whose GPU, and what a full disk or Ctrl-C leaves."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from distributed.client import FutureCancelledError

from verifylab import dask_executor, executors, tasks
from verifylab.dask_executor import DaskExecutor
from verifylab.executors import LocalExecutor
from verifylab.gpu_state import gpu_state, gpu_uuids, visible_gpu
from verifylab.gridfile import read_grid
from verifylab.isolated import Ending
from verifylab.records import read_record
from verifylab.store import Store
from verifylab.sweep import plan, run_sweep
from verifylab.tasks import Finished, needs_gpu

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "tests" / "fixtures" / "notebooks"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def grid(text: str = "", notebook: Path = NOTEBOOKS / "ok.ipynb"):
    Path("g.toml").write_text(f'notebook = "{notebook}"\n{text}')
    return read_grid("g.toml")


def device_notebook() -> Path:
    body = json.loads((NOTEBOOKS / "ok.ipynb").read_text())
    body["cells"][1]["source"] = 'device = "auto"\ncount = 1\nout = ""'
    Path("device.ipynb").write_text(json.dumps(body))
    return Path("device.ipynb").absolute()


class Fake:
    """Stands for `perform`: no kernel, but a result, a duration, and a note of who ran when."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.now, self.most, self.gpus = seconds, set(), 0, {}
        self.lock = threading.Lock()

    def __call__(self, task, folder, gpu=None, stop=None):
        with self.lock:
            assert not gpu or gpu not in {g for _, g in self.now}, "two runs share a card"
            self.now.add((task.name, gpu))
            self.most = max(self.most, len(self.now))
        ending, deadline = Ending("ok"), time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            time.sleep(0.005)
            if stop.is_set():
                ending = Ending("interrupted", "interrupted from outside")
                break
        (folder / "result.parquet").write_bytes(b"PAR1 PAR1")
        with self.lock:
            self.now.discard((task.name, gpu))
            self.gpus[task.name] = gpu
        return Finished(ending, "2026-01-01", "2026-01-02", 1.0, {})


@pytest.fixture
def fake(monkeypatch):
    found = Fake(0.05)
    monkeypatch.setattr(executors, "perform", found)
    return found


def test_jobs_run_at_a_time_and_every_run_is_stored(fake):
    read = grid("[axes]\ncount = [1, 2, 3, 4, 5, 6, 7]\n")
    started = []
    done = list(
        run_sweep(read, executor=LocalExecutor(3), on_start=lambda row, n: started.append(n))
    )
    assert fake.most == 3 and started == [1, 2, 3, 4, 5, 6, 7]
    assert all(outcome.ok and not outcome.stored for outcome in done)
    assert {o.row.name for o in done} == {row.name for row in read.rows}
    assert all(read_record(outcome.folder) == outcome.record for outcome in done)
    assert [o.stored for o in run_sweep(read, executor=LocalExecutor(2))] == [True] * 7
    with pytest.raises(ValueError, match="--jobs must be from 1 to 1024, got 0"):
        LocalExecutor(0)


def test_a_gpu_is_one_slot_and_nobody_else_waits_for_it(fake):
    text = '[axes]\ndevice = ["cuda", "model"]\ncount = [1, 2, 3, 4]\n'
    read = grid(text, device_notebook())
    done = list(run_sweep(read, executor=LocalExecutor(4, ["GPU-a", "GPU-b"])))
    assert len(done) == 8 and fake.most == 4
    on_gpu = {o.row.name: fake.gpus[o.row.name] for o in done}
    for outcome in done:
        wanted = {"GPU-a", "GPU-b"} if outcome.row.parameters["device"] == "cuda" else {None}
        assert on_gpu[outcome.row.name] in wanted
    assert set(on_gpu.values()) == {"GPU-a", "GPU-b", None}
    assert needs_gpu({"device": "auto"}, "cuda") and not needs_gpu({"device": "auto"}, "model")
    assert not needs_gpu({})


def test_ctrl_c_records_the_runs_at_hand_and_starts_no_other(monkeypatch):
    monkeypatch.setattr(executors, "perform", Fake(30.0))

    def starting(row, number):
        if number == 2:
            raise KeyboardInterrupt

    read = grid("[axes]\ncount = [1, 2, 3]\n")
    begun = time.monotonic()
    done = list(run_sweep(read, executor=LocalExecutor(2), on_start=starting))
    assert [o.record.status for o in done] == ["interrupted"] and time.monotonic() - begun < 10
    assert [p.run for p in plan(read)] == [True] * 3


def test_a_full_disk_is_the_runs_result_and_the_sweep_goes_on(fake, monkeypatch):
    full = {"begin": 0, "commit": 0}

    def sometimes(name, what):
        def wrapped(self, *arguments, **more):
            full[name] += 1
            if full[name] == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x")
            return what(self, *arguments, **more)

        return wrapped

    read = grid("[axes]\ncount = [1, 2, 3, 4]\n")
    monkeypatch.setattr(Store, "commit", sometimes("commit", Store.commit))
    done = list(run_sweep(read))
    assert [o.record.status for o in done] == ["ok", "failed", "ok", "ok"]
    assert done[1].record.error == "could not be stored: No space left on device"
    assert read_record(done[1].folder) == done[1].record  # the records alone still fitted
    assert not done[1].data

    monkeypatch.setattr(Store, "begin", sometimes("begin", Store.begin))
    full["begin"] = 0
    done = list(run_sweep(read, force=True))
    assert [o.record.status for o in done] == ["ok", "failed", "ok", "ok"]
    assert done[1].record.error == "OSError: No space left on device"

    def never(self, *arguments, **more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Store, "commit", never)
    done = list(run_sweep(read, force=True))
    assert [o.record.status for o in done] == ["failed"] * 4
    assert not list(Path("runs/g").glob(".part-*"))


def test_a_bug_in_a_run_does_not_leave_the_sweep_waiting(monkeypatch):
    def broken(*_):
        raise RuntimeError("ours")

    monkeypatch.setattr(executors, "perform", broken)
    (outcome,) = run_sweep(grid())
    assert outcome.record.status == "failed"
    assert outcome.record.error == "verifylab's own RuntimeError: ours"


def test_a_run_is_not_stored_as_the_result_of_what_it_was_not(fake, monkeypatch):
    Path("n.ipynb").write_bytes((NOTEBOOKS / "ok.ipynb").read_bytes())
    Path("a").write_text("1")
    text = '[axes]\ncount = [1, 2]\n[parameters]\nlabel = "a"\n'
    read = grid(text, Path("n.ipynb").absolute())
    before, given = Path("n.ipynb").read_bytes(), []

    def perform(task, *more):
        given.append(task.source)
        return fake(task, *more)

    def starting(row, number):
        Path("n.ipynb").write_text("{}")
        Path("a").write_text(str(min(number, 2)))

    monkeypatch.setattr(executors, "perform", perform)
    done = list(run_sweep(read, on_start=starting))
    assert given == [before] * 2
    assert [o.record.status for o in done] == ["ok", "failed"]
    assert done[1].record.error == "a file that its parameters name changed while it ran"
    Path("a").write_text("1")
    monkeypatch.setattr("verifylab.sweep.library_now", lambda: "another")
    done = list(run_sweep(read, force=True))
    assert [o.record.status for o in done] == ["failed"] * 2
    assert "the library changed while it ran" in done[0].record.error
    # The good result of before is kept.
    assert done[0].folder.name.endswith(".failed")


# Repeats.


def test_repeats_are_blocks_in_seeded_random_order(fake):
    text = "repeats = 4\n{}[axes]\ncount = [1, 2, 3, 4, 5, 6]\n"
    read = grid(text.format(""))
    assert len({row.name for row in read.rows}) == 24
    blocks = [read.rows[at : at + 6] for at in range(0, 24, 6)]
    for repeat, block in enumerate(blocks):
        assert {row.repeat for row in block} == {repeat}
        assert {row.parameters["count"] for row in block} == {1, 2, 3, 4, 5, 6}
    orders = [[row.parameters["count"] for row in block] for block in blocks]
    assert len(set(map(tuple, orders))) > 1
    assert grid(text.format("")).rows == read.rows
    assert grid(text.format("order_seed = 1\n")).rows != read.rows
    # The first repeat is the run that there was without repeats, so it is not run again.
    once = grid("[axes]\ncount = [1, 2, 3, 4, 5, 6]\n")
    assert all(o.ok for o in run_sweep(once))
    assert [p.run for p in plan(grid(text.format("")))] == [False] * 6 + [True] * 18
    done = list(run_sweep(grid(text.format(""))))
    assert json.loads((done[-1].folder / "params.json").read_text())["repeat"] == 3


def test_a_notebook_is_given_what_lets_its_repeats_differ():
    body = json.loads((NOTEBOOKS / "ok.ipynb").read_text())
    body["cells"][1]["source"] = 'first_seed = 10\nseeds = 5\nout = ""'
    Path("seeds.ipynb").write_text(json.dumps(body))
    rows = grid("repeats = 3", Path("seeds.ipynb").absolute()).rows
    assert [row.parameters["first_seed"] for row in rows] == [10, 15, 20]
    body["cells"][1]["source"] = 'repeat = 0\nout = ""'
    Path("repeat.ipynb").write_text(json.dumps(body))
    read = grid("repeats = 2", Path("repeat.ipynb").absolute())
    assert [row.given for row in read.rows] == [{"repeat": 0}, {"repeat": 1}]
    with pytest.raises(ValueError, match="repeats sets the parameter 'repeat': leave it out"):
        grid("repeats = 2\n[parameters]\nrepeat = 3", Path("repeat.ipynb").absolute())


# GPUs, without one: a program that answers as nvidia-smi does.

SMI = """#!/bin/sh
case "$*" in
  *query-gpu=index,uuid*) echo "0, GPU-aaa"; echo "1, GPU-bbb";;
  *query-gpu=name*) echo "NVIDIA X, GPU-bbb, 580.90, 1000, 1500, 2600, 41, [N/A], 7";;
  *query-compute-apps*) echo "/home/someone/bin/python3, 300";;
esac
"""


def test_gpus_are_what_nvidia_smi_says(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert (gpu_uuids({}), gpu_state("GPU-bbb"), visible_gpu({})) == ([], None, None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text(SMI)
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    assert gpu_uuids({}) == ["GPU-aaa", "GPU-bbb"]
    assert gpu_uuids({"CUDA_VISIBLE_DEVICES": "1"}) == ["GPU-bbb"]
    assert gpu_uuids({"CUDA_VISIBLE_DEVICES": "GPU-b,0"}) == ["GPU-bbb", "GPU-aaa"]
    assert gpu_uuids({"CUDA_VISIBLE_DEVICES": ""}) == []
    state = gpu_state("GPU-bbb")
    assert (state["name"], state["driver"]) == ("NVIDIA X", "580.90")
    assert state["now"]["sm_mhz"] == 1500 and state["now"]["power_w"] is None
    assert state["now"]["others"] == [{"process": "python3", "memory_mib": 300}]

    seen = {}

    def execute(notebook, parameters, folder, limits, *, source, variables, stop):
        seen.update(variables)
        (folder / "result.parquet").write_bytes(b"PAR1 PAR1")
        return Ending("ok")

    monkeypatch.setattr(tasks, "execute", execute)
    read = grid('[parameters]\ndevice = "cuda"\n', device_notebook())
    (outcome,) = run_sweep(read, executor=LocalExecutor(1, ["GPU-bbb"]))
    assert seen == {"CUDA_VISIBLE_DEVICES": "GPU-bbb"}
    gpu = json.loads((outcome.folder / "provenance.json").read_text())["gpu"]
    assert gpu["uuid"] == "GPU-bbb" and gpu["before"]["temperature_c"] == 41
    assert gpu["after"]["others"] and "someone" not in json.dumps(gpu)


# A real cluster of two workers on loopback. Everything of it ends with the test.


def dask(*arguments: str) -> list[str]:
    return [sys.executable, "-m", f"distributed.cli.dask_{arguments[0]}", *arguments[1:]]


@pytest.fixture
def cluster(tmp_path):
    file = str(tmp_path / "scheduler.json")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env}
    common = ("--scheduler-file", file, "--host", "127.0.0.1", "--no-dashboard")
    with ExitStack() as ends:

        def start(*command: str) -> subprocess.Popen:
            process = ends.enter_context(subprocess.Popen(dask(*command), **quiet))
            ends.callback(process.kill)
            return process

        start("scheduler", "--port", "0", *common)
        wait_for(Path(file).is_file)
        worker = ("worker", "--no-nanny", "--nthreads", "1", *common)
        yield file, [start(*worker), start(*worker)]


def sweep(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "verifylab", "sweep", "g.toml", "--quiet", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )


def kernels_of(worker: subprocess.Popen) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(worker.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it may have ended since it was listed
            if "ipykernel_launcher" in " ".join(process.cmdline()):
                found.append(process)
    return found


def ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for(condition, seconds: float = 60.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_run_whose_worker_is_killed_is_done_by_the_other_one(cluster):
    scheduler, workers = cluster
    body = json.loads((NOTEBOOKS / "ok.ipynb").read_text())
    body["cells"].insert(2, {**body["cells"][-1], "source": "import time; time.sleep(1.5)"})
    Path("n.ipynb").write_text(json.dumps(body))
    read = grid("[axes]\ncount = [1, 2, 3]\n", Path("n.ipynb").absolute())
    running = sweep("--dask", scheduler)
    try:
        kernel = wait_for(lambda: kernels_of(workers[0]))[0]
        workers[0].kill()
        said = running.communicate(timeout=90)[1]
    finally:
        running.kill()
    assert running.returncode == 0, said
    wait_for(lambda: ended(kernel), 10)
    records = [read_record(Path("runs/g", row.name)) for row in read.rows]
    assert [record.status for record in records] == ["ok"] * 3
    assert sorted(record.attempts for record in records) == [1, 1, 2]
    (again,) = [record for record in records if record.attempts == 2]
    assert again.notes == ("run again elsewhere after 1 lost worker",)
    # The folder came back whole, and speaks of its final place.
    folder = Path("runs/g", again.run)
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        ["figures", "notebook.ipynb", "params.json", "provenance.json", "result.parquet"]
        + ["status.json", "summary.txt"]
    )
    assert f'out = \\"runs/g/{again.run}\\"' in (folder / "notebook.ipynb").read_text()

    # Whoever needs a GPU is told how to offer one, and a sweep that ends takes its runs along.
    grid('[parameters]\ndevice = "cuda"\n', device_notebook())
    running = sweep("--dask", scheduler)
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 2 and "offers the resource GPU: start one with" in said
    grid("", NOTEBOOKS / "sleeps.ipynb")
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        running = sweep("--dask", scheduler, "--out", "other")
        kernel = wait_for(lambda: kernels_of(workers[1]))[0]
        running.send_signal(number)
        running.communicate(timeout=30)
        assert running.returncode == code
        wait_for(lambda: ended(kernel), 20)  # noqa: B023
    (record,) = [read_record(p) for p in Path("other/g").iterdir() if p.name != ".lock"]
    assert (record.status, record.error) == ("interrupted", "interrupted from outside")


class FakeFuture:
    """A future of a cluster: waiting until it is cancelled."""

    def __init__(self):
        self.reason, self.told = None, []

    def add_done_callback(self, call):
        self.told.append(call)

    def cancel(self, force=False, reason="unknown"):
        if self.reason is None:
            self.reason = reason
            for call in self.told:
                call(self)

    def cancelled(self):
        return self.reason is not None

    def result(self, timeout=None):
        raise FutureCancelledError("key", self.reason)

    def release(self):
        pass


class FakeClient:
    """A cluster of one worker that never ends a run; its scheduler's clock is an hour behind."""

    def __init__(self):
        self.status, self.futures, self.looks = "running", [], 0

    def submit(self, *_, **__):
        self.futures.append(FakeFuture())
        return self.futures[-1]

    def get_events(self, topic):
        self.looks += 1
        self.happens()
        return [(time.time() - 3600, self.first)]

    def happens(self):
        pass

    def scheduler_info(self, n_workers):
        return {"workers": {}}

    def cancel(self, futures, force=False):
        assert self.status == "running"


def on_a_fake_cluster(happens, text=""):
    client = FakeClient()
    client.happens = lambda: happens(client)
    read = grid(f"{text}[axes]\ncount = [1, 2]\n")
    client.first = read.rows[0].name
    executor = DaskExecutor.__new__(DaskExecutor)
    executor._client = client
    done = list(run_sweep(read, executor=executor))
    return client, [(o.record.status, o.record.error) for o in done]


def test_a_lost_scheduler_interrupts_the_run_at_hand():
    def lost(client):
        if client.looks == 2:
            client.status = "connecting"
            for future in client.futures:
                future.cancel(reason="scheduler-connection-lost")

    ended = [("interrupted", "the scheduler was lost")]
    assert on_a_fake_cluster(lost)[1] == ended
    assert len(list(Path("runs/g").glob("count*"))) == 1  # the other one never started

    def found_again(client):
        lost(client)
        client.status = "running"

    assert on_a_fake_cluster(found_again)[1] == ended

    def unreachable(client):
        raise OSError("Timed out trying to connect")

    assert on_a_fake_cluster(unreachable)[1] == ended


def test_what_the_cluster_cancels_is_no_timeout_and_its_clock_is_not_ours(monkeypatch):
    def restarted(client):
        if client.looks == 3:
            for future in client.futures:
                future.cancel(reason="scheduler-restart")

    client, ended = on_a_fake_cluster(restarted, "timeout_s = 60\n")
    assert ended == [("interrupted", "the cluster cancelled it")] * 2

    # A run that its worker never ends is given up, and only that one.
    monkeypatch.setattr(dask_executor, "_GRACE_S", 0.0)

    def restarted_later(client):
        if client.futures[0].reason:
            client.futures[1].cancel(reason="scheduler-restart")

    client, ended = on_a_fake_cluster(restarted_later, "timeout_s = 1.2\n")
    assert client.looks >= 3
    assert ended == [
        ("timeout", "took longer than timeout_s = 1.2, and its worker did not end it"),
        ("interrupted", "the cluster cancelled it"),
    ]


def test_no_scheduler_is_one_sentence():
    grid()
    running = sweep("--dask", "tcp://127.0.0.1:9")
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 2 and said.splitlines()[-1].startswith(
        "error: --dask: no scheduler answers at 'tcp://127.0.0.1:9'"
    )
