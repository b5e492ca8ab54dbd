"""A machine profile from a calibration: what `verifylab.calibrate` measured, in the one schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verifylab.machine import COEFFICIENTS, Coefficient, MachineProfile
from verifylab.verify_shape import SHAPES

__all__ = ["to_profile"]


def to_profile(result: Mapping[str, Any], name: str) -> MachineProfile:
    """Turn what `verifylab.calibrate.calibrate` returned into a machine profile.

    Fitted costs are 0 or more (`cost_fit.fit_costs`), so a profile's times are those of the fit.
    One below 0, of an older calibration file, becomes 0 with its interval cut there.

    Parameters
    ----------
    result : mapping
        Of `calibrate`, or read back from its JSON.
    name : str
        What the profile is called.

    Returns
    -------
    MachineProfile
        Of kind ``measured`` from a GPU, ``host`` from the host device.
    """
    machine, plan = result["machine"], result["plan"]
    on_gpu = machine["device"] == "cuda"
    layers = SHAPES[plan["shape"]].layers
    fitted = result["coefficients"]
    coefficients = {
        key: _clipped(fitted[key]) if key in fitted else _borrowed_update(key, fitted)
        for key in COEFFICIENTS
    }
    samples = result["samples"]
    figures = tuple(
        {"figure": f"{len(samples[kind])} samples of {kind}", "role": "measured", "into": into}
        for kind, into in (
            ("graph_operations", "record_, instantiate_, launch_, destroy_, eager_ coefficients"),
            ("steps", "step_base_ms, per_row_ms, per_sequence_ms, per_node_us"),
        )
    )
    return MachineProfile(
        name=name,
        gpu=machine["gpu"] if on_gpu else "none: the host device, NumPy on a CPU",
        date=result["date"][:10],
        kind="measured" if on_gpu else "host",
        gdn_layers=layers,
        other_nodes=layers if plan["weight_bytes"] else 0,
        coefficients=coefficients,
        figures=figures,
        notes=f"shape {plan['shape']}, {plan['weight_bytes']} weight bytes a layer, "
        f"{plan['repeats']} repeats; 95 % intervals of a relative least-squares fit; "
        + ", ".join(f"{k} {v}" for k, v in _flat(machine) if v is not None and k != "gpu"),
    )


def _flat(machine: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return every fact of `StepDevice.describe`, those of ``nvidia-smi`` beside the rest."""
    smi = machine.get("nvidia_smi") or {}
    return [(k, v) for k, v in machine.items() if k != "nvidia_smi"] + list(smi.items())


def _clipped(fitted: Mapping[str, Any]) -> Coefficient:
    low, value, high = (max(0.0, float(fitted[key])) for key in ("low", "value", "high"))
    return Coefficient(value, low, high, f"{fitted['source']}, 95 % interval")


def _borrowed_update(key: str, fitted: Mapping[str, Any]) -> Coefficient:
    """Cost of updating a graph in place, which CuPy cannot measure: a share of instantiating it."""
    from verifylab.fit import UPDATE_SHARE

    whole = _clipped(fitted[key.replace("update", "instantiate")])
    return Coefficient(
        UPDATE_SHARE * whole.value,
        0.0,
        whole.high,
        "borrowed: api_costs.csv exec_update 0.1 ms against a 13.7 ms build, as a share of "
        "instantiate here; high: as dear as that",
    )
