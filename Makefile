# The environment is .venv, made once from PYTHON; it is brought up to date when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
RUNTIME := .venv/.stamp-runtime
DEVELOPMENT := .venv/.stamp
CLIENTS := .venv/.stamp-clients
SPARK := .venv/.stamp-spark
ICEBERG := .venv/.stamp-iceberg
PIP_INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check

.DELETE_ON_ERROR:
.PHONY: help demo test check format bench clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

demo: $(RUNTIME)  ## ask the bundled table a dozen questions
	@$(BIN)/python -m noisegate demo

test: check $(CLIENTS) $(SPARK) $(ICEBERG)  ## everything that must hold
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --max-worker-restart 0

check: $(DEVELOPMENT)  ## format, lint, types, import contracts
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/ruff check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > .venv/contracts.log || { cat .venv/contracts.log; exit 1; }

format: $(DEVELOPMENT)  ## let ruff format the code and fix what it can
	@$(BIN)/ruff format --quiet
	@$(BIN)/ruff check --quiet --fix

bench: $(DEVELOPMENT)  ## the figures, on this machine
	@$(BIN)/python -m benchmarks

clean:  ## remove caches and builds; keeps .venv and every ledger
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'error: Noisegate needs Python 3.11 or newer; name one with: make PYTHON=python3.12' >&2; exit 1; }
	@echo 'making .venv'
	@$(PYTHON) -m venv .venv

$(RUNTIME): pyproject.toml | $(BIN)/python
	@echo 'installing what Noisegate needs'
	@$(PIP_INSTALL) --editable .
	@touch $@

$(CLIENTS): tests/proxy/clients/fetch.py | $(DEVELOPMENT)
	@echo 'fetching the clients that are no Python packages'
	@$(BIN)/python -m tests.proxy.clients.fetch
	@touch $@

$(SPARK): pyproject.toml | $(DEVELOPMENT)
	@echo 'installing pyspark, which is large'
	@$(PIP_INSTALL) --editable '.[spark]'
	@touch $@

# Beside the environment, not in it: the only runtime of Iceberg that is a wheel is for Spark 3.5, and 1.0.3 lacks classes.
$(ICEBERG): | $(DEVELOPMENT)
	@echo 'installing Iceberg with a Spark of its own, which is large'
	@$(PIP_INSTALL) --target .venv/iceberg 'pyspark==3.5.*' snowpark-connect-deps-iceberg==1.0.2
	@touch $@

$(DEVELOPMENT): pyproject.toml | $(BIN)/python
	@echo 'installing what Noisegate and its tests need'
	@$(PIP_INSTALL) --editable '.[test,dev]'
	@touch $(RUNTIME) $@
