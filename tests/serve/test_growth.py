"""Nothing is kept for sessions that have gone and statements that have run."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter

import pytest
from served import Served

from pydelta.api.server.spark.sessions import prepare

pytestmark = pytest.mark.ci

SESSIONS = 100
STATEMENTS = 80
KEPT = 64
POOLED = 24  # a thread of Spark's pools keeps the session that it worked for last
TRIES = 300


@pytest.fixture
def fresh(spark):
    """A server that no other test has used."""
    found = Served(spark)
    yield found
    found.close()


def held(server):
    """Python's objects that the JVM holds, by class."""
    pool = server.root.sparkContext._gateway.gateway_property.pool
    with pool.lock:
        return Counter(type(item).__name__ for item in pool.dict.values())


def settled(server, condition):
    """What is held when the collectors of both sides have let go of enough, or at the end of many tries."""
    for _ in range(TRIES):
        gc.collect()
        server.root._jvm.java.lang.System.gc()  # the JVM's own thread finalizes; each that is asked to is a thread here
        found = held(server)
        if condition(found):
            break
        time.sleep(0.1)
    return found


def test_sessions_that_have_gone_are_let_go(fresh, tmp_path):
    fresh.client().plan(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 1 AS id")
    before = held(fresh)["_Parser"]
    for _ in range(SESSIONS):
        assert fresh.client().rows(f"SELECT * FROM delta.`{tmp_path}/t`") == ["1"]
    assert len(fresh.sessions) == KEPT
    found = settled(fresh, lambda item: item["_Parser"] <= before + KEPT + POOLED)
    assert found["_Parser"] <= before + KEPT + POOLED


def test_statements_that_have_run_are_let_go(fresh, tmp_path):
    client = fresh.client()
    client.plan(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 1 AS id")
    threads = threading.active_count()
    for _ in range(STATEMENTS):
        client.plan(f"DESCRIBE DETAIL delta.`{tmp_path}/t`")
    found = settled(fresh, lambda item: item["Procedure"] == 0 and threading.active_count() <= threads + 1)
    assert found["Procedure"] == 0
    assert threading.active_count() <= threads + 1


def test_a_session_that_was_forgotten_meanwhile_goes_on(fresh, tmp_path):
    client = fresh.client()
    client.plan(f"CREATE TABLE delta.`{tmp_path}/t` USING delta AS SELECT 1 AS id")
    client.plan(f"CREATE TEMPORARY VIEW v AS SELECT * FROM delta.`{tmp_path}/t`")
    frame = client.plan("SELECT * FROM v")
    for _ in range(KEPT + 1):
        fresh.client().rows("SELECT 1")
    client.plan(f"INSERT INTO delta.`{tmp_path}/t` VALUES (2)")
    assert sorted(client.rows("SELECT * FROM v")) == ["1", "2"]
    assert sorted(str(row.get(0)) for row in frame.collectAsList()) == ["1", "2"]


def test_a_session_is_prepared_once(spark):
    seen = []

    def first_seen(session, root):
        seen.append(str(session._jsparkSession.sessionUUID()))
        prepare(session, root)

    server = Served(spark, first_seen=first_seen)
    try:
        client = server.client()
        client.rows("SELECT 1")
        client.rows("SELECT 2")
        by_name = server.client()
        by_name.session.range(1).filter("id > 0")  # the DataFrame API parses, too
        assert seen == [str(one.session.sessionUUID()) for one in (client, by_name)]
    finally:
        server.close()
