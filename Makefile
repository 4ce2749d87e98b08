# `make help` lists what there is. Everything runs from the project's root; the virtual environment is .venv here.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
ARGS ?=
CHAPTER ?=
export PYSPARK_PYTHON := $(CURDIR)/$(PY)
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(PY)

##@ Start here
.PHONY: demo
demo: $(VENV)/.demo ## The main job on real data: load, correct, delete, time travel, checked (CHAPTER=… runs one)
	@scripts/check-java
	@$(PY) -m jobs.demo $(if $(CHAPTER),--chapter $(CHAPTER)) $(ARGS)

.PHONY: test
test: $(VENV)/.dev ## Every test that needs no container (ARGS=… goes to pytest)
	@scripts/check-java
	@$(PY) -m pytest $(ARGS)

##@ Work on the code
.PHONY: test-fast
test-fast: $(VENV)/.dev ## The tests that start no Spark session
	@$(PY) -m pytest tests/unit tests/property tests/contracts tests/test_shape.py $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev ## ruff, mypy --strict and the direction of imports
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy && $(VENV)/bin/lint-imports

.PHONY: fmt
fmt: $(VENV)/.dev ## Format the code
	@$(VENV)/bin/ruff check --fix -q . ; $(VENV)/bin/ruff format -q .

.PHONY: bench
bench: $(VENV)/.dev ## Benchmarks as ratios beside the peers (BENCH=name runs one)
	@scripts/check-java
	@$(PY) -m benchmarks $(BENCH) $(ARGS)

.PHONY: pyspark
pyspark: $(VENV)/.run ## A Python prompt with a session in which format("delta") is this engine
	@scripts/check-java
	@$(PY) -i -c 'import pydelta; spark = pydelta.session(); print("spark is ready: spark.read.format(\"delta\").load(PATH)")'

.PHONY: doctor
doctor: ## What is installed, what is missing, and what to do
	@scripts/check-python --report; scripts/check-java --report

.PHONY: clean
clean: ## Remove what the targets above made, the virtual environment included
	rm -rf $(VENV) demo-data .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# One stamp per set of packages; a changed pyproject.toml or constraints.txt installs again.
$(VENV)/.run: pyproject.toml constraints.txt
	@scripts/install-venv $(VENV) ""
	@touch $@
$(VENV)/.demo: pyproject.toml constraints.txt
	@scripts/install-venv $(VENV) demo
	@touch $@
$(VENV)/.dev: pyproject.toml constraints.txt
	@scripts/install-venv $(VENV) dev
	@touch $@ $(VENV)/.demo $(VENV)/.run
