"""Read ``CHANGES FROM …`` and ``changes(name)`` (from Spark 4.2 on) as options of the change feed.

::

    SELECT * FROM t CHANGES FROM VERSION 1 EXCLUSIVE  --parsed--+
    read.option("startingVersion", 1).changes("t")  --Spark-----+--> ChangelogContext --> startingVersion = 2, …

The feed has two rows per update, ``update_preimage`` and ``update_postimage``, and no copied rows. So
``computeUpdates`` changes nothing, nor does the ``deduplicationMode`` that drops copied rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition

if TYPE_CHECKING:
    from pydelta.engines.spark.jvm import Jvm

__all__ = ["context_of_options", "feed_options"]

_TAKEN: Final = frozenset(
    f"{side}{kind}" for side in ("starting", "ending") for kind in ("version", "timestamp", "boundinclusive")
) | {"computeupdates", "deduplicationmode", "readchangefeed", "readchangedata"}
_MS: Final = 1000


def context_of_options(jvm: Jvm, given: Mapping[str, str]) -> Any:
    """Return Spark's reading of the options of ``changes(name)``. Spark refuses options that do not fit together."""
    options = jvm.view.org.apache.spark.sql.util.CaseInsensitiveStringMap(dict(given))
    return jvm.view.org.apache.spark.sql.catalyst.analysis.ChangelogContextUtils.fromOptions(options, jvm.time_zone())


def feed_options(jvm: Jvm, context: Any, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the feed, with both ends included, and the reader's unrelated options.

    Args:
        jvm: The session's bindings.
        context: Spark's ``ChangelogContext``.
        given: The reader's options.

    Raises:
        InvalidArgumentError: Net changes, which the feed does not have, or a version that is not a number.
    """
    if str(context.deduplicationMode()) == "NET_CHANGES":
        raise InvalidArgumentError(
            "deduplicationMode = 'netChanges' was asked for; but the change data feed has every change.",
            hint="Leave it out, and keep the last row of each key by _commit_version.",
            condition=Condition.of("DELTA_CHANGELOG_UNSUPPORTED_OPTION", option="deduplicationMode"),
        )
    found = {name: value for name, value in given.items() if name.lower() not in _TAKEN} | {"readChangeFeed": "true"}
    asked = context.range()
    kind = str(asked.getClass().getSimpleName())
    if kind == "UnboundedRange":
        return found
    if kind == "VersionRange":
        for word, text, step in _ends(asked, asked.startingVersion, asked.endingVersion):
            found[f"{word}Version"] = str(_version(text) + step)
        return found
    for word, micros, step in _ends(asked, asked.startingTimestamp, asked.endingTimestamp):
        # A commit's time is in whole milliseconds, so round inwards: the start up, the end down.
        whole = -(-micros // _MS) if word == "starting" else micros // _MS
        if whole * _MS == micros:
            whole += step
        found[f"{word}Timestamp"] = str(jvm.view.java.time.Instant.ofEpochMilli(whole).toString())
    return found


def _ends(asked: Any, starting: Any, ending: Any) -> list[tuple[str, Any, int]]:
    """Return the given ends of a range, each with the step inwards if it is exclusive."""
    ends = [("starting", starting(), 0 if asked.startingBoundInclusive() else 1)]
    if (last := ending()).isPresent():
        ends.append(("ending", last.get(), 0 if asked.endingBoundInclusive() else -1))
    return ends


def _version(text: Any) -> int:
    if not str(text).strip().isdecimal():
        raise InvalidArgumentError(
            f"{text!r} is not a version.",
            hint="Versions are whole numbers from 0; see DESCRIBE HISTORY.",
            condition=Condition.of("DELTA_VERSION_INVALID", version=text),
        )
    return int(str(text))
