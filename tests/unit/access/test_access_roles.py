"""The file of users and roles: what it may say, what each role reads, and the error for everything else."""

from __future__ import annotations

import datetime

import pytest

from pydelta.api.access.conditions import Comparison, ConditionError, parse_condition
from pydelta.api.access.passwords import Passwords, hash_password, is_password_hash, matches
from pydelta.api.access.roles import Access, Grant, Mask
from pydelta.errors import InvalidArgumentError

HASH = "1000:" + "ab" * 16 + ":" + "cd" * 32
ROLES = {
    "operator": {"admin": True},
    "analyst": {
        "tables": ["lake.orders", "sales.*"],
        "filters": {"lake.orders": "region = 'EU'"},
        "masks": {"lake.orders": {"Customer": "hash", "card": {"constant": "hidden"}}},
    },
    "all": {"tables": ["*"], "masks": {"lake.orders": {"note": "null"}}},
    "none": {},
}
USERS = {name: {"role": name, "password": HASH} for name in ROLES}


def access(roles=ROLES, users=USERS, **more):
    return Access.parse({"roles": roles, "users": users, **more}, "users.toml", {"SET": "secret"})


@pytest.mark.parametrize(
    ("role", "table", "expected"),
    [
        ("operator", "any.thing", Grant()),
        ("analyst", "lake.items", None),
        ("analyst", "sales.x", Grant()),
        ("analyst", "SALES.X", Grant()),
        ("analyst", "sales_symlink.x", Grant()),
        ("analyst", "sales_more.x", None),
        ("analyst", "_symlink.x", None),
        ("all", "any.thing", Grant()),
        ("all", "lake.orders", Grant(masks={"note": Mask("null")})),
        ("all", "lake_iceberg.orders", Grant(masks={"note": Mask("null")})),
        ("none", "lake.orders", None),
    ],
)
def test_a_role_sees_the_tables_that_it_names_under_each_of_their_names(role, table, expected):
    assert access().users[role].role.grant(*table.split(".")) == expected


@pytest.mark.parametrize("database", ["lake", "lake_symlink", "LAKE_iceberg"])
def test_filters_and_masks_are_those_of_the_table_under_each_of_its_names(database):
    found = access().users["analyst"].role.grant(database, "Orders")
    assert found.filters == (Comparison("region", "=", ("EU",)),)
    assert found.masks == {"customer": Mask("hash"), "card": Mask("constant", "hidden")}
    assert not found.is_whole


def test_databases_without_a_table_of_the_role_are_not_seen():
    role = access().users["analyst"].role
    assert [role.sees_database(name) for name in ("lake", "sales", "lake_symlink", "hidden")] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 'x'", [("a", "=", ("x",))]),
        ("a = 'it''s'", [("a", "=", ("it's",))]),
        ("a != 1 and B >= -2", [("a", "<>", (1,)), ("B", ">=", (-2,))]),
        ('"a b" <> TRUE AND `c``d` < 3', [("a b", "<>", (True,)), ("c`d", "<", (3,))]),
        ("day <= DATE '2024-02-29'", [("day", "<=", (datetime.date(2024, 2, 29),))]),
        ("a IN ('x', 'y')", [("a", "IN", ("x", "y"))]),
    ],
)
def test_a_condition_is_comparisons_with_constants_joined_by_and(text, expected):
    assert [(one.column, one.operator, one.values) for one in parse_condition(text)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "a =", "a = b", "a = 1 OR b = 2", "NOT a = 1", "a = NULL", "a IS NULL", "a IN ()", "a IN (1, 'x')",
        "a LIKE 'x'", "a = 1.5", "a = 1e3", "lower(a) = 'x'", "a = 'x", "a = 1; DROP TABLE t", "a = 1 -- x",
        "a = 9223372036854775808", "a = DATE '2024-02-30'", "a = DATE '20240201'", "a BETWEEN 1 AND 2", "1 = 1",
        "a = (SELECT 1)", "a = 1 AND", "a.b = 1",
        "and = 1", "a = $1",
    ],
)  # fmt: skip
def test_another_condition_is_refused(text):
    with pytest.raises(ConditionError):
        parse_condition(text)


def wrong(change):
    roles, users = {"r": {"tables": ["lake.t"]}}, {"u": {"role": "r", "password": HASH}}
    change(roles, users)
    with pytest.raises(InvalidArgumentError) as caught:
        access(roles, users)
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r, u: u.clear(), "users names no user"),
        (lambda r, u: u["u"].update(role="x"), "users.u.role is 'x'"),
        (lambda r, u: u["u"].pop("password"), "users.u needs either password or password-variable"),
        (lambda r, u: u["u"].update(password="secret"), "users.u.password is not the hash of a password"),
        (lambda r, u: u["u"].update(more=1), "users.u.more is not known"),
        (lambda r, u: u.update({"a:b": u["u"]}), 'users."a:b" is not a name'),
        (lambda r, u: r.update({"a b": {}}), 'roles."a b" is not a name'),
        (lambda r, u: r["r"].update(tabels=[]), "roles.r.tabels is not known"),
        (lambda r, u: r["r"].update(tables="lake.t"), "roles.r.tables is not a list"),
        (lambda r, u: r["r"].update(tables=["Lake.t"]), "roles.r.tables has 'Lake.t'"),
        (lambda r, u: r["r"].update(tables=["t"]), "roles.r.tables has 't'"),
        (lambda r, u: r["r"].update(tables=["*.t"]), "roles.r.tables has '*.t'"),
        (lambda r, u: r["r"].update(tables=["lake_symlink.t"]), "which is another entry of a table"),
        (lambda r, u: r["r"].update(admin="yes"), "roles.r.admin is 'yes'"),
        (lambda r, u: r["r"].update(admin=True), "roles.r.tables restricts a role that may do everything"),
        (lambda r, u: r["r"].update(filters={"lake.x": "a = 1"}), 'roles.r.filters."lake.x" is a table that the role'),
        (lambda r, u: r["r"].update(filters={"lake.*": "a = 1"}), 'filters."lake.*" is not the name of one table'),
        (lambda r, u: r["r"].update(filters={"lake.t": "a = b"}), 'roles.r.filters."lake.t" is not a condition'),
        (lambda r, u: r["r"].update(filters={"lake.t": 1}), 'roles.r.filters."lake.t" is 1'),
        (lambda r, u: r["r"].update(masks={"lake.t": {}}), 'roles.r.masks."lake.t" masks no column'),
        (lambda r, u: r["r"].update(masks={"lake.t": {"a": "blur"}}), "roles.r.masks.\"lake.t\".a is 'blur'"),
        (lambda r, u: r["r"].update(masks={"lake.t": {"a": {"constant": 1.5}}}), "not a mask that every engine has"),
        (lambda r, u: r["r"].update(masks={"lake.t": {"a": "hash", "A": "null"}}), "is there twice"),
        (lambda r, u: r["r"].update(masks={"lake.x": {"a": "hash"}}), 'masks."lake.x" is a table that the role'),
    ],
)  # fmt: skip
def test_an_error_names_the_file_and_the_place(change, said):
    text = wrong(change)
    assert "users.toml" in text
    assert said in text


def test_a_password_that_is_not_a_hash_is_not_shown():
    assert "hunter2" not in wrong(lambda roles, users: users["u"].update(password="hunter2"))


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"missing\.toml cannot be read"):
        Access.read(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("[users")
    with pytest.raises(InvalidArgumentError, match=r"bad\.toml is not TOML"):
        Access.read(tmp_path / "bad.toml")


def test_a_password_comes_from_the_file_or_from_a_variable():
    found = access(users={"ann": {"role": "none", "password-variable": "SET"}})
    assert found.check("ann", "secret").name == "ann"
    assert found.check("ann", "secret").name == "ann", "known from before"
    assert [found.check(*given) for given in (("ann", "other"), ("ann", ""), ("eve", "secret"))] == [None] * 3
    assert "secret" not in repr(found.users)
    with pytest.raises(InvalidArgumentError, match="which is not set"):
        access(users={"ann": {"role": "none", "password-variable": "UNSET"}})


def test_a_hash_is_of_one_password():
    hashed = hash_password("correct horse")
    assert is_password_hash(hashed)
    assert matches("correct horse", hashed)
    assert not matches("Correct horse", hashed)
    assert hash_password("correct horse") != hashed
    assert not any(map(is_password_hash, ["", "x", "1:aa:bb", "99999999:" + hashed.partition(":")[2]]))
    assert not Passwords({}).check("nobody", "")
