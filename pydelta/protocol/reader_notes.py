"""List the engines that read a table wrongly without an error, by feature; see ``docs/reference/interop.md``.
Remove a row once that engine is fixed and the page says so. A test compares the two.
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
"""Maps a table feature to an engine and to how its Delta reader fails."""


def reader_notes(metadata: Metadata) -> tuple[str, ...]:
    """Return a sentence for each engine that would silently misread the table.

    Args:
        metadata: The table's metadata. Only features in use count, not those that the protocol merely allows.
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
