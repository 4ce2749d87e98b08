"""JDBC's protocol from end to end: PyHive and beeline against ``pydelta serve``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from live_server import Failed, LiveServer, sleeping
from TCLIService.ttypes import TOperationState

from pydelta.log import DeltaLog


@pytest.fixture
def hive_client(live):
    found = live.client()
    yield found
    found.close()


def version(live, name):
    return DeltaLog.for_table(str(live.warehouse / name)).update().version


def is_running(cursor):
    return cursor.poll().operationState in (TOperationState.RUNNING_STATE, TOperationState.PENDING_STATE)


def ended(cursor):
    while is_running(cursor):
        pass
    return cursor.poll()


def test_every_kind_of_statement_once_with_its_rows(live, hive_client):
    run = hive_client.run
    steps = [
        ("CREATE TABLE all_kinds (id BIGINT, name STRING) USING delta", []),
        ("INSERT INTO all_kinds VALUES (1, 'a'), (2, 'b'), (3, 'c')", []),
        ("DELETE FROM all_kinds WHERE id = 1", [(1,)]),
        ("UPDATE all_kinds SET name = 'z' WHERE id = 2", [(1,)]),
        (
            "MERGE INTO all_kinds AS t USING (SELECT 3L AS id, 'n' AS name UNION ALL SELECT 4, 'm') AS s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *",
            [(2, 1, 0, 1)],
        ),
        ("INSERT OVERWRITE all_kinds SELECT id, name FROM all_kinds WHERE id > 2", []),
        ("ALTER TABLE all_kinds ADD COLUMN more INT", []),
        ("RESTORE TABLE all_kinds TO VERSION AS OF 4", None),
    ]
    for number, (text, rows) in enumerate(steps):
        found = run(text)
        assert rows is None or found == rows, text
        assert version(live, "all_kinds") == number, text
    assert run("SELECT id, name FROM all_kinds ORDER BY id") == [(2, "z"), (3, "n"), (4, "m")]
    assert run("SELECT count(*), max(id) FROM all_kinds") == [(3, 4)]
    assert run("SELECT count(*) FROM all_kinds VERSION AS OF 1") == [(3,)]
    history = run("DESCRIBE HISTORY all_kinds")
    assert hive_client.columns[:5] == ["version", "timestamp", "userId", "userName", "operation"]
    assert [(row[0], row[3]) for row in history] == [(number, "ada") for number in reversed(range(8))]
    assert [row[4] for row in history][-3:] == ["DELETE", "WRITE", "CREATE TABLE"]
    assert run("DESCRIBE DETAIL all_kinds")[0][0] == "delta"
    assert run("SHOW COLUMNS IN all_kinds") == [("id",), ("name",)]
    assert "Execute Delta DELETE" in run("EXPLAIN DELETE FROM all_kinds")[0][0]
    assert run("BEGIN DELETE FROM all_kinds WHERE id = 2; SELECT count(*) FROM all_kinds; END") == [(2,)]
    assert run("EXECUTE IMMEDIATE 'DELETE FROM all_kinds WHERE id = 3'") == [(1,)]
    assert version(live, "all_kinds") == 9
    run("OPTIMIZE all_kinds")
    run("DROP TABLE all_kinds")
    assert not (live.warehouse / "all_kinds").exists()


def test_each_connection_is_a_session_of_its_own(live):
    one, two = live.client(), live.client("grace")
    one.run("CREATE DATABASE IF NOT EXISTS elsewhere")
    one.run("USE elsewhere")
    one.run("CREATE TABLE here (id INT) USING delta")
    one.run("CREATE TEMPORARY VIEW mine AS SELECT * FROM here")
    one.run("SET spark.sql.shuffle.partitions = 7")
    assert two.run("SELECT current_database()") == [("default",)]
    assert two.run("SET spark.sql.shuffle.partitions")[0][1] == "2"
    with pytest.raises(Failed, match="TABLE_OR_VIEW_NOT_FOUND"):
        two.run("SELECT * FROM mine")
    two.run("INSERT INTO elsewhere.here VALUES (5)")
    assert one.run("SELECT * FROM mine") == [(5,)]
    users = [row[3] for row in one.run("DESCRIBE HISTORY elsewhere.here")]
    assert users == ["grace", "ada"]
    one.close()
    two.close()


def test_errors_carry_sqlstate_and_condition_and_nothing_of_python(live, hive_client):
    hive_client.run("CREATE TABLE wrong (id BIGINT) USING delta")
    for text, state, condition in (
        ("SELECT * FROM not_there", "42P01", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT nope FROM wrong", "42703", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("DELETE FROM wrong WHERE nope = 1", "42703", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("SELECT * FROM wrong VERSION AS OF 9", "22003", "DELTA_VERSION_NOT_FOUND"),
        ("VACUUM wrong RETAIN 0 HOURS", "22003", "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"),
        ("SELEC 1", "42601", "PARSE_SYNTAX_ERROR"),
    ):
        with pytest.raises(Failed) as failed:
            hive_client.run(text)
        assert failed.value.state == state, text
        assert f"[{condition}]" in str(failed.value), text
        for word in ("py4j", "Traceback", 'File "', "UndeclaredThrowable"):
            assert word not in str(failed.value)


def test_a_statement_that_hangs_holds_up_nobody_and_can_be_cancelled(live, hive_client):
    hive_client.run("CREATE TABLE slow (id BIGINT) USING delta")
    hanging, other = live.client().start(f"INSERT INTO slow {sleeping('slow')}"), live.client()
    other.await_begin("slow")
    assert other.run("SELECT count(*) FROM slow") == [(0,)]
    other.run("INSERT INTO slow VALUES (1)")
    assert other.run("DELETE FROM slow WHERE id = 1") == [(1,)]
    assert is_running(hanging)
    hanging.cancel()
    assert ended(hanging).operationState == TOperationState.CANCELED_STATE
    assert version(live, "slow") == 2
    assert other.run("SELECT count(*) FROM slow") == [(0,)]


def test_a_client_that_is_killed_leaves_nothing_running(live, hive_client):
    hive_client.run("CREATE TABLE left_alone (id BIGINT) USING delta")
    script = f"""
import sys
from pyhive import hive
for query in {[sleeping(f"eve{number}") for number in range(2)]}:
    cursor = hive.connect("127.0.0.1", port={live.thrift}, username="eve").cursor()
    globals().setdefault("kept", []).append(cursor)
    cursor.execute("INSERT INTO left_alone " + query, async_=True)
print("started", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"started\n"
    hive_client.await_begin("eve0")
    hive_client.await_begin("eve1")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    later = [live.client().start(f"INSERT INTO left_alone {sleeping(f'later{number}')}") for number in range(2)]
    for number in range(2):  # it takes all three cores to see both: the server has let go of the two that hung
        hive_client.await_begin(f"later{number}")
    for cursor in later:
        cursor.cancel()
        ended(cursor)
    assert version(live, "left_alone") == 0


LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %m%n
logger.store.name = org.apache.hadoop.hive.metastore.ObjectStore
logger.store.level = info
"""


def test_connections_leave_the_catalog_s_pool_of_database_connections_alone(tmp_path):
    """Hive has one pool per process: sessions with another database than the catalog's make it again by turns."""
    (tmp_path / "log4j2.properties").write_text(LOGGING)
    settings = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={tmp_path}/log4j2.properties"}
    server = LiveServer(tmp_path / "pool", "--verbose", settings=settings)

    def work(number):
        for turn in range(3):
            client = server.client(f"user{number}")
            client.run(f"CREATE DATABASE of_{number}_{turn}")
            client.run(f"DROP DATABASE of_{number}_{turn}")
            client.close()

    try:
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(work, range(4)))
    finally:
        server.stop()
    assert "ObjectStore, initialize called" in server.said()
    assert server.said().count("Setting MetaStore object pin classes") == 1


def test_beeline_shows_rows_and_errors(live, hive_client):
    hive_client.run("CREATE TABLE by_jdbc (id BIGINT, name STRING) USING delta")
    out, _ = live.beeline(
        "INSERT INTO by_jdbc VALUES (1, 'a'), (2, 'b')",
        "DELETE FROM by_jdbc WHERE id = 1",
        "SELECT * FROM by_jdbc",
        "DESCRIBE HISTORY by_jdbc LIMIT 1",
        "OPTIMIZE by_jdbc",
    )
    assert "num_affected_rows" in out
    at = out.index("id,name")
    assert out[at + 1] == "2,b"
    header = next(line for line in out if line.startswith("version,timestamp,"))
    assert ",carl,DELETE," in out[out.index(header) + 1]
    assert "path,metrics" in out
    assert version(live, "by_jdbc") == 2
    _, err = live.beeline("SELECT * FROM by_jdbc VERSION AS OF 9")
    assert "DELTA_VERSION_NOT_FOUND" in err
    assert "state=22003" in err
