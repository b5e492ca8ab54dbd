"""One sweep of twenty runs with every fault there is: nothing is lost, nothing is run twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from verifylab import store

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "tests" / "fixtures" / "notebooks" / "faults.ipynb"
RUNS = 20
#: Which run fails how, and what its row must say then.
FAULTS = {
    3: ("raise", "failed", "RuntimeError: told to"),
    6: ("exit", "died", "Kernel died"),
    9: ("killed", "died", "Kernel died"),
    12: ("memory", "died", "killed for its memory: "),
    13: ("sleep", "timeout", "took longer than timeout_s = 12"),
    15: ("disk", "failed", "OSError: [Errno 28] No space left on device"),
    18: ("nothing", "failed", "has no result.parquet"),
    19: ("torn", "failed", "has a torn result.parquet"),
}


def start(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "verifylab", "sweep", "g.toml", "--jobs", "2", "--json", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def rows(process: subprocess.Popen, at_most: int = RUNS) -> list[dict]:
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        found.append(json.loads(line))
        if len(found) == at_most:
            break
    return found


def ended(process: subprocess.Popen) -> int:
    process.communicate(timeout=30)  # closes the pipe too
    return process.returncode


def started() -> list[tuple[int, int]]:
    """Number and kernel's process of every run that started, in order."""
    path = Path("started")
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(number), int(pid)) for number, pid in map(str.split, lines)]


def nothing_survives() -> bool:
    def alive(pid: int) -> bool:
        try:
            process = psutil.Process(pid)
            of_ours = "ipykernel_launcher" in " ".join(process.cmdline())
            return of_ours and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    deadline = time.monotonic() + 15
    while any(alive(pid) for _, pid in started()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def statuses() -> dict[int, str]:
    command = [sys.executable, "-m", "verifylab", "runs", "g", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    text = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    listed = map(json.loads, text.splitlines())
    return {row["parameters"].get("number", row["run"]): row["status"] for row in listed}


def test_twenty_runs_and_every_fault(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    grid = [f'notebook = "{NOTEBOOK}"', "timeout_s = 12", "memory_mb = 900"]
    grid += ["[parameters]", f'trace = "{tmp_path}"']
    for number in range(RUNS):
        fault = FAULTS.get(number, ("none",))[0]
        grid += ["[[rows]]", f"number = {number}", f'fault = "{fault}"']
    Path("g.toml").write_text("\n".join(grid))

    # The sweep itself is killed: no process of its runs lives on, what was done is done.
    first = start()
    done = {row["parameters"]["number"]: row["status"] for row in rows(first, 3)}
    first.kill()
    ended(first)
    assert nothing_survives()
    assert {n: status for n, status in statuses().items() if n in done} == done

    # It is told to end: the runs at hand are rows of their own.
    second = start()
    seen = rows(second, 6)
    second.send_signal(signal.SIGTERM)
    seen += rows(second)
    assert ended(second) == 130 and nothing_survives()
    stopped = [row for row in seen if row["status"] == "interrupted"]
    assert 1 <= len(stopped) <= 2
    assert {row["error"] for row in stopped} == {"interrupted from outside"}
    interrupted = {row["parameters"]["number"] for row in stopped}
    assert {n for n, status in statuses().items() if status == "interrupted"} == interrupted

    # To the end: each fault is its run's row, every other result is stored and right.
    before = len(started())
    third = start()
    found = {row["parameters"]["number"]: row for row in rows(third)}
    assert ended(third) == 1 and nothing_survives() and len(found) == RUNS
    for number, row in found.items():
        _, status, error = FAULTS.get(number, ("", "ok", None))
        assert row["status"] == status, row
        assert row["error"] is None if error is None else error in row["error"], row
    good = {row["parameters"]["number"] for row in seen if row["status"] == "ok"}
    again = {number for number, _ in started()[before:]}
    assert not again & good and interrupted <= again
    assert not list(Path("runs/g").glob(".part-*"))

    # Results are torn, edited, and of another library.
    def folder(number: int) -> Path:
        return Path("runs/g", found[number]["run"])

    result = folder(0) / "result.parquet"
    result.write_bytes(result.read_bytes()[:-7])
    result = folder(2) / "result.parquet"
    content = bytearray(result.read_bytes())
    content[len(content) // 2] ^= 1
    result.write_bytes(content)
    (folder(4) / "status.json").write_text('{"run": ')
    record = json.loads((folder(5) / "status.json").read_text())
    record.update(identity="0" * 64, library="0" * 64)
    (folder(5) / "status.json").write_text(json.dumps(record))
    harmed = {0: "corrupt", 2: "corrupt", 4: "corrupt", 5: "stale"}
    frame = store.load("runs").set_index("param_number")
    expected = {n: FAULTS[n][1] if n in FAULTS else harmed.get(n, "ok") for n in range(RUNS)}
    assert frame.status.to_dict() == expected
    whole = frame[frame.status.isin(("ok", "stale"))]
    assert (whole.double == 2 * whole.index).all() and len(whole) == RUNS - len(FAULTS) - 3
    assert statuses() == expected | {2: "ok"}  # a listing reads no result, so sees its size alone

    # What made them fail is mended: only what is missing runs again.
    before = len(started())
    Path("healed").touch()
    last = start()
    final = rows(last)
    assert ended(last) == 0 and {row["status"] for row in final} == {"ok"}
    again = sorted(number for number, _ in started()[before:])
    assert again == sorted([*FAULTS, *harmed])
    frame = store.load("runs").set_index("param_number")
    assert (frame.status == "ok").all() and len(frame) == RUNS
    assert (frame.double == 2 * frame.index).all()
