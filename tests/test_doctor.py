"""What the doctor finds, and when it calls it broken."""

import json
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from verifylab import cli, doctor
from verifylab.device import Choice

ROOT = Path(__file__).parent.parent


def by_name(out: str = "runs") -> dict[str, doctor.Finding]:
    return {f"{f.kind} {f.name}": f for f in doctor.examine(out)}


@pytest.fixture(autouse=True)
def imports_nothing(monkeypatch):
    # Importing papermill, jupyterlab and the rest takes seconds and may warn.
    monkeypatch.setattr(doctor, "import_module", lambda name: None)


@pytest.fixture
def versions(monkeypatch):
    """Pretend versions; None stands for not installed."""
    pretended: dict[str, str | None] = {}
    real = doctor._version
    monkeypatch.setattr(
        doctor, "_version", lambda name: pretended[name] if name in pretended else real(name)
    )
    return pretended


def test_this_installation_is_well(tmp_path):
    found = by_name(str(tmp_path / "runs"))
    assert [f for f in found.values() if not f.ok] == []
    assert found["package numpy"].state == metadata.version("numpy")
    assert found["device auto"].state in ("model", "cuda") and found["device auto"].note
    assert found["profile gb10-published"].state == "loads"
    assert not (tmp_path / "runs").exists()


def test_what_is_optional_names_its_extra(versions):
    versions |= dict.fromkeys(["cupy", "cupy-cuda12x", "cupy-cuda13x", "distributed"])
    found = by_name()
    assert found["package cupy"].note == "brought by the extra cuda12 or cuda13"
    assert found["package distributed"].note == "brought by the extra cluster"
    assert found["package cupy"].ok
    versions["cupy-cuda13x"] = "13.6.0"
    assert by_name()["package cupy"].state == "13.6.0"


def test_what_is_needed_and_missing_or_old_is_broken(versions):
    versions |= {"scipy": None, "pandas": "1.5.3", "distributed": "2020.1"}
    found = by_name()
    assert not found["package scipy"].ok and found["package scipy"].state == "not installed"
    assert not found["package pandas"].ok
    assert found["package pandas"].note == "too old: needs >=2.2"
    assert found["package distributed"].ok  # optional, but said
    assert found["package distributed"].note == "too old: needs >=2024.8"


def test_a_package_that_does_not_import_is_broken(monkeypatch):
    def broken(name):
        raise OSError("libcuda missing")

    monkeypatch.setattr(doctor, "import_module", broken)
    finding = by_name()["package numba"]
    assert not finding.ok and finding.note == "does not import: OSError: libcuda missing"


def test_a_damaged_profile_is_broken_and_named(monkeypatch, tmp_path):
    for part in ("machines", "published"):
        shutil.copytree(ROOT / "data" / part, tmp_path / part)
    (tmp_path / "machines" / "torn.json").write_text('{"schema": ')
    monkeypatch.setenv("VERIFYLAB_DATA", str(tmp_path))
    found = by_name()
    assert found["profile gb10-published"].ok
    assert not found["profile torn"].ok and "torn.json" in found["profile torn"].note
    shutil.rmtree(tmp_path / "machines")
    assert by_name()["profile -"].state == "none found"


def test_missing_data_and_an_unwritable_folder_are_broken(monkeypatch, tmp_path):
    monkeypatch.setenv("VERIFYLAB_DATA", str(tmp_path))
    (tmp_path / "file").write_text("")
    found = by_name(str(tmp_path / "file" / "runs"))
    assert not found["folder data"].ok and "VERIFYLAB_DATA" in found["folder data"].note
    assert not found["folder runs"].ok and "cannot write into" in found["folder runs"].note


@pytest.fixture
def checks(monkeypatch):
    """Pretend what the checks of the GPU find."""
    from verifylab.device import diagnose

    pretended: list[diagnose.Check] = []
    monkeypatch.setattr(diagnose, "diagnose", lambda: iter(pretended))
    return lambda *found: pretended.extend(diagnose.Check(*check) for check in found)


def test_a_gpu_that_does_not_work_is_broken_only_where_it_is_needed(monkeypatch, checks):
    checks(("driver", True, "CUDA 13.0, 1 GPU"), ("cupy", False, "pip install it"))
    monkeypatch.setattr(doctor.device, "choose", lambda _: Choice("model", "no GPU"))
    gpu = [f for f in doctor.examine() if f.kind == "gpu"]
    assert [(f.name, f.state) for f in gpu] == [("driver", "works"), ("cupy", "does not work")]
    assert gpu[1].ok and gpu[1].note == "pip install it"
    assert not next(f for f in doctor.examine(gpu=True) if f.name == "cupy" and f.kind == "gpu").ok
    monkeypatch.setattr(doctor.device, "choose", lambda _: Choice("cuda", "a GPU answers: X"))
    assert not next(f for f in doctor.examine() if f.name == "cupy" and f.kind == "gpu").ok


def test_the_command_can_ask_for_a_gpu(monkeypatch, tmp_path, checks):
    checks(("driver", False, "there is no NVIDIA driver: install it"))
    arguments = ["doctor", "--out", str(tmp_path)]
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 0 and "there is no NVIDIA driver: install it" in result.stdout
    assert CliRunner().invoke(cli.main, [*arguments, "--gpu"]).exit_code == 1


def test_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.device, "choose", lambda _: Choice("model", "no GPU: none found"))
    result = CliRunner().invoke(cli.main, ["doctor", "--out", str(tmp_path)])
    assert result.exit_code == 0
    assert "no GPU: none found" in result.stdout
    result = CliRunner().invoke(cli.main, ["doctor", "--json", "--out", "/proc/x"])
    assert result.exit_code == 1
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert set(rows[0]) == {"kind", "name", "state", "ok", "note"}
    assert [row["name"] for row in rows if not row["ok"]] == ["runs"]


def test_a_doctor_needs_none_of_what_it_looks_for():
    missing = [name for name in doctor.PACKAGES if name != "cupy"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing}))\n"
        "from verifylab.cli import main; main(['doctor', '--json'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    found = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert not found["numpy"]["ok"] and not found["gb10-published"]["ok"]


@pytest.mark.parametrize(
    ("file", "old", "new", "name", "note"),
    [
        ("workloads/published.json", '"residuals"', '"rest"', "workload published", "'residuals'"),
        ("workloads/published.json", '"fitted": 2.5335', '"fitted": null', "workload published",
         "residuals[0].fitted must be a number, got None"),
        ("published/acceptance.csv", "p1", "p9", "table acceptance", "lacks the column 'p1'"),
    ],
)  # fmt: skip
def test_damaged_data_is_broken(tmp_path, monkeypatch, file, old, new, name, note):
    shutil.copytree(ROOT / "data", tmp_path / "data")
    path = tmp_path / "data" / file
    assert old in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    monkeypatch.setenv("VERIFYLAB_DATA", str(tmp_path / "data"))
    found = by_name()[name]
    assert not found.ok and note in found.note
    done = CliRunner().invoke(cli.main, ["doctor"])
    assert done.exit_code == 1 and note in done.output
