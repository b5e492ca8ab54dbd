"""nvcc compiles kernels.cu for every GPU it is meant for: no warning, no spill."""

import re
import shutil
import subprocess

import pytest
from kernel_build import KERNELS

from verifylab.verify_shape import SHAPES

NVCC = shutil.which("nvcc")
#: A100, H100 and H200, B200, GB10 (the published numbers' machine).
ARCHITECTURES = ("80", "90", "100", "121")
REPORT = re.compile(
    r"Function properties for (\w+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


@pytest.mark.skipif(NVCC is None, reason="needs nvcc to compile kernels.cu; none on PATH")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", SHAPES)
def test_nvcc_compiles_without_warnings_or_spills(name, architecture, tmp_path):
    code = f"arch=compute_{architecture},code=sm_{architecture}"
    command = [NVCC, "-std=c++17", "-Werror", "all-warnings", "-Xptxas", "-v", "--cubin"]
    command += ["-gencode", code, *SHAPES[name].defines, str(KERNELS)]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "kernels.cubin")],
        capture_output=True,
        text=True,
        check=False,
    )
    if "Unsupported gpu architecture" in done.stderr:
        pytest.skip(f"this nvcc does not know sm_{architecture}")
    assert done.returncode == 0, done.stderr
    report = {m[1]: tuple(map(int, m.groups()[1:])) for m in REPORT.finditer(done.stderr)}
    assert set(report) == {"vl_conv", "vl_wy", "vl_stream", "vl_tick"}
    for kernel, (stack, stores, loads, registers) in sorted(report.items()):
        print(
            f"{name} sm_{architecture} {kernel}: {registers} registers, {stack} B stack, "
            f"{stores} B spilled, {loads} B reloaded"
        )
        assert (stack, stores, loads) == (0, 0, 0), f"{kernel} spills: {done.stderr}"
