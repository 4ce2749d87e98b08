"""List the tables: SQL that this engine and the reference engine both run, and what has to be in each table then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CASES", "Case"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One table.

    Args:
        name: Of the table feature, or of what else is tried.
        columns: Between the parentheses of CREATE TABLE.
        rows: What each engine has to read in the end, a dict a row: dates and times as ISO text in UTC, decimals as text,
            binaries as hexadecimal digits, maps as sorted pairs.
        clauses: After ``USING delta``.
        properties: Of the table.
        changes: Statements after CREATE TABLE; ``{t}`` is the table.
        read: What is read, in the words of Spark's SQL; other engines read all columns, so that it is for Spark's alone.
    """

    name: str
    columns: str
    rows: list[dict[str, Any]]
    clauses: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    read: str = "*"

    def statements(self, place: str) -> list[str]:
        """The SQL that makes the table at ``place``."""
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in self.properties.items())
        table = f"delta.`{place}`"
        begin = f"CREATE TABLE {table} ({self.columns}) USING delta {self.clauses}"
        return [
            f"{begin} TBLPROPERTIES ({listed})" if listed else begin,
            *(text.format(t=table) for text in self.changes),
        ]


_PAIR = "id INT, name STRING"
_TWO = ("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", "INSERT INTO {t} VALUES (3, NULL)")
_ROWS: list[dict[str, Any]] = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": None}]
_CHANGES = (*_TWO, "UPDATE {t} SET name = 'c' WHERE id = 1", "DELETE FROM {t} WHERE id = 2")
_CHANGED: list[dict[str, Any]] = [{"id": 1, "name": "c"}, {"id": 3, "name": None}]

CASES = (
    Case(name="no feature", columns=_PAIR, rows=_CHANGED, changes=_CHANGES),
    Case(
        name="partitions with special characters",
        columns="id INT, p STRING, d DATE",
        clauses="PARTITIONED BY (p, d)",
        changes=(
            "INSERT INTO {t} VALUES (1, 'a/b=c d%41', DATE '2024-02-29'), (2, NULL, NULL), (3, 'ü:', DATE '1969-12-31')",
        ),
        rows=[
            {"id": 1, "p": "a/b=c d%41", "d": "2024-02-29"},
            {"id": 2, "p": None, "d": None},
            {"id": 3, "p": "ü:", "d": "1969-12-31"},
        ],
    ),
    Case(
        name="partitions by time",
        columns="id INT, t TIMESTAMP",
        clauses="PARTITIONED BY (t)",
        changes=(
            "INSERT INTO {t} VALUES (1, TIMESTAMP '2024-02-29 12:34:56.123456'), (2, TIMESTAMP '1969-12-31 23:59:59')",
        ),
        rows=[{"id": 1, "t": "2024-02-29T12:34:56.123456+00:00"}, {"id": 2, "t": "1969-12-31T23:59:59+00:00"}],
    ),
    Case(
        name="every primitive type",
        columns="a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(38, 10), i STRING, j BINARY, k DATE, l TIMESTAMP",
        changes=(
            "INSERT INTO {t} VALUES (true, -128, -32768, -2147483648, -9223372036854775808, CAST(1.5 AS FLOAT), 1e300, "
            "CAST(-1234567890123456789012345678.0123456789 AS DECIMAL(38, 10)), 'ü', X'00FF', DATE '1900-01-01', "
            "TIMESTAMP '2262-05-01 00:00:00.000001')",
        ),
        rows=[
            {
                "a": True,
                "b": -128,
                "c": -32768,
                "d": -2147483648,
                "e": -9223372036854775808,
                "f": 1.5,
                "g": 1e300,
                "h": "-1234567890123456789012345678.0123456789",
                "i": "ü",
                "j": "00ff",
                "k": "1900-01-01",
                "l": "2262-05-01T00:00:00.000001+00:00",
            }
        ],
    ),
    Case(
        name="nested types",
        columns="id INT, s STRUCT<x: INT, y: STRING>, a ARRAY<STRUCT<x: INT>>, m MAP<STRING, ARRAY<INT>>",
        changes=("INSERT INTO {t} VALUES (1, struct(1, 'y'), array(struct(2), NULL), map('k', array(3, NULL)))",),
        rows=[{"id": 1, "s": {"x": 1, "y": "y"}, "a": [{"x": 2}, None], "m": [["k", [3, None]]]}],
    ),
    Case(
        name="schema evolution",
        columns="id INT",
        changes=(
            "INSERT INTO {t} VALUES (1)",
            "ALTER TABLE {t} ADD COLUMN name STRING",
            "INSERT INTO {t} VALUES (2, 'b')",
        ),
        rows=[{"id": 1, "name": None}, {"id": 2, "name": "b"}],
    ),
    Case(
        name="classic checkpoint",
        columns=_PAIR,
        properties={"delta.checkpointInterval": "2"},
        changes=_CHANGES,
        rows=_CHANGED,
    ),
    Case(name="appendOnly", columns=_PAIR, properties={"delta.appendOnly": "true"}, changes=_TWO, rows=_ROWS),
    Case(name="invariants", columns="id INT NOT NULL, name STRING", changes=_TWO, rows=_ROWS),
    Case(
        name="checkConstraints",
        columns=_PAIR,
        changes=("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)", *_TWO),
        rows=_ROWS,
    ),
    Case(
        name="changeDataFeed",
        columns=_PAIR,
        properties={"delta.enableChangeDataFeed": "true"},
        changes=_CHANGES,
        rows=_CHANGED,
    ),
    Case(
        name="generatedColumns",
        columns="id INT, twice INT GENERATED ALWAYS AS (id * 2)",
        changes=("INSERT INTO {t} (id) VALUES (1), (2)",),
        rows=[{"id": 1, "twice": 2}, {"id": 2, "twice": 4}],
    ),
    *(
        Case(
            name=f"columnMapping ({mode})",
            columns="id INT, name STRING, gone INT",
            properties={"delta.columnMapping.mode": mode},
            changes=(
                "INSERT INTO {t} VALUES (1, 'a', 7), (2, 'b', 8)",
                "ALTER TABLE {t} RENAME COLUMN name TO `a name`",
                "ALTER TABLE {t} DROP COLUMN gone",
                "INSERT INTO {t} VALUES (3, NULL)",
            ),
            rows=[{"id": 1, "a name": "a"}, {"id": 2, "a name": "b"}, {"id": 3, "a name": None}],
        )
        for mode in ("name", "id")
    ),
    Case(
        name="columnMapping, nested",
        columns="id INT, s STRUCT<x: INT, y: STRING>",
        properties={"delta.columnMapping.mode": "name"},
        changes=(
            "INSERT INTO {t} VALUES (1, struct(1, 'a'))",
            "ALTER TABLE {t} RENAME COLUMN s.x TO z",
            "INSERT INTO {t} VALUES (2, struct(2, NULL))",
        ),
        rows=[{"id": 1, "s": {"z": 1, "y": "a"}}, {"id": 2, "s": {"z": 2, "y": None}}],
    ),
    Case(
        name="identityColumns",
        columns="n BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 5 INCREMENT BY 10), name STRING",
        changes=("INSERT INTO {t} (name) VALUES ('a')", "INSERT INTO {t} (name) VALUES ('b')"),
        rows=[{"n": 5, "name": "a"}, {"n": 15, "name": "b"}],
    ),
    Case(
        name="deletionVectors",
        columns=_PAIR,
        properties={"delta.enableDeletionVectors": "true"},
        changes=_CHANGES,
        rows=_CHANGED,
    ),
    Case(
        name="rowTracking",
        columns=_PAIR,
        properties={"delta.enableRowTracking": "true"},
        changes=_CHANGES,
        rows=_CHANGED,
    ),
    Case(
        name="timestampNtz",
        columns="id INT, t TIMESTAMP_NTZ",
        changes=("INSERT INTO {t} VALUES (1, TIMESTAMP_NTZ '2024-03-31 02:30:00.5'), (2, NULL)",),
        rows=[{"id": 1, "t": "2024-03-31T02:30:00.500000"}, {"id": 2, "t": None}],
    ),
    Case(name="clustering, domainMetadata", columns=_PAIR, clauses="CLUSTER BY (id)", changes=_CHANGES, rows=_CHANGED),
    Case(
        name="v2Checkpoint",
        columns=_PAIR,
        properties={"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"},
        changes=_CHANGES,
        rows=_CHANGED,
    ),
    Case(
        name="vacuumProtocolCheck",
        columns=_PAIR,
        properties={"delta.feature.vacuumProtocolCheck": "supported"},
        changes=_CHANGES,
        rows=_CHANGED,
    ),
    Case(
        name="inCommitTimestamp",
        columns=_PAIR,
        properties={"delta.enableInCommitTimestamps": "true"},
        changes=_CHANGES,
        rows=_CHANGED,
    ),
    Case(
        name="typeWidening",
        columns="id INT, n SMALLINT",
        properties={"delta.enableTypeWidening": "true"},
        changes=(
            "INSERT INTO {t} VALUES (1, 7)",
            "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
            "ALTER TABLE {t} ALTER COLUMN n TYPE INT",
            "INSERT INTO {t} VALUES (5000000000, 70000)",
        ),
        rows=[{"id": 1, "n": 7}, {"id": 5000000000, "n": 70000}],
    ),
    Case(
        name="variantType",
        columns="id INT, v VARIANT",
        changes=('INSERT INTO {t} SELECT 1, parse_json(\'{{"a": [1, "x"]}}\')',),
        read="id, to_json(v) AS v",
        rows=[{"id": 1, "v": '{"a":[1,"x"]}'}],
    ),
    Case(
        name="variantShredding",
        columns="id INT, v VARIANT",
        properties={"delta.enableVariantShredding": "true"},
        changes=('INSERT INTO {t} SELECT 1, parse_json(\'{{"a": [1, "x"]}}\')',),
        read="id, to_json(v) AS v",
        rows=[{"id": 1, "v": '{"a":[1,"x"]}'}],
    ),
    Case(
        name="allowColumnDefaults",
        columns="id INT, name STRING DEFAULT 'a'",
        properties={"delta.feature.allowColumnDefaults": "supported"},
        changes=("INSERT INTO {t} (id) VALUES (1)", "INSERT INTO {t} VALUES (2, 'b'), (3, NULL)"),
        rows=_ROWS,
    ),
    *(
        Case(
            name=f"icebergCompatV{version}",
            columns="id INT, name STRING, p INT",
            clauses="PARTITIONED BY (p)",
            properties={f"delta.enableIcebergCompatV{version}": "true", "delta.columnMapping.mode": "name"},
            changes=("INSERT INTO {t} VALUES (1, 'a', 7), (2, 'b', NULL)",),
            rows=[{"id": 1, "name": "a", "p": 7}, {"id": 2, "name": "b", "p": None}],
        )
        for version in (1, 2)
    ),
    Case(
        name="materializePartitionColumns",
        columns="id INT, name STRING, p INT",
        clauses="PARTITIONED BY (p)",
        properties={"delta.feature.materializePartitionColumns": "supported"},
        changes=("INSERT INTO {t} VALUES (1, 'a', 7), (2, 'b', NULL)",),
        rows=[{"id": 1, "name": "a", "p": 7}, {"id": 2, "name": "b", "p": None}],
    ),
    Case(
        name="checkpointProtection",
        columns=_PAIR,
        properties={"delta.feature.checkpointProtection": "supported"},
        changes=_CHANGES,
        rows=_CHANGED,
    ),
    Case(
        name="collations",
        columns="id INT, name STRING COLLATE UTF8_LCASE",
        changes=("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, NULL)",),
        rows=_ROWS,
    ),
)
