#!/usr/bin/env bash
# Everything that needs a GPU, into one folder: doctor, gpu tests, calibrations, their figures, and
# measured width sweeps.
#   scripts/gpu_check.sh [--device cuda|host] [--out FOLDER] [--quick]
# The time limits add up to under 8 minutes on one H200-class GPU. `--device host` rehearses it
# without a GPU, at tiny sizes (`--quick`: without the tests, few settings). Each part has its own
# time limit and log; a part that fails is reported at the end and does not stop the others.
set -u
cd "$(dirname "$0")/.." || exit 2
device=cuda out=gpu_check quick=
while [ $# -gt 0 ]; do
  case "$1" in
    --device)
      device=${2-}
      [ "$device" = cuda ] || [ "$device" = host ] || {
        echo "--device must be cuda or host, got $device" >&2
        exit 2
      }
      shift 2 ;;
    --out)
      out=${2-}
      [ -n "$out" ] || { echo "--out must name a folder" >&2; exit 2; }
      shift 2 ;;
    --quick) quick=--quick; shift ;;
    *) echo "unknown argument: $1 (want --device cuda|host, --out FOLDER, --quick)" >&2; exit 2 ;;
  esac
done
python=${PYTHON:-.venv/bin/python}
[ -x "$(command -v "$python")" ] || {
  echo "no $python: run make setup first (EXTRAS=cuda12 or cuda13 for a GPU), or set PYTHON" >&2
  exit 2
}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
failed=()
# Every test marked gpu is in these.
gpu_tests=(tests/gpu tests/test_graph_cache.py tests/test_measured_arms.py tests/test_measured.py)

part() {  # part NAME SECONDS COMMAND...
  local name=$1 seconds=$2 start=$SECONDS
  shift 2
  echo "== $name"
  if timeout "$seconds" "$@" >"$out/$name.log" 2>&1; then
    echo "   done in $((SECONDS - start)) s"
  else
    echo "   FAILED after $((SECONDS - start)) s, see $out/$name.log:"
    tail -n 15 "$out/$name.log" | sed 's/^/   | /'
    failed+=("$name")
  fi
}

# On a host, gdn27b takes gigabytes and small takes minutes.
if [ "$device" = cuda ]; then shapes=(small gdn27b) gpu=--gpu; else shapes=(tiny) gpu=; fi
listed() { printf ', "%s"' "$@" | cut -c3-; }  # listed A B: "A", "B"

part doctor 40 "$python" -m verifylab doctor $gpu --out "$out/runs"
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: doctor; put right what it names, then run this again (the rest was not tried)"
  exit 1
fi
if [ "$device" = cuda ]; then
  part tests 110 env VERIFYLAB_GPU=required "$python" -m pytest -q -m gpu -p no:cacheprovider "${gpu_tests[@]}"
elif [ -z "$quick" ]; then
  # The same tests, with the kernels compiled by g++ and a stand-in for CuPy.
  part tests 240 env VERIFYLAB_GPU=rehearse "$python" -m pytest -q -m gpu -p no:cacheprovider "${gpu_tests[@]}"
fi

samples=()
for shape in "${shapes[@]}"; do
  part "calibrate_$shape" 60 "$python" -m verifylab calibrate --device "$device" --shape "$shape" \
    --out "$out/$device-$shape.json" --samples "$out/calibration-$shape.json" --force $quick
  [ -e "$out/calibration-$shape.json" ] && samples+=("$out/calibration-$shape.json")
done

# Figures of the calibrations, and the width-gate study on the device itself: both as sweeps.
if [ ${#samples[@]} -gt 0 ]; then
  cat >"$out/costs.toml" <<TOML
name = "graph_costs"
notebook = "$PWD/notebooks/04_graph_costs.ipynb"
timeout_s = 40
[axes]
calibration = [$(listed "${samples[@]}")]
TOML
  part costs 40 "$python" -m verifylab sweep "$out/costs.toml" --out "$out/runs" --force
fi
widths="[2, 4, 6, 8, 16]" seeds=4 steps=150 warmup_steps=50
[ -n "$quick" ] && widths="[2, 4]" seeds=2 steps=20 warmup_steps=5
cat >"$out/widths.toml" <<TOML
name = "measured_width_gate"
notebook = "$PWD/notebooks/02_width_gate.ipynb"
timeout_s = 100
[parameters]
device = "$device"
widths = $widths
min_widths = [0, 4, 6, 8, 33]
seeds = $seeds
steps = $steps
warmup_steps = $warmup_steps
[axes]
shape = [$(listed "${shapes[@]}")]
TOML
part sweep 160 "$python" -m verifylab sweep "$out/widths.toml" --out "$out/runs" --force

if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]} ($SECONDS s in all; results in $out)"
  exit 1
fi
echo "all parts done in $SECONDS s; results in $out"
