"""What the stack adds to Superset, without Superset: dashboards in its format, sources and users."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from jobs.demo.flights import SCHEMA
from pydelta.errors import InvalidArgumentError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "images/superset"))

from lakehouse_superset.assets import bundle, chart_id  # noqa: E402
from lakehouse_superset.dashboards import FLIGHTS, TOTAL, shop  # noqa: E402
from lakehouse_superset.known_users import users_of  # noqa: E402
from lakehouse_superset.sources import TRINO, sources_of  # noqa: E402

DASHBOARDS = [FLIGHTS, shop("shop")]
USERS = """
[roles.operator]
admin = true
[roles.analyst]
tables = ["lake.*"]
[users.ann]
role = "analyst"
password-variable = "ANN"
[users.op]
role = "operator"
password-variable = "OP"
"""


def files_of(dashboard):
    return {name: json.loads(text) for name, text in bundle(dashboard, TRINO, "Trino").items()}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.slug)
def test_every_chart_has_its_dataset_and_every_dataset_the_database(dashboard):
    files = files_of(dashboard)
    datasets = {one["uuid"]: one for name, one in files.items() if name.startswith("datasets/")}
    charts = [one for name, one in files.items() if name.startswith("charts/")]
    assert len(charts) == len(dashboard.charts) > 0
    assert {chart["dataset_uuid"] for chart in charts} == set(datasets)
    assert {one["database_uuid"] for one in datasets.values()} == {files["databases/database.yaml"]["uuid"]}
    assert len({chart["uuid"] for chart in charts}) == len(charts)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.slug)
def test_charts_ask_for_columns_and_metrics_that_are_there(dashboard):
    for chart in dashboard.charts:
        options = chart.options
        metrics = {options.get("metric"), *options.get("metrics", [])} - {None}
        assert metrics
        assert metrics <= set(chart.dataset.metrics)
        assert {options.get("x_axis"), *options.get("groupby", [])} - {None} <= set(chart.dataset.columns)
        if "x_axis_sort" in options:
            assert options["x_axis_sort"] in {options["x_axis"], *metrics}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.slug)
def test_the_layout_is_a_tree_that_shows_each_chart_once(dashboard):
    position = files_of(dashboard)[f"dashboards/{dashboard.slug}.yaml"]["position"]
    nodes = {name: node for name, node in position.items() if isinstance(node, dict)}
    assert all(name == node["id"] for name, node in nodes.items())
    seen = []

    def walk(name, above):
        node = nodes[name]
        seen.append(name)
        assert node.get("parents", []) == above
        if node["type"] == "ROW":
            assert sum(nodes[child]["meta"]["width"] for child in node["children"]) <= 12
        for child in node.get("children", []):
            walk(child, [*above, name])

    walk("ROOT_ID", [])
    assert sorted(seen) == sorted(set(nodes) - {"HEADER_ID"})
    shown = [node["meta"]["uuid"] for node in nodes.values() if node["type"] == "CHART"]
    assert sorted(shown) == sorted(str(chart_id(dashboard, chart)) for chart in dashboard.charts)


def test_the_dashboard_of_flights_asks_for_columns_that_are_loaded():
    columns = dict(part.split() for part in SCHEMA.split(", "))
    kinds = {"int": "INTEGER", "string": "VARCHAR"}
    [dataset] = {chart.dataset.table: chart.dataset for chart in FLIGHTS.charts}.values()
    assert {name: kinds[columns[name]] for name in dataset.columns} == dict(dataset.columns)
    used = set(re.findall(r"\b[a-z_]+\b", " ".join(dataset.metrics.values())))
    assert used - {"count", "count_if", "avg", "sum"} <= set(dataset.columns)


def test_the_chart_that_make_verify_follows_counts_orders():
    [chart] = [chart for chart in shop("crm").charts if chart.name == TOTAL]
    assert chart.dataset.metrics[chart.options["metric"]] == "count(*)"
    assert chart.dataset.schema == "crm"
    assert f"--follow shop {TOTAL}" in (ROOT / "scripts/stack-verify-charts").read_text()


def test_a_plain_stack_asks_trino_without_a_password_and_the_sql_server():
    trino, server = sources_of({}, limited_users=False)
    assert (trino.uri, trino.as_user) == ("trino://superset@trino:8080/delta", True)
    assert (server.uri, server.as_user) == ("hive://superset@sql:10000/default", False)


def test_a_secure_stack_logs_in_to_trino_and_checks_its_certificate():
    [trino] = sources_of({"SECURE": "yes", "BI_TRINO_PASSWORD": "a/b@c:d%"}, limited_users=True)
    assert trino.uri == "trino://superset:a%2Fb%40c%3Ad%25@trino:8443/delta"
    connect = json.loads(trino.extra_text())["engine_params"]["connect_args"]
    assert connect["http_scheme"] == "https"
    assert connect["verify"].endswith(".crt")


def test_users_are_those_of_the_stack(tmp_path):
    absent = tmp_path / "users.toml"
    plain = users_of({"BI_PASSWORD": "plain"}, absent)
    assert set(plain.users) == {"admin"}
    assert plain.check("admin", "plain").role.admin
    secure = users_of({"SECURE": "yes", "TRINO_ADMIN_PASSWORD": "a", "TRINO_READER_PASSWORD": "r"}, absent)
    assert {name: user.role.admin for name, user in secure.users.items()} == {"admin": True, "reader": False}
    assert secure.check("reader", "r") and not secure.check("admin", "r")
    absent.write_text(USERS)
    of_file = users_of({"SECURE": "yes", "ANN": "x", "OP": "y", "BI_PASSWORD": "plain"}, absent)
    assert {name: user.role.admin for name, user in of_file.users.items()} == {"ann": False, "op": True}
    assert not of_file.check("admin", "plain")


def test_without_a_password_nobody_is_let_in(tmp_path):
    with pytest.raises(InvalidArgumentError, match="BI_PASSWORD"):
        users_of({}, tmp_path / "users.toml")
