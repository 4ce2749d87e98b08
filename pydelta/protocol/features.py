"""Check which features a table needs and whether this engine may read or write it.

Protocol: "Protocol Evolution", "Table Features", "Valid Feature Names".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError
from pydelta.errors.conditions import Condition
from pydelta.protocol.actions import Metadata, Protocol
from pydelta.protocol.feature_table import FEATURES
from pydelta.protocol.schema import parse_schema
from pydelta.settings.table import iceberg_compat_version

__all__ = [
    "GIVEN_UP",
    "at_least",
    "ensure_readable",
    "ensure_writable",
    "implied_features",
    "is_request",
    "partition_columns_in_files",
    "refuse_unasked",
    "required_protocol",
    "supports",
    "upgrade",
    "with_feature",
    "without_feature",
]


_MAX_READER, _MAX_WRITER = 3, 7
_CATALOG = {"catalogManaged", "catalogOwned", "catalogOwned-preview"}
_PARTITIONS_IN_FILES = "materializePartitionColumns"
GIVEN_UP: Final = "pydelta-givenUp"
"""A feature that no engine supports: that of versions that an erasure has given up. See ``pydelta.log.given_up``."""
_TO_ASK_FOR = {"timestampNtz"}
"""Columns enable these features in a new table. An existing table must ask for them by name."""


def implied_features(protocol: Protocol) -> frozenset[str]:
    """Return the names of all supported features, both listed and implied by the protocol's versions."""
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    for feature in FEATURES.values():
        by_writer = feature.legacy_writer is not None and feature.legacy_writer <= protocol.min_writer_version <= 6
        if by_writer and (feature.legacy_reader is None or feature.legacy_reader <= protocol.min_reader_version):
            listed.add(feature.name)
    return frozenset(listed)


def supports(protocol: Protocol, feature: str) -> bool:
    """Return whether the table supports a feature, listed or implied by its versions. It may still not be in use."""
    return feature in implied_features(protocol)


def partition_columns_in_files(protocol: Protocol | None, configuration: Mapping[str, str]) -> bool:
    """Return whether data files also contain the partition columns.

    Protocol: "Materialize Partition Columns", "Iceberg Compatibility V1", "Iceberg Compatibility V2".

    Args:
        protocol: The table's protocol; None for a new table.
        configuration: The table's properties. Those of a new table may ask for the feature.
    """
    if iceberg_compat_version(configuration):
        return True
    if protocol is not None and supports(protocol, _PARTITIONS_IN_FILES):
        return True
    requests = (f"delta.feature.{_PARTITIONS_IN_FILES}", "delta.enableMaterializePartitionColumnsFeature")
    return any(configuration.get(name, "").strip().lower() in ("supported", "enabled", "true") for name in requests)


def ensure_readable(protocol: Protocol, *, table: str | None = None) -> None:
    """Check that this engine may read the table.

    Raises:
        UnsupportedFeatureError: Names every unknown reader feature, or the version.
    """
    _refuse_version(protocol, protocol.min_reader_version, _MAX_READER, "read", table)
    if protocol.min_reader_version == _MAX_READER:
        known = frozenset(feature.name for feature in FEATURES.values() if feature.reads)
        _refuse_unknown(protocol.reader_features or (), known, "read", table)


def ensure_writable(protocol: Protocol, *, table: str | None = None) -> None:
    """Check that this engine may write to the table.

    Raises:
        UnsupportedFeatureError: Names every unknown feature, or the version.
    """
    ensure_readable(protocol, table=table)
    _refuse_version(protocol, protocol.min_writer_version, _MAX_WRITER, "write", table)
    if protocol.min_writer_version == _MAX_WRITER:
        known = frozenset(feature.name for feature in FEATURES.values() if feature.writes)
        _refuse_unknown(protocol.writer_features or (), known, "write", table)


def _refuse_version(protocol: Protocol, needed: int, most: int, verb: str, table: str | None) -> None:
    if not 1 <= needed <= most:
        raise UnsupportedFeatureError(
            f"The table needs {verb.removesuffix('e')}er version {needed}; this engine {verb}s up to {most}.",
            hint="Use a newer version of this engine.",
            table=table,
            condition=Condition.of(
                "DELTA_INVALID_PROTOCOL_VERSION",
                tableNameOrPath=table,
                readerRequired=protocol.min_reader_version,
                writerRequired=protocol.min_writer_version,
            ),
        )


def _refuse_unknown(listed: Iterable[str], known: frozenset[str], verb: str, table: str | None) -> None:
    unknown = sorted(set(listed) - known)
    if unknown:
        plural = "features" if len(unknown) > 1 else "feature"
        raise UnsupportedFeatureError(
            f"This engine cannot {verb} the table: it does not support the table {plural} {', '.join(unknown)}.",
            features=unknown,
            hint=_hint(unknown, plural),
            table=table,
            condition=Condition.of(
                "DELTA_UNSUPPORTED_FEATURES_FOR_READ" if verb == "read" else "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
                tableNameOrPath=table,
                unsupported=unknown,
            ),
        )


def _hint(unknown: Sequence[str], plural: str) -> str:
    """Suggest what to do about features that this engine does not know."""
    if _CATALOG & set(unknown):
        return "Its catalog decides which commits count, so it cannot be read by path: use an engine that asks it."
    return f"Use an engine that supports {', '.join(unknown)}, or drop the {plural} with one that does."


def needed_features(metadata: Metadata) -> frozenset[str]:
    """Find the features that the metadata enables through properties, types or field metadata."""
    schema = parse_schema(metadata.schema_string)
    return frozenset(
        feature.name
        for feature in FEATURES.values()
        if feature.enabled_by is not None and feature.enabled_by.holds(metadata, schema)
    )


def _requested(configuration: Mapping[str, str]) -> tuple[set[str], int, int]:
    """Parse ``delta.feature.<name>`` and the minimum versions that the user asks for."""
    features = set()
    for key, value in configuration.items():
        if key.startswith("delta.feature."):
            if value.strip().lower() not in ("supported", "enabled"):
                raise InvalidArgumentError(
                    f"{key} is {value!r}.",
                    hint="Set it to 'supported'.",
                    condition=Condition.of("DELTA_UNSUPPORTED_FEATURE_STATUS", feature=key, status=value),
                )
            features.add(key.removeprefix("delta.feature."))
    versions = []
    for key, top in (("delta.minReaderVersion", _MAX_READER), ("delta.minWriterVersion", _MAX_WRITER)):
        text = configuration.get(key, "0")
        if not text.isdigit() or int(text) > top:
            raise InvalidArgumentError(
                f"{key} is {text!r}.",
                hint=f"Set it to a whole number up to {top}.",
                condition=Condition.of("DELTA_PROTOCOL_PROPERTY_NOT_INT", key=key, value=text),
            )
        versions.append(int(text))
    return features, versions[0], versions[1]


def is_request(name: str) -> bool:
    """Return whether a property requests a protocol change and is not stored in the table."""
    return name.startswith("delta.feature.") or name in ("delta.minReaderVersion", "delta.minWriterVersion")


def required_protocol(metadata: Metadata) -> Protocol:
    """Return the lowest protocol for a new table: (1, 2) unless a property or a type needs more.

    Raises:
        InvalidArgumentError: ``delta.feature.*`` or a minimum version is invalid.
        UnsupportedFeatureError: This engine could not write to the table.
    """
    requested, reader, writer = _requested(metadata.configuration)
    base = Protocol(min_reader_version=max(1, min(reader, 2)), min_writer_version=max(2, min(writer, 6)))
    if reader == _MAX_READER or writer == _MAX_WRITER:
        base = _listed(implied_features(base) if writer < _MAX_WRITER else frozenset(), reader == _MAX_READER)
    protocol = upgrade(base, needed_features(metadata) | requested)
    ensure_writable(protocol)
    return protocol


def upgrade(protocol: Protocol, features: Iterable[str]) -> Protocol:
    """Add features to the protocol: by legacy versions if they suffice, by feature lists otherwise.

    Raises:
        UnsupportedFeatureError: The protocol does not define a feature of that name.
    """
    wanted = set(features)
    for name in list(wanted):
        wanted.update(FEATURES[name].requires if name in FEATURES else ())
    _refuse_undefined(wanted)
    have = implied_features(protocol)
    missing = wanted - have
    if not missing:
        return protocol
    if protocol.min_writer_version < _MAX_WRITER and all(FEATURES[name].legacy_writer for name in missing):
        return Protocol(
            min_reader_version=max([protocol.min_reader_version, *(FEATURES[n].legacy_reader or 1 for n in missing)]),
            min_writer_version=max([protocol.min_writer_version, *(FEATURES[n].legacy_writer or 1 for n in missing)]),
        )
    return _listed(have | wanted, protocol.min_reader_version == _MAX_READER)


def refuse_unasked(protocol: Protocol, features: Iterable[str], *, table: str) -> None:
    """Refuse changed columns that need a feature which, as in the reference, must be enabled explicitly.

    Raises:
        UnsupportedFeatureError: The protocol lacks such a feature.
    """
    lacking = sorted((_TO_ASK_FOR & set(features)) - implied_features(protocol))
    if lacking:
        wanted = ", ".join(f"'delta.feature.{name}' = 'supported'" for name in lacking)
        raise UnsupportedFeatureError(
            f"The new columns need the table feature {', '.join(lacking)}, which this table does not have.",
            features=lacking,
            hint=f"Older readers cannot read it afterwards. ALTER TABLE … SET TBLPROPERTIES ({wanted}) adds it.",
            table=table,
            condition=Condition.of(
                "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
                unsupportedFeatures=lacking,
                supportedFeatures=sorted(implied_features(protocol)),
            ),
        )


def _refuse_undefined(names: Iterable[str]) -> None:
    unknown = sorted(set(names) - FEATURES.keys())
    if unknown:
        raise UnsupportedFeatureError(
            f"There is no table feature called {', '.join(unknown)}.",
            features=unknown,
            hint=f"The features are: {', '.join(sorted(FEATURES))}.",
            condition=Condition.of(
                "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG", configs=[f"delta.feature.{name}" for name in unknown]
            ),
        )


def with_feature(protocol: Protocol, name: str) -> Protocol:
    """Add one feature (and those it requires) to the protocol, always in lists.

    Raises:
        UnsupportedFeatureError: The protocol does not define this feature.
    """
    _refuse_undefined([name])
    have = implied_features(protocol)
    if name in have:
        return protocol
    return _listed(have | {name, *FEATURES[name].requires}, protocol.min_reader_version == _MAX_READER)


def without_feature(protocol: Protocol, name: str) -> Protocol:
    """Remove a feature from the protocol, and lower its versions as far as the remaining features allow."""
    left = implied_features(protocol) - {name}
    for writer in range(1, _MAX_WRITER):
        for reader in range(1, _MAX_READER):
            legacy = Protocol(min_reader_version=reader, min_writer_version=writer)
            if implied_features(legacy) == left and (reader == 1 or "columnMapping" in left):
                return legacy
    return _listed(left, False)


def at_least(protocol: Protocol, *, reader: int, writer: int) -> Protocol:
    """Raise the protocol to at least these versions.

    Raises:
        InvalidArgumentError: A version does not exist, or only the reader version has feature lists.
    """
    for kind, version, top in (("reader", reader, _MAX_READER), ("writer", writer, _MAX_WRITER)):
        if not 1 <= version <= top:
            raise InvalidArgumentError(
                f"This engine does not know {kind} version {version}.",
                hint=f"Give one from 1 to {top}.",
                condition=Condition.of("DELTA_INVALID_PROTOCOL_VERSION"),
            )
    if reader == _MAX_READER and writer < _MAX_WRITER:
        raise InvalidArgumentError(
            f"Reader version {reader} lists features, which needs writer version {_MAX_WRITER}, not {writer}.",
            hint=f"Give writer version {_MAX_WRITER}.",
            condition=Condition.of("DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE", writerVersion=_MAX_WRITER),
        )
    lists = max(writer, protocol.min_writer_version) == _MAX_WRITER
    if not lists:
        return Protocol(
            min_reader_version=max(reader, protocol.min_reader_version),
            min_writer_version=max(writer, protocol.min_writer_version),
        )
    requested: frozenset[str] = frozenset()
    if writer < _MAX_WRITER:
        requested = implied_features(Protocol(min_reader_version=reader, min_writer_version=writer))
    have = implied_features(protocol)
    if requested <= have and protocol.min_writer_version == _MAX_WRITER and reader <= protocol.min_reader_version:
        return protocol
    return _listed(have | requested, _MAX_READER in (reader, protocol.min_reader_version))


def _listed(features: frozenset[str] | set[str], reader_lists: bool) -> Protocol:
    """Return a protocol with feature lists. It has reader version 3 only if a feature or the caller needs it."""
    of_reader = tuple(sorted(name for name in features if FEATURES[name].reader))
    lists = reader_lists or any(FEATURES[name].legacy_reader is None for name in of_reader)
    reader = 2 if of_reader else 1
    if lists:
        reader = _MAX_READER
    return Protocol(
        min_reader_version=reader,
        min_writer_version=_MAX_WRITER,
        reader_features=of_reader if reader == _MAX_READER else None,
        writer_features=tuple(sorted(features)),
    )
