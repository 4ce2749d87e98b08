"""Give pytest the tests that SQLAlchemy has for dialects."""

from __future__ import annotations

from sqlalchemy.testing.suite import *  # noqa: F403
