"""Store the settings that a stream's batches depend on next to its checkpoint: source, table, mode, schema.

::

    no file, no checkpoint     the given settings are stored
    no file, but a checkpoint  refused: another program made the checkpoint
    another source or table    refused: its offsets would be meaningless
    another schema or place    accepted, unless a part of the last batch was written but Spark has not recorded the
    for bad records            batch as done: it runs again, and would be divided differently into good and bad
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from pydelta.errors import InvalidArgumentError, LogCorruptedError
from pydelta.storage.interface import PutOutcome, Store

__all__ = ["KeptSettings", "keep", "kept_settings"]

_FILE: Final = "ingest/settings.json"
_FIXED: Final = {"source": "source", "target": "table", "way": "way of applying records"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSettings:
    """Settings that a run of a stream must share with the previous one.

    Args:
        source: The source, such as ``kafka: orders``.
        target: Root of the table.
        way: How records are decoded and applied, as text.
        schema: The columns of the records: JSON of Spark's schema, or an Avro schema.
        bad_records: Root of the table of bad records, or None.
    """

    source: str
    target: str
    way: str
    schema: str
    bad_records: str | None = None


def kept_settings(store: Store) -> KeptSettings | None:
    """Read the settings stored with a checkpoint; None if the stream is new.

    Args:
        store: Store of the checkpoint's folder.

    Raises:
        InvalidArgumentError: Another program made the checkpoint.
        LogCorruptedError: The file cannot be read.
    """
    if store.head(_FILE) is None:
        if store.head("metadata") is not None:
            raise InvalidArgumentError(
                f"The checkpoint {store.root} was made by another program.",
                hint="Give this job a separate --checkpoint folder.",
            )
        return None
    try:
        found: dict[str, Any] = json.loads(store.read(_FILE))
        return KeptSettings(**found)
    except (ValueError, TypeError) as error:
        raise LogCorruptedError(
            f"{store.root}/{_FILE} is not what this job writes: {error}.",
            hint="Restore the file, or start with another --checkpoint and a position that follows the last batch.",
        ) from error


def keep(
    store: Store, before: KeptSettings | None, now: KeptSettings, landed: Callable[[KeptSettings, str, int], bool]
) -> None:
    """Compare this run's settings with those of the previous one, and store them.

    Args:
        store: Store of the checkpoint's folder.
        before: Result of ``kept_settings``.
        now: Settings of this run.
        landed: Returns whether a table of the given settings has a batch, by the query's id and the batch's number.

    Raises:
        InvalidArgumentError: The settings do not match.
    """
    if before == now:
        return
    text = json.dumps(asdict(now), indent=1, sort_keys=True).encode()
    if before is None:
        if store.put_if_absent(_FILE, text) is not PutOutcome.CREATED and kept_settings(store) != now:
            raise InvalidArgumentError(
                f"Another job has begun with the checkpoint {store.root}.",
                hint="Give each job a separate checkpoint.",
            )
        return
    for name, shown in _FIXED.items():
        was, is_ = getattr(before, name), getattr(now, name)
        if was != is_:
            raise InvalidArgumentError(
                f"The checkpoint {store.root} belongs to another {shown}: {was}, but this run has {is_}.",
                hint="Run the job as before, or give another --checkpoint.",
            )
    batch = _unfinished(store)
    if batch is not None and landed(before, str(json.loads(store.read("metadata").split(b"\n")[0])["id"]), batch):
        what = "schema" if before.schema != now.schema else "place for bad records"
        raise InvalidArgumentError(
            f"The {what} differs from that of the last run, which has written part of batch {batch}.",
            hint=f"Run the job once more with the previous {what}, then with the new one.",
        )
    store.put(_FILE, text)


def _unfinished(store: Store) -> int | None:
    """Return the batch that was planned but that Spark has not recorded as done, if any."""
    planned, done = (max(_numbers(store, folder), default=-1) for folder in ("offsets", "commits"))
    return planned if planned > done else None


def _numbers(store: Store, folder: str) -> list[int]:
    names = (item.path.rsplit("/", 1)[-1] for item in store.list_all(folder))
    return [int(name) for name in names if name.isdigit()]
