"""What this installation can do: packages, device, machine profiles, folders."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

from packaging.requirements import Requirement

import verifylab
from verifylab import device
from verifylab.paths import check_writable, shown
from verifylab.published import DataError, data_dir, table
from verifylab.published_schema import COLUMNS

__all__ = ["Finding", "examine"]

#: Packages reported, in this order. CuPy goes by another name in each of its builds.
PACKAGES = (
    "numpy",
    "numba",
    "scipy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "papermill",
    "ipykernel",
    "jupyterlab",
    "cupy",
    "distributed",
)
_CUPY_BUILDS = ("cupy", "cupy-cuda12x", "cupy-cuda13x")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination.

    Attributes
    ----------
    kind : str
        ``package``, ``device``, ``gpu``, ``profile``, ``workload``, ``table`` or ``folder``.
    name : str
    state : str
        A version, a device's name, or what is the matter.
    ok : bool
        False only when something that is needed is broken.
    note : str
        Why, or what to do.
    """

    kind: str
    name: str
    state: str
    ok: bool
    note: str = ""


def examine(out: str | Path = "runs", gpu: bool = False) -> list[Finding]:
    """Look at everything that a sweep needs or could use.

    Parameters
    ----------
    out : path
        Folder that a sweep would write into.
    gpu : bool
        Whether a GPU is needed, that is, broken where it does not work. It is anyway where one
        answers, since a sweep would use it then.
    """
    choice = device.choose("auto")
    return [
        Finding("package", "python", platform.python_version(), True, shown(sys.prefix)),
        Finding("package", "verifylab", verifylab.__version__, True),
        *map(_package, PACKAGES),
        Finding("device", "auto", choice.name, True, choice.why),
        *_gpu(gpu or choice.name == "cuda"),
        *_profiles(),
        *_workloads(),
        *_tables(),
        _folder("data", lambda: shown(data_dir())),
        _folder("runs", lambda: _writable(Path(out))),
    ]


def _package(name: str) -> Finding:
    wanted = _requirement(name)
    optional = wanted is None or wanted.marker is not None
    version = next(filter(None, map(_version, _CUPY_BUILDS if name == "cupy" else (name,))), None)
    if version is None:
        if not optional:
            return Finding("package", name, "not installed", False, "needed: install verifylab")
        return Finding("package", name, "not installed", True, _brought_by(name))
    if wanted is not None and not wanted.specifier.contains(version, prereleases=True):
        return Finding("package", name, version, optional, f"too old: needs {wanted.specifier}")
    try:
        import_module(name)
    except Exception as error:  # a broken package raises what it likes on import
        note = f"does not import: {type(error).__name__}: {error}"
        return Finding("package", name, version, optional, note)
    return Finding("package", name, version, True)


def _requirements() -> list[Requirement]:
    try:
        return [Requirement(text) for text in metadata.requires("verifylab") or ()]
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return []


def _requirement(name: str) -> Requirement | None:
    return next((r for r in _requirements() if r.name == name), None)


def _brought_by(name: str) -> str:
    extras = [
        extra
        for extra in metadata.metadata("verifylab").get_all("Provides-Extra") or ()
        for r in _requirements()
        if (r.name == name or (name == "cupy" and r.name in _CUPY_BUILDS))
        and r.marker is not None
        and r.marker.evaluate({"extra": extra})
    ]
    return f"brought by the extra {' or '.join(extras)}" if extras else "not needed"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _gpu(needed: bool) -> list[Finding]:
    """Check the GPU in the order in which its parts need each other, up to the first that fails."""
    try:
        from verifylab.device.diagnose import diagnose
    except ImportError:
        return []  # said under the packages
    return [
        Finding(
            "gpu", check.name, "works" if check.ok else "does not work", check.ok or not needed,
            check.detail,
        )
        for check in diagnose()
    ]  # fmt: skip


def _profiles() -> list[Finding]:
    try:
        names = sorted(path.stem for path in (data_dir() / "machines").glob("*.json"))
    except DataError:
        return []  # said under the folder
    if not names:
        return [Finding("profile", "-", "none found", False, "data/machines is empty")]
    return [_profile(name) for name in names]


def _profile(name: str) -> Finding:
    try:
        from verifylab.machine import load_profile  # needs NumPy, which may be what is missing

        profile = load_profile(name)
    except (DataError, ImportError) as error:
        return Finding("profile", name, "broken", False, str(error))
    return Finding("profile", name, "loads", True, f"{profile.gpu}, {profile.kind}, {profile.date}")


def _workloads() -> list[Finding]:
    try:
        names = sorted({"published"} | {p.stem for p in (data_dir() / "workloads").glob("*.json")})
    except DataError:
        return []  # said under the folder
    return [_workload(name) for name in names]


def _workload(name: str) -> Finding:
    try:
        from verifylab.workload import calibrated, spread_nodes, spread_residuals

        load = calibrated(name)
        spread_nodes(name)
        spread_residuals(name)
    except (DataError, ImportError) as error:
        return Finding("workload", name, "broken", False, str(error))
    accepted = ", ".join(f"{p:.3f}" for p in load.acceptance)
    note = f"acceptance {accepted}; spread {load.confidence_spread:.3f}"
    return Finding("workload", name, "loads", True, note)


def _tables() -> list[Finding]:
    """Load every published table; those that load are one finding."""
    broken = []
    try:
        data_dir()
    except DataError:
        return []  # said under the folder
    for name in COLUMNS:
        try:
            table(name)
        except (DataError, ImportError) as error:
            broken.append(Finding("table", name, "broken", False, str(error)))
    if broken:
        return broken
    note = f"all {len(COLUMNS)} have the columns and rows that are read"
    return [Finding("table", "published", "load", True, note)]


def _folder(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding("folder", name, "ok", True, look())
    except ValueError as error:
        return Finding("folder", name, "broken", False, str(error))


def _writable(folder: Path) -> str:
    check_writable(folder)
    return f"{shown(folder)} can be written"
