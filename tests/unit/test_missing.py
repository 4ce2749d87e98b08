"""What a machine lacks: skipped on somebody's own, a failure in CI."""

from __future__ import annotations

import pytest
from missing import missing


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("false", pytest.skip.Exception), ("", pytest.skip.Exception)]
)
def test_what_is_missing_fails_in_ci_and_is_skipped_elsewhere(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no KDC"):
        missing("no KDC")
