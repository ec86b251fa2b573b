# Everything a newcomer needs: make demo, make test. Everything a developer needs: make lint, make bench.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help venv demo test lint bench clean
.DEFAULT_GOAL := help

help: ## Say what each target does
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

venv: $(STAMP) ## Build .venv from the hash-pinned lock; does nothing when nothing changed

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}; give another one with: make PYTHON=python3.12 ...")'
	@echo "building $(VENV) from requirements-dev.lock ..." >&2
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

demo: venv ## Run the main job end to end on real data; KEEP=1 leaves it running
	@$(BIN)/python -m deploy.demo.demo $(if $(KEEP),--keep)

test: venv ## Run all tests, on a real Kafka and a real Redis
	@$(BIN)/python -m pytest -n 2 --dist loadfile

lint: venv ## Check style, formatting and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

bench: venv ## Measure against peers; one JSON line a result
	@$(BIN)/python -m tests.bench

clean: ## Remove what was built here
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
