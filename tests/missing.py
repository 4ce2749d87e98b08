"""Say that a test cannot run on a machine: skipped on somebody's own, failed in CI, where nothing may be lacking."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where the environment variable ``CI`` is set."""
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
