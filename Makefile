# `make help` lists the targets. They run from the project's root, in the virtual environment .venv.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PEER := .venv-peer
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
TARGET ?=
VERSION ?=
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

##@ Start here
.PHONY: demo
demo: $(VENV)/.demo ## Run the main job on real data: load, correct, delete, time travel, checked (CHAPTER=… runs one)
	@scripts/check-java
	@$(PY) -m jobs.demo $(if $(CHAPTER),--chapter $(CHAPTER)) $(ARGS)

# beeline in the stack needs only Docker on this machine.
.PHONY: sql
sql: $(if $(SERVER),,$(VENV)/.run) ## Open a SQL prompt on this machine (SQL="SELECT …" runs one statement, ARGS="-f FILE" a script; SERVER=stack: beeline)
ifeq ($(SERVER),)
	@scripts/check-java
	@$(PY) -m pydelta.api.cli.cli sql $(if $(RAW_SQL),-e "$$RAW_SQL") $(ARGS)
else
	@SERVER="$(SERVER)" scripts/stack-sql
endif

.PHONY: test
test: $(VENV)/.dev ## Run the tests without containers and servers, in the cases that add coverage (SERVERS=all or serve,kafka adds servers; ARGS=… goes to pytest)
	@scripts/check-java
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup --selected $(if $(filter all,$(SERVERS)),,--servers $(or $(SERVERS),none)) $(ARGS)

.PHONY: test-servers
test-servers: $(VENV)/.dev ## Run the tests that start a server: Hive Metastore, Kafka, HDFS, MinIO, a KDC, pydelta serve
	@scripts/check-java
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup --selected tests/hdfs tests/kafka tests/metastore tests/minio tests/serve $(ARGS)

.PHONY: test-whole
test-whole: $(VENV)/.dev ## Run every case of every test that needs no container
	@scripts/check-java
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

##@ The stack: MinIO or HDFS, Hive Metastore on Postgres, Spark, Trino (needs only Docker)
.PHONY: up
up: ## Build, start, wait until healthy; print addresses, time and memory (STORE=minio, versity, hdfs or external; PROFILES=kafka,serve,presto,history,notebook,monitor adds these; SECURE=yes adds TLS, and passwords at Trino)
	@PROFILES="$(PROFILES)" STORE="$(STORE)" scripts/stack-up

.PHONY: down
down: ## Stop the stack; its data stays
	@scripts/stack-down

.PHONY: reset
reset: ## Remove the stack with all its data (asks; CONFIRM=yes answers)
	@CONFIRM="$(CONFIRM)" scripts/stack-reset

.PHONY: backup
backup: ## Back up the metastore, the configuration and the secrets to one file (FILE=name.tar.gz), but not the tables' files
	@scripts/stack-backup

.PHONY: restore
restore: ## Restore a file of make backup: FILE=name.tar.gz (asks if a metastore exists; CONFIRM=yes answers)
	@CONFIRM="$(CONFIRM)" scripts/stack-restore

.PHONY: status
status: ## Show health, memory and addresses
	@PROFILES="$(PROFILES)" scripts/stack-status

.PHONY: logs
logs: ## Show the services' logs (SERVICE=trino for one; ARGS=-f follows)
	@SERVICE="$(SERVICE)" scripts/stack-logs

.PHONY: policies
policies: ## Print the rights of the store's users as JSON policies, for an S3 of your own (USERS="trino presto": only these)
	@RAW_USERS="$(USERS)" scripts/stack-policies

.PHONY: submit
submit: ## Run a job of jobs/, or your own script, on the cluster: JOB=ingest ARGS="--table s3a://warehouse/lake/t …"; JOB=my/script.py
	@scripts/stack-submit

.PHONY: put
put: ## Upload a file to the stack's store: FILE=day.csv (TO=s3a://work/day.csv)
	@scripts/stack-put

.PHONY: pyspark
pyspark: ## Open a Python prompt on the cluster, with the engine enabled
	@scripts/stack-run prompt

.PHONY: cluster-sql
cluster-sql: ## Open a SQL prompt on the cluster, or run SQL="SELECT …", ARGS="-f FILE"; at the SQL server if it runs, otherwise in a session that stays (AS_USER=vacuum uses the key that may delete)
	@scripts/stack-cluster-sql

.PHONY: trino
trino: ## Open Trino's prompt (SQL="SELECT …" runs one statement)
	@scripts/stack-trino

.PHONY: presto
presto: ## Open Presto's prompt (SQL="SELECT …" runs one statement; make up PROFILES=presto starts it)
	@scripts/stack-presto

.PHONY: verify
verify: ## Follow rows through every hop of the running stack, compare with Polars, time commit to visible (VERIFY_BREAK=sync: must fail)
	@scripts/stack-verify

.PHONY: inventory
inventory: ## List the warehouse and load the list now; the scheduler does it once a day (docs/guides/inventory.md)
	@scripts/stack-inventory

.PHONY: archive
archive: ## Pack the engine for a cluster whose workers lack it, into build/environment.tar.gz (docs/guides/cluster.md)
	@scripts/make-archive build/environment.tar.gz

.PHONY: test-stack
test-stack: ## Test every hop of the stack from inside it; starts it if needed (PROFILES=kafka,presto adds these; TURN=1/3: a third of the tests that take minutes, and one of the last steps)
	@PROFILES="$(PROFILES)" STORE="$(STORE)" TURN="$(TURN)" scripts/test-stack

##@ Work on the code
.PHONY: test-peers
test-peers: $(VENV)/.dev $(PEER)/.installed ## Test both directions with the reference engine, then make test-programs
	@scripts/check-java
	@PYDELTA_PEER_PYTHON=$(CURDIR)/$(PEER)/bin/python $(PY) -m pytest -o addopts="-ra --strict-markers -p no:cacheprovider" tests/peers $(ARGS)
	@$(MAKE) test-programs

.PHONY: test-programs
test-programs: $(VENV)/.dev $(PEER)/.installed ## Compare programs on the reference engine and on this one (PART=1/1: all; RECORD=1 keeps answers; DOOR=thrift or connect: by pydelta serve)
	@scripts/check-java
	@cd tests/peers && $(CURDIR)/$(PY) -m differ --python $(CURDIR)/$(if $(DOOR),$(PY),$(PEER)/bin/python) --part $(PART) $(if $(RECORD),--record) \
		$(if $(DOOR),--door $(DOOR))
	@$(if $(RECORD),cd tests/peers && $(CURDIR)/$(PY) -m differ.report)

.PHONY: interop
interop: $(VENV)/.bench $(PEER)/.installed ## Read each engine's tables by all engines and compare with the kept answers (RECORD=1 keeps them, docs/reference/interop.md)
	@scripts/check-java
	@cd tests/peers && $(CURDIR)/$(PY) -m matrix --python $(CURDIR)/$(PEER)/bin/python $(if $(RECORD),--record) $(ARGS)

.PHONY: interop-pairs
interop-pairs: $(VENV)/.bench $(PEER)/.installed ## Let each pair of engines write one table at once, checked like certify (RECORD=1 keeps the counts)
	@scripts/check-java
	@cd tests/peers && $(CURDIR)/$(PY) -m matrix.pairs --python $(CURDIR)/$(PEER)/bin/python $(if $(RECORD),--record) $(ARGS)

.PHONY: test-spark
test-spark: ## Run a few tests with another PySpark (VERSION=4.1.0, the oldest supported)
	@scripts/test-spark-version $(or $(VERSION),4.1.0)

.PHONY: test-fast
test-fast: $(VENV)/.dev ## Run the tests that start no Spark session
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup tests/unit tests/property tests/contracts tests/test_shape.py $(ARGS)

.PHONY: selection
selection: $(VENV)/.dev ## Choose the cases of make test again: runs all, recording branches and time
	@scripts/check-java
	@mkdir -p build/selection && rm -f build/selection/*
	@CPU_SECONDS=$(CURDIR)/build/selection/cpu.jsonl COVERAGE_FILE=$(CURDIR)/build/selection/tests.cov PYTHONPATH=tests \
	$(PY) -m pytest -n $(WORKERS) --dist loadgroup -p selection.record --cov=pydelta --cov=catalog_sync --cov=jobs --cov-branch \
	--cov-context=test --cov-report= $(ARGS)
	@$(PY) -m tests.selection build/selection

.PHONY: mutants
mutants: $(VENV)/.dev ## Find changes of the code that rows depend on that no test notices (ARGS="--module masks")
	@$(PY) -m tests.mutation $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/.dev ## Feed the engine broken inputs (SECONDS=60 TARGET=commit SEED=7; FILE=… runs one kept input again)
	@$(PY) -m tests.fuzz --seconds "$(SECONDS)" $(if $(TARGET),--target "$(TARGET)") $(if $(SEED),--seed "$(SEED)") \
	$(if $(FILE),--replay "$(FILE)") $(ARGS)

.PHONY: simulation
simulation: $(VENV)/.dev ## Run the engine by seeds that decide clock, store and turns (SECONDS=60 FROM=1000; ARGS="--seeds 1 --show")
	@$(PY) -m tests.simulation --seconds "$(SECONDS)" --from "$(FROM)" --seeds 1000000 \
	--jobs $(if $(filter command line,$(origin WORKERS)),$(WORKERS),0) $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev ## Run ruff, mypy --strict and the check of imports
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy && $(VENV)/bin/lint-imports

.PHONY: sbom
sbom: $(VENV)/.dev ## List installed packages and downloads of the images, with hashes, as CycloneDX JSON: build/sbom.json
	@$(PY) scripts/sbom.py $(ARGS)

.PHONY: fmt
fmt: $(VENV)/.dev ## Format the code
	@$(VENV)/bin/ruff check --fix -q . ; $(VENV)/bin/ruff format -q .

.PHONY: docs
docs: $(DOCS)/.installed ## Build the guides and the API reference as a site in build/site; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet && echo "The site is in build/site: open build/site/index.html"

.PHONY: shell
shell: $(VENV)/.run ## Open a Python prompt with a local session in which format("delta") is this engine
	@scripts/check-java
	@$(PY) -i -c 'import pydelta; spark = pydelta.session(); print("spark is ready: spark.read.format(\"delta\").load(PATH)")'

.PHONY: bench
bench: $(VENV)/.bench ## Run benchmarks as ratios to the peers (BENCH=name runs one)
	@scripts/check-java
	@$(PY) -m benchmarks $(BENCH) $(ARGS)

.PHONY: bench-compare
bench-compare: $(VENV)/.bench ## Compare runs of make bench with the kept ones; fails if a target was lost
	@$(PY) -m benchmarks.report compare $(ARGS)

.PHONY: bench-report
bench-report: $(VENV)/.bench ## Keep the runs of make bench and draw docs/benchmarks.md
	@$(PY) -m benchmarks.report draw

.PHONY: doctor
doctor: ## Show what is installed, what is missing, what to do (URI=s3a://… tests a store; ARGS="--log FILE")
	@scripts/check-python --report && scripts/check-java --report
	@if [ -x $(VENV)/bin/pydelta ]; then $(VENV)/bin/pydelta doctor $(URI) $(ARGS); else \
	echo "$(VENV) does not exist yet: make demo or make test creates it."; fi

.PHONY: clean
clean: ## Remove everything that the targets above made, also the virtual environment
	rm -rf $(VENV) $(PEER) $(DOCS) .venv-spark demo-data .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Each set of packages has a stamp; a changed pyproject.toml or constraints.txt installs it again.
$(VENV)/.run: pyproject.toml constraints.txt
	@scripts/install-venv $(VENV) ""
	@touch $@
$(PEER)/.installed: scripts/install-peer
	@scripts/install-peer $(PEER)
	@touch $@
$(DOCS)/.installed: scripts/install-docs
	@scripts/install-docs $(DOCS)
	@touch $@
$(VENV)/.demo: pyproject.toml constraints.txt
	@scripts/install-venv $(VENV) demo
	@touch $@
$(VENV)/.dev: pyproject.toml constraints.txt
	@scripts/install-venv $(VENV) dev
	@touch $@ $(VENV)/.demo $(VENV)/.run
$(VENV)/.bench: $(VENV)/.dev
	@scripts/install-venv $(VENV) dev,bench
	@touch $@
