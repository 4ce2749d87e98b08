"""Record when in-commit timestamps begin, from the table's definitions before and after a commit. Pure.

::

    commits carried times   and will carry them   enablement version and time
    no                      no                    gone
    no                      yes                   this commit's; of a table's first version none (``render`` fills in)
    yes                     yes                   as they were, whatever the new definition brings
    yes                     no                    gone

One place for every command: REPLACE, CLONE, RESTORE, ALTER and the rest need not know.
Protocol: "In-Commit Timestamps".
"""

from __future__ import annotations

from typing import Final

from pydelta.protocol.actions import Metadata

__all__ = ["ENABLEMENT_TIMESTAMP", "ENABLEMENT_VERSION", "with_kept_enablement"]

ENABLEMENT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"


def with_kept_enablement(after: Metadata, before: Metadata | None, *, was_on: bool, is_on: bool) -> Metadata:
    """Return the definition with the properties of the one that was read, or without them.

    Args:
        after: The definition that is to be committed.
        before: The table's; None where there is no table.
        was_on: Whether commits carried times.
        is_on: Whether they will.
    """
    names = (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
    configuration = {key: value for key, value in after.configuration.items() if key not in names}
    if before is not None and was_on and is_on:
        configuration |= {key: before.configuration[key] for key in names if key in before.configuration}
    return after if configuration == after.configuration else after.replace(configuration=configuration)
