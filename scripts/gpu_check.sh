#!/usr/bin/env bash
# Build with CUDA, run the CUDA tests, check and time the kernels, and train the tiny model on one GPU, in four minutes at
# most. Needs no network.
usage='usage: scripts/gpu_check.sh [--cpu] [--no-build] [--python PYTHON] [--output-dir RUN]

  --cpu             try the check itself without a GPU: nothing is built, a few small steps on the CPU
  --no-build        check the package as it is installed
  --python PYTHON   default: $PYTHON, else .venv/bin/python, else python3. It needs torch with CUDA, the packages of
                    `pip install -e .[hf,dev]`, and to build also those of `pip install --group build`
  --output-dir RUN  keep the run of training there, for `cuvee report RUN`, and in it the kernels'\'' times, kernels.json;
                    default: a temporary folder

Exit code: 0 all is well, 1 a check failed, 2 it cannot be run here.'
set -euo pipefail

readonly limit=240 # seconds, for all of it
mode=gpu build=yes run='' python=${PYTHON:-}
refuse() { echo "gpu_check: $*" >&2; exit 2; }
fail() {
  [[ ! -s $log ]] || tail -n 30 "$log" >&3
  echo "gpu_check: $*" >&3
  exit 1
}

while (($#)); do
  case $1 in
    --cpu) mode=cpu build=no ;;
    --no-build) build=no ;;
    --python | --output-dir)
      (($# > 1)) || refuse "$1 must have a value; see --help"
      if [[ $1 == --python ]]; then python=$2; else run=$(realpath -m "$2"); fi
      shift
      ;;
    -h | --help) echo "$usage"; exit 0 ;;
    *) refuse "option must be one of --help, but got $1" ;;
  esac
  shift
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
log=$scratch/training.log
exec 3>&2 # where failures are told, also of a stage whose own words go into the log
run=${run:-$scratch/run}

# ---- what there is
if [[ -z $python ]]; then
  python=.venv/bin/python
  [[ -x $python ]] || python=python3
fi
command -v "$python" >/dev/null || refuse "--python must be an interpreter, but got $python"
if [[ $mode == gpu ]]; then
  gpus=${CUDA_VISIBLE_DEVICES-0}
  export CUDA_VISIBLE_DEVICES=${gpus%%,*} # with more of them visible, transformers would split each batch
else
  export CUDA_VISIBLE_DEVICES=
fi
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
needed='accelerate datasets hypothesis numpy pyarrow pydantic pytest rich torch transformers typer'
[[ $build == no ]] && needed+=' cuvee' || needed+=' pip pybind11 scikit_build_core'
missing=$("$python" -c '
import sys
from importlib.util import find_spec
print(*(name for name in sys.argv[1:] if find_spec(name) is None))' $needed) || refuse "$python must be Python 3.11 or newer"
[[ -z $missing ]] || refuse "$python must have the packages $missing, but has not; see --help"
if [[ $mode == gpu ]]; then
  device=$("$python" -c '
import torch
print(torch.cuda.get_device_name() if torch.cuda.is_available() else "")' 2>/dev/null) || device=
  [[ -n $device ]] || refuse "there must be an NVIDIA GPU that PyTorch of $python can use, but there is none; to try the check itself without one: scripts/gpu_check.sh --cpu"
else
  device=CPU
fi
"$python" -c '
import platform, sys, torch
print(f"{sys.argv[1]}; Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda}")' "$device"

# ---- the stages
stage() { # stage NAME COMMAND...: what is left of the time is its limit
  local name=$1 started=$SECONDS code=0
  shift
  echo "=== $name"
  ((SECONDS < limit)) || fail "$name had no time left of $limit s"
  timeout --kill-after=5 $((limit - SECONDS)) "$@" </dev/null || code=$?
  ((code != 124 && code != 137)) || fail "$name did not end within the $limit s of the whole check"
  ((code == 0)) || fail "$name failed with exit code $code"
  echo "=== $name: $((SECONDS - started)) s"
}

shopt -s nullglob
sources=(csrc/cuda/*.cu)
if [[ $build == yes ]]; then
  compiler=${CUDACXX:-$(command -v nvcc || true)}
  option=AUTO
  [[ -z $compiler && ${#sources[@]} -eq 0 ]] || option=ON # which stops without a compiler
  CUVEE_CUDA=$option stage build "$python" -m pip --quiet --disable-pip-version-check install --no-index --no-deps \
    --no-build-isolation --config-settings=build-dir=build/gpu --editable .
  compiled=$(find build/gpu -name '*.cu.o' | wc -l)
  ((compiled == ${#sources[@]})) || fail "csrc/cuda has ${#sources[@]} sources, but $compiled were compiled; CMakeLists.txt must name each"
  echo "built with CUVEE_CUDA=$option, CUDA compiler: ${compiler:-none}; CUDA sources compiled: $compiled"
else
  echo "nothing was built: the package is checked as it is installed"
fi
((${#sources[@]})) || echo "csrc/cuda has no sources: the core has no CUDA kernels, only PyTorch uses the GPU"

[[ $mode == gpu ]] && expected=passed || expected=skipped
stage 'CUDA tests' "$python" -m pytest -q -m cuda -p no:cacheprovider --junit-xml="$scratch/tests.xml" tests/cuda
"$python" scripts/check_run.py tests "$scratch/tests.xml" "$expected" || fail "not all CUDA tests were $expected"

kernels=(--json="$scratch/kernels.json")
[[ $mode == gpu ]] || kernels+=(--cpu --quick --no-compile)
stage kernels "$python" scripts/check_kernels.py "${kernels[@]}"

size=(--max-steps=200 --epochs=2)
[[ $mode == gpu ]] || size=(--max-steps=24 --batch-size=4)
stage training "$python" -m cuvee train examples/data/mix.json --ckpt=tiny --world-size=1 "${size[@]}" --logging-steps=1 \
  --output-dir="$run" 2>"$log"
cp "$scratch/kernels.json" "$run/"
"$python" scripts/check_run.py run "$run" || fail "the training is not as it must be"
echo "=== all is well on $device: $SECONDS s"
