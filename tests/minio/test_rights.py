"""What each component of the stack may do in the store, and what it may not: asked of each server, right by right."""

from __future__ import annotations

import pytest
from rights_asked import DATA, DENIED, GRANTED, KEPT, LISTED, OBJECTS, USERS, attempt
from store_servers import SERVERS, users

from pydelta.errors import StorageError, StoragePermissionError
from pydelta.storage import open_store
from pydelta.storage.rights import require_rights

pytestmark = pytest.mark.parametrize("server", SERVERS, indirect=True)


@pytest.fixture
def table(store, database):
    """Opens a table's folder as a user; its objects are there."""
    folder = f"{database}/orders"
    for path in OBJECTS:
        store(None, folder).put(path, b"kept")

    def open_as(user):
        return store(user, folder)

    return open_as


@pytest.mark.parametrize(("user", "kind", "path"), DENIED)
def test_what_a_component_may_not_do_is_refused_and_changes_nothing(table, user, kind, path):
    refused = attempt(table(user), kind, path)
    assert refused is not None and "AccessDenied" in refused
    assert table(None).read(path) == b"kept"


@pytest.mark.parametrize(("user", "kind", "path"), GRANTED)
def test_what_a_component_does_is_granted(table, user, kind, path):
    assert attempt(table(user), kind, path) is None
    if kind != "read":
        assert (table(None).head(path) is None) == (kind == "delete")


def test_the_tests_know_the_users_of_the_file_of_rights(server):
    assert sorted(server.secrets) == sorted(users()) == sorted(USERS) == sorted(LISTED)


@pytest.mark.parametrize("user", USERS)
def test_only_its_places_are_listed_and_written_beside_tables(store, database, user):
    places = ("warehouse", "inventory", "work")
    assert [place for place in places if attempt(store(user, database, place), "list", "") is None] == LISTED[user]
    tried = [(kind, place) for place in places[1:] for kind in ("write", "delete")]
    may = {(kind, place) for kind, place in tried if attempt(store(user, database, place), kind, "x") is None}
    assert may == KEPT.get(user, set())


@pytest.mark.parametrize(
    ("user", "folder", "kinds"),
    [
        ("inventory", "inventory/report", {"write", "read"}),
        ("maintain", "ops/maintenance", {"write", "read"}),
        ("notebook", "notebooks/flights", {"write", "read", "delete"}),
        ("spark", "notebooks/flights", {"write", "read"}),
    ],
)
def test_who_keeps_tables_of_its_own_writes_them(store, user, folder, kinds):
    store(None, folder).put(DATA, b"there")
    assert {kind for kind in ("write", "read", "delete") if attempt(store(user, folder), kind, DATA) is None} == kinds


def test_only_markers_of_folders_are_the_metastore_s_to_write(server, database):
    marker, data = f"warehouse/{database}/orders/", f"warehouse/{database}/orders/part"
    whole, log = f"warehouse/{database}/part.parquet", f"warehouse/{database}/_delta_log/0.json"
    assert server.ask("metastore", "PUT", marker) == 200
    assert server.ask("metastore", "HEAD", marker) == 200
    for user in ("trino", "presto", "page", "sync", "inventory", "maintain"):
        assert server.ask(user, "PUT", marker) == 403, user
        assert server.ask(user, "DELETE", marker) == 403, user
    for name in (data, whole, log):
        assert server.ask("metastore", "PUT", name) == 403, name
        assert server.ask("metastore", "DELETE", name) == 403, name
    assert server.ask("metastore", "DELETE", marker) == 204


@pytest.mark.parametrize("user", USERS)
def test_nobody_makes_buckets_or_users_or_changes_their_rights(server, user):
    assert server.ask(user, "PUT", f"another-{user}") == 403
    assert server.ask(user, "DELETE", "work") == 403
    for method in ("GET", "PUT", "DELETE"):
        assert server.ask(user, method, "warehouse?policy=") == 403, method
    assert server.ask(user, *server.USERS) == 403


def test_the_next_start_sets_what_was_changed_and_says_whose(server, store, database):
    names = " ".join(users())
    assert server.said == f"users: {names}\n  made: {names}\n"
    again = server.run("make-users")
    assert (again.returncode, again.stdout) == (0, f"users: {names}\n")
    old = server.options("presto")
    server.secrets["presto"] = "another-secret"
    changed = server.run("make-users")
    assert (changed.returncode, changed.stdout) == (
        0,
        f"users: {names}\n  with another secret than before: presto\n",
    )
    assert attempt(store("presto", database), "list", "") is None
    with pytest.raises(StorageError, match="SignatureDoesNotMatch"):
        list(open_store(f"s3a://warehouse/{database}", old).list_all())


def test_rights_that_env_opens_are_given_and_taken_back(server, table):
    for variable, value, user in (
        ("TRINO_DELTA_SECURITY", "allow-all", "trino"),
        ("SPARK_DROPS", "allow", "spark"),
    ):
        assert attempt(table(user), "delete", DATA) is not None
        try:
            assert server.run("make-users", **{variable: value}).returncode == 0
            assert attempt(table(user), "write", DATA) is None
            assert attempt(table(user), "delete", DATA) is None
        finally:
            assert server.run("make-users").returncode == 0
        table(None).put(DATA, b"kept")
        assert attempt(table(user), "delete", DATA) is not None


def test_a_component_without_a_key_of_its_own_is_left_out(server):
    nobody = {f"STORE_{name.upper()}_KEY": server.root[0] for name in users()}
    nobody |= {f"STORE_{name.upper()}_SECRET": server.root[1] for name in users()}
    done = server.run("make-users", **nobody)
    assert (done.returncode, done.stdout) == (0, "users: none, since no component has a key of its own\n")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"STORE_TRINO_SECRET": "short"}, "The S3 secret of trino has other characters"),
        ({"STORE_TRINO_SECRET": 'quo"te-and-more'}, "set S3_TRINO_SECRET_KEY in .env to another one"),
        ({"STORE_SYNC_KEY": "a b c"}, "The S3 key of sync has other characters"),
        (
            {"STORE_SYNC_KEY": "the-root-user"},
            "The S3 key of sync is that of the root user. Next: set S3_SYNC_ACCESS_KEY",
        ),
        ({"AWS_SECRET_ACCESS_KEY": "wrong-secret"}, "did not take the users"),
    ],
)
def test_a_key_that_cannot_be_is_said_and_shown_to_nobody(server, changed, said):
    done = server.run("make-users", **changed)
    assert done.returncode == 1
    assert said in done.stderr
    assert not [
        secret for secret in (*server.secrets.values(), *changed.values()) if secret in done.stderr + done.stdout
    ]


def test_a_stream_may_keep_its_checkpoint_in_the_place_work_and_beside_tables_learns_why_not(store, database):
    require_rights(store("spark", f"_checkpoints/{database}", "work"), "the stream's checkpoint", {})
    with pytest.raises(StoragePermissionError, match="may not delete objects there"):
        require_rights(store("spark", f"_checkpoints/{database}", "warehouse"), "the stream's checkpoint", {})
