# The environment is .venv, made once from PYTHON; it is brought up to date when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
RUNTIME := .venv/.stamp-runtime
DEVELOPMENT := .venv/.stamp
CLIENTS := .venv/.stamp-clients
SPARK := .venv/.stamp-spark
ICEBERG := .venv/.stamp-iceberg
LOWEST := .venv/lowest/.stamp
PIP_OPTIONS := --quiet --quiet --disable-pip-version-check
PIP_INSTALL := $(BIN)/python -m pip install $(PIP_OPTIONS)
PYTEST := -m pytest -q -n 2 --max-worker-restart 0
QUICK := $(PYTEST) -m 'not slow' --doctest-ignore-import-errors
PYTHONS ?= python3.11 python3.12 python3.13 python3.14

.DELETE_ON_ERROR:
.PHONY: help demo test quick check coverage lowest matrix wheel format bench clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: $(RUNTIME)  ## ask the bundled table a dozen questions
	@$(BIN)/python -m noisegate demo

test: check $(CLIENTS) $(SPARK) $(ICEBERG)  ## everything that must hold
	@OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) --dist loadfile

quick: $(DEVELOPMENT)  ## the tests that start no server, no database and no Java
	@OMP_NUM_THREADS=1 $(BIN)/python $(QUICK)

coverage: $(DEVELOPMENT)  ## the quick tests, with the branches that none of them took; fails below the floor
	@OMP_NUM_THREADS=1 $(BIN)/python $(QUICK) --cov --cov-report=term:skip-covered

lowest: $(LOWEST)  ## the quick tests with the lowest versions that pyproject.toml allows
	@OMP_NUM_THREADS=1 .venv/lowest/bin/python $(QUICK)

matrix:  ## the quick tests with each Python that is on the path
	@for python in $(PYTHONS); do \
		$$python -c '' 2> /dev/null || { echo "$$python: not on the path"; continue; }; \
		echo "$$python:"; $(MAKE) --no-print-directory .venv/$$python/.stamp || exit 1; \
		OMP_NUM_THREADS=1 .venv/$$python/bin/python $(QUICK) || exit 1; \
	done

wheel: $(DEVELOPMENT)  ## build the distributions, and run the demo of the wheel far from the clone
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist . > .venv/build.log 2>&1 || { cat .venv/build.log; exit 1; }
	@$(BIN)/python -m tests.installed dist

check: $(DEVELOPMENT)  ## format, lint, types, import contracts, the files that describe the project
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/ruff check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > .venv/contracts.log || { cat .venv/contracts.log; exit 1; }
	@$(BIN)/python -m pytest -q --no-header tests/test_project.py > .venv/project.log || { cat .venv/project.log; exit 1; }

format: $(DEVELOPMENT)  ## let ruff format the code and fix what it can
	@$(BIN)/ruff format --quiet
	@$(BIN)/ruff check --quiet --fix

bench: $(DEVELOPMENT)  ## the figures, on this machine
	@$(BIN)/python -m benchmarks

clean:  ## remove caches and builds; keeps .venv and every ledger
	@rm -rf build dist .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
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

# The lower bounds as constraints: what is needed is as old as may be, what the tests need is new.
$(LOWEST): pyproject.toml tests/lowest.py | $(BIN)/python
	@echo 'installing the lowest versions that are allowed'
	@$(BIN)/python -m venv --clear .venv/lowest
	@$(BIN)/python -m tests.lowest > .venv/lowest/constraints.txt
	@.venv/lowest/bin/python -m pip install $(PIP_OPTIONS) --constraint .venv/lowest/constraints.txt --editable '.[test]'
	@touch $@

.venv/python3.%/.stamp: pyproject.toml
	@echo 'installing what Noisegate and its tests need'
	@python3.$* -m venv --clear .venv/python3.$*
	@.venv/python3.$*/bin/python -m pip install $(PIP_OPTIONS) --editable '.[test]'
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
