"""Files of a condition over partition columns: by Spark and in this process, the same ones."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from both_ways import ANSI, LIMIT, ZONE, session
from pyspark.errors import PySparkException

from pydelta.engines.spark.engine import SparkEngine
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog

__all__ = ["session"]

pytestmark = [pytest.mark.spark, pytest.mark.damages_tables]  # their files are not there

VALUES = {
    "s": ("string", [None, "", " ", "a", "A", "b%20", "é", "e\u0301", "10", "9", "null", "__HIVE_DEFAULT_PARTITION__"]),
    "i": ("integer", [None, "-2147483648", "-1", "0", "7", "10"]),
    "l": ("long", [None, "-9223372036854775808", "9007199254740993", "9223372036854775807"]),
    "h": ("short", [None, "-32768", "5"]),
    "y": ("byte", [None, "-128", "127"]),
    "ok": ("boolean", [None, "true", "false"]),
    "d": ("date", [None, "0001-01-01", "1582-10-04", "1969-12-31", "2024-02-29", "9999-12-31"]),
    "m": ("decimal(10,2)", [None, "-0.01", "0.00", "1.50", "99999999.99"]),
    "t": ("timestamp", [None, "1969-12-31T23:59:59.999999Z", "2024-03-10 02:30:00", "2024-01-01T00:00:00.000000Z"]),
    "n": ("timestamp_ntz", [None, "2024-03-10 02:30:00", "1500-01-01 00:00:00.5"]),
    "x": ("double", [None, "NaN", "-0.0", "1.5", "1.0E10"]),
    "c": ("string", [None, "a", "a  ", "abc"]),
}
ODD = {"d": ["+10000-01-01", "2024", "2024-2-9"], "m": ["1.505", "1e1"], "i": ["+7", " 7 ", "7.9"], "ok": ["t", "TRUE"]}
"""Texts that Spark takes for values, and that this process cannot hold or reads by narrower rules."""

CONDITIONS = [
    "s = 'a'", "s IN ('a', '', 'é')", "s IS NULL", "s IS NOT NULL", "NOT s = 'a'", "s <=> NULL", "s < 'a'", "s >= 'b'",
    "s LIKE 'b\\%%'", "s LIKE '%0'", "startswith(s, 'e')", "s = 10", "upper(s) = 'A'", "length(s) = 0",
    "i = 7", "i < 0", "i + 1 > 0", "i = 7.0", "i = '7'", "-i > 0", "i IN (7, NULL)", "NOT i IN (7, NULL)", "i % 2 = 1",
    "l > 9007199254740992", "l = 9007199254740992D", "l + 1 > 0", "h = 5 AND y = 127", "h * y > 0", "y = 127 OR ok",
    "ok", "NOT ok", "ok IS NULL OR i > 0", "ok AND s = 'a'", "ok <=> NULL", "true", "false", "NULL",
    "d = '2024-02-29'", "d < DATE'1600-01-01'", "year(d) = 1969", "d BETWEEN '1900-01-01' AND '2000-01-01'",
    "m = 1.5", "m > -0.01", "m * 2 = 3.00", "m IN (0, 1.50)", "CAST(m AS INT) = 1",
    "t < TIMESTAMP'2024-01-01 00:00:00Z'", "t = '2024-01-01'", "t IS NULL", "n > '2000-01-01'", "n IS NOT NULL",
    "x = 0", "x > 1", "x = 'NaN'", "isnan(x)", "x IS NULL", "c = 'a'", "c = 'a  '", "c < 'ab'", "c IS NULL",
]  # fmt: skip


def table_of(path, names):
    """A table of files that are not there: each combination of values of the columns given, twice."""
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    for name, (kind, _) in VALUES.items():
        metadata = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"} if name == "c" else {}
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": metadata})
    texts = [values if name in names else [None] for name, (_, values) in VALUES.items()]
    schema = json.dumps({"type": "struct", "fields": fields if "c" in names else fields[:-1]})
    columns = list(VALUES) if "c" in names else list(VALUES)[:-1]
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"metaData": {"id": f"t-{path.name}", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                      "partitionColumns": columns, "configuration": {}}},
    ]  # fmt: skip
    for number, values in enumerate(itertools.product(*texts)):
        of_file = {name: value for name, value in zip(VALUES, values, strict=True) if name in columns}
        for half in range(2):
            add = {"path": f"f{number}-{half}.parquet", "partitionValues": of_file, "size": 100}
            actions.append({"add": {**add, "modificationTime": 0, "dataChange": True}})
    log = path / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return DeltaLog.for_table(str(path)).update()


@pytest.mark.parametrize(
    ("zone", "ansi", "groups"),
    [
        ("UTC", True, [("s", "i", "ok"), ("l", "h", "y"), ("d", "m"), ("x", "i")]),
        ("America/New_York", False, [("i", "h"), ("t", "n")]),
    ],
)
def test_the_files_are_those_that_spark_finds(session, tmp_path, zone, ansi, groups):
    session.conf.set(ZONE, zone)
    session.conf.set(ANSI, str(ansi).lower())
    here = asked = 0
    for names in groups:
        snapshot = table_of(tmp_path / "".join(names), names)
        texts = [text for text in CONDITIONS if columns_of(text) <= set(names)]
        asked += len(texts)
        for text in texts:
            by_spark, nothing = found(session, snapshot, text, most="0")
            assert not nothing
            local, taken = found(session, snapshot, text)
            assert local == by_spark, (text, names)
            here += taken
    assert here > asked // 2, "most conditions are decided here"


def test_texts_that_are_read_otherwise_here_are_left_to_spark(session, tmp_path, monkeypatch):
    session.conf.set(ANSI, "false")
    for name, texts in ODD.items():
        kind, plain = VALUES[name]
        monkeypatch.setitem(VALUES, name, (kind, [*plain, *texts]))
        snapshot = table_of(tmp_path / name, (name,))
        for text in [text for text in CONDITIONS if columns_of(text) == {name}]:
            by_spark, _ = found(session, snapshot, text, most="0")
            assert found(session, snapshot, text)[0] == by_spark, text
            assert isinstance(by_spark, list)


def test_padded_columns_are_left_to_spark(session, tmp_path):
    snapshot = table_of(tmp_path / "padded", ("c", "i"))
    for text in ("c = 'a'", "c = 'a  '", "i = 7"):
        by_spark, _ = found(session, snapshot, text, most="0")
        assert found(session, snapshot, text) == (by_spark, False)


def columns_of(text):
    return set(re.findall(r"\b[a-z]{1,2}\b", re.sub(r"'[^']*'", "", text)))


def found(session, snapshot, text, *, most=None):
    """The paths, in order, or the error; and whether they were found here."""
    session.conf.unset(LIMIT) if most is None else session.conf.set(LIMIT, most)
    engine = SparkEngine(session)
    files = snapshot.files.core
    try:
        bound = engine.bind_condition(snapshot, text)
        here = engine._arrow.in_partitions(snapshot, files, bound.native.tree)
        return engine.match_partitions(snapshot, files, bound)["path"].to_list(), here is not None
    except DeltaError as error:
        return type(error), False
    except PySparkException as error:  # of an evaluation
        return type(error), False
