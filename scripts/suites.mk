# What `make test SUITE=NAME` runs: run.NAME, after the packages of needs.NAME are installed. CONTRIBUTING.md describes the suites.
# In the same way `make bench BENCH=NAME` runs bench.NAME.
PYTEST = $(PY) -m pytest -n $(WORKERS) --dist loadgroup
PEER_PY = $(CURDIR)/$(PEER)/bin/python
needs.selected = $(VENV)/.dev
define run.selected
@scripts/check-java
@$(PYTEST) --selected $(if $(filter all,$(SERVERS)),,--servers $(or $(SERVERS),none)) $(ARGS)
endef

needs.fast = $(VENV)/.dev
run.fast = @$(PYTEST) tests/unit tests/property tests/contracts tests/test_shape.py $(ARGS)

needs.servers = $(VENV)/.dev
define run.servers
@scripts/check-java
@$(PYTEST) --selected tests/hdfs tests/kafka tests/metastore tests/minio tests/serve tests/yarn $(ARGS)
endef

needs.yarn = $(VENV)/.dev
define run.yarn
@scripts/check-java
@$(PYTEST) tests/yarn tests/cluster $(ARGS)
endef

needs.whole = $(VENV)/.dev
define run.whole
@scripts/check-java
@$(PYTEST) $(ARGS)
endef

needs.peers = $(VENV)/.dev $(PEER)/.installed
define run.peers
@scripts/check-java
@PYDELTA_PEER_PYTHON=$(PEER_PY) $(PY) -m pytest -o addopts="-ra --strict-markers -p no:cacheprovider" tests/peers $(ARGS)
$(run.programs)
endef

needs.programs = $(VENV)/.dev $(PEER)/.installed
define run.programs
@scripts/check-java
@cd tests/peers && $(CURDIR)/$(PY) -m differ --python $(if $(DOOR),$(CURDIR)/$(PY),$(PEER_PY)) --part $(PART) $(if $(RECORD),--record) \
	$(if $(DOOR),--door $(DOOR))
@$(if $(RECORD),cd tests/peers && $(CURDIR)/$(PY) -m differ.report)
endef

needs.interop = $(VENV)/.bench $(PEER)/.installed
define run.interop
@scripts/check-java
@cd tests/peers && $(CURDIR)/$(PY) -m matrix --python $(PEER_PY) $(if $(RECORD),--record) $(ARGS)
endef

needs.interop-pairs = $(VENV)/.bench $(PEER)/.installed
define run.interop-pairs
@scripts/check-java
@cd tests/peers && $(CURDIR)/$(PY) -m matrix.pairs --python $(PEER_PY) $(if $(RECORD),--record) $(ARGS)
endef

needs.iceberg = $(VENV)/.dev $(ICEBERG)/.installed
define run.iceberg
@scripts/check-java
@$(PY) -m tests.iceberg --from "$(FROM)" --seeds 3 --spark $(CURDIR)/$(ICEBERG)/bin/python $(ARGS)
endef

needs.others = $(VENV)/.dev
define run.others
@scripts/check-java
@$(PY) -m tests.suites $(ARGS)
endef

run.spark = @scripts/test-spark-version $(or $(VERSION),4.1.0)
run.python = @scripts/test-python-version $(if $(VERSION),$(VERSION),3.13) $(ARGS)

needs.upgrade = $(VENV)/.dev
run.upgrade = @PYTHONPATH=$(CURDIR) $(PY) -m tests.upgrade $(ARGS)

needs.store-servers = $(VENV)/.dev
define run.store-servers
@scripts/check-java
@$(PYTEST) -p tests.support.recording --record-run stores tests/hdfs tests/minio $(ARGS)
endef

needs.selection = $(VENV)/.dev
define run.selection
@scripts/check-java
@mkdir -p build/selection && rm -f build/selection/*
@CPU_SECONDS=$(CURDIR)/build/selection/cpu.jsonl COVERAGE_FILE=$(CURDIR)/build/selection/tests.cov PYTHONPATH=tests \
	$(PYTEST) -p selection.record --cov=pydelta --cov=catalog_sync --cov=jobs --cov-branch \
	--cov-context=test --cov-report= $(ARGS)
@$(PY) -m tests.selection build/selection
endef

needs.mutants = $(VENV)/.dev
run.mutants = @$(PY) -m tests.mutation $(ARGS)

needs.fuzz = $(VENV)/.dev
define run.fuzz
@$(PY) -m tests.fuzz --seconds "$(SECONDS)" $(if $(TARGET),--target "$(TARGET)") $(if $(SEED),--seed "$(SEED)") \
	$(if $(FILE),--replay "$(FILE)") $(ARGS)
endef

needs.simulation = $(VENV)/.dev
define run.simulation
@$(PY) -m tests.simulation --seconds "$(SECONDS)" --from "$(FROM)" --seeds 1000000 \
	--jobs $(if $(filter command line,$(origin WORKERS)),$(WORKERS),0) $(ARGS)
endef

# Stores whose programs are not in the path are listed as not run; docs/reference/stores.md has what each one needs.
needs.stores = $(VENV)/.dev
run.stores = @$(PY) -m tests.stores $(ARGS)

# A further part of the stack's tests is a script: stack-kafka is scripts/test-stack-kafka.
STACK_SUITES := $(sort $(patsubst scripts/test-%,%,$(wildcard scripts/test-stack-*)))
$(foreach suite,$(STACK_SUITES),$(eval run.$(suite) = @scripts/test-$(suite)))

SUITES := $(sort $(patsubst run.%,%,$(filter run.%,$(.VARIABLES))))
export RAW_SUITE := $(value SUITE)
no-suite = @echo "There is no suite $$RAW_SUITE. Next: make test SUITE=…, one of: $(SUITES)" | fold -s -w 80 >&2; exit 1

define bench.run
@scripts/check-java
@$(PY) -m benchmarks $(BENCH) $(ARGS)
endef
bench.compare = @$(PY) -m benchmarks.report compare $(ARGS)
bench.report = @$(PY) -m benchmarks.report draw
