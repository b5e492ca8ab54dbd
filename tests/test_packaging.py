"""The ways in: pip, conda, make, pre-commit, CI. They must name the same things."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement

from verifylab.gridfile import read_grid

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PYPROJECT["optional-dependencies"]


def floors(requirements: list[str]) -> dict[str, str]:
    return {r.name: str(r.specifier) for r in map(Requirement, requirements)}


def test_conda_has_the_names_and_floors_of_pip():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = floors(dependencies)
    assert conda.pop("python") == PYPROJECT["requires-python"]
    assert conda.pop("pip") == ""
    # Conda's one CuPy stands for a build a CUDA version.
    builds = floors(EXTRAS["cuda12"] + EXTRAS["cuda13"])
    assert conda.pop("cupy") == min(builds.values())
    assert conda == floors(PYPROJECT["dependencies"] + EXTRAS["dev"] + EXTRAS["cluster"])


def test_the_extra_that_conda_leaves_out_is_named_with_its_floor():
    (torch,) = EXTRAS["train"]
    assert f'conda install "py{torch}"' in (ROOT / "environment.yml").read_text()


def test_every_package_that_is_imported_is_asked_for():
    asked = set(floors(PYPROJECT["dependencies"])) | {"verifylab", "cupy", "distributed"}
    for path in (ROOT / "verifylab").rglob("*.py"):
        found = re.findall(r"^\s*(?:from|import) ([a-z_A-Z0-9]+)", path.read_text(), re.M)
        foreign = set(found) - set(sys.stdlib_module_names)
        # By ipykernel, papermill and ipywidgets, whose parts they are.
        brought = {"IPython", "jupyter_client", "nbclient", "traitlets"}
        assert foreign <= asked | brought, path.name


def test_no_file_names_a_machine_or_a_registry():
    for name in ("Makefile", "environment.yml", ".pre-commit-config.yaml", ".ci/run"):
        text = (ROOT / name).read_text()
        assert not re.search(r"https?://|/home/|/root/|index-url|find-links", text), name


def test_hooks_are_local_and_their_tools_exist():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in hooks["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks["repos"][0]["hooks"]} == {"system"}
    assert {hook["id"] for hook in hooks["repos"][0]["hooks"]} == {
        "ruff-check",
        "ruff-format",
        "mypy",
        "notebooks-clean",
    }


def test_ci_runs_tests_and_lint():
    text = (ROOT / ".ci/run").read_text()
    assert "set -euo pipefail" in text and "make test" in text and "make lint" in text
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_make_has_its_targets():
    text = (ROOT / "Makefile").read_text()
    for target in ("help", "setup", "sweep", "test", "lab", "lint", "bench", "clean"):
        assert re.search(rf"^{target}:", text, re.M), target


@pytest.mark.parametrize("path", sorted((ROOT / "data" / "sweeps").glob("*.toml")), ids=str)
def test_the_sweeps_that_come_along_are_sound(path):
    grid = read_grid(path)
    assert grid.name == path.stem and grid.rows


# scripts/notebooks_clean.py


def clean(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "notebooks_clean.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_every_notebook_is_stored_clean():
    done = clean("--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_cleaning_takes_out_what_runs_leave_and_nothing_of_the_author(tmp_path):
    v4 = nbformat.v4
    parameters = v4.new_code_cell("a = 1  # é", execution_count=3)
    parameters.metadata = {"tags": ["parameters", "keep_output"], "papermill": {"duration": 1}}
    parameters.outputs = [v4.new_output("stream", text="x")]
    parameters.metadata["execution"] = {"iopub.execute_input": "2026-01-01"}
    injected = v4.new_code_cell("a = 2", metadata={"tags": ["injected-parameters"]})
    words = v4.new_markdown_cell("# Title", metadata={"slideshow": {"slide_type": "slide"}})
    book = v4.new_notebook(cells=[words, parameters, injected])
    book.metadata = {
        "kernelspec": {"name": "mine", "display_name": "Mine", "language": "python", "env": {}},
        "language_info": {"name": "python", "version": "3.11.7"},
        "papermill": {"output_path": "/somewhere"},
        "widgets": {"application/vnd.jupyter.widget-state+json": {"state": {}}},
    }
    path = tmp_path / "n.ipynb"
    nbformat.write(book, path)
    before = path.read_text()

    done = clean("--check", path)
    assert done.returncode == 1 and f"not clean: {path}" in done.stdout
    assert path.read_text() == before

    assert clean(path).returncode == 0
    stored = json.loads(path.read_text())
    assert set(stored["metadata"]) == {"kernelspec", "language_info"}
    assert stored["metadata"]["kernelspec"]["name"] == "python3"
    title, kept = stored["cells"]
    assert title["metadata"] == {"slideshow": {"slide_type": "slide"}}
    assert kept["metadata"] == {"tags": ["parameters"]}
    assert (kept["outputs"], kept["execution_count"]) == ([], None)
    assert kept["source"] == ["a = 1  # é"] and "é" in path.read_text()
    assert clean("--check", path).returncode == 0


def test_what_is_no_notebook_gives_one_sentence(tmp_path):
    path = tmp_path / "n.ipynb"
    path.write_text("{")
    done = clean(path)
    assert done.returncode == 2 and done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr and path.read_text() == "{"


@pytest.mark.parametrize(("target", "extras"), [("test", ""), ("setup", ""), ("test", "cuda13")])
def test_the_set_up_commands_are_whole(target, extras, tmp_path):
    """A comma inside a make call splits its argument: what the shell gets must still be quoted."""
    shown = subprocess.run(
        ["make", "-n", "-f", str(ROOT / "Makefile"), target, f"VENV={tmp_path / 'v'}",
         f"EXTRAS={extras}"],
        capture_output=True, text=True, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    installs = re.findall(r"-e ('[^'\n]*')", shown.stdout)
    wanted = {
        ("test", ""): ["'.'", "'.[dev,cluster]'"],
        ("setup", ""): ["'.'"],
        ("test", "cuda13"): ["'.[cuda13]'", "'.[dev,cluster,cuda13]'"],
    }[target, extras]
    assert installs == wanted
