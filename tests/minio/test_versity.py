"""What only Versity's gateway can get wrong: it keeps its users as a file beside the buckets, and may remember them."""

from __future__ import annotations

import pytest
from rights_asked import USERS, attempt

pytestmark = pytest.mark.parametrize("server", ["versity"], indirect=True)


def test_no_user_gets_at_the_secrets_that_are_beside_the_buckets(server, store):
    hidden = server.folder / "data" / ".users"
    assert all(secret in (hidden / "users.json").read_text() for secret in server.secrets.values())
    assert {path.stat().st_mode & 0o077 for path in (hidden, *hidden.iterdir())} == {0}
    for user in USERS:
        for path in (".users/users.json", "warehouse/../.users/users.json", "warehouse/%2e%2e/.users/users.json"):
            for method in ("GET", "PUT", "DELETE"):
                assert server.ask(user, method, path) in (400, 403, 404), (user, method, path)
    for source in (".users/users.json", "warehouse/../.users/users.json"):
        copied = server.ask("spark", "PUT", "work/stolen", "-H", f"x-amz-copy-source: /{source}")
        assert copied in (400, 403, 404), source
    assert "stolen" not in [info.path for info in store(None, "", "work").list_all()]


def test_a_right_key_is_never_refused_however_often_users_are_set_again(server, store):
    for _ in range(5):
        assert server.run("make-users").returncode == 0
        for user in USERS * 3:
            assert attempt(store(user, "anything"), "list", "") is None, user


def test_a_folder_that_has_files_is_not_deleted_by_its_marker(server, store, database):
    assert server.ask("metastore", "PUT", f"warehouse/{database}/") == 200
    store(None, f"{database}/orders").put("part.parquet", b"kept")
    for name in (f"warehouse/{database}/", f"warehouse/{database}", f"warehouse/{database}/orders"):
        server.ask("metastore", "DELETE", name)
        assert store(None, f"{database}/orders").read("part.parquet") == b"kept", name
    assert server.ask("metastore", "PUT", f"warehouse/{database}/") == 200
    assert store("vacuum", f"{database}/orders").delete_many(["part.parquet"]).failed == ()
    assert server.ask("metastore", "HEAD", f"warehouse/{database}/") == 200, "what CREATE DATABASE made stays"
