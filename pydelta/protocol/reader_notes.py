"""List which engines read a table wrongly and give no error: facts of ``docs/reference/interop.md``, by feature.

A row goes when the engine in question has been mended and the page says so; a test compares the two.
"""

from __future__ import annotations

from typing import Final

from pydelta.protocol.actions import Metadata
from pydelta.protocol.schema_edits import TYPE_CHANGES

__all__ = ["WRONG_READERS", "reader_notes"]

WRONG_READERS: Final = {
    "typeWidening": ("Trino", "shows no values of a column whose type was widened"),
    "icebergCompatV1": ("DuckDB", "reads a table with Iceberg compatibility wrongly"),
    "icebergCompatV2": ("DuckDB", "reads a table with Iceberg compatibility wrongly"),
}
"""Feature of a table -> engine, and what its reader for Delta tables does with it."""


def reader_notes(metadata: Metadata) -> tuple[str, ...]:
    """Return a sentence for each engine that reads the table wrongly and does not say so.

    Args:
        metadata: Of the table; what its protocol only allows, and it does not use, counts for nothing.
    """
    uses = {
        "typeWidening": TYPE_CHANGES in metadata.schema_string,
        **{
            f"icebergCompatV{number}": metadata.configuration.get(f"delta.enableIcebergCompatV{number}", "").lower()
            == "true"
            for number in (1, 2)
        },
    }
    found = dict.fromkeys(
        f"{engine} {what}, and gives no error (docs/reference/interop.md)."
        for feature, (engine, what) in WRONG_READERS.items()
        if uses[feature]
    )
    return tuple(found)
