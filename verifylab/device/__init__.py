"""Devices: where a verify step runs. See `verifylab.device.base` for the contract."""

from verifylab.device.base import OPERATIONS, Body, Device, DeviceError, Graph, Timings

__all__ = ["OPERATIONS", "Body", "Device", "DeviceError", "Graph", "Timings"]
