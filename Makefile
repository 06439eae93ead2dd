# One command for each daily task; `make help` lists them.
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check install --constraint requirements/constraints.txt
TORCH := $(shell grep -x 'torch==.*' requirements/constraints.txt)
CORE := $(shell find csrc -type f)
CXX_FILES := $(shell find csrc $(wildcard tests/cpp) -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh')
export PYTHON
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)

.PHONY: FORCE help setup demo test test-cpp test-python asan tidy lint lint-style lint-types lint-cpp format bench golden docs clean system
.DEFAULT_GOAL := help

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: .venv/built.stamp ## make .venv and build the package into it

system:
	@bash requirements/system.sh

.venv/packages.stamp: pyproject.toml requirements/constraints.txt | system
	@echo 'installing packages into .venv, about two minutes ...'
	@$(PYTHON) -m venv .venv
	$(PIP) --upgrade 'pip>=25.1'
	$(PIP) '$(TORCH)'
	$(PIP) --group build
	@touch $@

# an editable install finds the modules that were there when it was made
.venv/modules.txt: .venv/packages.stamp FORCE
	@find python/cuvee -name '*.py' | sort | cmp -s - $@ || find python/cuvee -name '*.py' | sort > $@

FORCE:

.venv/built.stamp: .venv/packages.stamp .venv/modules.txt CMakeLists.txt $(CORE)
	$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

demo: setup ## mix real files, stop, resume, train a tiny model on them, and report what happened
	$(BIN)/python examples/demo.py

test: test-cpp test-python ## all tests

test-cpp:
	@bash requirements/system.sh test
	cmake --preset dev
	cmake --build --preset dev
	ctest --preset dev

test-python: setup
	@bash requirements/system.sh browser
	$(BIN)/python -m pytest

asan: ## the C++ tests under AddressSanitizer and UBSan
	@bash requirements/system.sh test
	cmake --preset asan
	cmake --build --preset asan
	ctest --preset asan

tidy: setup ## clang-tidy over the core and its tests
	PATH="$(abspath $(BIN)):$$PATH" cmake --preset tidy
	PATH="$(abspath $(BIN)):$$PATH" cmake --build --preset tidy --clean-first -- --keep-going

lint: lint-style lint-types lint-cpp ## formatting, lint and types

lint-style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: setup
	$(BIN)/mypy

lint-cpp: setup
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

format: setup ## rewrite files in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

bench: setup ## compare with every peer that can be installed
	$(BIN)/python benchmarks/run.py

golden: setup ## write the golden files anew (only when the order format goes up)
	$(BIN)/python tests/golden/make.py

docs: setup ## check the links and code of the documentation
	$(BIN)/python -m pytest tests/docs

clean: ## remove builds and the environment
	rm -rf build dist .venv
