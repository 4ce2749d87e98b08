"""Columns that the engine makes for itself carry no line of a program; those of users do."""

from __future__ import annotations

import threading

import pytest
from pyspark.errors import utils

from pydelta.engines.spark.session.call_sites import install, without_call_sites
from pydelta.engines.spark.session.patches import restore_all


@pytest.fixture
def noting(monkeypatch):
    """PySpark as in a session that notes lines."""
    monkeypatch.setattr(utils, "_enable_debugging_cache", True)
    original = utils.is_debugging_enabled
    install()
    yield
    if utils.is_debugging_enabled is not original:
        restore_all()
    assert utils.is_debugging_enabled is original


def test_only_inside_and_only_in_this_thread(noting):
    others = []
    assert utils.is_debugging_enabled()
    with without_call_sites():
        assert not utils.is_debugging_enabled()
        with without_call_sites():
            assert not utils.is_debugging_enabled()
        assert not utils.is_debugging_enabled(), "the inner one does not end the outer one"
        thread = threading.Thread(target=lambda: others.append(utils.is_debugging_enabled()))
        thread.start()
        thread.join()
    assert others == [True]
    assert utils.is_debugging_enabled()


def test_an_error_ends_it_too(noting):
    with pytest.raises(ValueError, match="x"), without_call_sites():
        raise ValueError("x")
    assert utils.is_debugging_enabled()
