# `make` alone prints the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(VENV)/bin/uv
TIMEOUT ?= 900

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock

# A stamp a lock file: installed again only when the lock changes. The dev lock holds everything of the other.
$(VENV)/.runtime: requirements.lock pyproject.toml | $(BIN)/python
	@test -f $(VENV)/.dev || $(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@$(BIN)/python -m dw_platform.lake.java || $(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-java.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock | $(BIN)/python
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.lock
	@touch $@
