#!/usr/bin/env bash
# Everything that needs a GPU, into one folder: doctor, gpu tests, calibration, measured sweep.
#   scripts/gpu_check.sh [--device cuda|host] [--out FOLDER] [--quick]
# The time limits add up to under 8 minutes on one H200-class GPU. `--device host` rehearses it
# without a GPU (`--quick`: without the tests, few settings). Each part has its own time limit and log; a part that
# fails is reported at the end and does not stop the others.
set -u
cd "$(dirname "$0")/.."
device=cuda out=gpu_check quick=
while [ $# -gt 0 ]; do
  case "$1" in
    --device)
      device=$2
      [ "$device" = cuda ] || [ "$device" = host ] || {
        echo "--device must be cuda or host, got $device" >&2
        exit 2
      }
      shift 2 ;;
    --out) out=$2; shift 2 ;;
    --quick) quick=--quick; shift ;;
    *) echo "unknown argument: $1 (want --device cuda|host, --out FOLDER, --quick)" >&2; exit 2 ;;
  esac
done
python=${PYTHON:-.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
mkdir -p "$out"
failed=()
# Every test marked gpu is in these.
gpu_tests=(tests/gpu tests/test_graph_cache.py tests/test_measured_arms.py)

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

if [ "$device" = cuda ]; then
  part doctor 40 "$python" scripts/gpu_part.py doctor
  part tests 120 env VERIFYLAB_GPU=required "$python" -m pytest -q -m gpu -p no:cacheprovider "${gpu_tests[@]}"
elif [ -z "$quick" ]; then
  # The same tests, with the kernels compiled by g++ and a stand-in for CuPy.
  part tests 240 env VERIFYLAB_GPU=rehearse "$python" -m pytest -q -m gpu -p no:cacheprovider "${gpu_tests[@]}"
fi
for shape in small gdn27b; do
  # gdn27b takes gigabytes and minutes on a CPU.
  [ "$device" = host ] && [ "$shape" = gdn27b ] && continue
  part "calibrate_$shape" 90 "$python" scripts/gpu_part.py calibrate --device "$device" \
    --shape "$shape" --out "$out/calibrate_$shape.json" $quick
done
# The measured width sweep joins here with the command-line tool (`part sweep 120 ...`).

if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]} ($SECONDS s in all; results in $out)"
  exit 1
fi
echo "all parts done in $SECONDS s; results in $out"
