"""Programs on this machine at the stack's Iceberg entries: what each engine reads, and that nobody writes."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from unittest import mock

import duckdb
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import UnauthorizedError

from catalog_sync.iceberg.entry import found_iceberg
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from tests.iceberg.stack_world import DATABASE, Stack, StackWorld, run_stack_seed
from tests.iceberg.trino import Engine

FIRST = int(os.environ.get("ICEBERG_FROM", "0"))
SEEDS = int(os.environ.get("ICEBERG_SEEDS", "2"))
STEPS = int(os.environ.get("ICEBERG_STEPS", "10"))


@pytest.fixture(scope="module")
def stack():
    def at(port: str) -> str:
        return f"127.0.0.1:{os.environ[port]}"

    with Metastore(MetastoreAddress.parse(f"thrift://{at('METASTORE_PORT')}")) as metastore:
        found = Stack(
            metastore=metastore,
            store=at("MINIO_PORT"),
            rest=f"http://{at('ICEBERG_PORT')}",
            trino=Engine("Trino", at("TRINO_PORT")),
            presto=Engine("Presto", at("PRESTO_PORT")) if os.environ.get("WITH_PRESTO") else None,
            key=(os.environ["S3_ACCESS_KEY"], os.environ["S3_SECRET_KEY"]),
            token=os.environ["ICEBERG_TOKEN"],
        )
        entries = f"{DATABASE}_iceberg"
        if not metastore.database_exists(
            entries
        ):  # Versity lets the metastore make a folder in the warehouse, not deeper.
            metastore.create_database(entries, f"s3a://warehouse/{entries}")
        with mock.patch.dict(os.environ, found.environment()):
            yield found


@pytest.fixture(scope="module")
def world(stack) -> StackWorld:
    """A table with a few versions, which the tests below only read; Presto reads it, since its times have no zone."""
    return run_stack_seed(stack, (FIRST + SEEDS + 2) | 1, 2)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_every_engine_reads_what_the_table_has_after_each_step(stack, seed):
    found = run_stack_seed(stack, seed, STEPS)
    print(f"\nseed {seed}: {found.log.update().version + 1} versions; {found.reads}")
    assert found.reads["PyIceberg and DuckDB by REST"] >= 2
    assert found.reads["Trino"] == found.reads["PyIceberg and DuckDB by REST"]
    assert found.reads["Trino, conditions"] > found.reads["Trino"]


def test_tables_are_listed_with_the_token(stack, world):
    catalog = stack.pyiceberg()
    assert (DATABASE,) in catalog.list_namespaces()
    assert (DATABASE, world.name.name) in catalog.list_tables(DATABASE)


@pytest.mark.parametrize("token", [None, "not-the-token"])
def test_without_the_token_nobody_is_let_in(stack, world, token):
    with pytest.raises(UnauthorizedError, match="asks for a token"):
        RestCatalog("lake", uri=stack.rest, **({"token": token} if token else {}))
    with pytest.raises(duckdb.Error, match="401"), stack.duckdb(token or "none"):
        pass
    for path in ("config", "namespaces", f"namespaces/{DATABASE}/tables/{world.name.name}"):
        status, body = asked(stack, "GET", path, token)
        assert (status, body["error"]["type"]) == (401, "NotAuthorizedException")
        assert world.name.name not in json.dumps(body)


RENAMED = {"source": {"namespace": ["a"], "name": "b"}, "destination": {"namespace": ["a"], "name": "c"}}
WRITES = [
    ("POST", "namespaces", {"namespace": ["refused"]}),
    ("DELETE", "namespaces/{0}", None),
    ("POST", "namespaces/{0}/properties", {"updates": {"a": "b"}}),
    ("POST", "namespaces/{0}/tables", {"name": "refused", "schema": {"type": "struct", "fields": []}}),
    ("POST", "namespaces/{0}/register", {"name": "refused", "metadata-location": "s3://warehouse/none"}),
    ("POST", "namespaces/{0}/tables/{1}", {"requirements": [], "updates": []}),
    ("DELETE", "namespaces/{0}/tables/{1}", None),
    ("POST", "tables/rename", RENAMED),
    ("POST", "transactions/commit", {"table-changes": []}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body"), WRITES, ids=[f"{method} {path}" for method, path, _ in WRITES])
def test_what_would_write_is_answered_with_406(stack, world, method, path, body):
    before = pointer(stack, world)
    status, said = asked(stack, method, path.format(DATABASE, world.name.name), stack.token, body)
    assert (status, said["error"]["code"]) == (406, 406)
    assert "only reads" in said["error"]["message"]
    assert pointer(stack, world) == before


def test_engines_that_write_through_the_catalog_are_refused_and_nothing_changes(stack, world):
    before = pointer(stack, world)
    name = f"lake.{world.name}"
    writes = (f"INSERT INTO {name} (id) VALUES (1)", f"DROP TABLE {name}", f"CREATE TABLE lake.{DATABASE}.x (a INT)")
    with stack.duckdb() as link:
        for statement in writes:
            with pytest.raises(duckdb.Error, match=r"406"):
                link.execute(statement)
    loaded = stack.pyiceberg().load_table((world.name.database, world.name.name))
    with pytest.raises(NotImplementedError, match="does not support endpoint: POST"):
        loaded.append(loaded.scan().to_arrow())
    for engine in stack.engines:
        for statement in (f"DELETE FROM iceberg.{world.entry}", f"DROP TABLE iceberg.{world.entry}"):
            with pytest.raises(Exception, match=r"(?i)access denied|read-only|permission"):
                engine.run(statement)
    assert pointer(stack, world) == before
    world.check()


def pointer(stack, world):
    """The metadata that the entry names."""
    return found_iceberg(stack.metastore.table(world.entry.database, world.entry.name)).metadata


def asked(stack, method, path, token, body=None):
    """Status and body of a request to the REST catalog."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{stack.rest}/v1/{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
