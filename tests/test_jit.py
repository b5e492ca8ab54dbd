"""Compiled code runs whatever has become of its cache."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import int64
from numba.core.dispatcher import Dispatcher

import verifylab
from verifylab import _jit


def triple(x):
    return 3 * x


def test_a_folder_that_cannot_be_written_only_costs_the_cache(monkeypatch):
    monkeypatch.setattr(_jit._Cache._impl_class, "_locator_classes", [])
    assert _jit.jit(triple)(5) == 15
    assert _jit.jit(signature=int64(int64))(triple)(5) == 15


MODULE = """
from verifylab._jit import jit

@jit
def triple(x):
    return 3 * x
"""


def run_triple(folder):
    done = subprocess.run(
        [sys.executable, "-c", "import mod; print(mod.triple(5)); print(mod.triple.stats)"],
        env={
            **os.environ,
            "NUMBA_CACHE_DIR": str(folder / "cache"),
            "PYTHONPATH": os.pathsep.join([str(folder), str(Path(verifylab.__file__).parents[1])]),
        },
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    result, stats = done.stdout.split("\n", 1)
    return result, stats


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("kept", [0, 40])
def test_a_damaged_cache_is_compiled_over(tmp_path, kind, kept):
    (tmp_path / "mod.py").write_text(MODULE)
    assert run_triple(tmp_path)[0] == "15"
    (file,) = (tmp_path / "cache").rglob(f"*.{kind}")
    whole = file.read_bytes()
    file.write_bytes(whole[:kept])
    result, stats = run_triple(tmp_path)
    assert result == "15" and "cache_misses=Counter({(int64,): 1})" in stats
    result, stats = run_triple(tmp_path)  # repaired
    assert result == "15" and "cache_hits=Counter({(int64,): 1})" in stats


def test_every_compiled_function_takes_that_way():
    from verifylab import _fast_caches, _fast_churn, _fast_curves, _fast_rule, _fast_trace, fastpath

    for module in (fastpath, _fast_caches, _fast_churn, _fast_curves, _fast_rule, _fast_trace):
        compiled = [v for v in vars(module).values() if isinstance(v, Dispatcher)]
        assert compiled
        assert all(isinstance(f._cache, _jit._Cache) for f in compiled), module
