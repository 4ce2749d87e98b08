"""Convert per-file statistics from JSON to typed bounds for chosen columns, and bounds to JSON values.

Only the standard library is imported at the top because the writer's tasks load this module.
Protocol: "Per-file Statistics". Bounds may be looser than the data, never tighter.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydelta.protocol.types import DataType, DecimalType, PrimitiveType, StructType

if TYPE_CHECKING:
    import polars as pl

    from pydelta.settings import TableProperties

__all__ = [
    "MAX_STRING_LENGTH",
    "indexed_leaves",
    "leaves_with_stats",
    "parse_stats_columns",
    "stat_column",
    "truncate_max",
    "truncate_min",
]

MAX_STRING_LENGTH: Final = 32
_LAST_CODE_POINT: Final = 0x10FFFF
_ORDERED: Final = frozenset(
    {"string", "long", "integer", "short", "byte", "float", "double", "date", "timestamp", "timestamp_ntz"}
)


def stat_column(kind: str, path: Sequence[str]) -> str:
    r"""Name a column in the frame of ``parse_stats_columns``. Dots within a name are escaped.

    Example:
        >>> stat_column("min", ("a", "b")), stat_column("max", ("a.b",))
        ('min.a.b', 'max.a\\.b')
    """
    return ".".join([kind, *(part.replace("\\", "\\\\").replace(".", "\\.") for part in path)])


def has_bounds(data_type: DataType) -> bool:
    """Return whether the protocol stores minimum and maximum for columns of the type."""
    return isinstance(data_type, DecimalType) or (isinstance(data_type, PrimitiveType) and data_type.name in _ORDERED)


def truncate_min(text: str, length: int = MAX_STRING_LENGTH) -> str:
    """Truncate a minimum to a prefix, which is never greater."""
    return text[:length]


def truncate_max(text: str, length: int = MAX_STRING_LENGTH) -> str | None:
    """Truncate a maximum to about ``length`` characters so that no string with the same prefix is greater.

    The last character that can be incremented is incremented. Returns None (no bound) if there is none.

    Example:
        >>> truncate_max("abcdef", 3)
        'abd'
    """
    if len(text) <= length:
        return text
    prefix = text[:length]
    for end in range(length, 0, -1):
        code = ord(prefix[end - 1])
        if code < _LAST_CODE_POINT:
            raised = code + 1
            if 0xD800 <= raised <= 0xDFFF:  # Surrogates are not characters.
                raised = 0xE000
            return prefix[: end - 1] + chr(raised)
    return None


def indexed_leaves(
    schema: StructType,
    *,
    num_indexed: int,
    stats_columns: Iterable[str] | None = None,
    partition_columns: Iterable[str] = (),
) -> tuple[tuple[tuple[str, ...], DataType], ...]:
    """Return the leaf columns that get statistics.

    Args:
        schema: Logical schema. Structs are entered; arrays and maps count as leaves.
        num_indexed: ``delta.dataSkippingNumIndexedCols``; -1 for all. Partition columns do not count.
        stats_columns: ``delta.dataSkippingStatsColumns``, dotted names; overrides the number. A struct's name includes
            all its leaves.
        partition_columns: Excluded, because their values are in the log.
    """
    partitions = {name.lower() for name in partition_columns}
    leaves = [(path, leaf) for path, leaf in _leaves(schema) if not (len(path) == 1 and path[0].lower() in partitions)]
    if stats_columns is not None:
        wanted = [tuple(_name_parts(name.lower())) for name in stats_columns]
        return tuple(
            (path, leaf)
            for path, leaf in leaves
            if any(tuple(part.lower() for part in path)[: len(prefix)] == prefix for prefix in wanted)
        )
    return tuple(leaves if num_indexed < 0 else leaves[:num_indexed])


def leaves_with_stats(
    schema: StructType, properties: TableProperties, partition_columns: Iterable[str] = ()
) -> tuple[tuple[tuple[str, ...], DataType], ...]:
    """Return the leaf columns that get statistics under the table's properties. See ``indexed_leaves``."""
    return indexed_leaves(
        schema,
        num_indexed=properties.data_skipping_num_indexed_cols,
        stats_columns=properties.data_skipping_stats_columns,
        partition_columns=partition_columns,
    )


def _leaves(schema: StructType, prefix: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], DataType]]:
    for field in schema.fields:
        if isinstance(field.data_type, StructType) and field.data_type.user is None:
            yield from _leaves(field.data_type, (*prefix, field.name))
        else:
            yield (*prefix, field.name), field.data_type


def _name_parts(dotted: str) -> list[str]:
    """Split ``a.`b.c` `` into its parts."""
    parts, current, quoted = [], "", False
    for char in dotted:
        if char == "`":
            quoted = not quoted
        elif char == "." and not quoted:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current]


def parse_stats_columns(stats: pl.Series, leaves: Iterable[tuple[Sequence[str], DataType]]) -> pl.DataFrame:
    """Parse statistics of many files for a few columns, without a Python object per file.

    Args:
        stats: JSON strings; null if a file has none. Invalid JSON yields nulls.
        leaves: Physical paths and types of the wanted columns.

    Returns:
        ``numRecords`` (Int64), and for each leaf ``nullCount.<path>`` (Int64) and, if its type has bounds,
        ``min.<path>`` and ``max.<path>`` in the column's type (see ``stat_column``). Null means unknown. Bounds are
        widened if the text may have lost precision: by a millisecond for timestamps, a relative 2**-50 for decimals
        beyond 15 digits and
            one
        step for single-precision floats.
    """
    import polars as pl

    texts = stats.rename("stats").to_frame().lazy()
    wanted = [pl.col("stats").str.json_path_match("$.numRecords").cast(pl.Int64, strict=False).alias("numRecords")]
    for path, data_type in leaves:
        steps = _json_steps(path)
        if steps is None:
            continue
        counts = pl.col("stats").str.json_path_match(f"$.nullCount{steps}").cast(pl.Int64, strict=False)
        wanted.append(counts.alias(stat_column("nullCount", path)))
        if has_bounds(data_type):
            for kind, key in (("min", "minValues"), ("max", "maxValues")):
                raw = pl.col("stats").str.json_path_match(f"$.{key}{steps}")
                wanted.append(_typed_bound(raw, data_type, kind).alias(stat_column(kind, path)))
    return texts.select(wanted).collect()


def _json_steps(path: Sequence[str]) -> str | None:
    """Build the steps of a JSON path. Returns None if a name cannot be quoted in it."""
    if any(char in part for part in path for char in '"\\') or any(ord(char) < 32 for part in path for char in part):
        return None
    return "".join(f'["{part}"]' for part in path)


def _typed_bound(text: pl.Expr, data_type: DataType, kind: str) -> pl.Expr:
    import polars as pl

    if isinstance(data_type, DecimalType):
        number = text.cast(pl.Float64, strict=False)
        if data_type.precision > 15:
            slack = number.abs() * 2.0**-50
            number = number - slack if kind == "min" else number + slack
        return number
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name == "string":
        return text
    if name == "date":
        return text.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False)
    if name in ("timestamp", "timestamp_ntz"):
        plain = text.str.replace(r"(Z|[+-]\d{2}:?\d{2})$", "").str.replace("T", " ", literal=True)
        moment = plain.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
        if name == "timestamp":
            offset = text.str.extract(r"([+-]\d{2}:?\d{2})$")
            zero = offset.is_null() | (offset.str.replace(":", "", literal=True).str.slice(1) == "0000")
            # A bound in another zone is not read, so it excludes no files.
            moment = pl.when(zero).then(moment).otherwise(None)
            moment = moment.dt.replace_time_zone("UTC")
        return moment + pl.duration(milliseconds=1) if kind == "max" else moment
    if name in ("float", "double"):
        number = text.cast(pl.Float64, strict=False)
        return widened_float(number, kind) if name == "float" else number
    return text.cast(pl.Int64, strict=False)


def widened_float(number: pl.Expr, kind: str) -> pl.Expr:
    """Loosen a bound of a single-precision column by one step.

    One writer writes a float as ``0.1``, another as ``0.10000000149011612``, and constants in conditions come in both
    forms.
    """
    slack = number.abs() * 2.0**-23 + 2.0**-149
    return number - slack if kind == "min" else number + slack


def json_bound(value: Any) -> Any:
    """Convert a bound to its JSON value: dates and times to text, other values unchanged.

    Times are cut to milliseconds, which readers of the maximum must allow for. Decimals stay ``Decimal``. The JSON
    writer must write all their digits, because a float could be too tight a bound.
    """
    if isinstance(value, dt.datetime):
        text = value.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + f".{value.microsecond // 1000:03d}"
        return text + "Z" if value.tzinfo is not None else text
    if isinstance(value, dt.date):
        return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"
    return value
