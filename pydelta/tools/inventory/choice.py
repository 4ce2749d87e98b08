"""Choose the deliveries to load: the newest usable one of each inventory of a bucket.

A bucket may have several inventories: of its parts, or of the same keys at different times. Only their owner knows
which belong together, so if there are several, none is chosen without being named.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydelta.commands.vacuum.inventory import CLOCKS_DIFFER_MS
from pydelta.errors import InvalidArgumentError, InventoryUnusableError
from pydelta.storage import Store
from pydelta.tools.inventory.delivery import Delivery, buckets_with_deliveries, find_deliveries, read_manifest

__all__ = ["ChosenDeliveries", "ahead_error", "choose_deliveries", "is_ahead"]


@dataclass(slots=True, kw_only=True)
class ChosenDeliveries:
    """The deliveries to load, with warnings and problems.

    Args:
        deliveries: One delivery per inventory of a bucket.
        warnings: Warnings, as sentences.
        problems: Buckets that cannot be loaded, with the errors. Other buckets can still be loaded.
    """

    deliveries: list[Delivery] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[tuple[str, InventoryUnusableError]] = field(default_factory=list)


def is_ahead(at_ms: int, now_ms: int) -> bool:
    """Return whether a list is dated in the future."""
    return at_ms > now_ms + CLOCKS_DIFFER_MS


def choose_deliveries(
    store: Store,
    buckets: Sequence[str] | None = None,
    *,
    inventory_ids: Sequence[str] | None = None,
    stamp: str | None = None,
    now_ms: int,
) -> ChosenDeliveries:
    """Choose the newest complete delivery of each inventory of each bucket, skipping those dated in the future.

    Args:
        store: Store of the deliveries.
        buckets: Buckets to choose from; None for all that have a delivery.
        inventory_ids: Inventories that together list the bucket; None for its only one.
        stamp: Choose only the delivery of this time.
        now_ms: The clock, epoch milliseconds.
    """
    choice = ChosenDeliveries()
    for bucket in buckets if buckets is not None else buckets_with_deliveries(store):
        _choose_of(choice, store, bucket, inventory_ids, stamp, now_ms)
    if buckets is None and not choice.deliveries and not choice.warnings and not choice.problems:
        choice.warnings.append(f"There is no delivery below {store.root}.")
    return choice


def _choose_of(
    choice: ChosenDeliveries, store: Store, bucket: str, ids: Sequence[str] | None, stamp: str | None, now_ms: int
) -> None:
    found: dict[str, list[Delivery]] = {}
    for item in find_deliveries(store, bucket):
        if stamp in (None, item.stamp) and (ids is None or item.id in ids):
            found.setdefault(item.id, []).append(item)
    chosen, ahead = [], 0
    for items in found.values():
        complete = [item for item in items if item.complete]
        usable = None
        for item in reversed(complete):
            if not _is_from_the_future(store, item, now_ms):
                usable = item
                break
            ahead += 1
            choice.warnings.append(f"The delivery {item.folder} is dated in the future and is ignored.")
        if usable is not None:
            chosen.append(usable)
        if not items[-1].complete:
            after = f"; {usable.folder} is loaded instead" if usable else ", and there is no other"
            choice.warnings.append(f"The delivery {items[-1].folder} of the bucket {bucket} is not complete{after}.")
    if not found:
        which = f" of {stamp}" if stamp else ""
        choice.warnings.append(
            f"The bucket {bucket} has no delivery{which} below {store.root}: its rows stay as they are."
        )
    elif ids is None and len(chosen) > 1:
        names = ", ".join(sorted(item.id for item in chosen))
        error = InventoryUnusableError(
            f"The bucket {bucket} has deliveries of several inventories below {store.root}: {names}.",
            hint="Choose one with --id; repeat --id if each lists a part of the bucket.",
        )
        choice.problems.append((bucket, error))
    elif not chosen and ahead:
        choice.problems.append((bucket, ahead_error(f"{store.root}/{bucket}")))
    else:
        choice.deliveries += chosen


def ahead_error(what: str) -> InventoryUnusableError:
    """Make the error for a bucket whose only deliveries are dated in the future."""
    return InventoryUnusableError(
        f"What was delivered to {what} is dated in the future, so it cannot be trusted.",
        hint="Correct the clock of the machine that made the inventory, remove the delivery, and make it again.",
    )


def _is_from_the_future(store: Store, delivery: Delivery, now_ms: int) -> bool:
    moment = dt.datetime.strptime(delivery.stamp, "%Y-%m-%dT%H-%MZ").replace(tzinfo=dt.UTC)
    if is_ahead(int(moment.timestamp() * 1000), now_ms):
        return True
    try:
        return is_ahead(read_manifest(store, delivery).created_ms, now_ms)
    except InvalidArgumentError:
        return False  # Loading the delivery reports what is wrong with it.
