"""The guide to SQL: its examples run, in its order, and what it says of errors holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from pydelta.errors import DeltaError

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GUIDE = Path(__file__).resolve().parents[4] / "docs" / "guides" / "sql.md"
_TIME = "2024-05-31 12:00:00"  # stands for a time since the table was made
_CODE = re.compile(r"^(`+) ?(.*?) ?\1$")


def examples() -> list[str]:
    """The second column of the guide's table."""
    table = GUIDE.read_text().split("## Every statement")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    cells = [row[1].strip() for row in rows]
    assert {len(row) for row in rows} == {3}
    return [match.group(2) for cell in cells if (match := _CODE.match(cell))]


@pytest.fixture
def lake(spark) -> Iterator[None]:
    yield
    spark.sql("USE default")
    spark.sql("DROP SCHEMA lake CASCADE")


@pytest.mark.timeout(600)
def test_every_example_of_the_guide_runs(spark, tmp_path, lake):
    found = examples()
    assert len(found) > 60
    assert not {"SELECT", "INSERT", "MERGE", "ALTER", "VACUUM", "RESTORE"} - {text.split()[0] for text in found}
    failed = {}
    for text in found:
        try:
            text = text.replace("/tmp/lake", str(tmp_path))
            if _TIME in text:
                newest = spark.sql("DESCRIBE HISTORY orders").first().timestamp.timestamp()
                text = text.replace(_TIME, str(datetime.fromtimestamp(newest, UTC)))
            spark.sql(text).collect()
        except (DeltaError, PySparkException) as error:
            failed[text] = str(error)[:300]
    assert failed == {}
    for refused in (
        "ALTER TABLE orders ADD PARTITION (month = 1)", "ALTER TABLE orders DROP PARTITION (month = 1)",
        "ALTER TABLE orders RECOVER PARTITIONS", "MSCK REPAIR TABLE orders",
        "TRUNCATE TABLE orders PARTITION (month = 1)", "DELETE FROM orders WHERE id IN (SELECT n FROM busy)",
        f"INSERT OVERWRITE DIRECTORY '{tmp_path / 'd'}' USING delta SELECT 1 AS a",
        "INSERT INTO busy REPLACE ON (customer) SELECT 'a', 1",
    ):  # fmt: skip
        with pytest.raises(DeltaError):
            spark.sql(refused)
    assert spark.sql("BEGIN SELECT count(*) FROM busy; END").first()[0] > 0
