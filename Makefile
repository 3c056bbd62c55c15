# Each target does the setup it needs; running it again costs nothing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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
check: $(STAMP) ## Check format, lint, types, import contracts and the rules of the house
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m bench.house --check

.PHONY: format
format: $(STAMP) ## Format the code and fix what lint can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# More tests at once than cores, because many of them wait; `Chunks` in tests/conftest.py deals them out.
PYTEST := $(BIN)/python -m pytest --dist loadscope --max-worker-restart 0
ARGS ?=

.PHONY: unit
unit: $(STAMP) ## Run the tests that need no server: under a minute
	@$(PYTEST) -n 2 -m "not server and not soak" $(ARGS)

.PHONY: test
test: $(STAMP) ## Run every test a contributor needs to trust a change: about 12 minutes
	@$(PYTEST) -n 4 $(ARGS)

.PHONY: soak
soak: $(STAMP) ## Run what only takes longer, kills at every failpoint, all drills, long chaos: about 6 minutes
	@timeout --kill-after 60 40m $(PYTEST) -n 4 -m soak $(ARGS)

.PHONY: determinism
determinism: $(STAMP) ## Run the workflow tests in Temporal's own sandbox, which refuses clocks and chance
	@DETERMINISM_GUARD=1 $(PYTEST) -n 3 tests/workflows $(ARGS)

.PHONY: bench
bench: $(STAMP) ## Run the benchmarks: each prints a table and one line of JSON
	@for bench in bench/[a-z]*.py; do $(BIN)/python -m bench.$$(basename $$bench .py); done

.PHONY: bench-quick
bench-quick: $(STAMP) ## Run the bars of placement, rollout and decision at small sizes, in three minutes
	@$(BIN)/python -m bench._quick

.PHONY: lock
lock: $(STAMP) ## Pin the newest allowed packages
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
		--no-emit-index-url --no-header --extra embedded --group dev pyproject.toml --output-file requirements.lock

.PHONY: clean
clean: ## Remove what the targets made (stop a running stack first)
	@for stack in $$(find .durable -maxdepth 2 -name stack.json 2>/dev/null); do echo "A stack may be running: run '$(BIN)/durable down --state-dir $$(dirname $$stack)' first."; exit 1; done
	@rm -rf .venv .durable .pytest_cache .ruff_cache .hypothesis
