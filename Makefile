# `make help` lists the targets; they run from the project's root, in the virtual environment .venv. The suites of `make test` are in
# scripts/suites.mk, rarer verbs in scripts/lake, and the former names of targets in scripts/renamed.mk.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PEER := .venv-peer
ICEBERG := .venv-iceberg
DOCS := .venv-docs
PY := $(VENV)/bin/python
ARGS ?=
WORKERS ?= 2
CHAPTER ?=
JOB ?=
SERVICE ?=
SERVER ?=
SERVERS ?=
SQL ?=
CONFIRM ?=
URI ?=
PART ?= 1/40
RECORD ?=
PROFILES ?=
STORE ?=
FILE ?=
TO ?=
TURN ?=
SUITE ?= selected
BENCH ?=
TARGET ?=
VERSION ?=
SPARK ?=
FROM ?= 0
SEED ?=
# make inherits the shell's SECONDS, a clock, so only a SECONDS of the command line counts.
ifneq ($(origin SECONDS),command line)
SECONDS := 60
endif
# These arrive as typed: neither make nor a shell expands anything in them.
export RAW_SQL := $(value SQL)
export RAW_ARGS := $(value ARGS)
export RAW_JOB := $(value JOB)
export RAW_FILE := $(value FILE)
export RAW_TO := $(value TO)
export PYSPARK_PYTHON := $(CURDIR)/$(PY)
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(PY)

include scripts/suites.mk scripts/packages.mk scripts/renamed.mk

##@ Start here
.PHONY: demo
demo: $(VENV)/.demo ## Run the main job on a year of flights and draw a page
	@scripts/check-java
	@$(PY) -m jobs.demo $(if $(CHAPTER),--chapter $(CHAPTER)) $(ARGS)

# beeline in the stack needs only Docker on this machine.
.PHONY: sql
sql: $(if $(SERVER),,$(VENV)/.run) ## Open a SQL prompt; SQL="SELECT …" runs one statement
ifeq ($(SERVER),)
	@scripts/check-java
	@$(PY) -m pydelta.api.cli.cli sql $(if $(RAW_SQL),-e "$$RAW_SQL") $(ARGS)
else
	@SERVER="$(SERVER)" scripts/stack-sql
endif

.PHONY: shell
shell: $(VENV)/.run ## Open a Python prompt with the engine in a local session
	@scripts/check-java
	@$(PY) -i -c 'import pydelta; spark = pydelta.session(); print("spark is ready: spark.read.format(\"delta\").load(PATH)")'

.PHONY: doctor
doctor: ## Show what is installed, what is missing and what to do
	@scripts/check-python --report && scripts/check-java --report
	@if [ -x $(VENV)/bin/pydelta ]; then $(VENV)/bin/pydelta doctor $(URI) $(ARGS); else \
	echo "$(VENV) does not exist yet: make demo or make test creates it."; fi

##@ The stack on this machine (docs/guides/stack.md; needs only Docker)
.PHONY: up
up: ## Build and start it (PROFILES=kafka,serve STORE=hdfs)
	@PROFILES="$(PROFILES)" STORE="$(STORE)" scripts/stack-up

.PHONY: down
down: ## Stop it; its data stays
	@scripts/stack-down

.PHONY: status
status: ## Show health, memory and addresses
	@PROFILES="$(PROFILES)" scripts/stack-status

.PHONY: logs
logs: ## Show the services' logs (SERVICE=trino for one)
	@SERVICE="$(SERVICE)" scripts/stack-logs

.PHONY: put
put: ## Upload a file (FILE=day.csv)
	@scripts/stack-put

.PHONY: submit
submit: ## Run a job or your own script (JOB=ingest ARGS="--help")
	@scripts/stack-submit

.PHONY: trino
trino: ## Open Trino's prompt; SQL="SELECT …" runs one statement
	@scripts/stack-trino

.PHONY: verify
verify: ## Follow rows through every hop and compare them
	@scripts/stack-verify

.PHONY: backup
backup: ## Back up metastore, configuration and secrets to one file
	@scripts/stack-backup

.PHONY: restore
restore: ## Restore a file of make backup (FILE=name.tar.gz)
	@CONFIRM="$(CONFIRM)" scripts/stack-restore

.PHONY: reset
reset: ## Delete it with all its data (asks first)
	@CONFIRM="$(CONFIRM)" scripts/stack-reset

.PHONY: test-stack
test-stack: ## Test every hop from inside it; 20 minutes
	@PROFILES="$(PROFILES)" STORE="$(STORE)" TURN="$(TURN)" scripts/test-stack

##@ Work on the code (CONTRIBUTING.md)
.PHONY: test
test: $(needs.$(SUITE)) ## Run the tests that need no container (SUITE=fast: no Spark)
	$(or $(run.$(SUITE)),$(no-suite))

.PHONY: lint
lint: $(VENV)/.dev ## Run ruff, mypy --strict and the check of imports
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy && $(VENV)/bin/lint-imports

.PHONY: fmt
fmt: $(VENV)/.dev ## Format the code
	@$(VENV)/bin/ruff check --fix -q . ; $(VENV)/bin/ruff format -q .

.PHONY: spark-contract
spark-contract: $(VENV)/.dev ## Check a Spark for what is used of its JVM (SPARK=4.2.1)
	@scripts/spark-contract $(or $(SPARK),$(error SPARK=VERSION is missing. Next: make spark-contract SPARK=4.2.1))

.PHONY: release
release: $(VENV)/.dev ## Build a release in dist, compare two builds and try it
	@scripts/check-java
	@$(PY) scripts/release.py $(ARGS)

.PHONY: docs
docs: $(DOCS)/.installed ## Build guides and API reference as a site in build/site
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet && echo "The site is in build/site: open build/site/index.html"

.PHONY: bench
bench: $(VENV)/.bench ## Compare speed with the peers (BENCH=name, compare or report)
	$(or $(bench.$(BENCH)),$(bench.run))

.PHONY: clean
clean: ## Delete what the targets made, the environments too
	rm -rf $(VENV) $(PEER) $(ICEBERG) $(DOCS) .venv-spark .venv-python-* demo-data .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info

.PHONY: help
help: ## Show this list; rarer verbs are in scripts/lake
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "%s%s\n", between, substr($$0, 5); between = "\n"} \
	/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
