"""Refuse settings of the reference engine that would change the written data in a way this engine does not support.

Each of them would change rows, schema, protocol or the meaning of a commit. Its default in the reference is the only
behaviour here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.errors.suggestions import nearest

__all__ = ["DEFAULTS_PREFIX", "PREFIX", "ReferenceSetting", "refuse_reference_settings", "refused_settings"]

PREFIX: Final = "spark.databricks.delta."
DEFAULTS_PREFIX: Final = PREFIX + "properties.defaults."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSetting:
    """A setting of the reference engine.

    Args:
        key: Full name.
        meaning: Meaning in one line.
        ours: Our setting of the same meaning, without ``spark.pydelta.``, or None if it is not honoured.
        only: The only value (ignoring case) with the behaviour of this engine, or None if every value is ignored.
        default: Default in the reference, or None for no default.
    """

    key: str
    meaning: str
    ours: str | None = None
    only: str | None = None
    default: str | None = None


@functools.cache
def refused_settings() -> Mapping[str, ReferenceSetting]:
    """Return the refused settings by full name, in the order of the table."""
    rows = (line.split(" | ") for line in _TABLE.strip().splitlines())
    return {
        PREFIX + name: ReferenceSetting(key=PREFIX + name, meaning=meaning, only=only, default=only)
        for name, only, meaning in rows
    }


def refuse_reference_settings(session: Mapping[str, str], honoured: Mapping[str, ReferenceSetting]) -> None:
    """Refuse settings of a session that this engine would otherwise silently ignore.

    Args:
        session: All settings of a Spark session.
        honoured: Settings that are aliases of ours.

    Raises:
        InvalidArgumentError: A value is not supported and would change the written data.
        UnknownSettingError: A name is not known, but within a letter or two of an honoured or refused one.
    """
    refused = refused_settings()
    for key, value in session.items():
        if not key.startswith(PREFIX) or key.startswith(DEFAULTS_PREFIX) or key in honoured:
            continue
        setting = refused.get(key)
        if setting is None:
            # Names of other engines are allowed. A misspelled setting would be ignored silently.
            meant = nearest(key, (*honoured, *refused), cutoff=0.95)
            if meant is not None:
                raise UnknownSettingError(f"Unknown setting {key!r}.", hint=f"Did you mean {meant!r}?")
        elif setting.only is not None and value.strip().lower() != setting.only.lower():
            raise InvalidArgumentError(
                f"{key} is {value!r}, which this engine does not support: it always works as with {setting.only!r}. "
                f"Its meaning: {setting.meaning}",
                hint=f"Unset it with spark.conf.unset({key!r}), or set it to {setting.only}.",
            )


_TABLE: Final = """
clone.replaceEnabled | true | Whether CREATE OR REPLACE … CLONE replaces an existing table.
convert.partitionValues.ignoreCastFailure | false | Whether CONVERT reads a folder's value that does not fit its column's type as null.
convertEmptyToNullForStringPartitionCol | true | Whether an empty string in a partition column counts as null when constraints are checked.
delete.deletionVectors.persistent | true | Whether DELETE writes deletion vectors where the table enables them.
deltaTableBuilder.forceTablePropertyLowerCase.enabled | false | Whether the table builder writes property names in lower case.
dynamicPartitionOverwrite.enabled | true | Whether partitionOverwriteMode=dynamic is followed.
insert.byName.schemaEvolution.enabled | true | Whether INSERT BY NAME adds columns where schema evolution is on.
insert.preserveNullSourceStructs | true | Whether a null struct that is inserted stays null.
legacy.storeOptionsAsProperties | false | Whether options of saveAsTable become properties of the table.
merge.deletionVectors.persistent | true | Whether MERGE writes deletion vectors where the table enables them.
merge.preserveNullSourceStructs | true | Whether a null struct of the source stays null.
merge.preserveNullSourceStructs.updateStar | true | Whether a null struct stays null in UPDATE SET *.
replace.protocolDowngradeAllowed | false | Whether a REPLACE may take features off the protocol.
replaceOn.dataframe.writer.enabled | true | Whether a DataFrame writer takes the option replaceOn.
replaceUsing.dataframe.writer.enabled | true | Whether a DataFrame writer takes the option replaceUsing.
replaceWhere.dataColumnsWithCDF.enabled | true | Whether replaceWhere over data columns records a change data feed.
resolveMergeUpdateStructsByName.enabled | true | Whether fields of structs are matched by name in UPDATE and MERGE.
restore.protocolDowngradeAllowed | false | Whether a RESTORE or CLONE may take features off the protocol.
stats.collect | true | Whether data files get statistics.
timeTravel.resolveOnIdentifier.enabled | true | Whether a name or path that ends in @v1 means version 1.
typeWidening.allowAutomaticWidening | ALWAYS | Which types schema evolution may widen, where the table allows it.
update.deletionVectors.persistent | true | Whether UPDATE writes deletion vectors where the table enables them.
updateAndMergeCastingFollowsAnsiEnabledFlag | false | Whether UPDATE and MERGE cast by the ANSI flag instead of the store assignment policy.
variant.forceUsePreviewTableFeature | false | Whether a new table with variants gets the preview's feature.
write.dataFilesToSubdir | false | Whether data files go to a folder `data/`.
write.utcTimestampPartitionValues | true | Whether times in partition values are written in UTC.
"""  # noqa: E501
"""Name, value with the behaviour of this engine, meaning."""
