"""GPUs as ``nvidia-smi`` sees them: which there are, and in what state a run found and left one.

Nothing here is needed where there is no GPU: every function then returns nothing.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

__all__ = ["gpu_state", "gpu_uuids", "visible_gpu"]

#: What is asked of a GPU, and what we call it. What does not change during a run, then what does.
_FIXED = {"name": "name", "uuid": "uuid", "driver_version": "driver", "memory.total": "memory_mib"}
_MOMENT = {
    "clocks.sm": "sm_mhz",
    "clocks.mem": "memory_mhz",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "utilization.gpu": "utilization_pct",
}
_VARIABLE = "CUDA_VISIBLE_DEVICES"


def gpu_uuids(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the UUIDs of the GPUs that this process may use, in the driver's order."""
    known = [row[:2] for row in _ask("--query-gpu=index,uuid")]
    allowed = environ.get(_VARIABLE)
    if allowed is None:
        return [uuid for _, uuid in known]
    wanted = [part.strip() for part in allowed.split(",") if part.strip()]
    return [
        uuid
        for part in wanted
        for index, uuid in known
        if part == index or (part.startswith("GPU-") and uuid.startswith(part))
    ]


def visible_gpu(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the UUID of the GPU that CUDA would take first, None where there is none."""
    return next(iter(gpu_uuids(environ)), None)


def gpu_state(uuid: str) -> dict[str, Any] | None:
    """Describe a GPU now.

    Returns
    -------
    dict or None
        ``name, uuid, driver, memory_mib``, and under ``now`` its clocks in MHz, temperature in
        degrees Celsius, power in watts and utilization in percent (None where it does not say),
        and the ``others``: name and memory of the processes that compute on it. None when it does
        not answer.
    """
    rows = _ask(f"--query-gpu={','.join((*_FIXED, *_MOMENT))}", uuid)
    if not rows or len(rows[0]) != len(_FIXED) + len(_MOMENT):
        return None
    values = [_value(text) for text in rows[0]]
    others = [
        # The name alone: its path may hold a user's.
        {"process": PurePath(row[0]).name, "memory_mib": _value(row[1])}
        for row in _ask("--query-compute-apps=process_name,used_memory", uuid)
        if len(row) == 2
    ]
    now = dict(zip(_MOMENT.values(), values[len(_FIXED) :], strict=True))
    fixed = dict(zip(_FIXED.values(), values, strict=False))
    fixed["driver"] = str(rows[0][2])  # a version, though 580.95 looks like a number
    return {**fixed, "now": {**now, "others": others}}


def _ask(query: str, uuid: str | None = None) -> list[list[str]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    chosen = [] if uuid is None else ["-i", uuid]
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader,nounits", *chosen],
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    if done.returncode:
        return []
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return [[cell.strip() for cell in row] for row in csv.reader(lines, skipinitialspace=True)]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None if text.startswith("[") or text == "N/A" else text
