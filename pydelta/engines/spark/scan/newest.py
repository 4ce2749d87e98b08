"""Move the scans of a query to the newest versions of their tables when Spark plans it.

::

    DataFrame --action--> analysed plan --a normalisation rule of the session--> the plan over the newest versions
                                                                                   |
                                                            Spark's cache, optimizer, execution

Spark's rules are objects of a Scala class, which Python cannot extend, so the rule itself is Java
(``PydeltaNewestVersions``). A plan is moved as a whole, so within one query a table has one version.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pydelta.engines.spark.compiled import new_instance
from pydelta.engines.spark.java_objects import JavaObject, throwable
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.logs import log_for_path, settings_of
from pydelta.engines.spark.lru import LruCache
from pydelta.engines.spark.scan.caches import cached_versions, plans_stay, uses_cache
from pydelta.engines.spark.scan.refresh import all_scans_in, following, lowered, scans_in, with_newest
from pydelta.engines.spark.scan.schemas import changes_since
from pydelta.engines.spark.session.call_sites import without_call_sites
from pydelta.engines.spark.session.inside import inside
from pydelta.errors import DeltaError, SchemaMismatchError
from pydelta.errors.conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from pydelta.engines.spark.scan.index import DeltaFileIndex
    from pydelta.log import Snapshot

__all__ = ["fixed", "follow_newest", "moved", "offer_newest", "raised_while_planning"]

_CLASS: Final = "PydeltaNewestVersions"
_ATTRIBUTE: Final = "_pydelta_newest_versions"
_RAISED: Final[LruCache[str, DeltaError]] = LruCache(1000)
_Sessions: TypeAlias = LruCache[str, SparkSession]
_RECENT_SESSIONS: Final = 64
_OFFERING: Final = threading.Lock()


def follow_newest(jvm: Jvm) -> None:
    """Give the rule to the session and to sessions created from it. Does nothing if the session has it."""
    if getattr(jvm.spark, _ATTRIBUTE, False):
        return
    setattr(jvm.spark, _ATTRIBUTE, True)
    state = jvm.state
    rules = state.planNormalizationRules()
    if _has_rule(jvm, rules):
        return
    offer_newest(jvm)
    fields = state.getClass().getDeclaredFields()
    field = next(item for item in fields if str(item.getName()).endswith("planNormalizationRules"))
    field.setAccessible(True)
    field.set(state, rules.prepended(_rule(jvm, jvm.session, LruCache(_RECENT_SESSIONS))))


def offer_newest(jvm: Jvm) -> None:
    """Give the rule to sessions created from this one later.

    Sessions share the list of builders, which must not change while Spark makes another session. So a session gets the
    rule when it is enabled, not when another thread may be making sessions from it.
    """
    with _OFFERING:
        extensions = jvm.session.extensions()
        if not _has_rule(jvm, extensions.buildPlanNormalizationRules(jvm.session)):
            extensions.injectPlanNormalizationRule(_Builder(jvm, LruCache(_RECENT_SESSIONS)))


def _has_rule(jvm: Jvm, rules: Any) -> bool:
    return any(str(rule.getClass().getSimpleName()) == _CLASS for rule in jvm.to_list(rules))


def _rule(jvm: Jvm, session: Any, recent: _Sessions) -> Any:
    return new_instance(jvm.gateway, _CLASS, _Move(jvm, session, recent))


class _Builder(JavaObject):
    """The function that Spark calls for the rule of a new session."""

    class Java:
        """py4j: the interface that this object implements for the JVM."""

        implements = ("scala.Function1",)

    def __init__(self, jvm: Jvm, recent: _Sessions) -> None:
        self._jvm = jvm
        self._recent = recent

    def apply(self, session: Any) -> Any:
        """Return the rule."""
        return _rule(self._jvm, session, self._recent)


class _Move(JavaObject):
    """The function that a session's rule applies. It holds the session weakly, since the session holds the rule."""

    class Java:
        """py4j: the interface that this object implements for the JVM."""

        implements = ("java.util.function.BiFunction",)

    def __init__(self, jvm: Jvm, session: Any, recent: _Sessions) -> None:
        self._root = jvm
        self._key = str(session.sessionUUID())
        self._session = jvm.view.java.lang.ref.WeakReference(session)
        self._spark: SparkSession | None = jvm.spark if session is jvm.session else None
        self._recent = recent

    def apply(self, plan: Any, scans: str) -> Any:
        """Return the plan over the newest versions, or the error that the JVM must throw. See ``Calls.scans``."""
        try:
            with inside(), without_call_sites():
                found = all_scans_in(self._root, plan, scans)
                plan = lowered(self._root, plan, found)
                if not following(found) or plans_stay(self._root.spark):
                    return plan
                return _moved(self._of_session(), plan, following(found))
        except Py4JJavaError as error:
            return error.java_exception
        except DeltaError as error:
            _RAISED.put(str(error), error, 1)
            return throwable(self._root, error)

    def _of_session(self) -> SparkSession:
        found = self._spark or self._recent.get(self._key)
        if found is None:
            found = SparkSession(self._root.spark.sparkContext, self._session.get())
            self._recent.put(self._key, found, 1)
        return found


def raised_while_planning(message: str) -> DeltaError | None:
    """Return the error that the rule raised with a message, or None if the message is from elsewhere."""
    return _RAISED.get(message)


def moved(spark: SparkSession, plan: Any, target: Snapshot | None = None) -> Any:
    """Return an analysed plan over the newest versions of its tables, or the plan itself if it is up to date.

    Cached rows of a table that another program changed are read as long as they are cached.

    Args:
        spark: The session.
        plan: The plan.
        target: Snapshot of a command's table. Scans of that table are moved to this version.

    Raises:
        SchemaMismatchError: Columns that the plan reads were dropped or have another type.
    """
    return _moved(spark, plan, scans_in(Jvm.of(spark), plan), target)


def _moved(spark: SparkSession, plan: Any, scans: Sequence[DeltaFileIndex], target: Snapshot | None = None) -> Any:
    if not scans:
        return plan
    known: dict[str, Snapshot] = {} if target is None else {target.table_uri: target}
    for index in scans:
        location = index.files.identity.location
        if location not in known:
            known[location] = log_for_path(spark, location, index.files.storage).update()
    stale = [index for index in scans if _version(known[index.files.identity.location]) != index.version_and_id]
    if not stale or (target is None and settings_of(spark).read_pinned):
        return plan
    for held in cached_versions(spark, stale) if target is None else ():
        older = with_newest(spark, plan, held.get)
        if older is not None and uses_cache(spark, older):
            return older
    for index in stale:
        _check(index, known[index.files.identity.location])
    found = with_newest(spark, plan, lambda index: known.get(index.files.identity.location))
    assert found is not None, "the columns were checked"
    return found


def _version(snapshot: Snapshot) -> tuple[int, str]:
    return snapshot.version, "" if snapshot.metadata is None else snapshot.metadata.id


def _check(index: DeltaFileIndex, newest: Snapshot) -> None:
    changes = changes_since(index.files.snapshot, newest)
    if changes:
        raise SchemaMismatchError(
            f"The columns of the table at {newest.table_uri} have changed since the DataFrame was made: "
            f"{'; '.join(changes)}.",
            hint="Create the DataFrame again. spark.pydelta.read.pinned=true keeps DataFrames at their version.",
            table=newest.table_uri,
            condition=Condition.of(
                "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS", schemaDiff="\n".join(changes), legacyFlagMessage=""
            ),
        )


def fixed(spark: SparkSession, frame: DataFrame, target: Snapshot | None) -> DataFrame:
    """Return a frame that stays at one version of each table for all jobs of a command.

    Args:
        spark: The session.
        frame: The user's frame. Its columns keep their ids.
        target: Snapshot of the table that the command changes. The frame reads the table at this version.
    """
    jvm = Jvm.of(spark)
    plan = frame._jdf.queryExecution().analyzed()
    if not scans_in(jvm, plan):
        return frame
    now = moved(spark, moved(spark, plan), target)
    return jvm.frame(with_newest(spark, now, lambda index: index.files.snapshot, fix=True))
