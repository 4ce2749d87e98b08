"""Refresh Spark's cache entries over earlier versions of a table after a commit of this session.

::

    df.cache()           entry: plan of df, version 3       commit 4 -->  plan of df          -+-> rows of version 4
                                                                          the plan at version 4 -+
    CACHE TABLE t        entry: plan of t, version 3        commit 4 -->  the plan at version 4 --> rows of version 4

Each statement resolves a name again, but a DataFrame keeps its plan, so its entry has two keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path
from pydelta.engines.spark.scan.refresh import indexes_in, with_newest
from pydelta.errors import DeltaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydelta.engines.spark.scan.index import DeltaFileIndex
    from pydelta.log import Snapshot

__all__ = [
    "cached_versions", "drop_halves", "forget_cached", "plans_stay", "reads_cache", "refresh_caches", "uses_cache",
]  # fmt: skip

_log = logging.getLogger(__name__)
_ATTRIBUTE = "_pydelta_two_keys"
_AS_THEY_ARE = "pydelta.plansAsTheyAre"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TwoKeys:
    """The plans under which one entry is found.

    Args:
        first: The plan that was cached.
        now: The same plan over the newest version.
    """

    first: Any
    now: Any

    @property
    def plans(self) -> list[Any]:
        return [self.now] if self.first is self.now else [self.first, self.now]


class _Entries:
    """The entries of Spark's cache, whose list has no accessor."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = Jvm.of(spark)
        self.manager: Any = self._jvm.session.sharedState().cacheManager()
        held: list[_TwoKeys] | None = getattr(spark.sparkContext, _ATTRIBUTE, None)
        if held is None:
            held = []
            setattr(spark.sparkContext, _ATTRIBUTE, held)
        self.pairs = held

    @property
    def none(self) -> bool:
        return bool(self.manager.isEmpty())

    def all(self) -> list[Any]:
        return list(self._jvm.to_list(self._field().get(self.manager)))

    def of(self, plan: Any) -> Any | None:
        """Return the entry of a plan."""
        found = self.manager.lookupCachedData(self._jvm.session, plan)
        return found.get() if found.isDefined() else None

    def settle(self) -> None:
        """Drop both keys of an entry if one was unpersisted, and join keys that Spark has separated.

        When an entry goes, Spark creates each unread entry built on it again: separately for each key, and for the
        first key over its old version.
        """
        for pair in list(self.pairs):
            first, now = self.of(pair.first), self.of(pair.now)
            if first is not None and now is not None:
                if not self._shared(first, now):
                    self.drop([pair.first])
                    self._add_key(pair, now)
            else:
                self.drop(pair.plans)
                self.pairs.remove(pair)

    def by_keys(self) -> list[_TwoKeys]:
        """Return the keys of each entry, once. Both are equal if the entry has one key."""
        plans = [entry.plan() for entry in self.all()]
        known = [plan for pair in self.pairs for plan in pair.plans]
        single = [plan for plan in plans if not any(bool(plan.sameResult(other)) for other in known)]
        return [*(_TwoKeys(first=plan, now=plan) for plan in single), *reversed(self.pairs)]

    def add(self, keys: _TwoKeys, store: Any) -> None:
        """Cache a plan as another one was cached. If that had no name, add the first key as well."""
        self.manager.cacheQuery(self._jvm.session, keys.now, store.tableName(), store.storageLevel())
        made = self.of(keys.now)
        if made is not None and not store.tableName().isDefined() and not bool(keys.now.sameResult(keys.first)):
            self._add_key(keys, made)
            self.pairs.append(keys)

    def drop(self, plans: list[Any]) -> None:
        """Drop entries, and keep those that were built on them."""
        for plan in plans:
            self.manager.uncacheQuery(self._jvm.session, plan, False, False)

    def _add_key(self, keys: _TwoKeys, entry: Any) -> None:
        second = self._jvm.view.org.apache.spark.sql.execution.CachedData(keys.first, entry.cachedRepresentation())
        field = self._field()
        field.set(self.manager, field.get(self.manager).prepended(second))

    def _shared(self, one: Any, other: Any) -> bool:
        code = self._jvm.java_system.identityHashCode
        return bool(code(store_of(one)) == code(store_of(other)))

    def _field(self) -> Any:
        fields = self.manager.getClass().getDeclaredFields()
        field = next(item for item in fields if str(item.getName()).endswith("cachedData"))
        field.setAccessible(True)
        return field

    def used_by(self, plan: Any) -> bool:
        used = self.manager.useCachedData(plan, *self._jvm.rest_of(self.manager, "useCachedData", 1))
        return not bool(used.fastEquals(plan))


def store_of(entry: Any) -> Any:
    """Return the object that holds an entry's rows, name and storage level."""
    return entry.cachedRepresentation().cacheBuilder()


def refresh_caches(spark: SparkSession, table_uri: str) -> int:
    """Rebuild Spark's cache entries over unpinned scans of a table. Call it after each commit of this session.

    An entry over a version that the user named stays. An entry is dropped if its table changed its columns, since its
    plan no longer fits. A failure here never fails the commit: it is logged and the entry is dropped.

    Args:
        spark: The session.
        table_uri: Root of the table. A table that was replaced has a new id at the old location.

    Returns:
        The number of entries that were rebuilt or dropped.
    """
    entries = _Entries(spark)
    if entries.none:
        return 0
    latest: list[Snapshot] = []

    def newest(index: DeltaFileIndex) -> Snapshot | None:
        if index.files.identity.location.rstrip("/") != table_uri.rstrip("/"):
            return None
        if not latest:
            latest.append(log_for_path(spark, table_uri).update())
        return latest[0]

    with _plans_stay(spark):
        return _refreshed(spark, entries, table_uri, newest)


def _refreshed(
    spark: SparkSession, entries: _Entries, table_uri: str, newest: Callable[[DeltaFileIndex], Snapshot | None]
) -> int:
    entries.settle()
    stale: list[tuple[_TwoKeys, Any, Any]] = []
    for keys in entries.by_keys():
        entry = entries.of(keys.now)
        if entry is None:
            continue
        try:
            moved = with_newest(spark, keys.now, newest)
        except (DeltaError, Py4JError) as error:
            _log.warning("a cached plan over %s could not be rebuilt and is dropped: %s", table_uri, error)
            moved = None
        if moved is not keys.now:
            stale.append((keys, moved, store_of(entry)))
    for keys, *_ in stale:  # Drop all first, since Spark rebuilds dependent entries over old versions.
        entries.drop(keys.plans)
        if keys in entries.pairs:
            entries.pairs.remove(keys)
    for keys, moved, store in reversed(stale):  # Go from the oldest on, because others may be built on it.
        if moved is not None:
            entries.add(_TwoKeys(first=keys.first, now=moved), store)
    return len(stale)


def drop_halves(spark: SparkSession) -> None:
    """Drop both keys of each entry of which one key was unpersisted."""
    entries = _Entries(spark)
    if entries.pairs:
        with _plans_stay(spark):
            entries.settle()


@contextmanager
def _plans_stay(spark: SparkSession) -> Iterator[None]:
    """Keep plans at their versions in the block, on this thread. Spark's cache finds its entries by these plans."""
    spark.sparkContext.setLocalProperty(_AS_THEY_ARE, "true")
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(_AS_THEY_ARE, None)  # type: ignore[arg-type] # None takes it away


def plans_stay(spark: SparkSession) -> bool:
    """Return whether the calling JVM thread plans something for the cache, at the versions that the cache knows."""
    return spark.sparkContext.getLocalProperty(_AS_THEY_ARE) is not None


def reads_cache(frame: DataFrame) -> bool:
    """Return whether a frame, or a part of its input, comes from Spark's cache or will fill it."""
    entries = _Entries(frame.sparkSession)
    if entries.none:
        return False
    again = Jvm.of(frame.sparkSession).frame(frame._jdf.queryExecution().analyzed())
    return entries.used_by(again._jdf.queryExecution().normalized())


def uses_cache(spark: SparkSession, plan: Any) -> bool:
    """Return whether a part of an analysed plan is in Spark's cache, at the versions that the plan reads."""
    return _Entries(spark).used_by(plan)


def cached_versions(spark: SparkSession, scans: Sequence[DeltaFileIndex]) -> list[Mapping[DeltaFileIndex, Snapshot]]:
    """Find the versions that Spark's cache holds of the tables of scans, and that are not older than the scans.

    Returns:
        For each version, the latest first, the snapshot that each of the scans would read.
    """
    entries = _Entries(spark)
    if entries.none:
        return []
    jvm = Jvm.of(spark)
    cached = [index for entry in entries.all() for index in indexes_in(jvm, entry.plan()) if not index.files.pinned]
    found: dict[int, dict[DeltaFileIndex, Snapshot]] = {}
    for held in cached:
        for index in scans:
            here, there = index.files.identity, held.files.identity
            if (here.location, here.table_id) == (there.location, there.table_id) and here.version <= there.version:
                found.setdefault(there.version, {})[index] = held.files.snapshot
    return [found[version] for version in sorted(found, reverse=True)]


def forget_cached(spark: SparkSession, table_uri: str) -> None:
    """Drop Spark's cache entries over any version of a table, because its name will refer to another table."""
    entries = _Entries(spark)
    if entries.none:
        return
    jvm, root = Jvm.of(spark), table_uri.rstrip("/")
    with _plans_stay(spark):
        for plan in [entry.plan() for entry in entries.all()]:
            if any(index.files.identity.location.rstrip("/") == root for index in indexes_in(jvm, plan)):
                entries.drop([plan])
        entries.settle()
