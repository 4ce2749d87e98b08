"""Requests over several tables: mappings, clones first, other places, the register, and the list of erased keys."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pydelta.api.console.command_line import make_app
from pydelta.api.python.local import LocalTable, open_table
from pydelta.commands.run import Context
from pydelta.engines.arrow.engine import ArrowEngine
from pydelta.errors import BindError, DeltaError, InvalidArgumentError, TableNotFoundError
from pydelta.log import DeltaLog
from pydelta.tools.cli.erase import add_erase
from pydelta.tools.erasure.elsewhere import search_places
from pydelta.tools.erasure.mapping import read_mapping
from pydelta.tools.erasure.register import Register
from pydelta.tools.erasure.running import ErasureRequest, choose, erase_all, look_at
from pydelta.tools.erasure.suppression import add_to_list, digest_of_key, salt_of

KEY = "ann@example.org"


@pytest.fixture
def lake(tmp_path):
    """Three tables: two with the key in columns of different names, one without."""
    LocalTable.create(tmp_path / "orders", pa.table({"email": [KEY, "bob"], "n": [1, 2]}))
    LocalTable.create(tmp_path / "visits", pa.table({"visitor": [KEY, "eve"], "id": [7, 8]}))
    LocalTable.create(tmp_path / "days", pa.table({"day": [1, 2]}))
    (tmp_path / "people.csv").write_text(f"email,customer\n{KEY},7\n")
    return tmp_path


def contexts(lake, *names):
    logs = {name: DeltaLog.for_table(str(lake / name)) for name in names}
    return {name: Context(log, ArrowEngine(log)) for name, log in logs.items()}


def erase(*arguments):
    app = make_app("pydelta", "Test.")
    add_erase(app)

    @app.command()
    def other() -> None:
        """Do nothing: a lone command would lose its name."""

    return CliRunner().invoke(app, ["erase", *map(str, arguments)])


def rows_of(path):
    return Counter(tuple(row.values()) for row in open_table(path).scan().to_pylist())


def mapping_of(lake, text):
    file = lake / "map.toml"
    file.write_text(text)
    return str(file)


def test_a_mapping_says_which_column_holds_which_key(lake):
    mapping = mapping_of(lake, '[orders]\nemail = "email"\n[visits]\nvisitor = "email"\nid = "customer"\n')
    request = ErasureRequest(keys_file=str(lake / "people.csv"), mapping_file=mapping, history="drop")
    found = choose(request, contexts(lake, "orders", "visits", "days"))
    assert {target.name: target.keys for target in found.chosen} == {
        "orders": {"email": [KEY]},
        "visits": {"visitor": [KEY], "id": ["7"]},
    }
    assert found.passed_over == {"days": "the mapping does not name it"}
    done = erase_all(look_at(found.chosen, request), request)
    assert all(outcome.erasure.is_proven for outcome in done)
    assert rows_of(lake / "orders") == Counter([("bob", 2)])
    assert rows_of(lake / "visits") == Counter([("eve", 8)])


def test_without_a_mapping_tables_of_a_database_may_lack_columns_and_named_ones_may_not(lake):
    request = ErasureRequest(keys_file=str(lake / "people.csv"), column="email", history="drop")
    found = choose(request, contexts(lake, "orders", "visits", "days"))
    assert [target.name for target in found.chosen] == ["orders"]
    assert found.passed_over == {"visits": "it has none of the columns", "days": "it has none of the columns"}
    named = choose(request, contexts(lake, "orders", "days"), named=["orders", "days"])
    with pytest.raises(BindError, match="no column email"):
        look_at(named.chosen, request)


WRONG_MAPPINGS = {
    "no table": ("", "names no table"),
    "no TOML": ("[orders", "cannot be read"),
    "no columns": ("[orders]\n", "of orders as text"),
    "a number": ("[orders]\nemail = 1\n", "of orders as text"),
    "an unknown key": ('[orders]\nemail = "mail"\n', "the key mail, which the request does not have"),
    "an unknown table": ('[order]\nemail = "email"\n', "names order, which is not among"),
}


@pytest.mark.parametrize("case", WRONG_MAPPINGS)
def test_a_mapping_that_does_not_fit_is_refused(lake, case):
    text, message = WRONG_MAPPINGS[case]
    request = ErasureRequest(keys_file=str(lake / "people.csv"), mapping_file=mapping_of(lake, text), history="drop")
    with pytest.raises(InvalidArgumentError, match=message):
        choose(request, contexts(lake, "orders", "visits"))


def test_a_mapping_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        read_mapping(str(tmp_path / "no such"))


def test_keys_come_in_one_way(lake):
    for request in (
        ErasureRequest(),
        ErasureRequest(keys_file="a", where="b"),
        ErasureRequest(where="b", column="c"),
        ErasureRequest(where="b", mapping_file="m"),
    ):
        with pytest.raises(InvalidArgumentError):
            choose(request, contexts(lake, "orders"))


def test_clones_come_before_the_tables_whose_files_they_read(lake):
    source = open_table(lake / "orders")
    source.clone(str(lake / "clone"), shallow=True)
    open_table(lake / "clone").clone(str(lake / "again"), shallow=True)
    request = ErasureRequest(keys_file=str(lake / "people.csv"), column="email", history="drop")
    targets = choose(request, contexts(lake, "orders", "clone", "again")).chosen
    assert [outcome.target.name for outcome in look_at(targets, request)] == ["again", "clone", "orders"]


def test_a_table_that_fails_does_not_stop_the_others(lake, monkeypatch):
    (lake / "keys.csv").write_text(f"email\n{KEY}\n")
    open_table(lake / "orders").clone(str(lake / "aside"))
    request = ErasureRequest(keys_file=str(lake / "keys.csv"), history="drop")
    targets = choose(request, contexts(lake, "orders", "aside")).chosen
    planned = look_at(targets, request)
    LocalTable.create(lake / "orders", {"email": "string"}, properties={"delta.appendOnly": "true"}, mode="replace")
    done = erase_all(planned, request)
    assert isinstance(done[0].error, DeltaError)
    assert done[0].erasure is None
    assert done[1].erasure.is_proven


def test_several_tables_by_the_command_line_with_other_places(lake):
    logs = lake / "events"
    logs.mkdir()
    (logs / "app-1").write_text(json.dumps({"Event": "SQL", "text": f"DELETE FROM t WHERE email = '{KEY}'"}))
    (logs / "app-2.gz").write_bytes(gzip.compress(f"a line of {KEY}".encode()))
    with pa.CompressedOutputStream(str(logs / "app-3.zstd"), "zstd") as stream:
        stream.write(b"x" * 40_000_000 + b" " + KEY.encode() + b"\n")
    (logs / "app-4.lz4").write_bytes(b"?")
    (logs / "app-5.gz").write_bytes(b"this is no gzip")
    (logs / "app-6").write_text("nothing of hers: joann@example.org.invalid-but-longer")
    pq.write_table(pa.table({"text": [f"for {KEY}"]}), logs / "outbox.parquet")
    mapping = mapping_of(lake, f'["{lake}/orders"]\nemail = "email"\n["{lake}/visits"]\nvisitor = "email"\n')
    how = ("--keys", lake / "people.csv", "--map", mapping, "--search", logs)
    planned = erase(lake / "orders", lake / "visits", *how, "--dry-run", "--json")
    assert [plan["found"]["live"]["rows"] for plan in json.loads(planned.output)] == [1, 1]
    done = erase(lake / "orders", lake / "visits", *how, "--history", "drop", "--yes", "--json")
    assert done.exit_code == 4, done.output
    document = json.loads(done.output)
    assert [table["status"] for table in document["tables"]] == ["proven", "proven"]
    [place] = document["elsewhere"]
    assert place["files"] == 7
    assert place["found"] == ["app-1", "app-2.gz", "app-3.zstd", "outbox.parquet"]
    assert place["notRead"] == ["app-4.lz4", "app-5.gz"]
    assert document["status"] == "incomplete"
    assert KEY not in done.output
    by_email = ErasureRequest(keys_file=str(lake / "people.csv"), column="email")
    clean = search_places([str(lake / "days")], choose(by_email, contexts(lake, "orders")).chosen)
    assert clean[0].is_clean


def test_a_request_waits_in_the_register_until_it_is_run(lake):
    register = lake / "ops" / "erasures"
    (lake / "keys.txt").write_text(f"{KEY}\n")
    how = ("--keys", lake / "keys.txt", "--column", "email", "--register", register)
    refused = erase(lake / "orders", *how, "--deadline", "2026-12-31")
    assert "needs its consent now" in str(refused.exception)
    assert "is not a day" in str(erase(lake / "orders", *how, "--history", "drop", "--deadline", "soon").exception)
    late = erase(lake / "orders", *how, "--history", "drop", "--deadline", "2026-12-31")
    assert late.exit_code == 0, late.output
    (lake / "gone.txt").write_text("eve")
    early = ("--keys", lake / "gone.txt", "--column", "visitor", "--history", "drop", "--deadline", "2026-12-01")
    assert erase(lake / "visits", *early, "--register", register).exit_code == 0
    assert rows_of(lake / "orders")[(KEY, 1)] == 1
    listed = json.loads(erase("--due", "--register", register, "--dry-run", "--json").output)
    assert [row["deadline"] for row in listed] == ["2026-12-01", "2026-12-31"]
    assert "Add --yes" in str(erase("--due", "--register", register).exception)
    (lake / "gone.txt").unlink()
    ran = erase("--due", "--register", register, "--yes", "--report", lake / "reports")
    assert ran.exit_code == 4
    assert rows_of(lake / "orders") == Counter([("bob", 2)])
    states = {row["deadline"]: (row["state"], row["report"]) for row in open_table(register).scan().to_pylist()}
    assert states[dt.date(2026, 12, 1)] == ("failed", None)
    state, report = states[dt.date(2026, 12, 31)]
    assert state == "proven"
    assert json.loads(Path(report).read_text())["status"] == "proven"
    (lake / "gone.txt").write_text("eve")
    assert erase("--due", "--register", register, "--yes").exit_code == 0
    assert rows_of(lake / "visits") == Counter([(KEY, 7)])
    assert "Nothing is due" in erase("--due", "--register", register, "--yes", "--dry-run").output
    assert KEY not in str(open_table(register).scan().to_pylist())


def test_a_request_that_is_run_at_once_is_noted(lake):
    (lake / "keys.txt").write_text(f"{KEY}\n")
    how = ("--keys", lake / "keys.txt", "--column", "email", "--history", "drop", "--yes")
    assert erase(lake / "orders", *how, "--register", lake / "register").exit_code == 0
    [row] = open_table(lake / "register").scan().to_pylist()
    assert row["state"] == "proven"
    assert row["tables"] == [str(lake / "orders")]


def test_a_register_needs_a_file_of_keys_and_to_be_there(lake):
    with pytest.raises(InvalidArgumentError, match="holds no keys"):
        Register(str(lake / "r")).file(ErasureRequest(where="email = 'x'", history="drop"), tables=["t"])
    with pytest.raises(TableNotFoundError, match="no register"):
        Register(str(lake / "r")).due()
    assert "Name its table" in str(erase("--due").exception)
    by_condition = erase(
        lake / "orders", "--where", f"email = '{KEY}'", "--history", "drop", "--yes", "--register", "r"
    )
    assert "holds no keys" in str(by_condition.exception)
    assert rows_of(lake / "orders")[(KEY, 1)] == 1


def test_erased_keys_are_added_to_a_list_by_their_digests(lake):
    suppressed = lake / "suppressed"
    mapping = mapping_of(
        lake, f'["{lake}/orders"]\nemail = "email"\nn = "customer"\n["{lake}/visits"]\nvisitor = "email"\n'
    )
    (lake / "people.csv").write_text(f"email,customer\n{KEY},007\n")
    how = ("--keys", lake / "people.csv", "--map", mapping, "--history", "drop", "--yes", "--suppress", suppressed)
    assert erase(lake / "orders", lake / "visits", *how).exit_code == 0
    table = open_table(suppressed)
    salt = salt_of(table._log.update())
    found = {(row["key"], row["digest"]) for row in table.scan().to_pylist()}
    assert found == {("email", digest_of_key(KEY, salt)), ("customer", digest_of_key("7", salt))}
    assert not any(KEY in str(row) for row in table.scan().to_pylist())
    assert add_to_list(str(suppressed), {"email": [KEY, "new"]}, request="again") == 1
    with pytest.raises(InvalidArgumentError, match="not a suppression list"):
        add_to_list(str(lake / "days"), {"email": ["x"]}, request="r")
