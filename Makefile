# Farsight on one machine. Every target first makes sure that the pinned install in $(VENV) is there.
#
#   make demo PYTHON=/path/to/python3.12        use this Python for a new $(VENV)
#   make demo PIP_ARGS="--find-links folder"    extra arguments for pip (an own index, a folder of wheels)

SHELL    := /bin/bash
PYTHON   ?= python3.11 python3.12 python3
VENV     ?= .venv
PIP_ARGS ?=
BIN      := $(abspath $(VENV))/bin
STAMP    := $(VENV)/installed-from

.DEFAULT_GOAL := help
.PHONY: help install demo smoke lint test test-slow test-all clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

# The stamp holds the folder and the pyproject.toml that were installed: a changed pin is installed
# on top, a moved tree or a broken off installation starts with an empty $(VENV), anything else is
# left alone.
install: ## set up .venv with the pinned versions; instant when nothing changed
	@set -eu; \
	wanted() { pwd; cat pyproject.toml; }; \
	if [ -x $(BIN)/python ] && wanted | cmp -s - $(STAMP); then exit 0; fi; \
	kept=; if [ "$$(head -n 1 $(STAMP) 2>/dev/null)" = "$$(pwd)" ]; then kept=$(BIN)/python; fi; \
	python=; seen=; \
	for candidate in $$kept $(PYTHON); do \
	  version=$$("$$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue; \
	  seen="$$seen $$candidate is $$version;"; \
	  case $$version in 3.11.*|3.12.*) python=$$candidate; break;; esac; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "farsight: Python 3.11 or 3.12 is needed. Tried: $(PYTHON). Found:$${seen:- none of them}" >&2; \
	  echo "  Install one of them, or name it: make install PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	start=$$(date +%s); echo "farsight: installing into $(VENV) with $$python ($$version); a few minutes, once"; \
	if [ "$$python" != "$$kept" ] && ! "$$python" -m venv --clear $(VENV); then \
	  echo "farsight: $$python cannot make the virtual environment $(VENV); its own words are above." >&2; \
	  echo "  On Debian and Ubuntu: apt-get install python$${version%.*}-venv" >&2; exit 1; \
	fi; \
	rm -f $(STAMP); \
	if ! $(BIN)/python -m pip install --disable-pip-version-check $(PIP_ARGS) --editable '.[dev]'; then \
	  echo >&2; echo "farsight: the installation failed; the ERROR lines above are pip's own words. Usual reasons:" >&2; \
	  echo "  - the package index cannot be reached: set the proxy, or PIP_ARGS=\"--index-url ...\"" >&2; \
	  echo "  - the index lacks a version: the pins are in pyproject.toml" >&2; \
	  echo "  - no room: 2 GB are needed with a CPU build of torch, 8 GB with a CUDA build; free here:" >&2; \
	  df -h . >&2; \
	  echo "  Then run the same command again; it starts the installation anew." >&2; exit 1; \
	fi; \
	wanted > $(STAMP); echo "farsight: installed in $$(( $$(date +%s) - start )) s"

demo: install ## train small models under several encodings, compare them beyond their train length
	$(BIN)/python train.py configs/demo.yaml

smoke: install ## the shortest whole run, in build/smoke, made anew each time
	rm -rf build/smoke
	$(BIN)/python train.py configs/smoke.yaml runs=build/smoke

lint: install ## ruff, mypy, the floors of the imports; shellcheck where it is installed
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@if command -v shellcheck >/dev/null; then echo shellcheck; shellcheck -x .ci/run slurm/*.sbatch slurm/*.sh slurm/*.env; \
	else echo "shellcheck is not installed: the shell scripts were not checked"; fi

# two files of tests at a time; the slow ones measure times and share one SLURM, so one at a time
test: lint ## lint, then every test that takes seconds
	$(BIN)/pytest --durations=15 --numprocesses=2 --dist=loadfile

test-slow: install ## only the tests marked slow
	$(BIN)/pytest --durations=15 -m slow

test-all: test test-slow ## lint, then all tests

clean: ## remove .venv, build/ and caches; runs/ and data/prepared/ stay
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
