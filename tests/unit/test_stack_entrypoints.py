"""What the images of the database and of the metastore do with data of another version; the servers are stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

IMAGES = Path(__file__).resolve().parents[2] / "images"

INFO = """Metastore connection URL:\t jdbc:postgresql://postgres:5432/metastore
Hive distribution version:\t 3.1.0
Metastore schema version:\t {theirs}
"""


def stand_in(folder: Path, name: str, words: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{words}\n")
    (folder / name).chmod(0o755)


def run(script: Path, folder: Path, *command: str, **env: str) -> tuple[int, str]:
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(script), *command], env={"PATH": path} | env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def metastore(tmp_path):
    """Starts the metastore over a database whose schema tool says what it is told; gives exit code and words."""

    def start(info: str, code: int = 0) -> tuple[int, str]:
        (tmp_path / "info").write_text(info)
        cases = (
            f"*-info*) cat {tmp_path}/info; exit {code} ;; *-initSchema*) echo made ;; *HiveMetaStore*) echo serves ;;"
        )
        stand_in(tmp_path, "java", f'case "$*" in {cases} esac')
        names = ("DB_URL", "DB_USER", "DB_PASSWORD", "S3_ENDPOINT", "WAREHOUSE_DIR")
        given = dict.fromkeys(names, "x") | {
            "DB_URL": "jdbc:postgresql://postgres:5432/metastore",
            "METASTORE_HOME": "/x",
        }
        return run(IMAGES / "hive-metastore" / "entrypoint", tmp_path, **given)

    return start


def test_a_metastore_of_this_schema_is_served(metastore):
    assert metastore(INFO.format(theirs="3.1.0")) == (0, "serves\n")


def test_a_database_without_a_schema_gets_one(metastore):
    assert metastore('org.postgresql.util.PSQLException: relation "VERSION" does not exist\n', code=1) == (
        0,
        "No schema yet; making it.\nserves\n",
    )


# the schema tool takes a newer one for its own, and fails at an older one
@pytest.mark.parametrize(("theirs", "code"), [("4.0.0", 0), ("2.3.0", 1)])
def test_a_metastore_of_another_schema_is_left_as_it_is(metastore, theirs, code):
    ended, said = metastore(INFO.format(theirs=theirs), code)
    assert ended == 1
    assert (
        f"has the schema {theirs} of Hive Metastore, and this image reads and writes 3.1.0. Nothing was changed."
        in said
    )
    assert "docs/guides/backup.md" in said
    assert "serves" not in said


def test_a_cluster_of_another_postgresql_is_left_as_it_is(tmp_path):
    version = "postgres (PostgreSQL) 17.6 (Debian 17.6-0+deb13u1)"
    stand_in(tmp_path, "postgres", f'[ "$1" = --version ] && echo "{version}" || echo called >>"$PGDATA/called"')
    data = tmp_path / "data"
    data.mkdir()
    (data / "PG_VERSION").write_text("16\n")
    for name in ("ready", "ready.role"):
        (data / name).touch()
    given = {"POSTGRES_USER": "hive", "POSTGRES_PASSWORD": "p", "POSTGRES_DB": "metastore", "PGDATA": str(data)}
    code, said = run(IMAGES / "postgres" / "entrypoint", tmp_path, "postgres", **given)
    assert code == 1
    assert "is of PostgreSQL 16, and this image has 17, which does not read it. Nothing was changed." in said
    assert not (data / "called").exists()
    (data / "PG_VERSION").write_text("17\n")
    assert run(IMAGES / "postgres" / "entrypoint", tmp_path, "postgres", **given)[0] == 0
    assert (data / "called").exists()


ERROR = """Connected to: Spark SQL (version 4.3.0)
Error: org.apache.hive.service.cli.HiveSQLException: Error running query: [UNRESOLVED_COLUMN.WITH_SUGGESTION] \
org.apache.spark.sql.AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION] No column `nosuch` is known.
'Project ['nosuch]
\tat org.apache.spark.sql.hive.thriftserver.Operation.run(Operation.scala:48)
\tat java.base/java.lang.Thread.run(Thread.java:1583)
Caused by: org.apache.spark.sql.AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION] No column `nosuch` is known.
'Project ['nosuch]
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.unresolved(Errors.scala:400)
\t... 17 more (state=42703,code=0)
Closing: 0: jdbc:hive2://sql:10000
"""


def test_beeline_says_an_error_once_and_another_cause_too():
    script = IMAGES / "spark" / "bin" / "errors-once"

    def shown(text: str) -> str:
        return subprocess.run(
            [sys.executable, script], input=text, capture_output=True, text=True, check=True
        ).stdout.rstrip()

    assert shown(ERROR).splitlines() == [
        "Connected to: Spark SQL (version 4.3.0)",
        "Error: [UNRESOLVED_COLUMN.WITH_SUGGESTION] No column `nosuch` is known.",
        "'Project ['nosuch]",
        "(state=42703,code=0)",
        "Closing: 0: jdbc:hive2://sql:10000",
    ]
    other = ERROR.replace(
        "Caused by: org.apache.spark.sql.AnalysisException: [UNRES", "Caused by: java.io.IOException: ["
    )
    assert "Caused by: java.io.IOException: [OLVED_COLUMN" in shown(other)
    plain = "Error: Could not open client transport: Connection refused (state=08S01,code=0)"
    assert shown(plain + "\n") == plain
