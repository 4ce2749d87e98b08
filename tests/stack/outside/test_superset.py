"""Superset lets in the users of the stack alone, asks the stack's engines, and keeps what people change."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
import uuid

import pytest

from jobs.verify.superset import Superset, SupersetError

ADDRESS = f"http://127.0.0.1:{os.environ['BI_PORT']}"
PASSWORD = os.environ["BI_ADMIN_PASSWORD"]
IS_AFTER_RESTART = os.environ.get("BI_AFTER_RESTART") == "yes"
FLIGHTS = 336_776
NEW_NAME = "Flights of all carriers"


@pytest.fixture(scope="module")
def admin():
    return Superset(ADDRESS, "admin", PASSWORD)


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("admin", "wrong"),
        ("admin", ""),
        ("Admin", PASSWORD),
        ("stranger", PASSWORD),
        ("superset", PASSWORD),
        ("", PASSWORD),
    ],
)
def test_only_users_of_the_stack_are_let_in(user, password):
    with pytest.raises(SupersetError, match=r"HTTP status (400|401)"):
        Superset(ADDRESS, user, password)


@pytest.mark.parametrize(
    "path", ["chart/", "dashboard/flights", "database/", "dashboard/flights/charts", "security/users/"]
)
def test_without_a_log_in_nothing_is_shown(path):
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"{ADDRESS}/api/v1/{path}", timeout=60)
    assert raised.value.code in {401, 403, 404}


def test_a_page_leads_to_the_log_in():
    with urllib.request.urlopen(f"{ADDRESS}/superset/dashboard/flights/", timeout=60) as answer:
        assert "/login" in answer.url


def test_trino_answers_under_the_name_of_the_user(admin):
    trino = admin.databases()["Trino"]
    assert admin.rows(trino, "SELECT count(*) AS n FROM delta.lake.flights") == [[FLIGHTS]]
    mark = uuid.uuid4().hex
    assert admin.rows(trino, f"SELECT '{mark}' AS m, current_user AS u") == [[mark, "admin"]]


@pytest.mark.parametrize("statement", ["DROP TABLE delta.lake.flights", "DELETE FROM delta.lake.flights"])
def test_nothing_is_written(admin, statement):
    with pytest.raises(SupersetError):
        admin.rows(admin.databases()["Trino"], statement)
    assert admin.rows(admin.databases()["Trino"], "SELECT count(*) AS n FROM delta.lake.flights") == [[FLIGHTS]]


def test_the_sql_server_answers(admin):
    if os.environ["BI_SQL_SERVER"] != "yes":
        pytest.skip("this stack has no SQL server that Superset may ask")
    rows = admin.rows(admin.databases()["SQL server"], "SELECT count(*) AS n, sum(distance) AS miles FROM lake.flights")
    assert rows == [[FLIGHTS, 350_217_607]]


def test_what_people_change_stays(admin):
    charts = {chart.name: chart for chart in admin.charts("flights")}
    if IS_AFTER_RESTART:
        assert NEW_NAME in charts
        assert "Flights" not in charts
        admin.rename(charts[NEW_NAME], "Flights")
    else:
        admin.rename(charts["Flights"], NEW_NAME)
    assert admin.number(charts.get("Flights") or charts[NEW_NAME]) == FLIGHTS
