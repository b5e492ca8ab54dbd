"""Devices: where a verify step runs. See `verifylab.device.base` for the contract."""

from verifylab.device.base import (
    GRAPH_BYTES_PER_NODE,
    OPERATIONS,
    Body,
    Device,
    DeviceError,
    Graph,
    StepDevice,
    Timings,
)

__all__ = [
    "GRAPH_BYTES_PER_NODE",
    "OPERATIONS",
    "Body",
    "Device",
    "DeviceError",
    "Graph",
    "StepDevice",
    "Timings",
]
