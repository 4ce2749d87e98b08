"""Turn columns of text into columns of a table's types, exactly or not at all.

::

    typed_array(array, type, "amount", problems)    strings -> values, also inside structs, lists and maps
        problems      rows whose value does not fit, with the column and the reason; their value is null here

The accepted forms (nothing is trimmed or guessed):

    whole numbers   12, +12, -012                     within the type's bounds
    decimal         1.50, -.5, 1e3                    within precision and scale: nothing is rounded
    float, double   1.5, 1e-3, NaN, Infinity, -Inf    a finite text stays finite
    boolean         true, false                       in any case
    date            2024-02-29
    timestamp       2024-02-29T12:30:00.123456Z       or a space for T, +01:00 or +0100 for Z; seconds are optional
    timestamp_ntz   2024-02-29T12:30:00               without a zone
    binary          base64 in JSON, the text's own bytes in CSV
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.engines.arrow.tasks.arrow import optional
from pydelta.protocol.partitions import zone_of
from pydelta.protocol.schema import to_arrow, to_arrow_type
from pydelta.protocol.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType

__all__ = ["BadRow", "Problem", "TextBlock", "TextRules", "arrow_type", "checked_rows", "readable_type", "typed_array"]

_WHOLE: Final = {"byte", "short", "integer", "long"}
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_NOT_FINITE: Final = r"^(NaN|[+-]?Inf|[+-]?Infinity)$"
_DATE: Final = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6}0*)?)?"
_ZONE: Final = r"(?:Z|[+-](?:0[0-9]|1[0-7]):?[0-5][0-9]|[+-]18:?00)"
_MOMENT: Final = rf"^(?P<day>{_DATE})[T ](?P<time>{_TIME})(?P<zone>{_ZONE})?$"
_BASE64: Final = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_SHOWN: Final = 60
_MAY_BE_EMPTY: Final = (PrimitiveType("string"), PrimitiveType("binary"))
"""Types with an empty value, which is null in a partition column."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that does not fit: number of its row in the block, column and reason."""

    row: int
    column: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row of a file that does not fit: the line where it begins, from 1, the column, the reason, and its bytes."""

    line: int
    column: str | None
    reason: str
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    """The rows of a part of a file: those that fit, in the table's types, and the others."""

    rows: pa.RecordBatch
    bad: Sequence[BadRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRules:
    """Rules for strings whose meaning the format leaves open.

    Args:
        base64: Whether binary values are base64. Otherwise they are the text's own bytes.
        zone: Zone of times that name none, or None to refuse them.
        partitions: Partition columns, in which an empty string is null.
        nulls: Unquoted CSV values that are null, in addition to the empty one.
    """

    base64: bool = False
    zone: str | None = None
    partitions: frozenset[str] = frozenset()
    nulls: tuple[str, ...] = ()


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type of a table's type, nullable throughout."""
    return optional(to_arrow(StructType((StructField("c", data_type),)))).field(0).type


def readable_type(data_type: DataType) -> bool:
    """Return whether one string or JSON value can represent each value of a type."""
    if isinstance(data_type, StructType):
        return all(readable_type(field.data_type) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return readable_type(data_type.element_type)
    if isinstance(data_type, MapType):
        return data_type.key_type == PrimitiveType("string") and readable_type(data_type.value_type)
    return isinstance(data_type, DecimalType) or data_type.name in (
        *_WHOLE, "string", "float", "double", "boolean", "date", "timestamp", "timestamp_ntz", "binary",
    )  # fmt: skip


def checked_rows(
    columns: Sequence[Any], fields: Sequence[StructField], rules: TextRules
) -> tuple[pa.RecordBatch, list[Problem]]:
    """Return the rows whose values all fit their columns, and the first problem of each of the others.

    Args:
        columns: Arrays of one length. See ``typed_array``.
        fields: Columns of the table. A null in one that is NOT NULL does not fit.
        rules: Rules for strings whose meaning the format leaves open.
    """
    problems: list[Problem] = []
    typed = []
    for column, field in zip(columns, fields, strict=True):
        if not field.nullable:
            empty = field.name in rules.partitions and field.data_type in _MAY_BE_EMPTY
            missing = pc.fill_null(pc.equal(column, ""), True) if empty else column.is_null()
            _note(missing, field.name, _no_value, problems)
        typed.append(typed_array(column, field.data_type, field.name, problems, rules))
    schema = pa.schema([pa.field(field.name, arrow_type(field.data_type)) for field in fields])
    batch = pa.RecordBatch.from_arrays(typed, schema=schema)
    if not problems:
        return batch, []
    first = {problem.row: problem for problem in reversed(problems)}
    good = np.ones(batch.num_rows, dtype=np.bool_)
    good[list(first)] = False
    return batch.filter(pa.array(good)), [first[row] for row in sorted(first)]


def typed_array(array: Any, data_type: DataType, path: str, problems: list[Problem], rules: TextRules) -> Any:
    """Convert the values of an array to a table's type, parsing strings.

    Args:
        array: Texts, or values of the type, nested like the type.
        data_type: Type of the column.
        path: Name of the column, for problems.
        problems: List to which values that do not fit are added.
        rules: Rules for strings whose meaning the format leaves open.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    target = arrow_type(data_type)
    if array.type.equals(target) and not pa.types.is_nested(target):
        return array
    if isinstance(data_type, StructType):
        parts = []
        for part, field in zip(array.flatten(), data_type.fields, strict=True):
            inside = f"{path}.{field.name}"
            if not field.nullable:
                _note(pc.and_(part.is_null(), array.is_valid()), inside, _no_value, problems)
            parts.append(typed_array(part, field.data_type, inside, problems, rules))
        fields = [target.field(place) for place in range(target.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if isinstance(data_type, (ArrayType, MapType)):
        return _collection(array, data_type, path, problems, rules)
    values, reason = _parsed(array, data_type, rules)
    lost = pc.and_(pc.is_valid(array), pc.is_null(values, nan_is_null=False))
    _note(lost, path, lambda row: f"{_shown(array[row].as_py())} is not {reason}", problems)
    return values


def _note(wrong: Any, path: str, reason: Callable[[int], str], problems: list[Problem]) -> None:
    rows = np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist()
    problems += [Problem(row, path, reason(row)) for row in rows]


def _no_value(_: int) -> str:
    return "there is no value, and the column is NOT NULL"


def _collection(
    array: Any, data_type: ArrayType | MapType, path: str, problems: list[Problem], rules: TextRules
) -> Any:
    """Convert values of lists and maps. A problem inside belongs to the row that holds it."""
    inner: list[Problem] = []
    target = arrow_type(data_type)
    mask = array.is_null()
    values: Any
    if isinstance(data_type, MapType):
        if not data_type.value_contains_null:
            _note(array.items.is_null(), f"{path}.value", _no_value, inner)
        items = typed_array(array.items, data_type.value_type, f"{path}.value", inner, rules)
        values = pa.MapArray.from_arrays(array.offsets, array.keys, items, type=target, mask=mask)
    else:
        if not data_type.contains_null:
            _note(array.values.is_null(), f"{path}.element", _no_value, inner)
        items = typed_array(array.values, data_type.element_type, f"{path}.element", inner, rules)
        values = pa.ListArray.from_arrays(array.offsets, items, type=target, mask=mask)
    if inner:
        rows = np.searchsorted(array.offsets.to_numpy()[1:], [problem.row for problem in inner], side="right").tolist()
        problems += [Problem(row, found.column, found.reason) for row, found in zip(rows, inner, strict=True)]
    return values


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _parsed(texts: Any, data_type: DataType, rules: TextRules) -> tuple[Any, str]:
    """Parse strings, with null for invalid ones. Also returns a description of valid strings."""
    if isinstance(data_type, DecimalType):
        return _decimals(texts, data_type), f"a number that {data_type} holds exactly"
    assert isinstance(data_type, PrimitiveType), "nested types are taken apart before"
    name = data_type.name
    if name in _WHOLE:
        return _whole(texts, to_arrow_type(data_type)), f"a whole number of type {name}"
    if name in ("float", "double"):
        return _floats(texts, to_arrow_type(data_type)), f"a number that {name} holds"
    if name == "boolean":
        lower = pc.utf8_lower(texts)
        known = pc.is_in(lower, value_set=pa.array(["true", "false"]))
        return pc.if_else(known, pc.equal(lower, "true"), None), "true or false"
    if name == "date":
        return _days(_only(texts, rf"^{_DATE}$")), "a date such as 2024-02-29"
    if name == "timestamp":
        wanted = "a time with its zone such as 2024-02-29T12:30:00Z or 2024-02-29 12:30:00+01:00"
        return _moments(texts, rules.zone), wanted if rules.zone is None else "a time such as 2024-02-29T12:30:00Z"
    if name == "timestamp_ntz":
        return _local_times(texts), "a time without a zone such as 2024-02-29T12:30:00"
    if name == "binary":
        return (_base64(texts), "base64") if rules.base64 else (texts.cast(pa.binary()), "text")
    return texts, "text"


def _only(texts: Any, pattern: str) -> Any:
    """Return the strings that match, null for the others."""
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, None)


def _polars(texts: Any, work: Callable[[pl.Series], pl.Series], target: pa.DataType) -> Any:
    found = work(pl.Series("c", pl.from_arrow(texts), pl.String)).to_arrow()
    return found.cast(target)


def _whole(texts: Any, target: pa.DataType) -> Any:
    digits = pc.replace_substring_regex(_only(texts, r"^[+-]?[0-9]+$"), r"^\+?(-?)0*([0-9])", r"\1\2")
    kinds = {8: pl.Int8, 16: pl.Int16, 32: pl.Int32, 64: pl.Int64}
    return _polars(digits, lambda given: given.cast(kinds[target.bit_width], strict=False), target)


def _floats(texts: Any, target: pa.DataType) -> Any:
    finite = pc.match_substring_regex(texts, _NUMBER)
    plain = pc.replace_substring_regex(pc.if_else(finite, texts, None), r"^\+", "")
    plain = pc.replace_substring_regex(plain, r"^(-?)\.", r"\10.")
    values = plain.cast(target)
    values = pc.if_else(pc.is_inf(values), None, values)
    special = _only(texts, _NOT_FINITE)
    if special.null_count == len(special):
        return values
    named = {"NaN": float("nan"), "Inf": float("inf"), "Infinity": float("inf")}
    found = [None if text is None else named[text.lstrip("+-")] * (-1 if text[0] == "-" else 1)
             for text in special.to_pylist()]  # fmt: skip
    return pc.coalesce(values, pa.array(found, target))


def _decimals(texts: Any, data_type: DecimalType) -> Any:
    target = to_arrow_type(data_type)
    number = _only(texts, _NUMBER)
    simple = _only(number, r"^[^eE]*$")
    simple = pc.replace_substring_regex(simple, r"^\+", "")
    simple = pc.replace_substring_regex(simple, r"(\.[0-9]*?)0*$", r"\1")
    simple = pc.replace_substring_regex(simple, r"^(-?)0*", r"\1")
    # Without the sign and the zeros around the digits, the text is as long as the number needs.
    fits = rf"^-?[0-9]{{0,{data_type.precision - data_type.scale}}}(\.[0-9]{{0,{data_type.scale}}})?$"
    simple = pc.replace_substring_regex(_only(simple, fits), r"^(-?)(\.?)$", r"\10")
    values = pc.replace_substring_regex(pc.replace_substring_regex(simple, r"^(-?)\.", r"\10."), r"\.$", "").cast(
        target
    )
    powers = _only(number, r"[eE]")
    if powers.null_count == len(powers):
        return values
    return pc.coalesce(values, pa.array([_power(text, data_type) for text in powers.to_pylist()], target))


def _power(text: str | None, data_type: DecimalType) -> Decimal | None:
    """Parse a number with an exponent, or return None if the type cannot hold it."""
    if text is None:
        return None
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except ArithmeticError:  # The exponent is out of range.
        return None
    kept = "".join(map(str, digits)).strip("0") or "0"
    assert isinstance(exponent, int), "the text is a finite number"
    exponent += len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if kept == "0":
        return Decimal(0)
    if -exponent > data_type.scale or len(kept) + exponent > data_type.precision - data_type.scale:
        return None
    return Decimal((sign, tuple(map(int, kept)), exponent))


def _days(texts: Any) -> Any:
    return _polars(texts, lambda given: given.str.to_date("%Y-%m-%d", strict=False), pa.date32())


def _times(texts: Any) -> tuple[pl.DataFrame, pl.Series]:
    """Split the strings that are times into day, time and zone, and parse day and time. Others are null."""
    given = pl.Series("c", pl.from_arrow(texts), pl.String)
    parts = given.str.extract_groups(_MOMENT).struct.unnest()
    whole = parts.select(
        (
            pl.col("day")
            + "T"
            + pl.when(pl.col("time").str.len_bytes() == 5).then(pl.col("time") + ":00").otherwise(pl.col("time"))
        ).str.replace(r"(\.[0-9]{6})0*$", "$1")
    ).to_series()  # fmt: skip
    return parts, whole.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)


def _local_times(texts: Any) -> Any:
    parts, local = _times(texts)
    return pl.select(pl.when(parts["zone"].is_null()).then(local)).to_series().to_arrow().cast(pa.timestamp("us"))


def _moments(texts: Any, zone: str | None) -> Any:
    parts, local = _times(texts)
    offset = parts["zone"].str.replace("Z", "+00:00", literal=True).str.replace(":", "", literal=True)
    minutes = offset.str.slice(1, 2).cast(pl.Int64) * 60 + offset.str.slice(3, 2).cast(pl.Int64)
    minutes = minutes * pl.select(pl.when(offset.str.starts_with("-")).then(-1).otherwise(1)).to_series()
    moments = local - pl.select(pl.duration(minutes=pl.lit(minutes))).to_series()
    if zone is not None and parts["zone"].null_count():
        moments = pl.select(pl.coalesce(moments, _in_zone(local, zone))).to_series()
    return moments.to_arrow().cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))


def _in_zone(local: pl.Series, zone: str) -> pl.Series:
    """Convert local times to UTC. A repeated hour is read as its first occurrence, a skipped one as the hour after."""
    known = zone_of(zone)
    if isinstance(known, dt.timezone):
        return local - known.utcoffset(None)

    def utc(times: pl.Series) -> pl.Series:
        aware = times.dt.replace_time_zone(str(known), ambiguous="earliest", non_existent="null")
        return aware.dt.convert_time_zone("UTC").dt.replace_time_zone(None)

    day = dt.timedelta(days=1)
    return pl.select(pl.coalesce(utc(local), utc(local - day) + day)).to_series()


def _base64(texts: Any) -> Any:
    return _polars(_only(texts, _BASE64), lambda given: given.str.decode("base64", strict=False), pa.binary())
