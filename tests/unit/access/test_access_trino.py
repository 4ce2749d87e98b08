"""Trino's rules from users and roles. The rules are read here as Trino reads them: the first one that fits holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pydelta.api.access.conditions import parse_condition
from pydelta.api.access.passwords import matches
from pydelta.api.access.roles import Access, Mask
from pydelta.api.access.trino import TrinoService, filter_text, mask_text, passwords_text, rules_text
from pydelta.errors import InvalidArgumentError

ROOT = Path(__file__).parents[3]
HASH = "1000:" + "ab" * 16 + ":" + "cd" * 32


def access(roles, **users):
    found = {name: {"role": role, "password": HASH} for name, role in users.items()}
    return Access.parse({"roles": roles, "users": found}, "users.toml", {})


def rule_for(rules, user, catalog, schema, table):
    """The rule of Trino for a table: patterns match whole names."""
    asked = {"user": user, "catalog": catalog, "schema": schema, "table": table}
    for rule in rules["tables"]:
        if all(re.fullmatch(rule.get(name, ".*"), value) for name, value in asked.items()):
            return rule
    return {"privileges": []}


ROLES = {
    "op": {"admin": True},
    "an": {
        "tables": ["lake.*", "sales.t"],
        "filters": {"lake.orders": "region = 'EU'"},
        "masks": {"sales.t": {"A b": "hash"}},
    },
    "all": {"tables": ["*"], "filters": {"lake.orders": "id = 1"}},
    "none": {},
}
RULES = json.loads(rules_text(access(ROLES, admin="op", **{"ann.b-c": "an"}, bob="all", eve="none", annxb="none")))


@pytest.mark.parametrize(
    ("user", "catalog", "schema", "table", "privileges", "rows"),
    [
        ("admin", "delta", "lake", "orders", 6, None),
        ("admin", "system", "x", "orders$files", 6, None),
        ("ann.b-c", "delta", "lake", "orders", 1, "\"region\" = 'EU'"),
        ("ann.b-c", "hive", "lake_symlink", "orders", 1, "\"region\" = 'EU'"),
        ("ann.b-c", "iceberg", "lake_iceberg", "orders", 1, "\"region\" = 'EU'"),
        ("ann.b-c", "hive", "lake", "orders", 1, "\"region\" = 'EU'"),
        ("ann.b-c", "delta", "lake", "items", 1, None),
        ("ann.b-c", "delta", "lake", "orders$files", 0, None),
        ("ann.b-c", "iceberg", "lake_iceberg", "orders$partitions", 0, None),
        ("ann.b-c", "delta", "lake2", "items", 0, None),
        ("ann.b-c", "delta", "sales", "u", 0, None),
        ("ann.b-c", "tpch", "lake", "items", 0, None),
        ("annxb-c", "delta", "lake", "items", 0, None),
        ("bob", "delta", "x", "y", 1, None),
        ("bob", "delta", "x", "y$files", 0, None),
        ("bob", "iceberg", "lake_iceberg", "orders", 1, '"id" = 1'),
        ("eve", "delta", "lake", "items", 0, None),
        ("unknown", "delta", "lake", "items", 0, None),
    ],
)
def test_the_first_rule_that_fits_is_what_the_role_may(user, catalog, schema, table, privileges, rows):
    rule = rule_for(RULES, user, catalog, schema, table)
    assert (len(rule["privileges"]), rule.get("filter")) == (privileges, rows)


def test_only_admins_write_run_functions_and_see_what_others_ask():
    limited = [rule for rule in RULES["tables"] if rule["user"] != "admin"]
    assert {tuple(rule["privileges"]) for rule in limited} == {("SELECT",)}
    assert {rule["allow"] for rule in RULES["catalogs"] if rule["user"] != "admin"} == {"read-only"}
    assert [rule for rule in RULES["queries"] if rule["user"] != "admin" and rule["allow"] != ["execute"]] == []
    assert [rule["user"] for rule in RULES["system_information"]] == ["admin"]
    assert [rule.get("catalog") for rule in RULES["functions"]] == [None, "system"]
    assert RULES["functions"][0]["user"] == "admin"
    assert RULES["impersonation"] == []
    assert "eve" not in json.dumps(RULES["catalogs"])


def test_masks_are_expressions_over_the_column_in_small_letters():
    rule = rule_for(RULES, "ann.b-c", "delta", "sales", "t")
    assert rule["columns"] == [{"name": "a b", "mask": 'lower(to_hex(sha256(to_utf8("a b"))))'}]


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (Mask("null"), "NULL"),
        (Mask("constant", "it's"), "'it''s'"),
        (Mask("constant", -1), "-1"),
        (Mask("constant", True), "TRUE"),
        (Mask("hash"), 'lower(to_hex(sha256(to_utf8("a""b"))))'),
        (
            Mask("last-4"),
            'CASE WHEN "a""b" IS NULL THEN NULL WHEN length("a""b") > 4 '
            "THEN '****' || substr(\"a\"\"b\", -4) ELSE '****' END",
        ),
    ],
)
def test_each_mask_has_an_expression(mask, text):
    assert mask_text('A"b', mask) == text


def test_each_comparison_has_a_condition():
    text = "a <> 'x''y' AND b IN (1, 2) AND c = FALSE AND d < DATE '2024-01-01'"
    expected = '"a" <> \'x\'\'y\' AND "b" IN (1, 2) AND "c" = FALSE AND "d" < DATE \'2024-01-01\''
    assert filter_text(parse_condition(text)) == expected


def test_the_password_file_has_a_line_per_user():
    assert passwords_text(access(ROLES, admin="op", bob="all")) == f"admin:{HASH}\nbob:{HASH}\n"


def test_the_example_gives_admin_and_reader_the_rights_that_they_have_without_a_file():
    example = Access.read(ROOT / "users.example.toml", {"TRINO_ADMIN_PASSWORD": "a", "TRINO_READER_PASSWORD": "b"})
    made = json.loads(rules_text(example, TrinoService("superset", "c")))
    before = json.loads((ROOT / "trino_conf" / "secure" / "rules.json").read_text())
    for name in ("catalogs", "schemas", "queries", "system_information", "impersonation"):
        assert sorted(map(str, made[name])) == sorted(
            str({**rule, "catalog": rule["catalog"]} if "catalog" in rule else rule) for rule in before[name]
        ), name
    for user in ("admin", "reader"):
        for place in (("delta", "lake", "t"), ("hive", "lake_symlink", "t"), ("tpch", "tiny", "t")):
            assert rule_for(made, user, *place)["privileges"] == rule_for(before, user, *place)["privileges"]


def test_a_service_may_take_the_name_of_each_user_and_has_no_other_right():
    users = access(ROLES, admin="op", **{"ann.b-c": "an"}, bob="all")
    service = TrinoService("charts", "a password")
    made, plain = json.loads(rules_text(users, service)), json.loads(rules_text(users))
    assert plain.pop("impersonation") == []
    [rule] = made.pop("impersonation")
    assert made == plain
    assert re.fullmatch(rule["original_user"], "charts")
    taken = ["admin", "ann.b-c", "bob", "annxb-c", "charts", "root", ""]
    assert [name for name in taken if re.fullmatch(rule["new_user"], name)] == ["admin", "ann.b-c", "bob"]
    assert not any("charts" in json.dumps(rules) for rules in made.values())


def test_a_service_has_a_password_in_the_file():
    *users, last = passwords_text(access(ROLES, admin="op"), TrinoService("charts", "a password")).splitlines()
    name, _, hashed = last.partition(":")
    assert (users, name) == ([f"admin:{HASH}"], "charts")
    assert matches("a password", hashed)
    assert not matches("another", hashed)


def test_no_user_has_the_name_of_a_service():
    with pytest.raises(InvalidArgumentError, match=r"users\.charts has the name of a program"):
        rules_text(access(ROLES, charts="op"), TrinoService("charts", "a password"))
