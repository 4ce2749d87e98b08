"""Each user of the page sees the tables of her role; of one with a mask or a filter no value; and nothing else."""

from __future__ import annotations

import base64
import json
from urllib.parse import urlencode

import pyarrow as pa
import pytest

from pydelta.api.access.roles import Access
from pydelta.api.console.addresses import Addresses
from pydelta.api.python.local import LocalTable
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.tools.ui.command import check_exposed
from pydelta.tools.ui.server import Application
from pydelta.tools.ui.services import Service
from pydelta.tools.ui.sources import Sources
from pydelta.tools.ui.watch import Watch, Watched

ROLES = {
    "op": {"admin": True},
    "an": {"tables": ["lake.whole", "lake.part"], "masks": {"lake.part": {"card": "null"}}},
    "none": {},
}
PASSWORDS = {"admin": "of-admin", "ann": "of-ann", "eve": "of-eve"}


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Ask as a user: status, headers and text."""
    folder = tmp_path_factory.mktemp("roles")
    for name in ("whole", "part", "secret"):
        rows = pa.table({"card": [f"value-of-{name}"], "n": [4711]})
        LocalTable.create(folder / name, rows, properties={"owner": f"property-of-{name}"})
    watched = Watched(
        sources=Sources(tables=[f"lake.{name}={folder / name}" for name in ("whole", "part", "secret")]),
        services=[Service.parse("Gone=tcp://127.0.0.1:1")],
        fresh=600,
        patience=600,
    )
    users = {
        name: {"role": role, "password-variable": name}
        for name, role in (("admin", "op"), ("ann", "an"), ("eve", "none"))
    }
    access = Access.parse({"roles": ROLES, "users": users}, "users.toml", PASSWORDS)
    application = Application(Watch(watched), access=access)

    def asked(path, user=None, password=None, header=None, **query):
        found = {}

        def start(status, headers):
            found.update(status=int(status[:3]), headers=dict(headers))

        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": path,
            "QUERY_STRING": urlencode(query),
            "HTTP_HOST": "localhost",
        }
        if user:
            given = f"{user}:{password or PASSWORDS[user]}"
            environ["HTTP_AUTHORIZATION"] = "Basic " + base64.b64encode(given.encode()).decode()
        if header is not None:
            environ["HTTP_AUTHORIZATION"] = header
        text = b"".join(application(environ, start)).decode()
        return found["status"], found["headers"], text

    return asked


@pytest.mark.parametrize(
    "header", [None, "", "Basic", "Basic !", "Basic " + base64.b64encode(b"ann").decode(), "Bearer x"]
)
@pytest.mark.parametrize("path", ["/", "/api/tables", "/metrics", "/table", "/no-such-page", "/api/health"])
def test_without_a_name_and_a_password_there_is_only_the_question_for_them(ask, path, header):
    status, headers, text = ask(path, header=header)
    assert (status, headers["WWW-Authenticate"][:6]) == (401, "Basic ")
    assert "lake." not in text


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("ann", "of-admin")])
def test_a_wrong_password_is_as_good_as_none(ask, user, password):
    assert ask("/", user, password)[0] == 401


def test_whether_the_page_answers_is_said_to_everyone_and_no_more(ask):
    status, _, text = ask("/health")
    assert (status, json.loads(text)) == (200, {"ok": True})
    assert "tablesThatNeedAttention" in ask("/health", "admin")[2]
    assert ask("/page.css")[0] == 200


def shown(ask, user):
    return sorted(table["place"]["name"] for table in json.loads(ask("/api/tables", user)[2])["tables"])


def test_each_sees_the_tables_of_the_role(ask):
    assert shown(ask, "admin") == ["lake.part", "lake.secret", "lake.whole"]
    assert shown(ask, "ann") == ["lake.part", "lake.whole"]
    assert shown(ask, "eve") == []


SEEN = ("/", "/databases", "/database?name=lake", "/search?q=card", "/table?name=lake.whole", "/table?name=lake.part")


@pytest.mark.parametrize("path", SEEN)
def test_a_page_of_the_role_s_tables_has_no_other_table_and_no_hidden_value(ask, path):
    place, _, name = path.partition("?")
    query = dict([name.split("=")]) if name else {}
    for prefix in ("", "/api"):
        if prefix + place == "/api/":
            continue
        status, _, text = ask(prefix + place, "ann", **query)
        assert status == 200, text
        for hidden in ("secret", "value-of-part", "property-of-part", "Gone"):
            assert hidden not in text, (prefix + path, hidden)


def test_a_table_that_is_seen_whole_has_all_its_pages(ask):
    for path, query in (("/preview", {}), ("/api/preview", {}), ("/commit", {"version": "0"}), ("/api/columns", {})):
        status, _, text = ask(path, "ann", name="lake.whole", **query)
        assert status == 200, text
    assert "value-of-whole" in ask("/preview", "ann", name="lake.whole")[2]


@pytest.mark.parametrize(
    ("path", "query"),
    [("/preview", {}), ("/api/preview", {}), ("/commit", {"version": "0"}), ("/api/commit", {"version": "0"})],
)
def test_a_table_with_a_mask_has_no_page_with_values(ask, path, query):
    status, _, text = ask(path, "ann", name="lake.part", **query)
    assert status == 403
    assert "value-of-part" not in text
    assert "part of the table" in text


@pytest.mark.parametrize("path", ["/columns"])
def test_statistics_of_a_table_with_a_mask_are_not_shown(ask, path):
    status, _, text = ask(f"/api{path}", "ann", name="lake.part")
    assert status == 200
    assert "value-of-part" not in text
    assert "4711" not in text
    assert "4711" in ask(f"/api{path}", "ann", name="lake.whole")[2]


@pytest.mark.parametrize("path", ["/table", "/api/table", "/preview", "/commit", "/api/columns", "/api/commit"])
@pytest.mark.parametrize("user", ["ann", "eve"])
def test_a_table_of_others_is_not_there(ask, path, user):
    status, _, text = ask(path, user, name="lake.secret", version="0")
    assert status == 404
    assert "value-of-secret" not in text


@pytest.mark.parametrize(
    "path", ["/runs", "/cluster", "/lineage", "/api/runs", "/api/cluster", "/api/lineage", "/metrics", "/health"]
)
def test_pages_about_everything_are_for_those_who_may_do_everything(ask, path):
    assert ask(path, "ann")[0] == 403
    assert ask(path, "admin")[0] == 200


def test_a_location_in_place_of_a_name_finds_no_table_of_others(ask):
    places = {table["place"]["name"]: table for table in json.loads(ask("/api/tables", "admin")[2])["tables"]}
    location = json.dumps(places["lake.secret"])
    assert "/secret" in location
    uri = next(part for part in location.split('"') if part.endswith("/secret") and "/" in part)
    assert ask("/table", "admin", name=uri)[0] == 200
    assert ask("/table", "ann", name=uri)[0] == 404


def test_a_page_that_asks_may_listen_on_one_private_address():
    check_exposed(Addresses(host="10.1.2.3", page=1), asks=True)
    with pytest.raises(DeltaEnvironmentError):
        check_exposed(Addresses(host="0.0.0.0", page=1), asks=True)
    with pytest.raises(InvalidArgumentError, match="exclude each other"):
        check_exposed(Addresses(host="10.1.2.3", page=1, no_login=True), asks=True)
