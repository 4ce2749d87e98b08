"""A user whose role is limited in sessions as the server makes them: what she reads, and everything that is denied."""

from __future__ import annotations

import hashlib
import random
from functools import partial

import pytest
from served import Refused, Served

from pydelta.api.access.roles import Access
from pydelta.api.server.spark.checks import install_checks
from pydelta.api.server.spark.gate import Gate
from pydelta.engines.spark.jvm import Jvm

ROLES = {
    "op": {"admin": True},
    "an": {
        "tables": ["guarded.orders", "guarded.items", "guarded.odd", "shared.*"],
        "filters": {"guarded.orders": "region = 'EU' AND id IN (1, 2, 3)", "guarded.odd": "n = 'x'"},
        "masks": {
            "guarded.orders": {"customer": "hash", "phone": "last-4", "note": "null", "card": {"constant": "hidden"}}
        },
    },
}
ORDERS = [
    (1, "EU", "ada", "12345678", "n", "c"),
    (2, "US", "bob", "87654321", "n", "c"),
    (3, "EU", None, "123", "n", "c"),
    (9, "EU", "zed", "99", "n", "c"),
]
ADA = hashlib.sha256(b"ada").hexdigest()
SEEN = [f"1|EU|{ADA}|****5678|null|hidden", "3|EU|null|****|null|hidden"]


@pytest.fixture(scope="module")
def guarded(spark):
    """A server with users; gives a function that opens the session of one, and the warehouse."""
    users = {name: {"role": role, "password-variable": "PW"} for name, role in (("admin", "op"), ("ann", "an"))}
    gate = Gate(Access.parse({"roles": ROLES, "users": users}, "users.toml", {"PW": "x"}), (known := {}).get)
    found = Served(spark)
    install_checks(found.sessions, gate)
    found.sessions.gate = gate

    def client(user):
        made = found.client()
        known[str(made.session.sessionUUID())] = user
        return made

    admin = client("admin")
    values = ", ".join("(" + ", ".join("NULL" if v is None else repr(v) for v in row) + ")" for row in ORDERS)
    for text in (
        "CREATE DATABASE guarded", "CREATE DATABASE shared", "CREATE DATABASE hidden",
        "CREATE TABLE guarded.orders (id INT, region STRING, customer STRING, phone STRING, note STRING, card STRING) "
        "USING delta PARTITIONED BY (region)",
        f"INSERT INTO guarded.orders SELECT * FROM VALUES {values}",
        "CREATE TABLE guarded.items (id INT) USING delta", "INSERT INTO guarded.items VALUES (1), (2)",
        "CREATE TABLE guarded.secret (s STRING) USING delta", "INSERT INTO guarded.secret VALUES ('top')",
        "CREATE TABLE guarded.odd (n INT) USING delta", "CREATE TABLE shared.t (a INT) USING delta",
        "CREATE VIEW guarded.view AS SELECT * FROM guarded.secret",
        "CREATE VIEW shared.view AS SELECT * FROM guarded.secret",
    ):  # fmt: skip
        admin.rows(text)
    client.place = str(Jvm.of(found.root).catalog.getDatabaseMetadata("guarded").locationUri()).removeprefix("file:")
    yield client
    for name in ("guarded", "shared", "hidden"):
        admin.rows(f"DROP DATABASE {name} CASCADE")
    found.close()


@pytest.fixture(scope="module")
def ann(guarded):
    return guarded("ann")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT * FROM guarded.orders", SEEN),
        ("TABLE guarded.orders", SEEN),
        ("SELECT count(*), max(customer) FROM guarded.orders", [f"2|{ADA}"]),
        ("SELECT a.id, b.id FROM guarded.orders a JOIN guarded.orders b ON a.id = b.id", ["1|1", "3|3"]),
        ("WITH x AS (SELECT * FROM guarded.orders) SELECT id FROM x WHERE id IN (SELECT id FROM guarded.items)", ["1"]),
        ("SELECT * FROM guarded.orders VERSION AS OF 1", SEEN),
        ("SELECT * FROM guarded.orders@v1", SEEN),
        ("SELECT * FROM guarded.orders WHERE customer = 'ada'", []),
        ("SELECT id FROM guarded.orders WHERE region = 'US' OR id = 9", []),
        ("SELECT region, count(*) FROM guarded.orders GROUP BY region HAVING count(*) > 0", ["EU|2"]),
        ("SELECT id FROM guarded.items UNION ALL SELECT id FROM guarded.orders", ["1", "1", "2", "3"]),
        ("SELECT (SELECT max(id) FROM guarded.items), EXISTS(SELECT 1 FROM guarded.items)", ["2|true"]),
        ("SELECT x FROM guarded.items LATERAL VIEW explode(array(1)) y AS x", ["1", "1"]),
        ("SELECT id, row_number() OVER (ORDER BY id) FROM guarded.orders", ["1|1", "3|2"]),
        ("SELECT upper('a'), 1 + 1", ["A|2"]),
        ("SELECT a FROM shared.t", []),
        ("SHOW DATABASES", ["guarded", "shared"]),
        ("SHOW TABLES IN guarded", ["guarded|items|false", "guarded|odd|false", "guarded|orders|false"]),
        ("SHOW TABLES IN guarded LIKE 'i*'", ["guarded|items|false"]),
        ("SHOW TABLES IN shared", ["shared|t|false"]),
        ("SHOW COLUMNS IN guarded.items", ["id"]),
        ("DESCRIBE guarded.items", ["id|int|null"]),
        ("USE default", []),
    ],
)
def test_she_reads_the_tables_of_her_role(ann, text, rows):
    assert sorted(ann.rows(text)) == sorted(rows)


DENIED = (
    """
SELECT * FROM guarded.secret;SELECT * FROM guarded.nothing;SELECT * FROM hidden.x;SELECT * FROM guarded.view
SELECT * FROM shared.view;SELECT * FROM delta.`$PLACE/secret`;SELECT * FROM delta.`$PLACE/orders`
SELECT * FROM parquet.`$PLACE/orders`;SELECT * FROM text.`/etc/passwd`;SELECT (SELECT max(s) FROM guarded.secret)
SELECT id FROM guarded.items WHERE EXISTS (SELECT 1 FROM guarded.secret)
WITH x AS (SELECT * FROM guarded.secret) SELECT 1
SELECT id FROM guarded.items WHERE id IN (SELECT length(s) FROM guarded.secret)
SELECT * FROM IDENTIFIER('guarded.secret')
SELECT * FROM guarded.orders o, LATERAL (SELECT max(s) FROM guarded.secret);SELECT IDENTIFIER('upper')('a')
SELECT * FROM table_changes('guarded.orders', 0);SELECT * FROM table_changes_by_path('$PLACE/orders', 0)
SELECT * FROM guarded.orders CHANGES FROM VERSION 0;SELECT * FROM STREAM guarded.orders
SELECT _metadata.file_path FROM guarded.orders;SELECT _metadata FROM guarded.items
SELECT reflect('java.lang.System', 'getenv', 'PATH');SELECT try_reflect('java.lang.System', 'getenv', 'PATH')
SELECT * FROM VALUES (java_method('java.lang.System', 'getenv', 'PATH'));SELECT from_protobuf(x'00', 'm', '/etc/passwd')
SELECT system.builtin.reflect('java.lang.System', 'getenv', 'PATH');SELECT guarded.some_function(1)
SELECT * FROM guarded.orders TIMESTAMP AS OF (SELECT max(s) FROM guarded.secret)
EXPLAIN SELECT * FROM guarded.orders;DESCRIBE HISTORY guarded.orders;DESCRIBE DETAIL guarded.orders
DESCRIBE EXTENDED guarded.orders;DESCRIBE guarded.secret;DESCRIBE QUERY SELECT * FROM guarded.secret
DESCRIBE DATABASE guarded;SHOW CREATE TABLE guarded.orders;SHOW TBLPROPERTIES guarded.orders
SHOW PARTITIONS guarded.orders
SHOW TABLE EXTENDED IN guarded LIKE '*';SHOW TABLES IN hidden;SHOW VIEWS IN guarded;SHOW FUNCTIONS
SHOW COLUMNS IN guarded.secret
USE hidden;INSERT INTO guarded.items VALUES (3);INSERT INTO guarded.items SELECT length(s) FROM guarded.secret
INSERT OVERWRITE DIRECTORY '/tmp/never' USING csv SELECT 1;UPDATE guarded.items SET id = 1;DELETE FROM guarded.items
MERGE INTO guarded.items t USING guarded.items s ON t.id = s.id WHEN MATCHED THEN DELETE;TRUNCATE TABLE guarded.items
CREATE TABLE guarded.made (id INT) USING delta;CREATE TABLE shared.made AS SELECT * FROM guarded.orders
CREATE TEMPORARY VIEW tv AS SELECT 1;CREATE VIEW shared.vv AS SELECT 1;CREATE FUNCTION f AS 'x';CREATE DATABASE mine
CREATE TEMPORARY FUNCTION f() RETURNS INT RETURN (SELECT max(length(s)) FROM guarded.secret);DROP TABLE guarded.items
ALTER TABLE guarded.items ADD COLUMN x INT;OPTIMIZE guarded.items;VACUUM guarded.items
RESTORE TABLE guarded.items TO VERSION AS OF 0;GENERATE symlink_format_manifest FOR TABLE guarded.items
CACHE TABLE guarded.items;REFRESH TABLE guarded.items;SET spark.sql.ansi.enabled=false;SET;RESET;ADD JAR '/tmp/x.jar'
BEGIN SELECT 1\\; END;EXECUTE IMMEDIATE 'SELECT * FROM guarded.secret';DECLARE VARIABLE x INT DEFAULT 1;CALL sys.x()
PYDELTA RELATION {"table": null, "path": "$PLACE/secret", "options": {}, "streaming": false}
PYDELTA RELATION {"table": "guarded.secret", "path": null, "options": {}, "streaming": false}
PYDELTA RELATION {"table": "guarded.orders", "path": null, "options": {"readChangeFeed": "true"}, "streaming": false}
PYDELTA RELATION {"table": "guarded.orders", "path": null, "options": {}, "streaming": true}
PYDELTA COMMAND abc;PYDELTA NAMES {}
""".strip()
    .replace("\n", ";")
    .replace("\\;", "\0")
    .split(";")
)
DENIED = [text.replace("\0", ";") for text in DENIED]


@pytest.mark.parametrize("text", DENIED)
def test_everything_else_is_denied(guarded, ann, text):
    with pytest.raises(Refused) as caught:
        ann.rows(text.replace("$PLACE", guarded.place))
    assert (caught.value.condition, caught.value.state) == ("DELTA_ACCESS_DENIED", "42501"), str(caught.value)


def test_a_name_is_denied_in_the_same_words_whether_or_not_there_is_a_table(ann):
    said = []
    for name in ("guarded.secret", "guarded.nothing", "guarded.view"):
        with pytest.raises(Refused) as caught:
            ann.rows(f"SELECT * FROM {name}")
        said.append(str(caught.value).replace(name, "NAME"))
    assert len(set(said)) == 1, said


def test_a_rule_that_does_not_fit_the_table_denies_the_table(ann):
    with pytest.raises(Refused, match="has the type int, but is compared with a text"):
        ann.rows("SELECT * FROM guarded.odd")


@pytest.mark.parametrize("condition", ["CAST(phone AS INT) > 0", "CAST(region AS INT) > 0", "1 / (id - 2) > 0"])
def test_an_error_shows_no_value_of_a_hidden_row(ann, condition):
    """A condition that fails on a row is evaluated for the rows that she sees, with what she sees of them."""
    try:
        ann.rows(f"SELECT id FROM guarded.orders WHERE {condition}")
    except Refused as error:
        for hidden in ("87654321", "'US'", "12345678", "'99'", "DIVIDE_BY_ZERO"):
            assert hidden not in str(error), str(error)


def test_a_session_of_nobody_known_reads_nothing(guarded):
    stranger = guarded("nobody")
    for text in ("SELECT * FROM guarded.items", "SELECT * FROM guarded.secret", "SET"):
        with pytest.raises(Refused, match="Access denied"):
            stranger.rows(text)


def test_an_admin_reads_and_changes_everything(guarded):
    admin = guarded("admin")
    assert admin.rows("SELECT s FROM guarded.view") == ["top"]
    assert len(admin.rows("SELECT * FROM guarded.orders")) == len(ORDERS)
    admin.rows("INSERT INTO shared.t VALUES (1)")
    admin.rows("DELETE FROM shared.t")


def test_a_plan_that_passed_no_parser_is_checked_before_it_runs(guarded, ann):
    """As a DataFrame of Spark Connect is: the analyzer's check alone stands before it."""
    with pytest.raises(Exception, match="DELTA_ACCESS_DENIED"):
        ann.session.read().format("text").load("/etc/hostname").collectAsList()
    with pytest.raises(Exception, match="DELTA_ACCESS_DENIED"):
        ann.session.table("guarded.secret").collectAsList()


def test_random_roles_over_random_rows_show_what_a_model_shows(guarded, spark):
    """The server's filters and masks against plain Python's, over nulls, short texts and foreign letters."""
    chosen = random.Random(41)
    texts = [None, "", "abcd", "abcde", "0123456789", "Straße 12", "日本語のテキスト", "EU", "eu", "it's"]
    masks = {
        "null": lambda text: None,
        "hash": lambda text: None if text is None else hashlib.sha256(text.encode()).hexdigest(),
        "last-4": lambda text: None if text is None else "****" + (text[-4:] if len(text) > 4 else ""),
        "fixed": lambda text: "it's fixed",
    }
    operators = {
        "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b
    }  # fmt: skip
    client, roles = guarded("admin"), {}
    client.rows("CREATE TABLE shared.random (id INT, a STRING, b STRING) USING delta")
    rows = [(chosen.choice([None, *range(5)]), chosen.choice(texts), chosen.choice(texts)) for _ in range(80)]
    spark.createDataFrame(rows, "id int, a string, b string").write.format("delta").mode("append").save(
        guarded.place.replace("guarded", "shared") + "/random"
    )
    from pydelta.api.server.spark.limits import limited_plan

    for number in range(12):
        column, operator = chosen.choice("ab"), chosen.choice([*operators])
        value = chosen.choice([text for text in texts if text is not None])
        picked = {name: chosen.choice([*masks]) for name in chosen.sample("ab", chosen.randint(0, 2))}
        table = {"filters": {"shared.random": f"{column} {operator} '" + value.replace("'", "''") + "'"}}
        if picked:
            table["masks"] = {
                "shared.random": {
                    name: {"constant": "it's fixed"} if kind == "fixed" else kind for name, kind in picked.items()
                }
            }
        given = {
            "roles": {"r": {"tables": ["shared.random"], **table}},
            "users": {"u": {"role": "r", "password-variable": "P"}},
        }
        roles[number] = Access.parse(given, "users.toml", {"P": "x"}).users["u"].role
        expected = []
        for id_, a, b in rows:
            row = {"a": a, "b": b}
            if row[column] is not None and operators[operator](row[column].encode(), value.encode()):
                shown = {name: masks[picked[name]](text) if name in picked else text for name, text in row.items()}
                expected.append((id_, shown["a"], shown["b"]))
        session = spark.newSession()
        text = "SELECT id, a, b FROM shared.random"
        parse = partial(Jvm.of(session).parse, text)
        plan = limited_plan(session, text, parse, roles[number], "mark")
        found = [tuple(row) for row in Jvm.of(session).frame(plan).collect()]
        assert sorted(found, key=repr) == sorted(expected, key=repr), (table, number)
