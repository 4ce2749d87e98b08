"""Protocols: what a new table needs, what an upgrade lists, what is refused by name."""

from __future__ import annotations

import pytest

from pydelta.errors import InvalidArgumentError, UnsupportedFeatureError
from pydelta.protocol.actions import Metadata, Protocol
from pydelta.protocol.features import (
    at_least,
    ensure_readable,
    ensure_writable,
    implied_features,
    required_protocol,
    supports,
    upgrade,
    with_feature,
    without_feature,
)

LONG = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
NTZ = LONG.replace('"long"', '"timestamp_ntz"')


def _needed(schema=LONG, **configuration):
    return required_protocol(Metadata(id="x", schema_string=schema, configuration=configuration))


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({}, (1, 2, None, None)),
        ({"delta.appendOnly": "true"}, (1, 2, None, None)),
        ({"delta.constraints.c": "id > 0"}, (1, 3, None, None)),
        ({"delta.enableChangeDataFeed": "true"}, (1, 4, None, None)),
        ({"delta.columnMapping.mode": "name"}, (2, 5, None, None)),
        ({"delta.minWriterVersion": "4"}, (1, 4, None, None)),
        ({"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}, (3, 7, (), ())),
    ],
)
def test_a_new_table_gets_the_lowest_protocol(configuration, expected):
    protocol = _needed(**configuration)
    found = (
        protocol.min_reader_version,
        protocol.min_writer_version,
        protocol.reader_features,
        protocol.writer_features,
    )
    assert found == expected


def test_a_type_can_need_a_feature_and_the_old_ones_are_listed_with_it():
    protocol = _needed(NTZ)
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ("timestampNtz",)
    assert set(protocol.writer_features) == {"appendOnly", "invariants", "timestampNtz"}


def test_a_writer_feature_alone_leaves_the_reader_version():
    protocol = _needed(**{"delta.enableInCommitTimestamps": "true"})
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 7)
    assert protocol.reader_features is None
    assert "inCommitTimestamp" in protocol.writer_features


def test_a_reader_feature_is_in_both_lists():
    protocol = _needed(**{"delta.enableDeletionVectors": "true"})
    assert "deletionVectors" in protocol.reader_features
    assert "deletionVectors" in protocol.writer_features


def test_a_requested_feature_is_listed_and_a_wrong_request_is_refused():
    assert supports(_needed(**{"delta.feature.v2Checkpoint": "supported"}), "v2Checkpoint")
    with pytest.raises(UnsupportedFeatureError, match="flyingCarpets"):
        _needed(**{"delta.feature.flyingCarpets": "supported"})
    with pytest.raises(InvalidArgumentError, match="supported"):
        _needed(**{"delta.feature.v2Checkpoint": "maybe"})
    with pytest.raises(InvalidArgumentError, match="minReaderVersion"):
        _needed(**{"delta.minReaderVersion": "9"})


def test_unknown_features_are_all_named_and_the_writer_s_do_not_stop_a_reader():
    reader = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("b", "a", "v2Checkpoint"),
        writer_features=("a", "b"),
    )
    with pytest.raises(UnsupportedFeatureError) as caught:
        ensure_readable(reader, table="file:///t")
    assert caught.value.features == ("a", "b")
    assert "a, b" in str(caught.value)
    writer = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("icebergCompatV3", "appendOnly"))
    ensure_readable(writer)
    with pytest.raises(UnsupportedFeatureError, match="icebergCompatV3"):
        ensure_writable(writer)


@pytest.mark.parametrize(("reader", "writer"), [(4, 7), (0, 2), (1, 8), (1, 0)])
def test_versions_beyond_the_engine_are_refused(reader, writer):
    with pytest.raises(UnsupportedFeatureError, match="version"):
        ensure_writable(Protocol(min_reader_version=reader, min_writer_version=writer))


def test_versions_imply_features_and_column_mapping_needs_both():
    assert implied_features(Protocol(min_reader_version=1, min_writer_version=4)) == {
        "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
    }  # fmt: skip
    assert not supports(Protocol(min_reader_version=1, min_writer_version=5), "columnMapping")
    assert supports(Protocol(min_reader_version=2, min_writer_version=5), "columnMapping")


def test_an_upgrade_to_lists_keeps_what_the_versions_implied():
    upgraded = upgrade(Protocol(min_reader_version=1, min_writer_version=3), ["domainMetadata"])
    assert upgraded.min_writer_version == 7
    assert set(upgraded.writer_features) == {"appendOnly", "invariants", "checkConstraints", "domainMetadata"}
    assert upgrade(upgraded, ["domainMetadata"]) == upgraded
    assert "domainMetadata" in upgrade(upgraded, ["clustering"]).writer_features


def _protocol(reader, writer, *features):
    """Versions, and the features listed: those of readers found out by the version."""
    of_reader = tuple(name for name in features if name in ("deletionVectors", "v2Checkpoint", "columnMapping"))
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=of_reader if reader == 3 else None,
        writer_features=tuple(sorted(features)) if writer == 7 else None,
    )


_OLD = ("appendOnly", "invariants")


@pytest.mark.parametrize(
    ("protocol", "name", "expected"),
    [
        (_protocol(1, 2), "deletionVectors", _protocol(3, 7, *_OLD, "deletionVectors")),
        (_protocol(1, 2), "rowTracking", _protocol(1, 7, *_OLD, "domainMetadata", "rowTracking")),
        (_protocol(1, 2), "changeDataFeed", _protocol(1, 7, *_OLD, "changeDataFeed")),
        (_protocol(1, 4), "changeDataFeed", _protocol(1, 4)),
        (_protocol(2, 5), "v2Checkpoint", _protocol(3, 7, *_OLD, "changeDataFeed", "checkConstraints", "columnMapping",
                                                    "generatedColumns", "v2Checkpoint")),
    ],
)  # fmt: skip
def test_a_feature_is_added_to_lists(protocol, name, expected):
    assert with_feature(protocol, name) == expected


@pytest.mark.parametrize(
    ("protocol", "name", "expected"),
    [
        (_protocol(3, 7, *_OLD, "deletionVectors"), "deletionVectors", _protocol(1, 2)),
        (_protocol(3, 7, *_OLD, "deletionVectors", "v2Checkpoint"), "v2Checkpoint",
         _protocol(3, 7, *_OLD, "deletionVectors")),
        (_protocol(1, 7, *_OLD, "changeDataFeed", "domainMetadata"), "domainMetadata",
         _protocol(1, 7, *_OLD, "changeDataFeed")),
        (_protocol(1, 3), "checkConstraints", _protocol(1, 2)),
        (_protocol(3, 7, "deletionVectors"), "deletionVectors", _protocol(1, 1)),
        (_protocol(2, 5), "columnMapping", _protocol(1, 4)),
    ],
)  # fmt: skip
def test_without_a_feature_the_protocol_is_as_low_as_the_others_allow(protocol, name, expected):
    assert without_feature(protocol, name) == expected
    assert name not in implied_features(without_feature(protocol, name))


@pytest.mark.parametrize(
    ("protocol", "versions", "expected"),
    [
        (_protocol(1, 2), (1, 2), _protocol(1, 2)),
        (_protocol(1, 2), (2, 5), _protocol(2, 5)),
        (_protocol(2, 5), (1, 2), _protocol(2, 5)),
        (_protocol(1, 2), (1, 7), _protocol(1, 7, *_OLD)),
        (_protocol(1, 2), (3, 7), _protocol(3, 7, *_OLD)),
        (_protocol(1, 7, *_OLD), (1, 3), _protocol(1, 7, *_OLD, "checkConstraints")),
        (_protocol(3, 7, *_OLD, "deletionVectors"), (1, 2), _protocol(3, 7, *_OLD, "deletionVectors")),
    ],
)
def test_versions_are_raised_and_never_lowered(protocol, versions, expected):
    assert at_least(protocol, reader=versions[0], writer=versions[1]) == expected


@pytest.mark.parametrize("versions", [(0, 2), (4, 7), (1, 8), (3, 6)])
def test_versions_that_there_are_not(versions):
    with pytest.raises(InvalidArgumentError):
        at_least(_protocol(1, 2), reader=versions[0], writer=versions[1])


@pytest.mark.parametrize("name", ["catalogManaged", "catalogOwned-preview"])
def test_a_table_of_a_catalog_is_refused_with_the_reason(name):
    listed = Protocol(min_reader_version=3, min_writer_version=7, reader_features=(name,), writer_features=(name,))
    with pytest.raises(UnsupportedFeatureError, match=name) as caught:
        ensure_readable(listed)
    assert "catalog decides which commits count" in caught.value.hint
