"""A session, a job and a prompt leave nothing in the folder they were started in, and names are kept all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
NOT_OURS = ("SPARK_HOME", "MASTER", "SPARK_CONF_DIR", "XDG_DATA_HOME", "PYSPARK_GATEWAY_PORT")

SESSION = """
import pydelta
from pyspark.sql import functions as F
spark = pydelta.session(conf={conf})
spark.sparkContext.setLogLevel("ERROR")
spark.range(3).createOrReplaceTempView("v")
assert spark.sql("SELECT count(*) FROM v").first()[0] == 3
if {write}:
    spark.range(5).write.format("delta").saveAsTable("kept")
names = [table.name for table in spark.catalog.listTables() if not table.isTemporary]
print("tables:", names, "rows:", spark.table("kept").count())
spark.stop()
"""
SMALL = {"spark.driver.memory": "600m", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def here(tmp_path) -> Path:
    """An empty folder to start in; ``home`` is beside it."""
    folder = tmp_path / "my work"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    return folder


def _run(here: Path, *command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    environment |= {"HOME": str(here.parent / "home"), "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=here, env=environment, capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _kept(here: Path) -> list[str]:
    found = (here.parent / "home" / ".local" / "share" / "pydelta").glob("warehouses/*/*")
    return sorted(path.name for path in found)


@pytest.mark.ci
def test_a_prompt_keeps_names_and_leaves_nothing(here):
    prompt = ("-m", "pydelta.api.cli.cli", "sql", "-c", "spark.driver.memory=600m", "--csv", "-e")
    _run(here, *prompt, "CREATE TABLE kept USING delta AS SELECT 7 AS id")
    assert list(here.iterdir()) == []
    assert _run(here, *prompt, "SELECT id FROM kept") == "id\n7\n"
    assert list(here.iterdir()) == []
    assert _kept(here) == ["_catalog", "_catalog.lock", "kept"]


@pytest.mark.ci
def test_a_session_with_hives_catalog_keeps_names_and_leaves_nothing(here):
    conf = {**SMALL, "spark.sql.catalogImplementation": "hive"}
    for write in (True, False):
        assert "tables: ['kept'] rows: 5" in _run(here, "-c", SESSION.format(conf=conf, write=write))
        assert list(here.iterdir()) == []
    assert _kept(here) == ["_catalog", "kept"]


@pytest.mark.ci
def test_a_session_with_managed_tables_leaves_nothing(here):
    assert "tables: ['kept'] rows: 5" in _run(here, "-c", SESSION.format(conf=SMALL, write=True))
    assert list(here.iterdir()) == []
    assert _kept(here) == ["kept"]


@pytest.mark.ci
def test_a_job_leaves_its_table_alone(here):
    (here / "day.csv").write_text("id\n1\n2\n")
    done = _run(
        here, str(ROOT / "jobs" / "ingest.py"), "--input", "day.csv", "--format", "csv", "--option", "header=true",
        "--table", str(here.parent / "t"),
    )  # fmt: skip
    assert '"rows": 2' in done
    assert [path.name for path in here.iterdir()] == ["day.csv"]
    assert _kept(here) == [], "the place that stayed empty is gone, too"
