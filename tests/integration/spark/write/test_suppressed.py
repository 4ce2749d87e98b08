"""Rows whose keys were erased stay out: digests of Spark are those of Python, in batches and in streams."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs import ingest, ingest_stream
from pydelta.errors import InvalidArgumentError
from pydelta.tools.erasure.suppression import add_to_list, digest_of_key
from pydelta.tools.ingest.suppressed import digest_column

pytestmark = pytest.mark.spark
KEY = "ann@example.org"
SALT = bytes(range(32))


def values_of(kind, random_):
    if kind == "string":
        return [
            "",
            KEY,
            "é",
            "\U0001f600 \n",
            *("".join(map(chr, random_.choices(range(1, 0xD7FF), k=9))) for _ in range(40)),
        ]
    if kind == "date":
        return [
            dt.date(1, 1, 1),
            dt.date(9999, 12, 31),
            *(dt.date.fromordinal(random_.randrange(1, 3_652_059)) for _ in range(40)),
        ]
    if kind.startswith("decimal"):
        digits, scale = map(int, kind[8:-1].split(","))
        return [Decimal(random_.randrange(-(10**digits) + 1, 10**digits)).scaleb(-scale) for _ in range(40)] + [
            Decimal(0)
        ]
    bits = {"byte": 8, "short": 16, "integer": 32, "long": 64}[kind]
    return [
        0,
        -1,
        2 ** (bits - 1) - 1,
        -(2 ** (bits - 1)),
        *(random_.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)) for _ in range(40)),
    ]


KINDS = {
    "string": T.StringType(), "date": T.DateType(), "byte": T.ByteType(), "short": T.ShortType(),
    "integer": T.IntegerType(), "long": T.LongType(), "decimal(10,2)": T.DecimalType(10, 2),
    "decimal(38,0)": T.DecimalType(38, 0), "decimal(38,20)": T.DecimalType(38, 20), "decimal(9,9)": T.DecimalType(9, 9),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_digests_of_spark_are_those_of_the_list(spark, kind):
    values = values_of(kind, random.Random(7))
    frame = spark.createDataFrame(
        [(value,) for value in [*values, None]], T.StructType([T.StructField("v", KINDS[kind])])
    )
    found = [row[0] for row in frame.select(digest_column(F.col("v"), KINDS[kind], SALT)).collect()]
    assert found == [*(digest_of_key(value, SALT) for value in values), None]


def test_equal_decimals_have_one_digest():
    texts = ("1", "1.0", "1.00", "100e-2")
    assert len({digest_of_key(Decimal(text), SALT) for text in texts} | {digest_of_key(1, SALT)}) == 1
    assert digest_of_key(Decimal("-0.50"), SALT) == digest_of_key("-0.5", SALT)
    assert digest_of_key(Decimal("100"), SALT) == digest_of_key(100, SALT)


@pytest.fixture
def suppressed(tmp_path):
    location = str(tmp_path / "suppressed")
    add_to_list(location, {"email": [KEY, "gone@example.org"], "customer": ["7"]}, request="r")
    add_to_list(location, {"email": [KEY, "gone@example.org"], "customer": ["7"]}, request="again")
    return location


def rows_of(spark, path):
    return Counter(tuple(row) for row in spark.read.format("delta").load(path).collect())


def test_an_ingest_leaves_out_rows_of_erased_keys(spark, tmp_path, suppressed):
    (tmp_path / "in.csv").write_text(f"email,customer,n\n{KEY},1,1\nbob,7,2\nbob,8,3\n,,4\nann,,5\n{KEY},7,6\n")
    target = str(tmp_path / "t")
    how = ["--input", str(tmp_path / "in.csv"), "--format", "csv", "--option", "header=true",
           "--schema", "email string, customer bigint, n int", "--table", target]  # fmt: skip
    done = ingest.run(spark, [*how, "--suppress", suppressed])
    assert (done.rows, done.suppressed) == (3, 3)
    assert rows_of(spark, target) == Counter([("bob", 8, 3), (None, None, 4), ("ann", None, 5)])
    mapped = ingest.run(spark, [*how, "--suppress", suppressed, "--suppress-column", "email=email"])
    assert (mapped.rows, mapped.suppressed) == (4, 2)


def test_the_rows_that_are_counted_are_those_that_are_written(spark, tmp_path, suppressed, monkeypatch):
    source, target = tmp_path / "in", str(tmp_path / "t")
    spark.sql(f"SELECT '{KEY}' AS email, 1 AS n UNION ALL SELECT 'bob', 2").write.parquet(str(source))
    real = ingest._write

    def after_a_change(session, rows, *more):
        for file in source.glob("*.parquet"):
            file.unlink()
        return real(session, rows, *more)

    monkeypatch.setattr(ingest, "_write", after_a_change)
    done = ingest.run(
        spark, ["--input", str(source), "--format", "parquet", "--table", target, "--suppress", suppressed]
    )
    assert (done.rows, done.suppressed) == (1, 1)
    assert rows_of(spark, target) == Counter([("bob", 2)])


def test_a_list_that_does_not_fit_is_refused(spark, tmp_path, suppressed):
    spark.sql("SELECT 1 AS id, 1.5D AS email").write.parquet(str(tmp_path / "in"))
    how = ["--input", str(tmp_path / "in"), "--format", "parquet", "--table", str(tmp_path / "t")]
    for more, message in (
        (["--suppress", suppressed], "no key is of this type"),
        (["--suppress", suppressed, "--suppress-column", "who=email"], "which the rows do not have"),
        (["--suppress-column", "id=email"], "needs --suppress"),
        (["--suppress", suppressed, "--suppress-column", "id"], "name=value"),
        (["--suppress", str(tmp_path / "none")], "not a Delta table|no Delta table|not a suppression list"),
    ):
        with pytest.raises(Exception, match=message):
            ingest.run(spark, [*how, *more])
    other = str(tmp_path / "other")
    add_to_list(other, {"passport": ["x"]}, request="r")
    with pytest.raises(InvalidArgumentError, match="no column that is named as a key"):
        ingest.run(spark, [*how, "--suppress", other])


@pytest.mark.parametrize("more", [[], ["--merge-key", "n", "--order-by", "n"]], ids=["append", "merge"])
def test_a_stream_leaves_out_rows_of_erased_keys_and_counts_them(spark, tmp_path, suppressed, more):
    folder, target = tmp_path / "in", str(tmp_path / "t")
    folder.mkdir()
    (folder / "1.json").write_text(f'{{"email": "{KEY}", "n": 1}}\n{{"email": "bob", "n": 2}}\n')
    how = ["--source", "files", "--input", str(folder), "--schema", "email string, n int", "--table", target,
           "--checkpoint", str(tmp_path / "checkpoint"), "--suppress", suppressed, *more]  # fmt: skip
    first = ingest_stream.run(spark, how)
    assert (first["rows"], first["written"], first["suppressed"]) == (2, 1, 1)
    add_to_list(suppressed, {"email": ["late"]}, request="later")  # Each batch reads the newest version of the list.
    (folder / "2.json").write_text('{"email": "late", "n": 3}\n{"email": "eve", "n": 4}\n')
    second = ingest_stream.run(spark, how)
    assert (second["rows"], second["written"], second["suppressed"]) == (2, 1, 1)
    assert rows_of(spark, target) == Counter([("bob", 2), ("eve", 4)])
