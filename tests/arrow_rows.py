"""Make random table schemas, values for them, and Arrow tables that hold these values in some other layout.

::

    random types --> values, canonical: days, microseconds, decimals
                 --> Arrow: widths, units, dictionaries, views, runs, lists, order and case of fields, chunks, slices
                 --> now and then one thing that must be refused
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pydelta.protocol.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_LEAVES = [*_BITS, "float", "double", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "decimal"]
_NAMES = ["a", "Bc", "d e", "x.y", "Straße", "`q`", "element", "key", "select", "名", "a-b", "f" * 40]
_DAYS = [0, -719162, 2932896, 2932897, 100_000_000, -141428, 19_000]
_MICROS = [0, -62135596800000000, 253402300799999999, 253402300800000000, 1, -1, 1_700_000_000_000_000]
_TEXTS = ["", "a", "\x00", "é", "a" * 300, "😀", " ", "NULL", "a\nb", "%/="]
_DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    float("inf"),
    float("-inf"),
    float("nan"),
    2.0**53,
    0.1,
    5e-324,
    1.7e308,
]
_FLOATS = [0.0, -0.0, 1.0, -1.5, float("inf"), float("nan"), 65504.0, float(np.float32(0.1)), float(np.float32(3.4e38))]


@dataclass(frozen=True, slots=True)
class Rows:
    """An Arrow table, the canonical values of its rows, and what is wrong with it; None for nothing."""

    table: pa.Table
    values: list[dict[str, Any]]
    wrong: str | None


class Generator:
    """Everything follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._wrong: str | None = None

    # --- types -----------------------------------------------------------------------------------------------

    def schema(self) -> StructType:
        """A table: a key ``id``, and up to four columns of any type."""
        return StructType((StructField("id", PrimitiveType("long")), *self._fields(self.random.randint(1, 4), 3)))

    def _fields(self, count: int, depth: int) -> Iterator[StructField]:
        for name in self.random.sample(_NAMES, count):
            yield StructField(name, self._type(depth))

    def _type(self, depth: int) -> DataType:
        kind = self.random.random()
        if depth == 0 or kind < 0.5:
            name = self.random.choice(_LEAVES)
            if name == "decimal":
                precision = self.random.choice([1, 9, 10, 18, 19, 38])
                return DecimalType(precision, self.random.randint(0, precision))
            return PrimitiveType(name)
        if kind < 0.7:
            return StructType(tuple(self._fields(self.random.randint(1, 3), depth - 1)))
        if kind < 0.87:
            return ArrayType(self._type(depth - 1))
        return MapType(PrimitiveType(self.random.choice(["string", "long"])), self._type(depth - 1))

    # --- values ----------------------------------------------------------------------------------------------

    def values(self, schema: StructType, keys: Sequence[int]) -> list[dict[str, Any]]:
        """Canonical rows: days, microseconds, lists, dictionaries; maps as lists of pairs."""
        return [{"id": key, **{f.name: self.value(f.data_type) for f in schema.fields[1:]}} for key in keys]

    def value(self, kind: DataType) -> Any:
        """Draw one value of a type; null now and then."""
        random = self.random
        if random.random() < 0.15:
            return None
        if isinstance(kind, StructType):
            return {field.name: self.value(field.data_type) for field in kind.fields}
        if isinstance(kind, ArrayType):
            return [self.value(kind.element_type) for _ in range(random.randint(0, 3))]
        if isinstance(kind, MapType):
            keys = random.sample(["k", "", "é"] if kind.key_type == PrimitiveType("string") else [0, -1, 2**62], 2)
            return [(key, self.value(kind.value_type)) for key in keys[: random.randint(0, 2)]]
        if isinstance(kind, DecimalType):
            most = 10**kind.precision - 1
            return Decimal(random.choice([0, most, -most, random.randint(-most, most)])).scaleb(-kind.scale, _WIDE)
        bits = _BITS.get(kind.name)
        if bits:
            return random.choice([0, -1, 7, (1 << bits - 1) - 1, -(1 << bits - 1)])
        return random.choice(_CHOICES[kind.name])

    # --- Arrow -----------------------------------------------------------------------------------------------

    def rows(self, schema: StructType, keys: Sequence[int], *, spoil: bool) -> Rows:
        """An Arrow table of new values; with ``spoil`` something in it may have to be refused."""
        values = self.values(schema, keys)
        self._wrong = None
        fields = list(schema.fields)
        missing = {field.name for field in fields[1:] if self.random.random() < 0.1}
        for row in values:
            row.update(dict.fromkeys(missing))
        kept = [field for field in fields if field.name not in missing]
        self.random.shuffle(kept)
        columns = {}
        for field in kept:
            spoiled = spoil and self._wrong is None and field.name != "id" and self.random.random() < 0.4
            column = self.chunked([row[field.name] for row in values], field.data_type, spoil=spoiled)
            columns[self._cased(field.name)] = column
        return Rows(pa.table(columns), values, self._wrong)

    def _cased(self, name: str) -> str:
        return name.upper() if self.random.random() < 0.3 and name.upper().lower() == name.lower() else name

    def chunked(self, values: list[Any], kind: DataType, *, spoil: bool) -> pa.ChunkedArray:
        """Lay values out as a column; with ``spoil`` something in it has to be refused."""
        if spoil:  # one chunk: of what is wrong, some value has to be there
            return pa.chunked_array([self._array(values, kind, spoil=True)])
        more = [*([None] * 2), *values, None]
        whole = self._array(more, kind, spoil=False).slice(2, len(values))
        at = self.random.randint(0, len(values))
        return pa.chunked_array([whole.slice(0, at), whole.slice(at)] if self.random.random() < 0.5 else [whole])

    def _array(self, values: list[Any], kind: DataType, *, spoil: bool) -> pa.Array:
        if spoil and self.random.random() < (0.5 if isinstance(kind, (StructType, ArrayType, MapType)) else 1):
            array = self._spoiled(values, kind)
            if array is not None:
                return array
        if isinstance(kind, StructType):
            return self._struct(values, kind, spoil=spoil)
        if isinstance(kind, ArrayType):
            return self._list(values, kind, spoil=spoil)
        if isinstance(kind, MapType):
            flat = [pair for value in values for pair in value or ()]
            keys = self._leaf([pair[0] for pair in flat], kind.key_type, plain=True)
            items = self._array([pair[1] for pair in flat], kind.value_type, spoil=spoil)
            return pa.MapArray.from_arrays(_offsets(values), keys, items, mask=_mask(values))
        return self._leaf(values, kind)

    def _spoiled(self, values: list[Any], kind: DataType) -> pa.Array | None:
        """An array that the column must refuse, whatever the values are."""
        if isinstance(kind, StructType):
            extra = pa.nulls(len(values), pa.int8())
            arrays = [
                self._array([(v or {}).get(f.name) for v in values], f.data_type, spoil=False) for f in kind.fields
            ]
            self._wrong = "a field too many"
            names = [*kind.names, "more"]
            return pa.StructArray.from_arrays([*arrays, extra], names=names, mask=_mask(values))
        if isinstance(kind, PrimitiveType) and kind.name in _LOSSY and all(value is None for value in values):
            return None
        if not values:  # what is wrong has to be there
            return None
        self._wrong = "another kind"
        if isinstance(kind, PrimitiveType) and kind.name == "string":
            return pa.array([1] * len(values), pa.int64())
        if isinstance(kind, PrimitiveType) and kind.name in _LOSSY and self.random.random() < 0.5 and values:
            self._wrong = "a value that does not fit"
            return _LOSSY[kind.name](len(values))
        return pa.array(["1"] * len(values), pa.string())

    def _struct(self, values: list[Any], kind: StructType, *, spoil: bool) -> pa.Array:
        fields = list(kind.fields)
        self.random.shuffle(fields)
        if len(fields) > 1 and not spoil and self.random.random() < 0.15:
            gone = fields.pop().name
            for value in values:
                if value is not None:
                    value[gone] = None
        spoilt = self.random.randrange(len(fields))
        arrays = [
            self._array([None if v is None else v[f.name] for v in values], f.data_type, spoil=spoil and at == spoilt)
            for at, f in enumerate(fields)
        ]
        names = [self._cased(field.name) for field in fields]
        return pa.StructArray.from_arrays(arrays, names=names, mask=_mask(values))

    def _list(self, values: list[Any], kind: ArrayType, *, spoil: bool) -> pa.Array:
        flat = [item for value in values for item in value or ()]
        child = self._array(flat, kind.element_type, spoil=spoil)
        layout = self.random.choice(["list", "large", "view"])
        if layout == "large":
            return pa.LargeListArray.from_arrays(_offsets(values).cast(pa.int64()), child, mask=_mask(values))
        plain = pa.ListArray.from_arrays(_offsets(values), child, mask=_mask(values))
        if layout == "view" and not spoil:
            sizes = pa.array([len(value or ()) for value in values], pa.int32())
            starts = plain.offsets.slice(0, len(values))
            return pa.ListViewArray.from_arrays(starts, sizes, child, mask=_mask(values))
        return plain

    def _leaf(self, values: list[Any], kind: DataType, *, plain: bool = False) -> pa.Array:
        array = pa.array(values, pa.null()) if values and all(value is None for value in values) and not plain else None
        array = self._typed(values, kind) if array is None else array
        how = self.random.random()
        if plain or pa.types.is_null(array.type):
            return array
        if how < 0.2:
            places = [None if value is None and self.random.random() < 0.5 else at for at, value in enumerate(values)]
            return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), array)
        return pc.run_end_encode(array) if how < 0.25 and _has_runs(array.type) else array

    def _typed(self, values: list[Any], kind: DataType) -> pa.Array:
        if isinstance(kind, DecimalType):
            return pa.array(values, self._decimal(values, kind))
        name = kind.name
        types: list[pa.DataType] = []
        if name in _BITS:
            types = [t for t in _WHOLE if _holds(values, t)]
        elif name in ("date", "timestamp", "timestamp_ntz"):
            return self._time(values, name)
        elif name == "float":
            types = [pa.float32(), pa.float64()]
        elif name == "string":
            types = [pa.string(), pa.large_string(), pa.string_view()]
        elif name == "binary":
            types = [pa.binary(), pa.large_binary(), pa.binary_view()]
        return pa.array(values, self.random.choice(types or [_PLAIN[name]]))

    def _decimal(self, values: list[Any], kind: DecimalType) -> pa.DataType:
        wider = self.random.randint(0, 38 - kind.precision)
        types: list[pa.DataType] = [
            pa.decimal128(kind.precision, kind.scale),
            pa.decimal128(kind.precision + wider, kind.scale),
            pa.decimal256(kind.precision + 5, kind.scale + 5),
        ]
        types += [pa.decimal32(kind.precision, kind.scale)] if kind.precision <= 9 else []
        types += [pa.decimal64(kind.precision, kind.scale)] if kind.precision <= 18 else []
        whole = [None if value is None else int(value) for value in values]
        if all(value is None or value == int(value) for value in values):
            types += [t for t in (pa.int64(), pa.uint64()) if _holds(whole, t)]
        return self.random.choice(types)

    def _time(self, values: list[Any], name: str) -> pa.Array:
        if name == "date":
            if self.random.random() < 0.3:
                scaled = [None if value is None else value * 86_400_000 for value in values]
                return pa.array(scaled, pa.int64()).view(pa.date64())
            return pa.array(values, pa.int32()).view(pa.date32())
        zone = self.random.choice(["UTC", "Europe/Berlin", "+05:30"]) if name == "timestamp" else None
        unit = self.random.choice(["us", "us", "ns", "ms", "s"])
        many, few = {"us": (1, 1), "ns": (1000, 1), "ms": (1, 1000), "s": (1, 1_000_000)}[unit]
        whole = all(value is None or (value % few == 0 and abs(value * many) < 2**63) for value in values)
        unit, many, few = (unit, many, few) if whole else ("us", 1, 1)
        scaled = [None if value is None else value * many // few for value in values]
        return pa.array(scaled, pa.int64()).view(pa.timestamp(unit, zone))


def canonical(array: Any, kind: DataType) -> list[Any]:
    """The values of a column as the generator has them."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in canonical(chunk, kind)]
    valid = array.is_valid().to_pylist()
    if isinstance(kind, StructType):
        parts = [canonical(part, field.data_type) for part, field in zip(array.flatten(), kind.fields, strict=True)]
        rows = [dict(zip(kind.names, row, strict=True)) for row in zip(*parts, strict=True)]
        return [row if there else None for row, there in zip(rows, valid, strict=True)]
    if isinstance(kind, (ArrayType, MapType)):
        if isinstance(kind, ArrayType):
            values = canonical(array.values, kind.element_type)
        else:
            pairs = (canonical(array.keys, kind.key_type), canonical(array.items, kind.value_type))
            values = list(zip(*pairs, strict=True))
        ends = array.offsets.to_pylist()
        lists = [values[start:end] for start, end in itertools.pairwise(ends)]
        return [item if there else None for item, there in zip(lists, valid, strict=True)]
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    return array.to_pylist()


def canonical_rows(table: pa.Table, schema: StructType) -> dict[int, str]:
    """The rows of a table by ``id``, as text: NaN equals NaN, and -0.0 is not 0.0."""
    columns = {field.name: canonical(table.column(field.name), field.data_type) for field in schema.fields}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert len({row["id"] for row in rows}) == len(rows), "a row is there twice"
    return {row["id"]: shown(row) for row in rows}


def shown(row: dict[str, Any]) -> str:
    """A row as text."""
    return repr(dict(sorted(row.items())))


def _holds(values: list[Any], kind: pa.DataType) -> bool:
    try:
        pa.array(values, pa.int64() if pa.types.is_floating(kind) else kind)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return not pa.types.is_floating(kind) or all(value is None or abs(value) < 2**53 for value in values)


def _offsets(values: list[Any]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum([len(value or ()) for value in values])]), pa.int32())


def _mask(values: list[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _is_view(kind: pa.DataType) -> bool:
    return pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)


def _has_runs(kind: pa.DataType) -> bool:
    return not (_is_view(kind) or pa.types.is_decimal(kind) or pa.types.is_temporal(kind))


_WIDE = Context(prec=60)
_WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(), pa.float64()]
_PLAIN = {"double": pa.float64(), "boolean": pa.bool_()}
_CHOICES: dict[str, Sequence[Any]] = {
    "float": _FLOATS,
    "double": _DOUBLES,
    "boolean": [True, False],
    "string": _TEXTS,
    "binary": [text.encode() for text in _TEXTS] + [b"\xff"],
    "date": _DAYS,
    "timestamp": _MICROS,
    "timestamp_ntz": _MICROS,
}
_LOSSY = {
    "byte": lambda n: pa.array([128] * n),
    "short": lambda n: pa.array([2**15] * n),
    "integer": lambda n: pa.array([-(2**31) - 1] * n),
    "long": lambda n: pa.array([0.5] * n),
    "float": lambda n: pa.array([0.1] * n),
    "double": lambda n: pa.array([2**53 + 1] * n),
    "timestamp": lambda n: pa.array([1] * n, pa.timestamp("ns", "UTC")),
    "timestamp_ntz": lambda n: pa.array([0] * n, pa.timestamp("us", "UTC")),
    "date": lambda n: pa.array([1] * n, pa.int64()).view(pa.date64()),
}
