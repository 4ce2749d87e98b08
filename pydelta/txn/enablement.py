"""Record when in-commit timestamps begin, from the table's metadata before and after a commit. Pure.

::

    on before the commit    on after it           enablement version and time
    no                      no                    removed
    no                      yes                   this commit's, set by ``render``; none in a table's first version
    yes                     yes                   unchanged, whatever the new metadata contains
    yes                     no                    removed

This covers all commands (REPLACE, CLONE, RESTORE, ALTER …).
Protocol: "In-Commit Timestamps".
"""

from __future__ import annotations

from typing import Final

from pydelta.protocol.actions import Metadata

__all__ = ["ENABLEMENT_TIMESTAMP", "ENABLEMENT_VERSION", "with_kept_enablement"]

ENABLEMENT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"


def with_kept_enablement(after: Metadata, before: Metadata | None, *, was_on: bool, is_on: bool) -> Metadata:
    """Return the new metadata with the enablement properties of the old one, or without them.

    Args:
        after: The metadata to commit.
        before: The table's metadata; None if there is no table.
        was_on: Whether commits had in-commit timestamps before.
        is_on: Whether they will have them.
    """
    names = (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
    configuration = {key: value for key, value in after.configuration.items() if key not in names}
    if before is not None and was_on and is_on:
        configuration |= {key: before.configuration[key] for key in names if key in before.configuration}
    return after if configuration == after.configuration else after.replace(configuration=configuration)
