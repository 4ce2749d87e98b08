"""The table of features: one row each, and the page that is made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydelta.protocol.actions import Metadata
from pydelta.protocol.feature_table import FEATURES, Feature
from pydelta.protocol.schema import parse_schema

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "protocol.md"
INTRODUCTION = """# Protocol

This engine's support of each table feature of the Delta protocol, generated from `pydelta/protocol/feature_table.py`. A
test compares the two, and checks that a feature's test file mentions the feature.

- **Readers**: whether it reads tables that list the feature for readers; "–" if only writers must know it.
- **Writers**: whether it writes to tables that list the feature.
- **Turned on by**: besides `delta.feature.<name> = supported`, or `DeltaTable.addFeatureSupport`.
- **DROP FEATURE**: whether it can be removed from the protocol again.
- **Test**: below `tests/`, one of those that use it.

A refusal names the feature and comes before anything is read or written. Every feature that is not listed is refused,
such as `catalogManaged`, whose tables only their catalog reads and commits to.
[Who reads what](interop.md) compares rows with other engines.

| feature | readers | writers | turned on by | needs | DROP FEATURE | test |
|---|---|---|---|---|---|---|
"""
TESTS = {
    "appendOnly": "integration/spark/sql/test_sql_tables.py",
    "invariants": "integration/spark/write/test_write_modes.py",
    "checkConstraints": "unit/commands/test_alter_table.py",
    "changeDataFeed": "integration/spark/sql/test_sql_own.py",
    "generatedColumns": "integration/spark/write/test_write_modes.py",
    "columnMapping": "integration/spark/scan/test_column_mapping.py",
    "identityColumns": "integration/spark/change/test_identity_columns.py",
    "deletionVectors": "integration/spark/change/test_delete_vectors.py",
    "rowTracking": "integration/spark/scan/test_row_tracking.py",
    "timestampNtz": "integration/spark/write/test_schema_rules.py",
    "domainMetadata": "unit/txn/test_transaction.py",
    "v2Checkpoint": "unit/log/test_log_checkpoint.py",
    "clustering": "integration/spark/maintenance/test_clustered_tables.py",
    "vacuumProtocolCheck": "integration/spark/sql/test_sql_own.py",
    "inCommitTimestamp": "unit/txn/test_enablement_times.py",
    "typeWidening": "integration/spark/write/test_schema_rules.py",
    "variantType": "integration/spark/write/test_write_types.py",
    "variantShredding": "integration/spark/write/test_shredded_variants.py",
    "allowColumnDefaults": "integration/spark/write/test_write_modes.py",
    "icebergCompatV1": "integration/spark/write/test_iceberg_compat_tables.py",
    "icebergCompatV2": "integration/spark/write/test_iceberg_compat_tables.py",
    "materializePartitionColumns": "integration/spark/write/test_partitions_in_files.py",
    "checkpointProtection": "unit/commands/test_table_features.py",
    "collations": "integration/spark/scan/test_collated_tables.py",
}
WORDS = {
    "checkConstraints": "delta.constraints",
    "changeDataFeed": "enableChangeDataFeed",
    "generatedColumns": "generationExpression",
    "identityColumns": "identity",
    "deletionVectors": "enableDeletionVectors",
    "rowTracking": "enableRowTracking",
    "timestampNtz": "timestamp_ntz",
    "v2Checkpoint": "v2",
    "clustering": "cluster",
    "inCommitTimestamp": "InCommitTimestamp",
    "variantType": "variant",
    "variantShredding": "enableVariantShredding",
    "allowColumnDefaults": "CURRENT_DEFAULT",
}
"""How a test speaks of a feature that it does not name."""


def row(feature: Feature) -> str:
    reads = "–" if feature.reads is None else ("yes" if feature.reads else "refused")
    test = TESTS.get(feature.name.removesuffix("-preview"))
    cells = (
        f"`{feature.name}`",
        reads,
        "yes" if feature.writes else "refused",
        feature.enabled_by.text if feature.enabled_by is not None else "",
        ", ".join(f"`{name}`" for name in feature.requires),
        "yes" if feature.removal is not None else "no",
        f"`{test}`" if test else "",
    )
    return "| " + " | ".join(cells) + " |\n"


def test_the_page_says_what_the_table_says():
    expected = INTRODUCTION + "".join(row(feature) for feature in FEATURES.values())
    assert PAGE.read_text() == expected, f"write this to {PAGE}:\n{expected}"


def test_each_has_a_test_that_speaks_of_it():
    assert set(TESTS) == {name.removesuffix("-preview") for name in FEATURES}
    for name, test in TESTS.items():
        text = (ROOT / "tests" / test).read_text()
        assert WORDS.get(name, name).lower() in text.lower(), f"{test} does not speak of {name}"


def test_what_a_feature_needs_is_a_feature():
    assert {name for feature in FEATURES.values() for name in feature.requires} <= FEATURES.keys()


def test_a_feature_that_readers_need_is_not_written_to_unless_it_is_read():
    assert [feature.name for feature in FEATURES.values() if feature.writes and feature.reads is False] == []


SCHEMA = '{"type": "struct", "fields": [{"name": "a", "type": %s, "nullable": true, "metadata": %s}]}'
CASES = {
    "appendOnly": ('"long"', "{}", {"delta.appendOnly": "TRUE"}),
    "invariants": ('"long"', '{"delta.invariants": "{}"}', {}),
    "checkConstraints": ('"long"', "{}", {"delta.constraints.c": "a > 0"}),
    "changeDataFeed": ('"long"', "{}", {"delta.enableChangeDataFeed": "true"}),
    "generatedColumns": ('"long"', '{"delta.generationExpression": "1"}', {}),
    "columnMapping": ('"long"', "{}", {"delta.columnMapping.mode": "name"}),
    "identityColumns": ('"long"', '{"delta.identity.start": 1}', {}),
    "deletionVectors": ('"long"', "{}", {"delta.enableDeletionVectors": "true"}),
    "rowTracking": ('"long"', "{}", {"delta.enableRowTracking": "true"}),
    "timestampNtz": ('{"type": "array", "elementType": "timestamp_ntz", "containsNull": true}', "{}", {}),
    "v2Checkpoint": ('"long"', "{}", {"delta.checkpointPolicy": "v2"}),
    "inCommitTimestamp": ('"long"', "{}", {"delta.enableInCommitTimestamps": "true"}),
    "typeWidening": ('"long"', "{}", {"delta.enableTypeWidening": "true"}),
    "variantType": ('"variant"', "{}", {}),
    "variantShredding": ('"long"', "{}", {"delta.enableVariantShredding": "true"}),
    "allowColumnDefaults": ('"long"', '{"CURRENT_DEFAULT": "1"}', {}),
    "icebergCompatV1": ('"long"', "{}", {"delta.enableIcebergCompatV1": "true"}),
    "materializePartitionColumns": (
        '"long"',
        "{}",
        {"delta.enableMaterializePartitionColumnsFeature": "true"},
    ),
    "icebergCompatV2": ('"long"', "{}", {"delta.enableIcebergCompatV2": "true"}),
}


def test_every_trigger_has_a_case():
    assert CASES.keys() == {name for name, feature in FEATURES.items() if feature.enabled_by is not None}


@pytest.mark.parametrize("name", CASES)
def test_a_trigger_holds_for_its_table_and_for_no_other(name):
    held = {}
    for other, (kind, metadata, configuration) in CASES.items():
        text = SCHEMA % (kind, metadata)
        table = Metadata(id="t", schema_string=text, configuration=configuration)
        trigger = FEATURES[name].enabled_by
        assert trigger is not None
        held[other] = trigger.holds(table, parse_schema(text))
    assert {other for other, holds in held.items() if holds} == {name}
