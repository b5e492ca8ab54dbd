"""Every notebook: stored clean, short, one parameter cell, and runs through papermill."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tokenize
from pathlib import Path

import nbformat
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

#: A small parameter set for each notebook; every notebook must have one here.
SMALL: dict[str, dict[str, object]] = {
    "00_start_here": {"slots": [0, 1, 2, 3], "graph_capacity": 8},
    "design_review": {"sweeps": [str(ROOT / "tests" / "fixtures" / "stored")]},
    "explorer": {"widths": [2, 8], "seeds": 2, "steps": 50, "play_steps": 20},
    "01_key_space": {"widths": [2, 4, 8], "dcut_ratio": 0.5},
    "02_width_gate": {
        "widths": [2, 8, 16],
        "min_widths": [0, 8, 33],
        "seeds": 2,
        "steps": 50,
        "warmup_steps": 10,
        "device": "model",
    },
    "03_why_it_costs": {
        "widths": [2, 4, 8],
        "ratios": [0.75],
        "focus": [2, 8],
        "seeds": 2,
        "steps": 60,
        "graph_ms": [5.0],
    },
    "04_graph_costs": {
        "device": "host",
        "node_counts": [5, 20, 80],
        "widths": [1, 2, 3],
        "rows": [2, 3],
        "repeats": 1,
    },
    "05_cache_policies": {
        "widths": [4, 6],
        "max_capacity": 64,
        "seeds": 2,
        "steps": 300,
        "warmup_steps": 50,
        "churn_hours": 0.02,
    },
    "06_traces": {
        "files": ["tests/data/modelled_steps.parquet", "tests/data/atlas_engine.log"],
        "min_widths": [0, 8, 33],
    },
}


def name(path: Path) -> str:
    return path.stem


def parameters(path: Path) -> str:
    notebook = nbformat.read(path, as_version=4)
    tagged = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    assert len(tagged) == 1, "one cell is tagged parameters"
    return str(tagged[0].source)


def test_every_notebook_has_a_small_parameter_set():
    assert set(SMALL) == {p.stem for p in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_stored_clean_and_short(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) < 20
    assert notebook.metadata.kernelspec.name == "python3"
    assert "papermill" not in notebook.metadata
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells:
        assert "papermill" not in cell.metadata
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_parameters_are_json_one_a_line_each_with_a_comment(path):
    source = parameters(path)
    body = ast.parse(source).body
    lines = []
    for statement in body:
        assert isinstance(statement, ast.Assign)
        json.dumps(ast.literal_eval(statement.value))
        assert statement.lineno == statement.end_lineno, "one line each"
        lines.append(statement.lineno)
    assert len(set(lines)) == len(lines)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    commented = {t.start[0] for t in tokens if t.type == tokenize.COMMENT}
    assert set(lines) <= commented
    known = [t.targets[0].id for t in body]  # type: ignore[attr-defined]
    assert "out" in known, "a sweep needs to say where results go"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_runs_through_papermill(path, tmp_path):
    out = tmp_path / "results"
    given = {**SMALL[path.stem], "out": str(out)}
    script = (
        "import json, sys, papermill; "
        "papermill.execute_notebook(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), "
        "kernel_name='python3', progress_bar=False)"
    )
    env = {
        **os.environ,
        "JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    target = tmp_path / "done.ipynb"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(target), json.dumps(given)],
        capture_output=True, text=True, env=env, cwd=tmp_path, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    executed = nbformat.read(target, as_version=4)
    printed = [
        o for c in executed.cells if c.cell_type == "code" for o in c.outputs
        if o.output_type == "stream" and o.name == "stderr"
    ]  # fmt: skip
    assert printed == [], "nothing warns"
    assert len(pd.read_parquet(out / "result.parquet"))
    assert (out / "summary.txt").read_text(encoding="utf-8").strip()
    assert list((out / "figures").glob("*.svg"))
    assert list((out / "figures").glob("*.png"))
    assert list((out / "figures").glob("*.csv"))
