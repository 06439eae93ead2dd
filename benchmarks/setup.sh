#!/bin/sh
# Make .venv-bench with Cuvée and every peer that installs; run.py names those that did not.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-bench
install() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check install --constraint requirements/constraints.txt "$@"; }
peer() { install "$@" || echo "left out, did not install: $*" >&2; }

[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
install numpy
peer torch
peer datasets
peer transformers accelerate
peer grain
peer torchdata
peer rensa datasketch
peer --no-deps megatron-core # one compiled helper of it is timed; the framework around it is not needed

install -C build-dir=build/bench .
