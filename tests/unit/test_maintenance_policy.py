"""The properties ``pydelta.maintenance.*``: names, values, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.settings import canonical_properties, check_property_names
from pydelta.settings.maintenance import MaintenancePolicy, policy_names

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "maintenance.md"


def test_a_table_that_says_nothing_has_the_defaults():
    assert MaintenancePolicy.parse({"delta.appendOnly": "true", "owner": "me"}) == MaintenancePolicy()


def test_values_are_read_and_the_table_goes_before_the_defaults():
    policy = MaintenancePolicy.parse(
        {
            "pydelta.maintenance.compact.minFiles": "7",
            "pydelta.maintenance.compact.smallFileSize": "4mb",
            "pydelta.maintenance.compact.minAge": "interval 1 hour",
            "pydelta.maintenance.zorder": "a, b.c",
            "pydelta.maintenance.vacuum": "LITE",
            "pydelta.maintenance.budget.bytes": "1g",
        },
        {"vacuum": "full", "vacuum.every": "12 hours", "compact.minFiles": "9"},
    )
    assert policy == MaintenancePolicy(
        compact_min_files=7,
        small_file_bytes=4 << 20,
        min_age_ms=3_600_000,
        zorder_by=("a", "b.c"),
        vacuum="lite",
        vacuum_every_ms=12 * 3_600_000,
        budget_bytes=1 << 30,
    )


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("enabled", "yes", "true or false"),
        ("compact.minFiles", "0", "whole number above zero"),
        ("compact.smallFileSize", "big", "a size such as"),
        ("compact.minAge", "1 month", "interval 30 days"),
        ("zorder", " ", "Name at least one column"),
        ("order.minRatio", "1.5", "a number from 0 to 1"),
        ("vacuum", "always", "one of: off, lite, inventory, full"),
    ],
)
def test_a_wrong_value_is_refused_before_it_enters_a_log(name, value, says):
    full = f"pydelta.maintenance.{name}"
    with pytest.raises(InvalidArgumentError, match=re.escape(full)) as caught:
        check_property_names({full: value})
    assert says in str(caught.value)
    with pytest.raises(InvalidArgumentError, match=re.escape(full)):
        MaintenancePolicy.parse({full: value})


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(UnknownSettingError, match=r"Did you mean 'pydelta\.maintenance\.compact\.minFiles'"):
        check_property_names({"pydelta.maintenance.compact.minFile": "7"})
    with pytest.raises(UnknownSettingError, match="Did you mean 'vacuum'"):
        MaintenancePolicy.parse({}, {"vacum": "off"})
    with pytest.raises(UnknownSettingError, match="Name one of: enabled, compact"):
        MaintenancePolicy.parse({}, {"xyz": "off"})
    check_property_names({"pydelta.sync.enabled": "true", "pydelta.mine": "x"})


def test_names_ignore_case():
    assert canonical_properties({"PYDELTA.Maintenance.Compact.MINFILES": "7"}) == {
        "pydelta.maintenance.compact.minFiles": "7"
    }


def test_the_guide_lists_every_property_and_no_other():
    told = re.findall(r"^\| `(pydelta\.maintenance\.[\w.]+)` \|", GUIDE.read_text(), re.MULTILINE)
    assert told == list(policy_names())
