"""What several tests of the log begin with."""

from __future__ import annotations

import pytest

from pydelta.log import DeltaLog


@pytest.fixture
def four_rows_are_many(monkeypatch):
    """Sidecars of four rows, as full ones."""
    monkeypatch.setattr("pydelta.log.checkpoint.sidecars.FULL_ACTIONS", 4)
    monkeypatch.setattr("pydelta.log.checkpoint.write.SIDECAR_ACTIONS", 4)
    yield
    DeltaLog.clear_cache()
