"""Make a lake of twelve tables with 2,000 persons, and search it without the engine for those who were erased.

The search reads every file's bytes, every value of every Parquet and Avro file, and every name.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

PERSONS = 2000
ERASED = 500
_NAME = re.compile(r"person-(\d{5})")
_DV = "'delta.enableDeletionVectors' = 'true'"


def email(person: int) -> str:
    return f"person-{person:05d}@lake.example"


@dataclass(frozen=True)
class Kind:
    """How a table is made.

    Args:
        properties: Its properties.
        clause: PARTITIONED BY or CLUSTER BY.
        key: The column of the key.
        renamed: Its name after a rename.
        persons: How many persons are in it.
        iceberg: Whether it has an Iceberg entry.
        manifests: Whether it has symlink manifests.
    """

    properties: str = ""
    clause: str = ""
    key: str = "mail"
    renamed: str | None = None
    persons: int = PERSONS
    iceberg: bool = False
    manifests: bool = False


KINDS: Mapping[str, Kind] = {
    "plain": Kind(iceberg=True, manifests=True),
    "vectors": Kind(_DV, iceberg=True),
    "names": Kind(f"{_DV}, 'delta.columnMapping.mode' = 'name'", renamed="the address", iceberg=True),
    "ids": Kind("'delta.columnMapping.mode' = 'id'"),
    "feed": Kind("'delta.enableChangeDataFeed' = 'true'"),
    "clustered": Kind(_DV, "CLUSTER BY (mail)"),
    "regions": Kind("", "PARTITIONED BY (region)", iceberg=True, manifests=True),
    "by key": Kind("", "PARTITIONED BY (mail)", persons=60),
    "tracked": Kind(
        "'delta.enableRowTracking' = 'true', 'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '3'"
    ),
    "times": Kind("'delta.enableInCommitTimestamps' = 'true', 'pydelta.log.compactionInterval' = '2'"),
    "structs": Kind(key="who.mail"),
    "numbers": Kind(key="id"),
}


@dataclass
class Lake:
    """The lake.

    Args:
        root: Its folder, or its URI.
        erased: The persons to erase.
        expected: The rows of others, by table: the mail, ``id``, ``n``.
        statements: What makes each table.
    """

    root: Path | str
    erased: frozenset[int]
    expected: dict[str, Counter] = field(default_factory=dict)
    statements: dict[str, list[str]] = field(default_factory=dict)

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def keys_csv(self) -> str:
        return "email,customer\n" + "".join(f"{email(person)},{person}\n" for person in sorted(self.erased))

    def mapping(self, *more: tuple[str, str]) -> str:
        tables = [(self.path(name), kind) for name, kind in KINDS.items()]
        lines = []
        for path, kind in tables:
            column = kind.renamed or kind.key
            quoted = f"`{column}`" if " " in column else column
            key = "customer" if kind.key == "id" else "email"
            lines.append(f'[{json.dumps(path)}]\n{json.dumps(quoted)} = "{key}"\n')
        lines += [f'[{json.dumps(path)}]\n{json.dumps(column)} = "email"\n' for path, column in more]
        return "\n".join(lines)


def made(spark: Any, root: Path, seed: int = 7) -> Lake:
    """Make the tables with SQL, each with a history in which persons are everywhere."""
    lake = planned(root, seed)
    for name in KINDS:
        for statement in lake.statements[name]:
            spark.sql(statement)
        assert lake.expected[name] == Counter(
            {row: count for row, count in rows_of(spark, lake, name).items() if not _is_erased(lake, row)}
        )
    return lake


def planned(root: Path | str, seed: int = 7) -> Lake:
    """Choose the persons to erase, the statements that make the tables and the rows of others; nothing is made."""
    chance = random.Random(seed)
    lake = Lake(root, frozenset(chance.sample(range(PERSONS), ERASED)))
    for name, kind in KINDS.items():
        other = chance.choice([person for person in range(kind.persons) if person not in lake.erased])
        lake.statements[name] = list(_statements(lake, f"delta.`{lake.path(name)}`", kind, other))
        half = kind.persons // 2
        lake.expected[name] = Counter(
            ("nobody" if kind.key == "id" else email(person), person,
             person * 10 + half * (person >= half) + (person == other))
            for person in range(kind.persons) if person not in lake.erased
        )  # fmt: skip
    return lake


def _statements(lake: Lake, table: str, kind: Kind, other: int) -> Iterator[str]:
    """Yield the statements that make a table, one of which updates a person who stays."""
    who = "who STRUCT<mail: STRING, n: INT>" if kind.key == "who.mail" else "mail STRING"
    properties = f"TBLPROPERTIES ({kind.properties})" if kind.properties else ""
    yield f"CREATE TABLE {table} ({who}, id BIGINT, n BIGINT, region STRING) USING delta {kind.clause} {properties}"
    mail = "concat('person-', lpad(cast(person as string), 5, '0'), '@lake.example')"
    if kind.key == "id":
        mail = "'nobody'"
    first = f"named_struct('mail', {mail}, 'n', 1)" if kind.key == "who.mail" else mail
    step = kind.persons // 2
    for low in range(0, kind.persons, step):
        persons = f"(SELECT id AS person FROM range({low}, {low + step}))"
        rows = f"SELECT {first}, person, person * 10 + {low}, concat('r', person % 4) FROM {persons}"
        yield f"INSERT INTO {table} {rows}"
    of = [person for person in sorted(lake.erased) if person < kind.persons]
    column = kind.key
    value = str if kind.key == "id" else lambda person: f"'{email(person)}'"
    yield f"DELETE FROM {table} WHERE {column} IN ({', '.join(map(value, of[:5]))})"
    yield f"UPDATE {table} SET n = n + 1 WHERE {column} = {value(of[5])}"
    yield f"UPDATE {table} SET n = n + 1 WHERE {column} = {value(other)}"
    if not kind.clause:
        yield f"OPTIMIZE {table}"
    yield f"DELETE FROM {table} WHERE {column} = {value(of[6])}"
    if kind.renamed:
        yield f"ALTER TABLE {table} RENAME COLUMN mail TO `{kind.renamed}`"
    if kind.manifests:
        yield f"GENERATE symlink_format_manifest FOR TABLE {table}"
    if kind.iceberg:
        yield f"GENERATE iceberg FOR TABLE {table}"


def rows_of(spark: Any, lake: Lake, name: str) -> Counter:
    kind = KINDS.get(name, Kind())
    column = column_of(kind)
    frame = spark.read.format("delta").load(lake.path(name))
    return Counter(tuple(row) for row in frame.selectExpr(column, "id", "n").collect())


def column_of(kind: Kind) -> str:
    """Spell the column with the mail, as SQL has it."""
    return "who.mail" if kind.key == "who.mail" else f"`{kind.renamed or 'mail'}`"


def _is_erased(lake: Lake, row: tuple[Any, ...]) -> bool:
    return row[1] in lake.erased and not str(row[0]).startswith("other")


def persons_in(text: str) -> set[int]:
    return set(map(int, _NAME.findall(text)))


def found_on_disk(root: Path, erased: frozenset[int]) -> list[str]:
    """Where files below a folder hold or name one of the persons: paths, with how."""
    found = []
    for folder, _, files in os.walk(root):
        for name in files:
            path = Path(folder, name)
            found += [
                f"{path.relative_to(root)}: {how}"
                for how in found_in(str(path.relative_to(root)), path.read_bytes(), erased)
            ]
    return found


def found_in(name: str, data: bytes, erased: frozenset[int]) -> Iterator[str]:
    """How a file holds or names one of the persons."""
    if persons_in(unquote(unquote(name))) & erased:
        yield "its name"
    if persons_in(unquote(data.decode("latin-1"))) & erased:
        yield "its bytes"
    if data[:4] == b"PAR1":
        table = pq.read_table(pa.BufferReader(data))
        if persons_in(str(table.to_pylist())) & erased:
            yield "its values"
        if "/numbers/" in f"/{name}" and "id" in table.column_names and set(table["id"].to_pylist()) & erased:
            yield "its numbers"
    elif data[:3] == b"Obj":
        if persons_in(str(pl.read_avro(io.BytesIO(data)).to_dicts())) & erased:
            yield "its Avro values"
    elif "/numbers/_delta_log/" in f"/{name}" and name.endswith(".json"):
        for line in data.decode().splitlines():
            add = json.loads(line).get("add") or {}
            stats = json.loads(add.get("stats") or "{}")
            if {stats.get(kind, {}).get("id") for kind in ("minValues", "maxValues")} & erased:
                yield "its bounds"
