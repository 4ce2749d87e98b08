"""Write the statement that stands for a request of JDBC for names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

__all__ = ["NAMES", "names_statement"]

NAMES: Final = "PYDELTA NAMES "
"""Begins that statement."""


def names_statement(what: str, given: Sequence[str | None]) -> str:
    """Return the statement.

    Args:
        what: ``GetSchemas``, ``GetTables`` or ``GetColumns``.
        given: Patterns of JDBC for the database, the table and the column; None for all.
    """
    return NAMES + json.dumps({"what": what, "given": list(given)})
