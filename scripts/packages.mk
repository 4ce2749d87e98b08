# Each set of packages has a stamp; a changed pyproject.toml or constraints.txt installs it again.
$(VENV)/.run: pyproject.toml constraints.txt
	@scripts/install-venv $(VENV) spark
	@touch $@
$(PEER)/.installed: scripts/install-peer
	@scripts/install-peer $(PEER)
	@touch $@
$(ICEBERG)/.installed: scripts/install-iceberg
	@scripts/install-iceberg $(ICEBERG)
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
