# Every target that needs Python works in .venv, which the first one makes. Nothing is installed
# outside it. `make PYTHON=/path/to/python3.12 ...` chooses another interpreter.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
JAXLIB := jaxlib==0.10.2
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
  $$p -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null \
  && echo $$p && break; done)
PYTHON_DIRS := src tests examples benchmarks tools setup.py
NATIVE_FILES = setup.py $(shell find csrc -name '*.cpp' -o -name '*.h')
CPP_FILES = $(shell find csrc tests -name '*.cpp' -o -name '*.h')
PACKAGE_FILES = pyproject.toml MANIFEST.in $(shell find src -name '*.py' -o -name '*.toml' -o -name '*.pyi')

TORCH_READY := $(VENV)/.torch-ready
USER_READY := $(VENV)/.user-ready
DEV_READY := $(VENV)/.dev-ready
NATIVE_READY := build/.native-ready

# No build isolation: an isolated build would install a second torch only to read its headers.
INSTALL := TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(BIN)/python -m pip install --quiet --no-build-isolation

.DEFAULT_GOAL := help
.PHONY: help demo test check build format lint types docs bench conformance models sanitize wheel clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(if $(wildcard $(DEV_READY)),build,$(USER_READY)) ## install into .venv, then train small models on the device
	@echo "make demo: training on the device neuron, an emulated Trainium"
	@$(BIN)/python examples/demo.py
	@echo "make demo: done. The device is in $(VENV); next: docs/guides/first-steps.md"

test: build ## install the test tools into .venv, then run every test
	@echo "make test: running every test under tests/"
	@$(BIN)/python -m pytest $(PYTEST_ARGS) \
	  && echo "make test: every test passed" \
	  || { echo "make test: FAILED, the summary above names the tests" >&2; exit 1; }

check: build format-check lint types ## format, lint, types, import contracts, arch tests (no network)
	@$(BIN)/python -m pytest -q tests/arch
	@echo "make check: all clean"

build: $(NATIVE_READY) ## compile what changed in csrc/, in place

format: $(DEV_READY) ## rewrite Python and C++ in the project's format
	@$(BIN)/ruff check --quiet --select I --fix $(wildcard $(PYTHON_DIRS))
	@$(BIN)/ruff format $(wildcard $(PYTHON_DIRS))
	@$(BIN)/clang-format -i $(CPP_FILES)

.PHONY: format-check
format-check: $(DEV_READY)
	@$(BIN)/ruff format --check $(wildcard $(PYTHON_DIRS))
	@$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)

lint: $(DEV_READY) ## ruff, import contracts, spelling, generated pages
	@$(BIN)/ruff check $(wildcard $(PYTHON_DIRS))
	@$(BIN)/lint-imports
	@$(BIN)/codespell csrc $(wildcard $(PYTHON_DIRS)) docs changelog *.md
	@TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(BIN)/python tools/gen_docs.py --check

types: $(DEV_READY) ## mypy: strict, a little less so where torch is touched
	@$(BIN)/mypy

docs: build ## write docs/reference/ from the code
	@$(BIN)/python tools/gen_docs.py

bench: build ## measure against the CPU in one process; writes benchmarks/reports/
	@$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

conformance: build ## PyTorch's operator database, eager and compiled, 30 samples an entry; writes the dated reports
	@$(BIN)/python tools/conformance_report.py $(CONFORMANCE_ARGS)
	@$(BIN)/python tools/compiled_report.py

models: build ## every architecture of the model suite, eager and compiled; writes the dated report
	@$(BIN)/python tools/models_report.py $(MODELS_ARGS)

sanitize: $(DEV_READY) ## build with ASan and UBSan beside the normal build, run the tests of csrc/
	@tools/sanitize.sh $(BIN)/python

wheel: $(TORCH_READY) ## build dist/torchneuron-*.whl for this Python and this torch
	@TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .
	@echo "make wheel: $$(ls -t dist/torchneuron-*.whl | head -1)"

clean: ## remove everything that the targets made, .venv included
	rm -rf $(VENV) build dist src/torchneuron/_build_info.py src/*.egg-info
	find src -name '*.so' -delete
	find . -name __pycache__ -prune -exec rm -rf {} +
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# -- what the targets above stand on; a stamp file says that a step is done

$(TORCH_READY):
	@test -n "$(PYTHON)" || { printf 'error: no Python 3.11 to 3.14 with venv on PATH\n\nhint: apt-get install python3.11-venv, or make PYTHON=/path/to/python3.11\n' >&2; exit 1; }
	@echo "making $(VENV) with $(PYTHON), then installing $(TORCH) (some minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet $(TORCH)
	@$(BIN)/python -m pip install --quiet "setuptools>=77.0.3" wheel ninja numpy $(JAXLIB)
	@touch $@

$(USER_READY): $(TORCH_READY) $(NATIVE_FILES) $(PACKAGE_FILES)
	@echo "compiling and installing TorchNeuron and what it needs (two to five minutes the first time)"
	@test -e $(DEV_READY) || $(INSTALL) ".[demo]"
	@touch $@

$(DEV_READY): $(TORCH_READY) pyproject.toml setup.py
	@echo "compiling TorchNeuron and installing it in place, with the test and development tools"
	@$(INSTALL) -e ".[dev]"
	@touch $@

$(NATIVE_READY): $(DEV_READY) $(NATIVE_FILES)
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@
