"""JupyterLab and Voila on loopback, and a headless Chromium that looks at them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
#: Messages of JupyterLab, Voila and Chromium themselves, which we cannot mend.
FOREIGN = ("favicon", "/lsp", "/static/lab", "jupyterlab", "service worker", "ERR_", "voila")


def missing() -> str:
    """Say what a browser test lacks; empty when nothing."""
    if shutil.which("chromium") is None:
        return "no chromium on PATH (apt-get install chromium)"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "no playwright (pip install playwright)"
    return ""


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def serving(kind: str, folder: Path) -> Iterator[str]:
    """Serve the notebooks in `folder`: yields the address of ``explorer.ipynb``.

    Parameters
    ----------
    kind : {"lab", "voila"}
    folder : Path
    """
    port, token = _free_port(), secrets.token_hex(16)
    home = folder / "home"
    settings = home / "config/lab/user-settings/@jupyterlab"
    for name, body in (
        # JupyterLab would ask over the page whether it may fetch its news.
        ("apputils-extension/notification", '{"fetchNews": "false"}'),
        # Cells out of sight would be taken out of the page.
        ("notebook-extension/tracker", '{"windowingMode": "none"}'),
    ):
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)
    env = {
        **os.environ,
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
        "MPLCONFIGDIR": str(home / "mpl"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    common = ["--no-browser", f"--port={port}", "--ip=127.0.0.1"]
    if kind == "lab":
        command = [
            "jupyterlab", *common, "--allow-root", f"--IdentityProvider.token={token}",
            "--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}",
            "--LabApp.news_url=None", "--LabApp.expose_app_in_browser=True",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]  # fmt: skip
        ping = f"http://127.0.0.1:{port}/api?token={token}"
        page = f"http://127.0.0.1:{port}/lab/tree/explorer.ipynb?token={token}"
    else:
        command = [
            "voila", "explorer.ipynb", f"--port={port}", "--no-browser", "--Voila.ip=127.0.0.1",
            "--show_tracebacks=True",
        ]  # fmt: skip
        ping = page = f"http://127.0.0.1:{port}/"
    log = (folder / f"{kind}.log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=folder, env=env, stdout=log, stderr=log
    )
    try:
        _wait(ping if kind == "lab" else f"http://127.0.0.1:{port}/voila/static/", server)
        yield page
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


def _wait(address: str, server: subprocess.Popen[bytes], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode}")
        try:
            urllib.request.urlopen(address, timeout=2).close()
            return
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            time.sleep(0.2)
    raise TimeoutError("the server did not answer")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Yield a headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chrome = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=FLAGS, headless=True
        )
        try:
            yield chrome
        finally:
            chrome.close()
