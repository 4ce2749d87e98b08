"""List the session settings of the reference engine: what each means, and what this engine makes of it.

``honoured`` ones are aliases of a setting of ours. ``refused`` ones would change rows, schema, protocol or the meaning
of a commit, and only one value is the behaviour here: any other is an error. The rest has no meaning here: performance,
layout, switches that bring an old defect back, other formats. ``docs/guides/settings.md`` shows the table; a test
compares the two.
"""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.errors.suggestions import nearest

__all__ = [
    "PREFIX",
    "ReferenceSetting",
    "check_reference_settings",
    "counting_settings",
    "guide_tables",
    "reference_settings",
]

PREFIX: Final = "spark.databricks.delta."
DEFAULTS_PREFIX: Final = PREFIX + "properties.defaults."
_ONLY: Final = "only "


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSetting:
    """One setting of the reference engine.

    Args:
        key: Its full name.
        meaning: What it is for, in one line.
        ours: Our setting of the same meaning, without ``spark.pydelta.``; None where it is not honoured.
        only: The one value (ignoring case) that is the behaviour here; None where every value is passed over.
        default: What the reference has where it is not set; None for nothing.
    """

    key: str
    meaning: str
    ours: str | None = None
    only: str | None = None
    default: str | None = None


@functools.cache
def counting_settings() -> Mapping[str, ReferenceSetting]:
    """Return those that are honoured or refused, by full name, in the order of the table."""
    return {item.key: item for item in _parsed()}


@functools.cache
def reference_settings() -> Mapping[str, ReferenceSetting]:
    """Return all of them by full name: those that count, then those without meaning here, from ``reference.toml``."""
    text = importlib.resources.files("pydelta.settings").joinpath("reference.toml").read_text(encoding="utf-8")
    others = (ReferenceSetting(key=_full(name), **row) for name, row in tomllib.loads(text).items())
    return {**counting_settings(), **{item.key: item for item in others}}


def _parsed() -> Iterator[ReferenceSetting]:
    more = dict(item.split("=") for item in _MORE_DEFAULTS.split())
    for line in _TABLE.strip().splitlines():
        given, rule, meaning = line.split(" | ")
        name, separator, value = given.partition("=")
        default = value if separator else more.get(name)
        if rule.startswith(_ONLY):
            only = rule.removeprefix(_ONLY)
            yield ReferenceSetting(key=_full(name), meaning=meaning, only=only, default=default)
        else:
            yield ReferenceSetting(key=_full(name), meaning=meaning, ours=rule, default=default)


def _full(name: str) -> str:
    return name if name.startswith("spark.databricks.io.") else PREFIX + name


def check_reference_settings(session: Mapping[str, str]) -> None:
    """Refuse what a session sets and this engine would silently do otherwise.

    Args:
        session: All settings of a Spark session.

    Raises:
        InvalidArgumentError: A setting has a value that is not supported and would change what is written.
        UnknownSettingError: A name that nothing reads, within a letter or two of one that is honoured or refused.
    """
    known = counting_settings()
    for key, value in session.items():
        if not key.startswith(PREFIX) or key.startswith(DEFAULTS_PREFIX):
            continue
        setting = known.get(key)
        if setting is None:
            _refuse_misspelling(key)
        elif setting.only is not None and value.strip().lower() != setting.only.lower():
            raise InvalidArgumentError(
                f"{key} is {value!r}, which this engine does not support: it always works as with {setting.only!r}. "
                f"Its meaning: {setting.meaning}",
                hint=f"Unset it with spark.conf.unset({key!r}), or set it to {setting.only}.",
            )


def _refuse_misspelling(key: str) -> None:
    """Names of other engines pass; one that looks like a setting that counts would be passed over in silence."""
    meant = nearest(key, counting_settings(), cutoff=0.95)
    if meant is not None:
        raise UnknownSettingError(f"Unknown setting {key!r}.", hint=f"Did you mean {meant!r}?")


def guide_tables() -> str:
    """Render the tables of the guide as Markdown."""
    honoured = [f"| `{item.key}` | `spark.pydelta.{item.ours}` | {item.meaning} |" for item in _kind("ours")]
    refused = [f"| `{item.key}` | `{item.only}` | {item.meaning} |" for item in _kind("only")]
    rest = [
        f"| `{item.key}` | {item.meaning} |"
        for item in reference_settings().values()
        if not item.ours and not item.only
    ]
    return "\n".join(
        [
            "## Honoured",
            "| setting of the reference | our name | meaning |\n|---|---|---|",
            *honoured,
            "",
            "## Refused unless they have one value",
            "| setting | allowed value | meaning |\n|---|---|---|",
            *refused,
            "",
            "## Ignored",
            "| setting | meaning in the reference |\n|---|---|",
            *rest,
        ]
    )


def _kind(attribute: str) -> list[ReferenceSetting]:
    return [item for item in reference_settings().values() if getattr(item, attribute)]


_TABLE: Final = """
autoCompact.enabled | autoCompact.enabled | Compact small files after a write.
autoCompact.maxFileSize=134217728 | autoCompact.maxFileSize | Size of the files that auto compaction makes.
autoCompact.minFileSize | autoCompact.minFileSize | Files of this size and larger are left alone.
autoCompact.minNumFiles=50 | autoCompact.minNumFiles | Small files that a partition must have.
clone.replaceEnabled=true | only true | Whether CREATE OR REPLACE … CLONE replaces a table.
commitInfo.userMetadata | commit.userMetadata | Text for the history.
convert.partitionValues.ignoreCastFailure | only false | Whether CONVERT takes null for a folder's value that is not of its column's type.
convertEmptyToNullForStringPartitionCol | only true | Whether an empty text in a partition column is null when constraints are checked.
delete.deletionVectors.persistent | only true | Whether DELETE writes deletion vectors where the table enables them.
deltaTableBuilder.forceTablePropertyLowerCase.enabled | only false | Whether the builder writes names of properties in lower case.
dynamicPartitionOverwrite.enabled=true | only true | Whether partitionOverwriteMode=dynamic is followed.
insert.byName.schemaEvolution.enabled | only true | Whether INSERT BY NAME adds columns where schema evolution is on.
insert.preserveNullSourceStructs=true | only true | Whether a null struct that is inserted stays null.
legacy.storeOptionsAsProperties=false | only false | Whether options of saveAsTable become properties of the table.
maxCommitAttempts=10000000 | commit.maxAttempts | Races that a commit may lose before it gives up.
maxSnapshotLineageLength=50 | log.maxSnapshotChain | Commits applied on top of each other before a snapshot is rebuilt.
merge.deletionVectors.persistent=true | only true | Whether MERGE writes deletion vectors where the table enables them.
merge.preserveNullSourceStructs=true | only true | Whether a null struct of the source stays null.
merge.preserveNullSourceStructs.updateStar=true | only true | The same, for UPDATE SET *.
optimize.maxDeletedRowsRatio | optimize.maxDeletedRowsRatio | Files of which a larger part is deleted are rewritten.
optimize.maxFileSize=1073741824 | optimize.maxFileSize | Size of the files that OPTIMIZE makes.
optimize.minFileSize=1073741824 | optimize.minFileSize | Files of this size and larger are left alone.
optimizeMetadataQuery.enabled=true | read.metadataQuery | Answer count(*), min and max from the log.
optimizeWrite.binSize=536870912b | write.optimizeBinSize | Bytes that an optimised write brings together for one task.
optimizeWrite.enabled | write.optimize | Shuffle rows before a write, so that partitions get few files.
properties.defaults.minReaderVersion=1 | properties.defaults.minReaderVersion | Reader version of a new table.
properties.defaults.minWriterVersion=2 | properties.defaults.minWriterVersion | Writer version of a new table.
replace.protocolDowngradeAllowed=false | only false | Whether a REPLACE may take features off the protocol.
replaceOn.dataframe.writer.enabled=true | only true | Whether a DataFrame writer takes the option replaceOn.
replaceUsing.dataframe.writer.enabled=true | only true | The same, for replaceUsing.
replaceWhere.constraintCheck.enabled | write.replaceWhereCheck | Refuse rows of a replaceWhere that do not satisfy its condition.
replaceWhere.dataColumns.enabled | write.replaceWhereDataColumns | Let replaceWhere name columns that do not partition the table.
replaceWhere.dataColumnsWithCDF.enabled=true | only true | Whether such a write records a change data feed.
resolveMergeUpdateStructsByName.enabled | only true | Whether fields of structs are matched by name in UPDATE and MERGE.
restore.protocolDowngradeAllowed=false | only false | Whether a RESTORE or CLONE may take features off the protocol.
retentionDurationCheck.enabled=true | vacuum.retentionCheck | VACUUM refuses a retention below the table's.
schema.autoMerge.enabled=false | schema.autoMerge | Add the data's new columns to the table.
stats.collect=true | only true | Whether data files get statistics.
streaming.allowSchemaLocationOutsideCheckpointLocation | stream.schemaLocationAnywhere | Let a stream keep its schemas outside of its checkpoint.
timeTravel.resolveOnIdentifier.enabled=true | only true | Whether a name or path that ends in @v1 means version 1.
typeWidening.allowAutomaticWidening | only ALWAYS | Which types schema evolution may widen, where the table allows it.
update.deletionVectors.persistent | only true | Whether UPDATE writes deletion vectors where the table enables them.
updateAndMergeCastingFollowsAnsiEnabledFlag | only false | Whether UPDATE and MERGE cast by ANSI's flag and not by the store assignment policy.
variant.forceUsePreviewTableFeature=false | only false | Whether a new table with variants gets the preview's feature.
write.dataFilesToSubdir=false | only false | Whether data files go to a folder `data/`.
write.txnAppId | write.txnAppId | Application that changes of rows are committed for; with the next one, each version once.
write.txnVersion | write.txnVersion | The application's version.
write.txnVersion.autoReset.enabled | write.txnVersionAutoReset | Unset that version in the session after each command that used it.
write.utcTimestampPartitionValues=true | only true | Whether times in partition values are written in UTC.
"""  # noqa: E501
"""Name, rule (our setting; ``only`` and the value that is the behaviour here), meaning."""
_MORE_DEFAULTS: Final = """
convert.partitionValues.ignoreCastFailure=false convertEmptyToNullForStringPartitionCol=true
delete.deletionVectors.persistent=true deltaTableBuilder.forceTablePropertyLowerCase.enabled=false
insert.byName.schemaEvolution.enabled=true optimize.maxDeletedRowsRatio=0.05 replaceWhere.constraintCheck.enabled=true
replaceWhere.dataColumns.enabled=true resolveMergeUpdateStructsByName.enabled=true
streaming.allowSchemaLocationOutsideCheckpointLocation=false typeWidening.allowAutomaticWidening=ALWAYS
update.deletionVectors.persistent=true updateAndMergeCastingFollowsAnsiEnabledFlag=false
write.txnVersion.autoReset.enabled=false
"""
"""Defaults of the settings whose line has no room for one."""
