"""Assign row ids to every file, in the commit that enables row tracking for a table with rows.

Files keep their names and bytes; their ``add`` is repeated with the first row's id. Protocol: "Row Tracking".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from pydelta.commands.change.hidden_rows import physical_rows
from pydelta.commands.run import Attempt, Command
from pydelta.log import DeltaLog
from pydelta.log.row_ids import BASE_ROW_ID, with_row_ids
from pydelta.protocol.actions import Action, AddFile, encode_json
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.txn import Operation, OptimisticTransaction

__all__ = ["EnableRowTracking", "row_ids_for_all"]

_ENABLED: Mapping[str, str] = {"delta.enableRowTracking": "true"}


@dataclass(frozen=True, slots=True)
class EnableRowTracking(Command["int | None"]):
    """Assign a permanent id to every row.

    Existing rows count as last changed by the new version.

    Returns:
        The new version; None if the table already tracks its rows.

    Raises:
        StorageError: A file has no row count in the log and cannot be read.

    Protocol: "Row Tracking".
    """

    def execute(self, attempt: Attempt) -> int | None:
        """See ``Command.execute``."""
        txn, metadata = attempt.txn, attempt.snapshot.metadata
        assert metadata is not None
        if attempt.snapshot.properties.enable_row_tracking:
            return None
        actions = row_ids_for_all(attempt.log, txn)
        txn.update_metadata(metadata.replace(configuration={**metadata.configuration, **_ENABLED}))
        operation = Operation(name="SET TBLPROPERTIES", parameters={"properties": encode_json(dict(_ENABLED))})
        return txn.commit(actions, operation).version


def row_ids_for_all(log: DeltaLog, txn: OptimisticTransaction) -> list[Action]:
    """Add again the files whose rows lack ids, so that the commit assigns them; every file counts as read."""
    snapshot = txn.snapshot
    txn.read_whole_table(exactly=True)
    live = with_row_ids(snapshot.files, snapshot.files.core)
    without = snapshot.files.adds(live.filter(live[BASE_ROW_ID].is_null()))
    return [_counted(log, add).replace(data_change=False) for add in without]


def _counted(log: DeltaLog, add: AddFile) -> AddFile:
    """Return the action with ``numRecords``, from which ids are assigned; its other statistics stay unchanged."""
    try:
        fields = msgspec.json.decode(add.stats or "{}", type=dict[str, msgspec.Raw])
    except MALFORMED_JSON:
        fields = {}
    if "numRecords" in fields:
        return add
    rows = physical_rows(add, log)
    return add.replace(stats=msgspec.json.encode({**fields, "numRecords": rows}).decode())
