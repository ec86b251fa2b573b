# Start with make demo and make test. While you develop, use make format, make lint and make unit.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
# uv installs 10 times as fast as pip, because it does not compile every module; pip supports more ways to reach an index.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKS := requirements-dev.lock requirements.lock requirements-docs.lock tests/support/engines/requirements.lock
# Locks contain names, versions and hashes for all Pythons and platforms, but no addresses.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

# With this variable, each process of a test or of the demo would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv demo docs test full unit fuzz histories mutants kills soak containers alerts lint format reference package sbom lock bench clean
.DEFAULT_GOAL := help

help: ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

venv: $(STAMP) ## Build .venv from the hash-pinned lock, if it changed

# What the demo needs: the commands and the packages of requirements.lock, installed with uv and hatchling
$(RUNTIME): requirements.lock requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"this is Python {v[0]}.{v[1]}; 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@echo "building $(VENV) from requirements.lock: $$(grep -c == $<) packages, about 0.5 GB ..." >&2
	@$(PYTHON) -m venv --clear $(VENV)
	@sed -nE '/^(editables|hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers|uv)==/,/[^\\]$$/p' requirements-dev.lock > $(VENV)/tools.lock
	@$(PIP) --require-hashes -r $(VENV)/tools.lock
	@$(BIN)/uv pip install --python $(BIN)/python --require-hashes -r $< || $(PIP) --require-hashes -r $<
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMP): requirements-dev.lock pyproject.toml
	@$(MAKE) --no-print-directory $(RUNTIME)
	@echo "adding the tools of development to $(VENV): $$(grep -c == $<) packages, about 1.7 GB together ..." >&2
	@$(BIN)/uv pip install --python $(BIN)/python --require-hashes -r $< || $(PIP) --require-hashes -r $<
	@touch $@

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(RUNTIME)) ## Run the main job end to end on real data; KEEP=1 leaves it running
	@$(BIN)/python -m deploy.demo.demo $(if $(KEEP),--keep)

TESTS := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=25

test: venv ## Run the gate's tests on a real Kafka and Redis; statistical tests only if ldp changed since LDP_TEST_BASE
	@$(TESTS) -m "not long"

full: venv ## Run all tests
	@LDP_TEST_BASE= $(TESTS)

UNIT ?= tests/unit tests/simulation tests/paper ldp worker

unit: venv ## Run the fast tests without services
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not integration and not slow and not long" $(UNIT)

SEED ?= 0

fuzz: venv ## Compare decoders on millions of random record batches and JSON frames (SEED=0)
	@$(BIN)/python -m tests.long.fuzz --seed $(SEED)

kills: venv ## Kill workers at each numbered step of claim, commit and publish, on a real Kafka and Redis
	@$(BIN)/python -m tests.long.kills

MINUTES ?= 10

soak: venv ## Count under load with successive faults for MINUTES=10
	@$(BIN)/python -m tests.long.soak --minutes $(MINUTES) --lines build/soak.jsonl

alerts: venv ## Run healthy load for 1 h and require that no alert fires
	@$(BIN)/python -m tests.long.alerts

containers: venv ## Build and run the image and the compose file, on a running container engine or a private one (root)
	@$(BIN)/python -m tests.long.containers

histories: venv ## Run N (20000) simulated histories of workers with faults
	@$(BIN)/python -m tests.simulation $(N)

mutants: venv ## Remove each guard of the code and require that one of N (2000) histories fails
	@$(BIN)/python -m tests.simulation.mutants $(N)

lint: venv ## Check style, formatting, types, import contracts, prose, and the files that GitHub reads
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m docs.prose
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format .github/CITATION.cff

format: venv ## Format the code, and apply ruff's fixes
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

reference: venv ## Generate the pages of docs from the code
	@$(BIN)/python -m docs.generate

package: venv ## Build the wheel and test it in new environments: without dependencies, with them, with the extra worker
	@$(BIN)/python -m tests.long.packaging

sbom: venv ## Write build/sbom.json, the CycloneDX bill of materials of requirements.lock
	@mkdir -p build
	@$(BIN)/python deploy/image/sbom.py requirements.lock > build/sbom.json

lock: venv ## Update the locks from pyproject.toml and keep versions if possible; UPGRADE=1 takes the newest
	@for lock in $(LOCKS); do cp -p $$lock $$lock.before; done
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --extra dev --output-file requirements-dev.lock pyproject.toml
	@$(COMPILE) --upgrade --extra gateway --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --group docs --output-file requirements-docs.lock
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --extra spark --extra beam --group engines --output-file tests/support/engines/requirements.lock pyproject.toml
	@for lock in $(LOCKS); do if cmp -s $$lock $$lock.before; then mv $$lock.before $$lock; else rm $$lock.before; fi; done

DOCS := .venv-docs

docs: venv ## Build the documentation site in build/docs/site (offline if .venv-docs exists); fails on broken links
	@[ -e $(DOCS)/.installed ] && [ ! requirements-docs.lock -nt $(DOCS)/.installed ] || { $(PYTHON) -m venv --clear $(DOCS) && \
	  $(BIN)/uv pip install --quiet --python $(DOCS)/bin/python --require-hashes -r requirements-docs.lock && touch $(DOCS)/.installed; }
	@$(DOCS)/bin/python docs/site.py
	@$(DOCS)/bin/zensical build --strict --clean --config-file build/docs/mkdocs.yml

bench: venv ## Run the benchmarks against other tools; prints one JSON line per result
	@$(BIN)/python -m tests.bench

clean: ## Delete environments and caches
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
