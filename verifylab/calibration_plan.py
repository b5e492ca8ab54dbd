"""What a calibration measures, and on which device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from verifylab.checks import whole, whole_list
from verifylab.dcut import MAX_VERIFY_WIDTH
from verifylab.device import choose
from verifylab.device.base import StepDevice
from verifylab.machine import MAX_NODES
from verifylab.verify_shape import MAX_ROWS, SHAPES

__all__ = ["MAX_BYTES", "Plan", "open_for", "plan_for"]

#: No device has more; what one lacks it says itself.
MAX_BYTES = 2**40


@dataclass(frozen=True, slots=True)
class Plan:
    """What `calibrate` measures.

    Attributes
    ----------
    shape : str
        One of `verifylab.verify_shape.SHAPES`.
    node_counts : tuple of int
        Nodes of the graphs whose operations are timed; three or more different ones.
    widths, rows : tuple of int
        Sequences, and rows of each, of the steps that are timed (all pairs); two or more of each.
    repeats : int
        Repeats of each setting; its median is fitted.
    replays : int
        Replays in a row that one timing spans; their mean counts.
    copy_bytes : int
        Size of the buffer that is copied, several times the last-level cache.
    weight_bytes : int
        Bytes that the dense stand-in streams a layer (see `VerifyStep`).
    seed : int
        Of the inputs and of the order of settings.
    """

    shape: str = "small"
    node_counts: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10_000)
    widths: tuple[int, ...] = (1, 2, 4, 8)
    rows: tuple[int, ...] = (2, 3, 4, 5)
    repeats: int = 5
    replays: int = 5
    copy_bytes: int = 512 * 2**20
    weight_bytes: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.shape, str) or self.shape not in SHAPES:
            raise ValueError(f"shape must be one of {', '.join(SHAPES)}, got {self.shape!r}")
        # A fit tells base and slope apart, and leaves a degree of freedom for the interval.
        for name, fewest, high in (
            ("node_counts", 3, MAX_NODES), ("widths", 2, MAX_VERIFY_WIDTH), ("rows", 2, MAX_ROWS)
        ):  # fmt: skip
            values = whole_list(name, getattr(self, name), 1, high)
            if len(values) < fewest:
                raise ValueError(
                    f"{name} must list {fewest} or more different counts to fit costs over, "
                    f"got {values}"
                )
            object.__setattr__(self, name, tuple(values))
        for name, low, top in (
            ("repeats", 1, 10_000), ("replays", 1, 10_000), ("copy_bytes", 4, MAX_BYTES),
            ("weight_bytes", 0, MAX_BYTES), ("seed", 0, 2**63 - 1),
        ):  # fmt: skip
            object.__setattr__(self, name, whole(name, getattr(self, name), low, top))
        if self.copy_bytes % 4:
            raise ValueError(f"copy_bytes must be a multiple of 4, got {self.copy_bytes}")


#: A host takes 10,000 nodes and a half-gigabyte copy for granted no more than a test does.
_HOST: dict[str, Any] = {
    "shape": "tiny",
    "node_counts": (10, 30, 100, 300, 1000),
    "copy_bytes": 64 * 2**20,
}
#: A rehearsal: every measurement, few settings.
_QUICK: dict[str, Any] = {
    "node_counts": (10, 100, 1000),
    "widths": (1, 2, 4),
    "rows": (2, 3),
    "repeats": 2,
}


def plan_for(
    device: str,
    *,
    quick: bool = False,
    shape: str | None = None,
    weight_bytes: int = 0,
    **changes: int | Sequence[int],
) -> Plan:
    """Return the plan that fits a device.

    Parameters
    ----------
    device : {"host", "cuda"}
    quick : bool
        Few settings and repeats: a rehearsal.
    shape : str, optional
        Default: ``small`` on a GPU, ``tiny`` on the host.
    weight_bytes : int
        Bytes of dense weights a step, not a layer (see `VerifyShape.weights_per_layer`).
    **changes
        Further fields of `Plan`. An empty list stands for the device's default.

    Raises
    ------
    ValueError
        As `Plan`.
    """
    plan = Plan(copy_bytes=2**30) if device == "cuda" else Plan(**_HOST)
    if quick:
        plan = replace(plan, **_QUICK)
    # Checked as given: rounded up to a layer's, -1 would be nothing.
    whole("weight_bytes", weight_bytes, 0, MAX_BYTES)
    given: dict[str, Any] = {
        name: value
        for name, value in changes.items()
        if not (isinstance(value, (list, tuple)) and not value)
    }
    if shape is not None and shape != "":
        given["shape"] = shape
    plan = replace(plan, **given)
    return replace(plan, weight_bytes=SHAPES[plan.shape].weights_per_layer(weight_bytes))


def open_for(device: str = "auto") -> tuple[StepDevice, str]:
    """Open the device that a calibration runs on.

    Parameters
    ----------
    device : {"auto", "host", "cuda"}
        ``auto`` takes the GPU where one answers, else the host.

    Returns
    -------
    device : StepDevice
        A GPU reads its free memory around each instantiate, for the bytes that graphs hold.
    why : str
        Why that one, in one sentence.

    Raises
    ------
    ValueError
        When the name is another.
    DeviceError
        When ``cuda`` is asked for and does not work.
    """
    if device not in ("auto", "host", "cuda"):
        raise ValueError(f"device must be auto, host or cuda, got {device!r}")
    choice = choose(device)
    if choice.name == "cuda":
        from verifylab.device.cuda import CudaDevice

        return CudaDevice(measure_memory=True), choice.why
    from verifylab.device.host import HostDevice

    why = choice.why if device == "host" else f"{choice.why}; the host, NumPy on a CPU, instead"
    return HostDevice(), why
