"""Random conditions, values and texts by ``pydelta.open``: what a model says, or a DeltaError and nothing left."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import os
from decimal import Decimal

import pytest

from pydelta.api.python.local import LocalTable
from pydelta.engines.arrow.text_source import TextFile
from pydelta.errors import DeltaError, ParseError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import Protocol
from pydelta.protocol.types import ArrayType, DecimalType, MapType, StructType
from pydelta.storage.memory import MemoryStore
from pydelta.testing.tables import TableBuilder
from tests.arrow_rows import Generator, canonical_rows, shown
from tests.routes.conditions import day_text, draw_condition, draw_value, instant_text, is_simple, literal, quoted

SEEDS = int(os.environ.get("PYDELTA_ARROW_SEEDS", "40"))
KEPT: list[int] = []
"""Seeds that failed once."""
_NAMES = itertools.count()
_KEYS = range(1, 9)
_FEATURES = ("deletionVectors", "columnMapping", "timestampNtz")
PROTOCOL = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=_FEATURES,
    writer_features=(*_FEATURES, "changeDataFeed"),
)  # fmt: skip


class Doors:
    """A table in memory and the model of its rows, by ``id``."""

    def __init__(self, seed):
        self.generator = Generator(seed)
        self.random = self.generator.random
        self.schema = self.generator.schema()
        self.fields = list(self.schema.fields)
        simple = [item.name for item in self.fields[1:] if is_simple(item.data_type)]
        self.partitions = self.random.sample(simple, min(len(simple), self.random.choice([0, 0, 1])))
        if len(self.partitions) == len(self.fields) - 1:
            self.partitions = []
        self.store = MemoryStore(f"memory://changedoors{next(_NAMES)}/t")
        chosen = [{}, {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}]
        built = TableBuilder(
            self.store, columns={}, partition_columns=self.partitions, properties=self.random.choice(chosen),
            protocol=PROTOCOL,
        )  # fmt: skip
        built.metadata = built.metadata.replace(schema_string=self.schema.to_json())
        built.commit()
        self.table = LocalTable(DeltaLog(self.store))
        self.model = {}
        self.taken = self.refused = 0

    def state(self):
        return self.table.version, sorted(item.path for item in self.store.list_all() if "_delta_log" not in item.path)

    def stored(self, row):
        """A row as the table has it: an empty string is null in a partition column."""
        return {name: None if name in self.partitions and value in ("", b"") else value for name, value in row.items()}

    def attempt(self, change, *, why):
        """Whether a change was made; a refusal is a DeltaError of the kinds that are expected, and leaves nothing."""
        before = self.state()
        try:
            change()
        except DeltaError as error:
            assert why(error), error
            assert self.state() == before
            self.refused += 1
            return False
        self.taken += 1
        return True

    def compare(self, note):
        found = canonical_rows(self.table.scan(), self.schema)
        assert found == {key: shown(row) for key, row in self.model.items()}, note


def _fill(doors):
    rows = doors.generator.rows(doors.schema, list(_KEYS), spoil=False)
    if doors.attempt(lambda: doors.table.append(rows.table), why=lambda error: doors.partitions):
        doors.model = {row["id"]: doors.stored(row) for row in rows.values}
    return bool(doors.model)


@pytest.mark.parametrize("block", range(4))
def test_changes_by_random_conditions_and_values_are_those_of_a_model(block, monkeypatch):
    taken = 0
    for seed in (*KEPT, *range(block, SEEDS, 4)):
        doors = Doors(seed)
        if not _fill(doors):
            continue
        if seed % 2:  # Files of a few bytes are taken for large ones, whose unchanged columns are copied.
            monkeypatch.setattr("pydelta.engines.arrow.changes._COPIED_BYTES", 0)
            monkeypatch.setattr("pydelta.engines.arrow.tasks.copied_columns._LEAST_SHARE", 0)
        else:
            monkeypatch.undo()
        for step in range(6):
            note = f"seed {seed}, step {step}"
            condition = draw_condition(doors.random, doors.fields, _KEYS)
            chosen = {key for key, row in doors.model.items() if condition.of(row)}
            if doors.random.random() < 0.4:
                if doors.attempt(lambda: doors.table.delete(condition.text), why=_takes_spark):  # noqa: B023
                    doors.model = {key: row for key, row in doors.model.items() if key not in chosen}
            else:
                texts, values = _assignments(doors)
                change = lambda: doors.table.update(condition.text, texts)  # noqa: B023, E731
                if doors.attempt(change, why=lambda error: _takes_spark(error) or doors.partitions):  # noqa: B023
                    for key in chosen:
                        row = doors.model[key]
                        doors.model[key] = doors.stored(row | {name: made(row) for name, made in values.items()})
            doors.compare(f"{note}: {condition.text}")
        taken += doors.taken
    assert taken > SEEDS // 2, "most of them are computed here"


def _takes_spark(error):
    """Whether it is a command for a session: by its rules, or by a function in its text."""
    return isinstance(error, UnsupportedFeatureError) or (isinstance(error, ParseError) and "CAST(" in str(error))


def _assignments(doors):
    """Texts of SET, and what each makes of a row."""
    fields = [item for item in doors.fields if item.name != "id"]
    texts, values = {}, {}
    for item in doors.random.sample(fields, min(len(fields), doors.random.choice([1, 1, 2]))):
        same = [other.name for other in doors.fields if other.data_type == item.data_type and other != item]
        if same and doors.random.random() < 0.4:
            other = doors.random.choice(same)
            texts[quoted(item.name)] = quoted(other)
            values[item.name] = lambda row, name=other: row[name]
        else:
            value = draw_value(doors.random, item.data_type) if is_simple(item.data_type) else None
            texts[quoted(item.name)] = literal(value, item.data_type)
            values[item.name] = lambda row, value=value: value
    return texts, values


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_random_rows_as_text_are_stored_as_they_are_or_refused(tmp_path, form):
    taken = 0
    for seed in (*KEPT, *range(SEEDS // 2)):
        doors = Doors(seed + 10_000)
        if form == "csv":
            doors.fields = [item for item in doors.fields if is_simple(item.data_type)]
        for keys in ([1, 2, 3], [4, 5]):
            rows = doors.generator.values(StructType(tuple(doors.fields)), keys)
            path = tmp_path / f"{seed}-{keys[0]}.{form}"
            path.write_bytes((_csv if form == "csv" else _ndjson)(doors, rows))
            fits = not doors.partitions and all(
                _can_be_text(f.data_type) and _is_written(row[f.name], f.data_type)
                for row in rows
                for f in doors.fields
            )
            change = lambda: doors.table.append(TextFile(str(path), form))  # noqa: B023, E731
            if doors.attempt(change, why=lambda error: not fits):  # noqa: B023
                for row in rows:
                    doors.model[row["id"]] = doors.stored(dict.fromkeys(doors.schema.names) | row)
        doors.compare(f"seed {seed}")
        taken += doors.taken
    assert taken > SEEDS // 4, "most files fit"


def _can_be_text(kind):
    """Whether keys of maps, wherever they are in a type, are texts, as those of objects in JSON."""
    if isinstance(kind, StructType):
        return all(_can_be_text(item.data_type) for item in kind.fields)
    if isinstance(kind, ArrayType):
        return _can_be_text(kind.element_type)
    return not isinstance(kind, MapType) or (kind.key_type.name == "string" and _can_be_text(kind.value_type))


def _is_written(value, kind):
    """Whether the text of a value is one that readers of text take: days of years with four digits, bytes of a text."""
    if value is None:
        return True
    if isinstance(kind, StructType):
        return all(_is_written(value[item.name], item.data_type) for item in kind.fields)
    if isinstance(kind, ArrayType):
        return all(_is_written(item, kind.element_type) for item in value)
    if isinstance(kind, MapType):
        return all(_is_written(item, kind.value_type) for _, item in value)
    name = getattr(kind, "name", "decimal")
    if name == "date":
        return value <= 2932896
    if name in ("timestamp", "timestamp_ntz"):
        return value < 253402300800000000
    return name != "binary" or _is_text(value)


def _is_text(value):
    try:
        return bool(value.decode()) or True
    except UnicodeDecodeError:
        return False


def _csv(doors, rows):
    names = [item.name for item in doors.fields]
    doors.random.shuffle(names)
    kinds = {item.name: item.data_type for item in doors.fields}
    lines = [",".join('"' + name.replace('"', '""') + '"' for name in names)]
    for row in rows:
        lines.append(",".join(_cell(row[name], kinds[name]) for name in names))
    return ("\r\n".join(lines) + "\r\n").encode("utf-8", "surrogateescape")


def _cell(value, kind):
    if value is None:
        return ""
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else _text(value, kind)
    target = io.StringIO()
    csv.writer(target, quoting=csv.QUOTE_ALL, lineterminator="").writerow([text])
    return target.getvalue()


def _text(value, kind):
    name = getattr(kind, "name", "decimal")
    if name == "boolean":
        return str(value).lower()
    if name in ("float", "double"):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
    if name == "date":
        return day_text(value)
    if name in ("timestamp", "timestamp_ntz"):
        return instant_text(value) + ("Z" if name == "timestamp" else "")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _ndjson(doors, rows):
    return "".join(_json_object(row, doors.fields) + "\n" for row in rows).encode()


def _json_object(row, fields):
    return "{" + ", ".join(f"{json.dumps(f.name)}: {_json(row[f.name], f.data_type)}" for f in fields) + "}"


def _json(value, kind):
    if value is None:
        return "null"
    if isinstance(kind, StructType):
        return _json_object(value, kind.fields)
    if isinstance(kind, ArrayType):
        return "[" + ", ".join(_json(item, kind.element_type) for item in value) + "]"
    if isinstance(kind, MapType):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {_json(item, kind.value_type)}" for key, item in value) + "}"
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    text = _text(value, kind)
    if isinstance(kind, DecimalType):
        return text
    plain = isinstance(value, (bool, int)) and kind.name not in ("date", "timestamp", "timestamp_ntz")
    return text if plain or (isinstance(value, float) and text[-1].isdigit()) else json.dumps(text)
