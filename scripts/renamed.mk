# Former names of targets: each prints its new form and runs it. Those of LAKE_TARGETS are for users of the stack and go in the version
# that pydelta/deprecation.py names; a test compares them. The others are for contributors and go with the next release.
SUITE_TARGETS := test-fast test-servers test-whole test-peers test-programs test-spark
SUITE_TARGETS += interop interop-pairs selection mutants fuzz simulation
LAKE_TARGETS := policies pyspark cluster-sql presto inventory archive sbom
BENCH_TARGETS := bench-compare bench-report
.PHONY: $(SUITE_TARGETS) $(LAKE_TARGETS) $(BENCH_TARGETS)

$(SUITE_TARGETS):
	@echo "make $@ is now make test SUITE=$(@:test-%=%)" >&2
	@$(MAKE) --no-print-directory test SUITE=$(@:test-%=%)

$(BENCH_TARGETS):
	@echo "make $@ is now make bench BENCH=$(@:bench-%=%)" >&2
	@$(MAKE) --no-print-directory bench BENCH=$(@:bench-%=%)

$(LAKE_TARGETS):
	@echo "make $@ is now scripts/lake $@" >&2
	@RAW_USERS="$(USERS)" scripts/lake $@ $(if $(filter sbom,$@),$(ARGS))
