"""Turn the statistics of data files into Iceberg's counts and bounds by field id. Pure; values are made by column.

A bound that is too tight makes other engines lose rows without an error, so in doubt there is none:

========================  ==============================================================================================
byte … long, date         as stated; days before 1583 have none, because writers used two calendars
timestamp, timestamp_ntz  a millisecond wider on both sides; none before 1583 or in the year 9999
float, double             only the lower bound, a step lower; no upper one, because NaN may be among the rows
decimal                   exact up to 15 digits, otherwise wider by a relative 2**-50, because some writers use doubles
string                    at most 32 characters, none of them from U+D800 up, where engines disagree on the order
others                    none; nothing inside lists and maps
null counts               at the top only; from wide statistics only "none" and "all"
========================  ==============================================================================================
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from pydelta.manifests.iceberg.schema import EntryLeaf, EntrySchema
from pydelta.protocol.stats import has_bounds
from pydelta.protocol.types import DecimalType, PrimitiveType

__all__ = ["ENTRY_PROPERTIES", "FileMetrics", "file_metrics"]

ENTRY_PROPERTIES: Final[Mapping[str, str]] = {"write.metadata.metrics.default": "none"}
"""Properties that the entry must have: engines must not answer MIN, MAX and COUNT from bounds that are wider."""

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_FIRST_DAY: Final = -141_349
"""1583-01-01, the first year in which all writers use the same calendar."""
_DAY: Final = 86_400_000_000
_LAST_MICROSECOND: Final = 2_932_532 * _DAY
"""9999-01-01. Some writers cut later times to the end of that year."""
_LENGTH: Final = 32
_SURROGATES: Final = 0xD800
_EXACT_DIGITS: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMetrics:
    """Counts and bounds of files, in their order.

    Args:
        record_counts: Rows of each file with the hidden ones, or None if its statistics do not say.
        value_counts: Rows by field id, where there is a null count.
        null_counts: Null values by field id.
        lower: Lower bounds by field id, in Iceberg's single-value serialization.
        upper: Upper bounds.
    """

    record_counts: list[int | None]
    value_counts: list[dict[int, int]]
    null_counts: list[dict[int, int]]
    lower: list[dict[int, bytes]]
    upper: list[dict[int, bytes]]


def file_metrics(stats: pl.Series, entry: EntrySchema, *, without: Collection[int] = ()) -> FileMetrics:
    """Turn statistics into counts and bounds. Give it the files of one manifest at a time, which bounds its memory.

    Args:
        stats: The JSON text of each file's ``stats``; null for none.
        entry: The entry's schema.
        without: Ids of columns that get nothing: the partition columns.
    """
    leaves = [leaf for leaf in entry.leaves if leaf.field_id not in without and _is_plain(leaf.path)]
    tree = _Tree.of(leaves)
    parsed = tree.decode(stats)
    size = len(parsed)
    counted = [item.numRecords for item in parsed]
    records = pl.Series([value if _is_count(value) else None for value in counted], dtype=pl.Int64)
    metrics = FileMetrics(
        record_counts=records.to_list(),
        value_counts=[{} for _ in range(size)],
        null_counts=[{} for _ in range(size)],
        lower=[{} for _ in range(size)],
        upper=[{} for _ in range(size)],
    )
    wide = pl.Series([item.tightBounds is False for item in parsed], dtype=pl.Boolean)
    for kind, bounds in (("min", metrics.lower), ("max", metrics.upper)):
        structs = [getattr(item, _KEYS[kind]) for item in parsed]
        for leaf in leaves:
            make = _maker(leaf, kind)
            if make is not None:
                _put(bounds, leaf.field_id, make(tree.column(leaf, structs)))
    structs = [item.nullCount for item in parsed]
    for leaf in leaves:
        if len(leaf.path) == 1:
            nulls = _null_counts(tree.column(leaf, structs), records, wide)
            _put(metrics.null_counts, leaf.field_id, nulls)
            _put(metrics.value_counts, leaf.field_id, records.set(nulls.is_null(), None).to_list())
    return metrics


_KEYS: Final = {"min": "minValues", "max": "maxValues"}


def _is_plain(path: Iterable[str]) -> bool:
    """Return whether the decoder finds the names: it looks for them as they are in JSON, without escapes."""
    return not any(char in '"\\' or ord(char) < 0x20 for part in path for char in part)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _put(found: list[dict[int, Any]], field_id: int, values: Iterable[Any]) -> None:
    for item, value in zip(found, values, strict=True):
        if value is not None:
            item[field_id] = value


class _Tree:
    """Decodes statistics into objects with a slot per leaf, several times faster than by the name of each.

    Args:
        decoder: Decodes the text of one file.
        places: Slots from the struct of a kind of statistics down to each leaf, by its path.
        empty: Such a struct without values, for each level of structs, by the path of slots.
    """

    def __init__(
        self,
        decoder: msgspec.json.Decoder[Any],
        places: Mapping[tuple[str, ...], tuple[str, ...]],
        empty: Mapping[tuple[str, ...], Any],
    ) -> None:
        self._decoder = decoder
        self._places = places
        self._empty = empty

    @classmethod
    def of(cls, leaves: Sequence[EntryLeaf]) -> _Tree:
        """Make the decoder for some leaves."""
        nested: dict[str, Any] = {}
        for leaf in leaves:
            level = nested
            for part in leaf.path[:-1]:
                level = level.setdefault(part, {})
            level[leaf.path[-1]] = None
        places: dict[tuple[str, ...], tuple[str, ...]] = {}
        empty: dict[tuple[str, ...], Any] = {}

        def struct(level: Mapping[str, Any], above: tuple[str, ...], slots: tuple[str, ...]) -> Any:
            fields: list[tuple[str, Any, Any]] = []
            names: dict[str, str] = {}
            for number, (name, inside) in enumerate(level.items()):
                slot = f"f{number}"
                names[slot] = name
                kind = Any if inside is None else struct(inside, (*above, name), (*slots, slot)) | None
                fields.append((slot, kind, None))
                places[*above, name] = (*slots, slot)
            made = msgspec.defstruct("_Values", fields, rename=names, gc=False)
            empty[slots] = made()
            return made

        values = struct(nested, (), ())
        top = [("numRecords", Any, None), ("tightBounds", Any, None)]
        top += [(name, values | None, None) for name in ("minValues", "maxValues", "nullCount")]
        return cls(msgspec.json.Decoder(msgspec.defstruct("_Stats", top, gc=False)), places, empty)

    def decode(self, stats: pl.Series) -> list[Any]:
        """Decode texts. What is not valid counts as no statistics, apart from the number of rows."""
        decode, nothing = self._decoder.decode, self._decoder.decode(b"{}")
        found = []
        for text in stats.to_list():
            try:
                found.append(nothing if text is None else decode(text))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                found.append(decode(_count_only(text)))
        return found

    def column(self, leaf: EntryLeaf, structs: Sequence[Any]) -> list[Any]:
        """Return the values of a leaf, None where there is none."""
        values = list(structs)
        done: tuple[str, ...] = ()
        for slot in self._places[leaf.path]:
            empty = self._empty[done]
            get = operator.attrgetter(slot)
            values = [get(empty if value is None else value) for value in values]
            done = (*done, slot)
        return values


def _count_only(text: str) -> bytes:
    """Return statistics that have only the number of rows, if the text is JSON with a valid one."""
    try:
        count = json.loads(text).get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        return b"{}"
    return b'{"numRecords":%d}' % count if _is_count(count) else b"{}"


def _only(values: Sequence[Any], *kinds: type) -> Sequence[Any]:
    """Replace values of other types by None. A ``bool`` is not an ``int`` here."""
    if {*map(type, values)} <= {*kinds, type(None)}:
        return values
    return [value if type(value) in kinds else None for value in values]


def _integers(values: Sequence[Any], bits: int = 64) -> pl.Series:
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1
    plain = _only(values, int)
    fit = [value if value is not None and lowest <= value <= highest else None for value in plain]
    return pl.Series(fit, dtype=pl.Int64)


def _numbers(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Return numbers as doubles, NaN where there is none."""
    return np.array(
        [math.nan if value is None or abs(value) > _HUGE else value for value in _only(values, int, float)],
        dtype=np.float64,
    )


_HUGE: Final = 1e300


def _null_counts(values: Sequence[Any], records: pl.Series, wide: pl.Series) -> pl.Series:
    counts = _integers(values).to_frame("nulls").with_columns(records.alias("records"), wide.alias("wide"))
    nulls = pl.col("nulls")
    certain = nulls.is_between(0, pl.col("records")) & (~pl.col("wide") | (nulls == 0) | (nulls == pl.col("records")))
    return counts.select(pl.when(certain).then(nulls)).to_series()


_Maker = Callable[[Sequence[Any]], list[bytes | None]]


def _maker(leaf: EntryLeaf, kind: str) -> _Maker | None:
    """Return the function from stated bounds to Iceberg's, or None if the column gets none."""
    data_type = leaf.data_type
    if isinstance(data_type, DecimalType):
        return lambda values: _decimals(values, data_type, kind)
    if leaf.collated or not has_bounds(data_type) or not isinstance(data_type, PrimitiveType):
        return None
    name = data_type.name
    if name in _BITS:
        width = "<i8" if name == "long" else "<i4"
        return lambda values: _packed(_integers(values, _BITS[name]), width)
    if name in ("float", "double"):
        return (lambda values: _floats(values, name)) if kind == "min" else None
    makers: dict[str, _Maker] = {
        "string": _lower_texts if kind == "min" else _upper_texts,
        "date": _dates,
        "timestamp": lambda values: _times(values, kind, zoned=True),
        "timestamp_ntz": lambda values: _times(values, kind, zoned=False),
    }
    return makers[name]


def _packed(values: pl.Series, width: str) -> list[bytes | None]:
    """Pack numbers into bytes, None for null."""
    content = values.fill_null(0).to_numpy().astype(width).tobytes()
    size = np.dtype(width).itemsize
    found: list[bytes | None] = [content[at : at + size] for at in range(0, len(content), size)]
    if values.null_count():
        return [None if missing else item for item, missing in zip(found, values.is_null().to_list(), strict=True)]
    return found


def _floats(values: Sequence[Any], name: str) -> list[bytes | None]:
    numbers = _numbers(values)
    if name == "float":
        with np.errstate(over="ignore"):
            single = numbers.astype(np.float32)
            lower = np.nextafter(single, np.float32(-np.inf)).astype(np.float64)
    else:
        lower = np.nextafter(numbers, -np.inf)
    bounds = pl.Series(lower).set(pl.Series(~np.isfinite(lower)), None)
    return _packed(bounds, "<f4" if name == "float" else "<f8")


def _decimals(values: Sequence[Any], data_type: DecimalType, kind: str) -> list[bytes | None]:
    numbers = _numbers(values)
    scaled = numbers * 10.0**data_type.scale
    limit = 10**data_type.precision - 1
    if data_type.precision <= _EXACT_DIGITS:
        whole = np.rint(scaled)
        sure = np.abs(scaled - whole) < 0.25
        sure &= np.abs(whole) <= limit
        return [
            _unscaled(int(value)) if known else None for value, known in zip(whole.tolist(), sure.tolist(), strict=True)
        ]
    slack = np.abs(scaled) * 2.0**-49 + 1
    loose = np.floor(scaled - slack) if kind == "min" else np.ceil(scaled + slack)
    return [
        _unscaled(max(-limit, min(limit, int(value)))) if math.isfinite(value) else None for value in loose.tolist()
    ]


def _unscaled(value: int) -> bytes:
    """Return the shortest two's complement of a number."""
    return value.to_bytes(((value if value >= 0 else ~value).bit_length() + 8) // 8, "big", signed=True)


def _texts(values: Sequence[Any]) -> pl.Series:
    return pl.Series(_only(values, str), dtype=pl.String)


def _dates(values: Sequence[Any]) -> list[bytes | None]:
    texts = _texts(values)
    days = texts.str.to_date("%Y-%m-%d", strict=False).to_physical().cast(pl.Int64)
    sure = (texts.str.len_bytes() == 10) & (days >= _FIRST_DAY)
    return _packed(days.set(~sure.fill_null(False), None), "<i4")


_ZONE: Final = r"(Z|[+-]\d{2}:?\d{2})$"


def _times(values: Sequence[Any], kind: str, *, zoned: bool) -> list[bytes | None]:
    """Return bounds of times. A text must have a zone exactly if the type has one."""
    text = pl.col("text")
    zone = text.str.extract(_ZONE)
    plain = text.str.replace(_ZONE, "").str.replace("T", " ", literal=True)
    moment = plain.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False).to_physical()
    digits = zone.str.replace(":", "", literal=True)
    minutes = digits.str.slice(1, 2).cast(pl.Int64, strict=False) * 60 + digits.str.slice(3, 2).cast(
        pl.Int64, strict=False
    )
    offset = pl.when(zone == "Z").then(0).when(zone.str.starts_with("-")).then(-minutes).otherwise(minutes)
    wider = 1000 if kind == "max" else -1000
    bound = (moment - offset * 60_000_000 if zoned else moment) + wider
    sure = (zone.is_not_null() if zoned else zone.is_null()) & bound.is_between(
        _FIRST_DAY * _DAY, _LAST_MICROSECOND, closed="left"
    )
    found = _texts(values).to_frame("text").select(pl.when(sure).then(bound).alias("bound"))
    return _packed(found.to_series(), "<i8")


_DOUBTFUL: Final = r"[\x{E000}-\x{10FFFF}]"
"""Characters whose order depends on the engine: by code point, by byte, or by UTF-16 unit."""


def _lower_texts(values: Sequence[Any]) -> list[bytes | None]:
    """Return prefixes, which no text with them is below."""
    texts = _texts(values).str.slice(0, _LENGTH)
    if bool(texts.str.contains(_DOUBTFUL).any()):
        texts = texts.str.replace(f"(?s){_DOUBTFUL}.*$", "")
    return texts.set((texts == "").fill_null(False), None).cast(pl.Binary).to_list()


def _upper_texts(values: Sequence[Any]) -> list[bytes | None]:
    """Return texts that are above all texts up to the stated ones."""
    texts = _texts(values)
    odd = (texts.str.len_chars() >= _LENGTH) | texts.str.contains(_DOUBTFUL)
    if bool(odd.any()):
        at = odd.fill_null(False).arg_true()
        texts = texts.scatter(at, pl.Series([_above(text) for text in texts.gather(at).to_list()], dtype=pl.String))
    return texts.cast(pl.Binary).to_list()


def _above(text: str) -> str | None:
    """Return the shortest text above all texts with a prefix of the given one, in any order, or None.

    A stated maximum of 32 characters or more may be cut, whatever its writer did about what it cut off.
    """
    prefix = text[: _LENGTH - 1]
    end = next((index for index, char in enumerate(prefix) if ord(char) >= _SURROGATES), len(prefix))
    while end:
        raised = ord(prefix[end - 1]) + 1
        if raised < _SURROGATES:
            return prefix[: end - 1] + chr(raised)
        end -= 1
    return None
