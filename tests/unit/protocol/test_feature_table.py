"""The table of features: one row each, and the page that is made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydelta.protocol.actions import Metadata
from pydelta.protocol.feature_table import FEATURES, Feature
from pydelta.protocol.schema import parse_schema

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "table-features.md"
INTRODUCTION = """# Table features

What this engine does with each table feature of the Delta protocol. Made from `pydelta/protocol/feature_table.py`;
a test compares the two.

- **Readers**: whether tables that list the feature for readers are read; "–" where only writers have to know it.
- **Writers**: whether tables that list it are written to.
- **Turned on by**: besides `delta.feature.<name> = supported`, or `DeltaTable.addFeatureSupport`.
- **DROP FEATURE**: whether it can be taken out of the protocol again.

| feature | readers | writers | turned on by | needs | DROP FEATURE |
|---|---|---|---|---|---|
"""


def row(feature: Feature) -> str:
    reads = "–" if feature.reads is None else ("yes" if feature.reads else "refused")
    cells = (
        f"`{feature.name}`",
        reads,
        "yes" if feature.writes else "refused",
        feature.enabled_by.text if feature.enabled_by is not None else "",
        ", ".join(f"`{name}`" for name in feature.requires),
        "yes" if feature.removal is not None else "no",
    )
    return "| " + " | ".join(cells) + " |\n"


def test_the_page_says_what_the_table_says():
    expected = INTRODUCTION + "".join(row(feature) for feature in FEATURES.values())
    assert PAGE.read_text() == expected, f"write this to {PAGE}:\n{expected}"


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
