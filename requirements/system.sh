#!/usr/bin/env bash
# Check for the system packages that a build needs; `system.sh test` also for those of the C++ tests.
# As root on Debian and its kin, install what is missing; otherwise say what to install, and fail.
# `system.sh browser` looks for the browser that tests of reports use; without one they are skipped.
set -euo pipefail

python=${PYTHON:-python3}
cxx=${CXX:-g++}
missing=()

holds() { printf '#if !(%s)\n#error\n#endif\n' "$1" | $cxx -std=c++20 -x c++ -E - >/dev/null 2>&1; }
has_compiler() { holds '__has_include(<span>) && (defined(__clang__) || __GNUC__ >= 11)'; }
has_cmake() { cmake --version 2>/dev/null | awk 'NR == 1 { split($3, v, "."); exit !(v[1] > 3 || v[1] == 3 && v[2] >= 24) }'; }
has_python_header() { [[ -f $("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]]; }
has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }
has_xxhash() { holds '__has_include(<xxhash.h>)'; }
has_gtest() { holds '__has_include(<gtest/gtest.h>)'; }

need() { # need CHECK PACKAGE
  "$1" || missing+=("$2")
}

find_missing() {
  missing=()
  need has_compiler g++
  need has_cmake cmake
  need has_python_header python3-dev
  need has_venv python3-venv
  if has_compiler; then # the checks of headers need one
    need has_xxhash libxxhash-dev
    [[ $wanted != test ]] || need has_gtest libgtest-dev
  else
    missing+=(libxxhash-dev libgtest-dev)
  fi
}

apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null; }

wanted=${1:-build}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  found=$("$python" --version 2>/dev/null || echo "no $python")
  echo "Python must be 3.11 or newer, but got: $found. Name another with: make PYTHON=python3.12" >&2
  exit 1
fi
if [[ $wanted == browser ]]; then
  if ! { command -v chromium && command -v chromedriver; } >/dev/null; then
    if command -v apt-get >/dev/null && ((EUID == 0)); then
      echo 'installing system packages: chromium chromium-driver'
      apt update && apt install --yes --no-install-recommends chromium chromium-driver || echo 'apt-get failed' >&2
    else
      echo 'chromium and chromedriver are missing: tests of the report in a browser will be skipped'
    fi
  fi
  exit 0
fi
find_missing
if ((${#missing[@]})) && command -v apt-get >/dev/null && ((EUID == 0)); then
  echo "installing system packages: ${missing[*]}"
  apt update && apt install --yes --no-install-recommends "${missing[@]}" || echo "apt-get failed" >&2
  find_missing
fi
if [[ ${missing[*]} == libxxhash-dev ]]; then
  echo "libxxhash-dev is missing: the build will download xxHash. To avoid that: sudo apt-get install libxxhash-dev"
elif ((${#missing[@]})); then
  echo "system packages are missing: ${missing[*]}" >&2
  echo "install them with: sudo apt-get install ${missing[*]}   (or what your system calls them), then try again" >&2
  exit 1
fi
