"""Name the functions that a user whose role is limited may not call. No package is needed to read this."""

from __future__ import annotations

from typing import Final

__all__ = ["REFUSED_FUNCTIONS", "TABLE_FUNCTIONS"]

REFUSED_FUNCTIONS: Final = frozenset({
    "from_protobuf", "java_method", "python_worker_logs", "reflect", "to_protobuf", "try_reflect",
})  # fmt: skip
"""Functions of Spark that call a class, or read a file of the server."""
TABLE_FUNCTIONS: Final = frozenset({
    "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "range",
    "stack", "variant_explode", "variant_explode_outer",
})  # fmt: skip
"""The only functions that it may call in place of a table."""
