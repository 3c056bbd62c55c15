# Each target does the setup it needs; running it again costs nothing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"durable needs Python 3.11 or newer; {sys.executable} is {v.major}.{v.minor}. Name another with: make PYTHON=python3.12 ...")'
	@echo "Installing the locked packages into .venv (about a minute the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes --requirement requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Install everything into .venv

.PHONY: demo
demo: $(STAMP) ## Start a stack, run five workloads, roll one, lose a region, check every invariant, stop
	@$(BIN)/durable demo

.PHONY: check
check: $(STAMP) ## Check format, lint, types and import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-cache

.PHONY: format
format: $(STAMP) ## Format the code and fix what lint can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: test
test: $(STAMP) ## Run every test a contributor needs to trust a change
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: soak
soak: $(STAMP) ## Kill everything everywhere, as `make test` does and for longer
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "soak or not soak" tests/chaos tests/workflows/test_messages.py tests/workflows/test_killed_*.py

.PHONY: determinism
determinism: $(STAMP) ## Run the workflow tests in Temporal's own sandbox, which refuses clocks and chance
	@DETERMINISM_GUARD=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 tests/workflows

.PHONY: bench
bench: $(STAMP) ## Run the benchmarks: each prints a table and one line of JSON
	@for bench in bench/[a-z]*.py; do $(BIN)/python -m bench.$$(basename $$bench .py); done

.PHONY: lock
lock: $(STAMP) ## Pin the newest allowed packages
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
		--no-emit-index-url --no-header --extra embedded --group dev pyproject.toml --output-file requirements.lock

.PHONY: clean
clean: ## Remove what the targets made (stop a running stack first)
	@for stack in $$(find .durable -maxdepth 2 -name stack.json 2>/dev/null); do echo "A stack may be running: run '$(BIN)/durable down --state-dir $$(dirname $$stack)' first."; exit 1; done
	@rm -rf .venv .durable .pytest_cache .ruff_cache .hypothesis
