"""Parse table properties and session settings from text into values."""

from pydelta.settings.session import Settings
from pydelta.settings.table import (
    KEPT_PROPERTIES,
    TableProperties,
    canonical_properties,
    canonical_property,
    check_property_names,
    checked_properties,
    refuse_kept_properties,
)
from pydelta.settings.values import parse_bool, parse_bytes, parse_duration_ms, parse_interval_ms

__all__ = [
    "KEPT_PROPERTIES",
    "Settings",
    "TableProperties",
    "canonical_properties",
    "canonical_property",
    "check_property_names",
    "checked_properties",
    "parse_bool",
    "parse_bytes",
    "parse_duration_ms",
    "parse_interval_ms",
    "refuse_kept_properties",
]
