"""Say what PyHive's dialect can do with tables that ``pydelta serve`` stores, as SQLAlchemy's suite asks it."""

from __future__ import annotations

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

SPARK_HAS = (
    "boolean_col_expressions",
    "create_or_replace_view",
    "create_table_as",
    "ctes",
    "ctes_with_values",
    "datetime_historic",
    "datetime_literals",
    "except_",
    "intersect",
    "mod_operator_as_percent_sign",
    "nullsordering",
    "order_by_label_with_expression",
    "schema_create_delete",
    "supports_bitwise_and",
    "supports_bitwise_not",
    "supports_bitwise_or",
    "supports_bitwise_shift",
    "supports_bitwise_xor",
    "table_ddl_if_exists",
    "table_value_constructor",
    "timestamp_microseconds",
    "tuple_in",
    "views",
    "window_functions",
    "window_range",
    "window_range_numeric",
)
"""What SQLAlchemy does not expect of each database."""
LACKING = {
    "Delta tables have no keys": (
        "cross_schema_fk_reflection",
        "duplicate_key_raises_integrity_error",
        "foreign_key_constraint_reflection",
        "foreign_keys",
        "implicitly_named_constraints",
        "named_constraints",
        "non_updating_cascade",
        "on_update_cascade",
        "primary_key_constraint_reflection",
        "recursive_fk_cascade",
        "self_referential_foreign_keys",
        "unique_constraint_reflection",
    ),
    "Delta tables have no indexes": (
        "index_reflection",
        "indexes_with_ascdesc",
        "reflect_indexes_with_ascdesc",
    ),
    "PyHive's dialect gives no numbers to rows": (
        "autoincrement_insert",
        "autoincrement_without_sequence",
        "implements_get_lastrowid",
    ),
    "Spark has no temporary tables": (
        "temp_table_reflect_indexes",
        "temp_table_reflection",
        "temporary_tables",
    ),
    "PyHive's dialect stores dates and times of the day as TIMESTAMP": (
        "date",
        "date_coerces_from_datetime",
        "time",
        "time_microseconds",
    ),
    "PyHive writes dates and times into statements as text": (
        "date_implicit_bound",
        "datetime_implicit_bound",
        "time_implicit_bound",
        "timestamp_microseconds_implicit_bound",
    ),
    "PyHive's dialect writes DECIMAL without a precision, which has no decimals": (
        "precision_numerics_enotation_large",
        "precision_numerics_general",
    ),
    "PyHive does not write Decimal into statements": ("implicit_decimal_binds",),
    "A Delta table without column mapping refuses some characters in names of columns": (
        "unusual_column_name_characters",
    ),
    "Spark allows only letters, digits and underscores in names of tables": ("symbol_names_w_double_quote",),
    "PyHive has no type for bytes": ("binary_literals",),
    "Spark has no aggregates of aggregates": ("nested_aggregates",),
}
"""What SQLAlchemy expects of each database, by the reason why it is not there.

``foreign_key_ddl`` is not among them: tables may name such a key, which the dialect leaves out.
"""


class Requirements(SuiteRequirements):
    """What is open or closed beyond SQLAlchemy's own answers."""


def _closed(reason: str) -> property:
    return property(lambda self: exclusions.closed(reason))


for _name in SPARK_HAS:
    setattr(Requirements, _name, property(lambda self: exclusions.open()))
for _reason, _names in LACKING.items():
    for _name in _names:
        setattr(Requirements, _name, _closed(_reason))
