"""The settings of the reference engine: honoured, refused, or listed as without meaning; and the guide that says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pydelta.commands.write.options import guide_table
from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.settings import Settings
from pydelta.settings.reference import PREFIX, guide_tables, reference_settings

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "settings.md"
HONOURED = {key: item for key, item in reference_settings().items() if item.ours is not None}
REFUSED = {key: item for key, item in reference_settings().items() if item.only is not None}
REST = {key: item for key, item in reference_settings().items() if item.ours is None and item.only is None}


def test_the_table_is_whole():
    assert len(reference_settings()) == 347
    assert all(item.meaning.endswith(".") and len(item.meaning) < 100 for item in reference_settings().values())
    assert len(HONOURED) > 20
    assert len(REFUSED) > 20


@pytest.mark.parametrize(("key", "item"), HONOURED.items(), ids=lambda value: str(value)[:60])
def test_what_is_honoured_changes_the_settings_as_our_own_name_does(key, item):
    for value in ("false", "true", "7", "0.25", "some text", "dynamic"):
        if item.ours.startswith("properties.defaults."):
            ours = Settings.resolve({f"spark.pydelta.{item.ours}": value}, {})
            assert Settings.resolve({key: value}, {}) == ours != Settings()
            return
        try:
            ours = Settings.resolve({f"spark.pydelta.{item.ours}": value}, {})
        except InvalidArgumentError:
            continue
        if ours != Settings() and not key.endswith("optimizeWrite.binSize"):
            assert Settings.resolve({key: value}, {}) == ours
            return
    assert key.endswith("optimizeWrite.binSize")
    assert Settings.resolve({key: "7"}, {}).optimize_write_bin_bytes == 7 << 20
    assert Settings.resolve({key: "7kb"}, {}).optimize_write_bin_bytes == 7 << 10


@pytest.mark.parametrize("key", REFUSED)
def test_what_would_change_what_is_written_is_refused_by_name_with_what_to_do(key):
    item = REFUSED[key]
    assert Settings.resolve({key: item.only}, {}) == Settings()
    assert Settings.resolve({key: f" {item.only.upper()} "}, {}) == Settings()
    other = {"true": "false", "false": "true"}.get(item.only, "something else")
    with pytest.raises(InvalidArgumentError) as caught:
        Settings.resolve({key: other}, {})
    assert key in str(caught.value)
    assert item.meaning in str(caught.value)
    assert f"spark.conf.unset('{key}')" in str(caught.value)


def test_what_has_no_meaning_is_passed_over():
    assert Settings.resolve(dict.fromkeys(REST, "whatever"), {}) == Settings()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("write.txnAppID", "write.txnAppId"),
        ("write.txnVersions", "write.txnVersion"),
        ("replaceWhere.constraintChecks.enabled", "replaceWhere.constraintCheck.enabled"),
        ("update.deletionVector.persistent", "update.deletionVectors.persistent"),
    ],
)
def test_a_misspelt_one_that_counts_is_refused_with_a_suggestion(wrong, right):
    with pytest.raises(UnknownSettingError, match=re.escape(PREFIX + right)):
        Settings.resolve({PREFIX + wrong: "true"}, {})


@pytest.mark.parametrize("key", ["preview.enabled", "formatCheck.enabled", "properties.defaults.appendOnly"])
def test_names_of_other_engines_pass(key):
    Settings.resolve({PREFIX + key: "true"}, {})


def test_the_transaction_of_a_session_needs_both_its_parts():
    both = {PREFIX + "write.txnAppId": "job", PREFIX + "write.txnVersion": "12"}
    assert Settings.resolve(both, {}).transaction == ("job", 12)
    assert Settings.resolve({}, {}).transaction == (None, None)
    for key in both:
        with pytest.raises(InvalidArgumentError, match="belong together"):
            _ = Settings.resolve({key: both[key]}, {}).transaction


def test_the_guide_shows_the_tables():
    text = GUIDE.read_text()
    for tables in (guide_tables(), guide_table()):
        assert tables in text, f"docs/guides/settings.md has to hold:\n{tables}"


def test_most_settings_have_the_default_of_the_reference_and_refused_ones_the_value_that_is_taken():
    known = reference_settings()
    assert sum(item.default is not None for item in known.values()) > 320
    assert known[f"{PREFIX}retentionDurationCheck.enabled"].default == "true"
    assert known[f"{PREFIX}optimize.maxFileSize"].default == str(1 << 30)
    assert known[f"{PREFIX}optimizeWrite.binSize"].default == f"{512 << 20}b"
    assert known[f"{PREFIX}write.txnVersion"].default is None
    assert all(" " not in (item.default or "") for item in known.values())
