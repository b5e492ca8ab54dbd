"""Sweeps that nobody watches: under cron, started twice, and on a terminal after all."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from verifylab.records import read_record
from verifylab.store import Store

ROOT = Path(__file__).resolve().parent.parent
DOCS = (ROOT / "docs" / "scheduling.md").read_text()
NOTEBOOKS = ROOT / "tests" / "fixtures" / "notebooks"
#: What cron sets, and nothing else.
CRON = {"HOME": "/nowhere", "LOGNAME": "someone", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}


def test_the_line_for_cron_runs_in_cron_s_environment(tmp_path):
    (line,) = re.findall(r"```cron\n(.*)\n```", DOCS)
    command = line.split(maxsplit=5)[5]
    checkout = tmp_path / "check out"
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / "data" / "sweeps").mkdir(parents=True)
    program = checkout / ".venv" / "bin" / "verifylab"
    # Stands for the installed command of this checkout.
    start = f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m verifylab "$@"'
    program.write_text(f"#!/bin/sh\n{start}\n")
    program.chmod(0o755)
    grid = checkout / "data" / "sweeps" / "width_gate.toml"
    grid.write_text(f'notebook = "{NOTEBOOKS / "ok.ipynb"}"\n')
    assert "/srv/verifylab" in command
    command = command.replace("cd /srv/verifylab", f'cd "{checkout}"')
    shell = ["/bin/sh", "-c", command]
    log = checkout / "sweep.log"

    with Store(checkout / "runs", "width_gate"):  # one that is still at it
        done = subprocess.run(shell, env=CRON, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
        assert log.read_text().endswith("is writing into runs/width_gate: wait for it to end\n")
    log.unlink()

    done = subprocess.run(shell, env=CRON, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (said,) = log.read_text().splitlines()
    assert re.fullmatch(r"\[1/1\] default: ok after [\d.]+ s", said)
    record = read_record(checkout / "runs" / "width_gate" / "default")
    assert record and record.status == "ok"
    # The next night there is nothing to do.
    done = subprocess.run(shell, env=CRON, capture_output=True, text=True)
    assert done.returncode == 0 and "stored, done" in log.read_text().splitlines()[1]


def test_on_a_terminal_there_is_a_bar_with_the_time_left(tmp_path):
    (tmp_path / "g.toml").write_text(
        f'notebook = "{NOTEBOOKS / "raises.ipynb"}"\n[axes]\ncount = [1, 2]\n'
    )
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "verifylab", "sweep", "g.toml", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stderr=follower,
        stdout=subprocess.DEVNULL,
    )
    os.close(follower)
    said, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            part = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    os.close(leader)
    assert process.wait(10) == 1
    text = said.decode()
    assert "running, 900 s at most" in text and "[2/2] count-2" in text
    assert re.search(r"50%.*1/2 \[\d+:\d+<\d+:\d+", text)  # time taken, time left
