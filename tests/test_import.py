"""Importing: quick, without heavy packages, and only downwards."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "verifylab"
HEAVY = ("numba", "llvmlite", "pandas", "scipy", "matplotlib", "cupy", "papermill", "IPython")

#: Floor by module, the ground first. A module may import from its own floor and those below.
#: Whatever is not named here is above all of these: a user's surface.
FLOORS = [
    "_jit checks paths run_files gate ordering _fast_rule key dcut keyspace slots launches "
    "published published_schema verify_shape gdn_reference",
    "workload draws _fast_philox _fast_drafts draft_trace trace_workload "
    "machine graph_price counters policy graph_cache device device.base device.model fit "
    "fastpath step_ops device.host device.arm device.cuda device.cuda_errors device.cuda_graph "
    "device.cuda_info",
    "experiment step_buffers verify_step",
    "stats recommend measured width_gate validation",
]
FLOOR = {name: level for level, names in enumerate(FLOORS) for name in names.split()}
TOP = len(FLOORS)


def module_name(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(path):
    """Modules of this package that a file imports anywhere: lazily and for types included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            base = node.module
            names = [f"{base}.{alias.name}" for alias in node.names] if base else []
        else:
            continue
        for name in names:
            if name.split(".")[0] != "verifylab":
                continue
            parts = name.split(".")[1:]
            while parts and ".".join(parts) not in MODULES:
                parts = parts[:-1]
            yield ".".join(parts)


def run(code, *options):
    return subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=120
    )


def test_every_module_on_a_floor_exists():
    assert set(FLOOR) <= set(MODULES)


@pytest.mark.parametrize("name", sorted(FLOOR))
def test_nothing_imports_upwards(name):
    for other in imported(MODULES[name]):
        if other:  # the package itself is only its version
            assert FLOOR.get(other, TOP) <= FLOOR[name], f"{name} imports {other}"


def test_no_two_modules_import_each_other():
    """A cycle would make the order of imports matter; imports for types alone do not count."""
    edges = {name: set(_at_run_time(path)) - {name} for name, path in MODULES.items()}
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        path.append(name)
        for other in sorted(edges[name]):
            visit(other)
        path.pop()
        done.add(name)

    for name in MODULES:
        visit(name)


def _at_run_time(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typed = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in tree.body:
        if node in typed or not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{alias.name}" for alias in node.names]
        )
        for name in names:
            parts = name.split(".")
            if parts[0] != "verifylab":
                continue
            parts = parts[1:]
            while parts and ".".join(parts) not in MODULES:
                parts = parts[:-1]
            if parts:
                yield ".".join(parts)


def test_importing_the_package_is_quick_and_light():
    done = run("import verifylab", "-X", "importtime")
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"import time:\s+(\d+) \|\s+(\d+) \|\s*(\S+)", done.stderr)
    names = {name for _, _, name in lines}
    cumulative = {name: int(us) for _, us, name in lines}
    assert cumulative["verifylab"] < 100_000  # microseconds
    roots = {name.split(".")[0] for name in names}
    assert not roots & {*HEAVY, "numpy"}


@pytest.mark.parametrize(
    "module", ["gate", "ordering", "key", "dcut", "keyspace", "slots", "launches", "experiment"]
)
def test_the_lower_floors_need_numpy_alone(module):
    code = (
        f"import sys, verifylab.{module}; "
        f"print(sorted(set(name.split('.')[0] for name in sys.modules) & set({HEAVY!r})))"
    )
    done = run(code)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.parametrize("name", sorted(n for n in FLOOR if n))
def test_all_names_what_is_there(name):
    """``__all__`` lists nothing that is missing."""
    import importlib

    module = importlib.import_module(f"verifylab.{name}")
    for public in getattr(module, "__all__", ()):
        assert hasattr(module, public), f"{name}.{public}"
