"""Give ibis's tests of its PySpark backend a session of pydelta, and tables that pydelta stores: a plugin of pytest.

The rows are made here, since ibis keeps those of its tests in another repository. They have the columns of
``ibis.backends.conftest.TEST_TABLES``; those of ``functional_alltypes`` follow the pattern that the tests describe.
With PYDELTA_IBIS_FORMAT=parquet the same tests run without a Delta table: what fails there too is not pydelta's.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import string
from pathlib import Path
from typing import Any

import ibis
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from ibis.backends.conftest import TEST_TABLES
from ibis.backends.pyspark.tests import conftest as theirs

ROWS = {"awards_players": 6078}
"""Rows of a table, where the tests count them; other tables have a thousand."""
FORMAT = os.environ.get("PYDELTA_IBIS_FORMAT", "delta")
OPTIONS = {"delta.columnMapping.mode": "name"} if FORMAT == "delta" else {}
TABLES = Path.cwd() / "tables"
CONF = {
    "spark.sql.sources.default": FORMAT,
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",  # ibis maps times of Spark to those with a zone
    "spark.sql.streaming.schemaInference": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
WORDS = {
    "cut": ("Fair", "Good", "Very Good", "Premium", "Ideal"),
    "color": tuple("DEFGHIJ"),
    "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
    "lgID": ("AL", "NL"),
    "tie": ("Y", None),
    "awardID": ("Pitching Triple Crown", "Gold Glove", "Silver Slugger"),
    "sex": ("male", "female"),
}


def pytest_sessionstart() -> None:
    """Write the rows where ibis's tests look for them, and let them connect to a session of pydelta."""
    folder = Path(ibis.__file__).absolute().parents[1] / "ci" / "ibis-testing-data"
    for kind in ("parquet", "csv"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for name, schema in TEST_TABLES.items():
        rows = all_types() if name == "functional_alltypes" else drawn(name, schema)
        table = pa.Table.from_pandas(rows, schema=schema.to_pyarrow(), preserve_index=False)
        for kind, write in (("parquet", pq.write_table), ("csv", pyarrow.csv.write_csv)):
            (folder / "directory" / kind / name).mkdir(parents=True, exist_ok=True)
            write(table, folder / kind / f"{name}.{kind}")
            write(table, folder / "directory" / kind / name / f"{name}.{kind}")
    Path("ci").symlink_to(folder.parent)  # Some tests look for it in the working directory.
    load = theirs.BaseSparkTestConf._load_data

    def store(self: Any, **given: Any) -> None:
        load(self, **given)
        _store_views(self.connection._session)

    theirs.BaseSparkTestConf._load_data = store
    theirs.TestConf.connect = staticmethod(_connect)
    theirs.TestConfForStreaming.connect = staticmethod(_connect_streams)
    theirs.TestConfForStreaming._load_data = _load_streams


@pytest.fixture(scope="session")
def worker_id() -> str:
    """Return the name that pytest-xdist gives where all tests run in one process."""
    return "master"


def _session() -> Any:
    import pydelta

    conf = {**CONF, "spark.sql.warehouse.dir": str(Path.cwd() / "warehouse")}
    return pydelta.session("ibis", master="local[2]", conf=conf)


def _connect(*, tmpdir: Any, worker_id: str, **given: Any) -> Any:
    return ibis.pyspark.connect(_session(), **given)


def _connect_streams(*, tmpdir: Any, worker_id: str, **given: Any) -> Any:
    import pydelta

    return ibis.pyspark.connect(pydelta.enable(_session().newSession()), mode="streaming", **given)


def _store_views(session: Any) -> None:
    """Store what each view has as a table, and let the view read that."""
    for view in [item.name for item in session.catalog.listTables() if item.isTemporary]:
        if view != "interval_table":  # Delta tables have no intervals.
            _stored(session, session.table(view), view).createOrReplaceTempView(view)


def _stored(session: Any, frame: Any, name: str) -> Any:
    """Store a frame unless that is done, and return what reads it."""
    path = str(TABLES / name)
    frame.write.format(FORMAT).mode("ignore").options(**OPTIONS).save(path)
    return session.read.format(FORMAT).load(path)


def _load_streams(self: Any, **given: Any) -> None:
    """Make the views that the tests of streams read, of the stored tables; pytest may ask for them first."""
    session = self.connection._session
    for name in TEST_TABLES:
        frame = session.read.parquet(str(self.data_dir / "parquet" / f"{name}.parquet"))
        schema = _stored(session, frame, name).schema
        rows = session.readStream.format(FORMAT)
        rows = (rows if FORMAT == "delta" else rows.schema(schema)).load(str(TABLES / name)).repartition(4)
        if name == "functional_alltypes":
            rows = rows.withWatermark("timestamp_col", "10 seconds")
        rows.createOrReplaceTempView(name)


def all_types() -> pd.DataFrame:
    """Ten rows per day of two years, whose numbers are multiples of the row's place within its day."""
    rows = []
    days = [dt.datetime(2009, 1, 1) + dt.timedelta(days=day) for day in range(730)]
    for number in range(len(days) * 10):
        day, place = days[number // 10], number % 10
        minutes = (day.day - 1) * 10 + place
        moment = day + dt.timedelta(minutes=minutes, milliseconds=100 * (place * (place - 1) // 2))
        numbers = (place, place, place, 10 * place, 1.1 * place, 10.1 * place)
        texts = (day.strftime("%m/%d/%y"), str(place))
        rows.append((number, place % 2 == 0, *numbers, *texts, moment, day.year, day.month))
    return pd.DataFrame(rows, columns=list(TEST_TABLES["functional_alltypes"].names))


def drawn(table: str, schema: Any) -> pd.DataFrame:
    """Draw rows for a table: few words in a column of text, and years that repeat."""
    draw, count = random.Random(table), ROWS.get(table, 1000)
    columns: dict[str, list[Any]] = {}
    for name, kind in schema.items():
        if name in WORDS:
            values: list[Any] = [draw.choice(WORDS[name]) for _ in range(count)]
        elif kind.is_string():
            words = ["".join(draw.choices(string.ascii_lowercase, k=8)) for _ in range(count // 5)]
            values = [draw.choice(words) for _ in range(count)]
        elif kind.is_integer():
            low, high = (1900, 2015) if name.startswith("year") else (0, 200)
            values = [draw.randint(low, high) for _ in range(count)]
        else:
            values = [round(draw.uniform(0, 60), 2) for _ in range(count)]
        columns[name] = values
    return pd.DataFrame(columns)
