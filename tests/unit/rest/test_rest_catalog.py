"""The REST catalog: its endpoints, its errors, paging, tags, access, and that nothing else is answered."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leaks import secret

from catalog_sync.errors import MetastoreUnavailableError
from catalog_sync.iceberg.entry import WantedIceberg, iceberg_entry
from catalog_sync.rest.application import LARGEST_BODY, RestCatalog
from catalog_sync.rest.command import check_exposed
from catalog_sync.rest.tables import FolderTables, MetadataCache, MetastoreTables, parse_named_table
from catalog_sync.thrift.memory import MemoryMetastore
from pydelta.api.console.addresses import Addresses
from pydelta.api.console.guard import Guard
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError

METADATA = {
    "format-version": 2,
    "location": "file:///lake",
    "snapshots": [{"snapshot-id": 1}, {"snapshot-id": 2}],
    "refs": {"main": {"snapshot-id": 2}},
}


def made(place: Path, number: int = 1, hint: int | None = None) -> Path:
    folder = place / "_pydelta" / "iceberg" / "metadata"
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(1, number + 1):
        (folder / f"v{at}.metadata.json").write_text(json.dumps(METADATA | {"number": at}))
    (folder / "version-hint.text").write_text(str(number if hint is None else hint))
    return folder


class Client:
    def __init__(self, tables, guard=None, host="127.0.0.1"):
        self.app = RestCatalog(tables, guard or Guard(), host=host)

    def __call__(self, uri, method="GET", **environ):
        seen = {}

        def start(status, headers):
            seen["status"], seen["headers"] = int(status.split()[0]), dict(headers)

        body = b"".join(self.app({"REQUEST_METHOD": method, "REQUEST_URI": uri, **environ}, start))
        return seen["status"], json.loads(body) if body else None, seen["headers"]


@pytest.fixture
def client(tmp_path):
    lake = tmp_path / "lake"
    made(lake / "orders", 3, hint=2)
    made(lake / "ß day")
    (lake / "plain" / "_delta_log").mkdir(parents=True)
    made(tmp_path / "far" / "events")
    named = [
        parse_named_table(f"eu.north.events={tmp_path}/far/events"),
        parse_named_table(f"eu.all={tmp_path}/far/events"),
    ]
    return Client(FolderTables(named, [str(lake)]))


def error_of(found):
    status, body, _ = found
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "code"}
    assert body["error"]["code"] == status
    return status, body["error"]["type"]


# --- endpoints -----------------------------------------------------------------------------------------------------


def test_config_names_the_endpoints_and_overrides_nothing(client):
    status, body, headers = client("/v1/config?warehouse=lake")
    assert (status, body["defaults"], body["overrides"], headers["Content-Type"]) == (200, {}, {}, "application/json")
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}" in body["endpoints"]
    assert all(not line.startswith(("PUT", "DELETE")) for line in body["endpoints"])


def test_namespaces_are_listed_level_by_level(client):
    assert client("/v1/namespaces")[1] == {"namespaces": [["eu"], ["lake"]], "next-page-token": None}
    assert client("/v1/namespaces?parent=eu")[1]["namespaces"] == [["eu", "north"]]
    assert client("/v1/namespaces?parent=eu%1Fnorth")[1]["namespaces"] == []
    assert error_of(client("/v1/namespaces?parent=none")) == (404, "NoSuchNamespaceException")
    assert client("/v1/namespaces/eu%1Fnorth")[1] == {"namespace": ["eu", "north"], "properties": {}}
    assert client("/v1/namespaces/eu", "HEAD")[0] == 204
    assert client("/v1/namespaces/no", "HEAD")[:2] == (404, None)
    assert error_of(client("/v1/namespaces/eu%1Fsouth")) == (404, "NoSuchNamespaceException")


def test_tables_are_listed_and_loaded_by_their_decoded_names(client, tmp_path):
    names = [{"namespace": ["lake"], "name": name} for name in ("orders", "ß day")]
    assert client("/v1/namespaces/lake/tables")[1] == {"identifiers": names, "next-page-token": None}
    assert client("/v1/namespaces/eu/tables")[1]["identifiers"] == [{"namespace": ["eu"], "name": "all"}]
    status, body, _ = client("/v1/namespaces/lake/tables/orders")
    assert (status, body["config"], body["metadata"]["number"]) == (200, {}, 3), "the hint was behind"
    assert body["metadata-location"] == f"file://{tmp_path}/lake/orders/_pydelta/iceberg/metadata/v3.metadata.json"
    assert client(f"/v1/namespaces/lake/tables/{quote('ß day')}")[0] == 200
    assert client("/v1/namespaces/eu%1Fnorth/tables/events")[0] == 200
    assert client("/v1/namespaces/lake/tables/orders", "HEAD")[:2] == (204, None)
    assert client("/v1/namespaces/lake/tables/plain", "HEAD")[:2] == (404, None)
    for name in ("plain", "none", "orders%2F..%2Forders", "..", "."):
        assert error_of(client(f"/v1/namespaces/lake/tables/{name}")) == (404, "NoSuchTableException")
    assert error_of(client("/v1/namespaces/none/tables")) == (404, "NoSuchNamespaceException")
    assert client("/v1/namespaces/lake/tables/orders/metrics", "POST")[:2] == (204, None)


def test_only_snapshots_with_a_name_where_that_is_asked_for(client):
    found = client("/v1/namespaces/lake/tables/orders?snapshots=refs")[1]["metadata"]
    assert [item["snapshot-id"] for item in found["snapshots"]] == [2]
    assert len(client("/v1/namespaces/lake/tables/orders?snapshots=all")[1]["metadata"]["snapshots"]) == 2
    assert error_of(client("/v1/namespaces/lake/tables/orders?snapshots=some")) == (400, "BadRequestException")


def test_a_table_that_did_not_change_is_not_sent_again(client, tmp_path):
    uri = "/v1/namespaces/lake/tables/orders"
    tag = client(uri)[2]["ETag"]
    assert client(uri, HTTP_IF_NONE_MATCH=tag)[:2] == (304, None)
    assert client(uri, HTTP_IF_NONE_MATCH=f'"other", W/{tag}')[0] == 304
    assert client(f"{uri}?snapshots=refs", HTTP_IF_NONE_MATCH=tag)[0] == 200
    made(tmp_path / "lake" / "orders", 4)
    status, body, headers = client(uri, HTTP_IF_NONE_MATCH=tag)
    assert (status, body["metadata"]["number"], headers["ETag"] != tag) == (200, 4, True)


def test_a_table_made_again_at_the_same_place_is_sent_though_its_metadata_has_the_same_name(client, tmp_path):
    uri = "/v1/namespaces/eu%1Fnorth/tables/events"
    tag = client(uri)[2]["ETag"]
    metadata = tmp_path / "far" / "events" / "_pydelta" / "iceberg" / "metadata" / "v1.metadata.json"
    metadata.write_text(json.dumps(METADATA | {"number": 77}))
    status, body, headers = client(uri, HTTP_IF_NONE_MATCH=tag)
    assert (status, body["metadata"]["number"], headers["ETag"] != tag) == (200, 77, True)


def test_pages_give_every_name_once(tmp_path):
    for at in range(7):
        made(tmp_path / "lake" / f"t{at}")
    client = Client(FolderTables([], [str(tmp_path / "lake")]))
    seen, token, pages = [], "", 0
    while token is not None:
        body = client(f"/v1/namespaces/lake/tables?pageSize=3&pageToken={quote(token)}")[1]
        seen += [item["name"] for item in body["identifiers"]]
        token, pages = body["next-page-token"], pages + 1
    assert (seen, pages) == ([f"t{at}" for at in range(7)], 3)
    for wrong in ("pageSize=0", "pageSize=x", "pageSize=-1", "pageToken=%21", "pageSize=" + "9" * 40):
        assert error_of(client(f"/v1/namespaces/lake/tables?{wrong}")) == (400, "BadRequestException"), wrong


# --- what is not answered ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "uri"), [
    ("POST", "/v1/namespaces"), ("POST", "/v1/namespaces/lake/tables"), ("DELETE", "/v1/namespaces/lake"),
    ("DELETE", "/v1/namespaces/lake/tables/orders"), ("POST", "/v1/namespaces/lake/tables/orders"),
    ("GET", "/v1/namespaces/lake/tables/orders/metrics"), ("PUT", "/v1/config"),
    ("POST", "/v1/namespaces/lake/properties"), ("POST", "/v1/namespaces/lake/register"), ("POST", "/v1/tables/rename"),
    ("POST", "/v1/transactions/commit"),
])  # fmt: skip
def test_what_would_write_is_refused(client, method, uri):
    assert error_of(client(uri, method)) == (406, "UnsupportedOperationException")


@pytest.mark.parametrize(
    "uri", ["/", "/v1", "/v1/", "/v2/config", "/v1/namespaces/lake/views", "/v1/oauth/tokens", "//v1/config"]
)
def test_other_endpoints_are_not_there(client, uri):
    assert error_of(client(uri))[0] in (404, 400)


_TEXT = st.text(alphabet=st.characters(min_codepoint=1, max_codepoint=255), max_size=40)
_PARTS = st.sampled_from([
    "v1", "config", "namespaces", "tables", "lake", "orders", "metrics", "", "..", "%1F", "%2F",
    "%00", "%FF", "%zz", "a" * 300,
])  # fmt: skip


@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "X"]),
    parts=st.lists(_PARTS | _TEXT, max_size=8),
    query=st.lists(
        st.tuples(_TEXT | st.sampled_from(["pageToken", "pageSize", "parent", "snapshots"]), _TEXT | _PARTS), max_size=3
    ),
)
@settings(max_examples=400, deadline=None)
def test_any_path_gets_an_answer_or_an_error_of_the_specification(fuzzed, method, parts, query):
    uri = "/" + "/".join(parts) + ("?" + "&".join(f"{name}={value}" for name, value in query) if query else "")
    for start in ("", "/v1", "/v1/namespaces", "/v1/namespaces/lake/tables"):
        status, _, headers = found = fuzzed(start + uri, method)
        assert status in (200, 204, 400, 404, 406), (start + uri, found)
        assert headers["Content-Type"] == "application/json"
        if status >= 400 and method != "HEAD":
            error_of(found)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    lake = tmp_path_factory.mktemp("fuzz") / "lake"
    made(lake / "orders")
    return Client(FolderTables([], [str(lake)], fresh_seconds=3600))


def test_a_body_that_is_too_large_and_an_address_that_is_too_long_are_refused(client):
    assert error_of(client("/v1/config", CONTENT_LENGTH=str(LARGEST_BODY + 1))) == (413, "BadRequestException")
    assert error_of(client("/v1/config", CONTENT_LENGTH="-1")) == (413, "BadRequestException")
    assert error_of(client("/v1/namespaces/" + "x" * 5000)) == (400, "BadRequestException")


def test_metadata_that_is_broken_or_gone_is_an_error_without_a_trace(client, tmp_path):
    folder = tmp_path / "lake" / "orders" / "_pydelta" / "iceberg" / "metadata"
    (folder / "v3.metadata.json").write_text("[")
    assert error_of(client("/v1/namespaces/lake/tables/orders")) == (500, "InternalServerError")
    for path in folder.iterdir():
        path.unlink()
    assert error_of(client("/v1/namespaces/lake/tables/orders")) == (404, "NoSuchTableException")


# --- access --------------------------------------------------------------------------------------------------------


def test_a_token_is_asked_for_where_there_are_users(tmp_path):
    token = secret("rest catalog token")
    made(tmp_path / "lake" / "orders")
    users = tmp_path / "users"
    users.write_text(f"ann:{token}\n")
    with pytest.raises(InvalidArgumentError, match="Other users"):
        users.chmod(0o644)
        Guard.read(str(users), None, None)
    users.chmod(0o600)
    client = Client(FolderTables([], [str(tmp_path / "lake")]), Guard.read(str(users), None, None))
    for given_header in ("", "Bearer wrong", "Basic YTpi", f"Bearer {token}x", "Bearer ß"):
        found = client("/v1/config", HTTP_AUTHORIZATION=given_header)
        assert error_of(found) == (401, "NotAuthorizedException")
        assert found[2]["WWW-Authenticate"] == "Bearer"
    for method, uri in (("GET", "/nothing"), ("HEAD", "/v1/namespaces/lake"), ("POST", "/v1/namespaces")):
        assert client(uri, method)[0] == 401, "nobody learns what is there"
    assert client("/v1/config", HTTP_AUTHORIZATION=f"Bearer {token}", HTTP_HOST="any.name")[0] == 200


def test_without_users_a_foreign_name_of_this_machine_is_refused(client):
    assert error_of(client("/v1/config", HTTP_HOST="evil.example:8181")) == (400, "BadRequestException")
    for name in ("localhost:8181", "127.0.0.1:8181", "[::1]:8181", "LOCALHOST"):
        assert client("/v1/config", HTTP_HOST=name)[0] == 200


def test_other_machines_are_served_only_with_a_log_in_or_on_request():
    users = Guard(users={"t" * 16: "ann"})
    check_exposed(Addresses(host="127.0.0.1", page=8181), Guard())
    check_exposed(Addresses(host="10.0.0.5", page=8181), users)
    check_exposed(Addresses(host="10.0.0.5", page=8181, no_login=True), Guard())
    for host, guard, said in (
        ("10.0.0.5", Guard(), "no log-in"),
        ("0.0.0.0", users, "in the clear"),
        ("8.8.8.8", users, "in the clear"),
    ):
        with pytest.raises(DeltaEnvironmentError, match=said):
            check_exposed(Addresses(host=host, page=8181), guard)


# --- a metastore ---------------------------------------------------------------------------------------------------


def in_metastore(metastore, place, name, database="lake_iceberg"):
    folder = made(place)
    wanted = WantedIceberg(
        table=f"file://{place}", table_id="id", version=0, metadata=f"file://{folder}/v1.metadata.json"
    )
    metastore.create(iceberg_entry(wanted, database, name))


@pytest.fixture
def metastore(tmp_path):
    found = MemoryMetastore()
    in_metastore(found, tmp_path / "a", "orders")
    in_metastore(found, tmp_path / "b", "events", "other_iceberg")
    in_metastore(found, tmp_path / "c", "hidden", "unrelated")
    theirs = iceberg_entry(
        WantedIceberg(table="file:///x", table_id="", version=0, metadata="file:///x/v1.json"), "lake_iceberg", "theirs"
    )
    del theirs.parameters["pydelta.table.location"]
    found.create(theirs)
    return found


def test_entries_of_ours_are_shown_under_the_names_of_their_tables(metastore):
    client = Client(MetastoreTables(lambda: MemoryMetastore(metastore), [], "{database}_iceberg"))
    assert client("/v1/namespaces")[1]["namespaces"] == [["lake"], ["other"]]
    assert client("/v1/namespaces/lake/tables")[1]["identifiers"] == [{"namespace": ["lake"], "name": "orders"}]
    assert client("/v1/namespaces/lake/tables/Orders")[1]["metadata"]["number"] == 1
    for place in (
        "lake_iceberg/tables/orders",
        "unrelated/tables/hidden",
        "lake/tables/theirs",
        "lake%1Fx/tables/orders",
    ):
        assert client(f"/v1/namespaces/{place}")[0] == 404
    only = Client(MetastoreTables(lambda: MemoryMetastore(metastore), ["Lake"], "{database}_iceberg"))
    assert only("/v1/namespaces")[1]["namespaces"] == [["lake"]]
    assert only("/v1/namespaces/other/tables")[0] == 404
    assert only("/v1/namespaces/other/tables/events")[0] == 404


def test_a_rule_without_a_hole_is_one_namespace(metastore):
    client = Client(MetastoreTables(lambda: MemoryMetastore(metastore), [], "lake_iceberg"))
    assert client("/v1/namespaces")[1]["namespaces"] == [["lake_iceberg"]]
    assert client("/v1/namespaces/lake_iceberg/tables/orders")[0] == 200


def test_a_metastore_that_does_not_answer_is_503(metastore):
    def down():
        raise MetastoreUnavailableError("The metastore does not answer.")

    client = Client(MetastoreTables(down, [], "{database}_iceberg"))
    assert error_of(client("/v1/namespaces")) == (503, "ServiceUnavailableException")
    assert error_of(client("/v1/namespaces/lake/tables/orders")) == (503, "ServiceUnavailableException")


def test_metadata_is_read_once_and_the_cache_is_bounded():
    cache, read = MetadataCache(limit=400), []

    def file(name):
        def once():
            read.append(name)
            return b"x" * 90

        return once

    for name in ("a", "a", "b", "c", "d", "e", "a"):
        cache.get(name, file(name))
    assert read == ["a", "b", "c", "d", "e", "a"]
    assert cache.get("large", lambda: b"x" * 200) == b"x" * 200
    assert cache.get("large", lambda: b"y") == b"y"
    assert [cache.get("a", file("a"), stamp) for stamp in (1, 1, 2)] == [b"x" * 90] * 3
    assert read[6:] == ["a", "a"], "with another stamp it is another file"
    cache.put("a", b"new", 2)
    assert cache.get("a", file("a"), 2) == b"new"


@pytest.mark.parametrize("text", ["orders=/x", "lake.orders", "lake.=/x", ".orders=/x", "lake.orders="])
def test_names_of_tables_are_checked(text):
    with pytest.raises(InvalidArgumentError, match=r"NAMESPACE\.TABLE=LOCATION"):
        parse_named_table(text)
