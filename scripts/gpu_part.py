"""One part of gpu_check.sh: doctor or calibrate, printed for people, written for machines."""

import argparse
import sys
from pathlib import Path

from verifylab.calibrate import Plan, calibrate, write_calibration
from verifylab.device.base import DeviceError
from verifylab.device.cuda import CudaDevice
from verifylab.device.diagnose import diagnose
from verifylab.device.host import HostDevice
from verifylab.measured_profile import to_profile


def doctor() -> int:
    for check in diagnose():
        print(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.detail}")
    return 0 if check.ok else 1


def run_calibrate(arguments: argparse.Namespace) -> int:
    quick = {"node_counts": (10, 100, 1000), "widths": (1, 2, 4), "rows": (2, 3), "repeats": 2}
    plan = Plan(
        shape=arguments.shape,
        copy_bytes=(2**30 if arguments.device == "cuda" else 64 * 2**20),
        weight_bytes=arguments.weight_bytes,
        **(quick if arguments.quick else {}),
    )
    cuda = arguments.device == "cuda"
    device = CudaDevice(measure_memory=True) if cuda else HostDevice()
    result = calibrate(device, plan, print)
    path = write_calibration(result, arguments.out)
    print(f"{'coefficient':28s} {'value':>12s}  95 % interval")
    for name, c in result["coefficients"].items():
        print(f"{name:28s} {c['value']:12.6g}  {c['low']:.6g} to {c['high']:.6g}")
    bandwidth = result["bandwidth"]
    print(f"copy {bandwidth['copy_gb_s']:.0f} GB/s ({device.name})")
    for row in bandwidth["steps"]:
        print(
            f"  n={row['width']} rows={row['rows']}: {row['gb_s']:.0f} GB/s, "
            f"{100 * row['of_copy']:.0f} % of copy"
        )
    profile = path.with_suffix(".profile.json")
    profile.write_text(to_profile(result, path.stem).to_json(), encoding="utf-8")
    print(f"written to {path} and {profile}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["doctor", "calibrate"])
    parser.add_argument("--device", choices=["cuda", "host"], default="cuda")
    parser.add_argument("--shape", default="small")
    parser.add_argument("--out", type=Path, default=Path("calibration.json"))
    parser.add_argument("--weight-bytes", type=int, default=0, help="dense stand-in, a layer")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    try:
        return doctor() if arguments.part == "doctor" else run_calibrate(arguments)
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
