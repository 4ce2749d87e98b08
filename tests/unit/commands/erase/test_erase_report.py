"""Requests and reports of erasures: keys from files, consent, signatures, and a chain that shows what was changed."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from typer.testing import CliRunner

from pydelta.api.console.command_line import make_app
from pydelta.api.python.local import LocalTable
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.tools.cli.erase import add_erase
from pydelta.tools.erasure.report import verify
from pydelta.tools.erasure.requests import keys_of_condition, keys_of_file

KEYS = ["ann@example.org", "bob"]


@pytest.fixture
def table(tmp_path):
    people = pa.table({"email": [*KEYS, "eve", "zoe"], "id": [1, 2, 3, 4]})
    return LocalTable.create(tmp_path / "people", people)


@pytest.fixture
def signing_key(tmp_path):
    key = ed25519.Ed25519PrivateKey.generate()
    file = tmp_path / "erasure.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public = tmp_path / "erasure.pub"
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return file, public


def erase(*arguments):
    app = make_app("pydelta", "Test.")
    add_erase(app)

    @app.command()
    def other() -> None:
        """Do nothing: a lone command would lose its name."""

    return CliRunner().invoke(app, ["erase", *map(str, arguments)])


def keys_in(tmp_path, name="people.txt", text="ann@example.org\nbob"):
    file = tmp_path / name
    file.write_text(text)
    return file


def place_of(table):
    return table._log.uri.removeprefix("file://")


def test_an_erasure_with_a_signed_report(table, tmp_path, signing_key):
    private, public = signing_key
    reports = tmp_path / "reports"
    keys = keys_in(tmp_path)
    how = ("--keys", keys, "--column", "email", "--history", "drop", "--yes", "--report", reports, "--sign", private)
    done = erase(place_of(table), *how)
    assert done.exit_code == 0, done.output
    assert "2 rows erased, 1 files deleted, versions 0 to 1 given up." in done.output
    assert "found no key" in done.output
    assert Counter(table.scan().to_pydict()["email"]) == Counter(["eve", "zoe"])
    [file] = [path for path in reports.iterdir() if path.suffix == ".json"]
    for text in (file.read_text(), file.with_suffix(".html").read_text()):
        assert not any(key in text for key in KEYS)
    document = json.loads(file.read_text())
    assert document["status"] == "proven"
    assert document["tables"][0]["rows"] == {"erased": 2, "hidden": 0, "copied": 2}
    assert len(document["tables"][0]["files"]["removed"]) == 1
    assert len(document["tables"][0]["request"]["keys"]["email"]) == 2
    assert verify(file) == verify(reports) == verify(reports, public_key=public) == []
    assert erase("--verify", reports, "--public-key", public).exit_code == 0


def test_every_change_of_a_report_is_noticed(table, tmp_path, signing_key):
    private, public = signing_key
    reports = tmp_path / "reports"
    for key in KEYS:
        done = erase(place_of(table), "--where", f"email = '{key}'", "--history", "drop", "--yes", "--report", reports,
                     "--sign", private)  # fmt: skip
        assert done.exit_code == 0, done.output
    first, second = sorted(path for path in reports.iterdir() if path.suffix == ".json")
    assert json.loads(second.read_text())["previous"]["file"] == first.name
    data = second.read_bytes()
    positions = [place for place, byte in enumerate(data) if chr(byte).isalnum()]
    for place in positions[:: max(1, len(positions) // 60)]:
        changed = bytearray(data)
        changed[place] ^= 1
        second.write_bytes(changed)
        assert verify(second, public_key=public), bytes(changed[max(0, place - 20) : place + 20])
    second.write_bytes(data)
    assert verify(reports) == []
    first.write_text(first.read_text() + " ")
    assert verify(reports) == [
        f"{first.name}: it was changed.",
        f"{second.name}: the report before it, {first.name}, was changed, put in or taken out.",
    ]
    first.unlink()
    assert verify(reports) == [f"{second.name}: the report before it, {first.name}, is missing."]
    assert erase("--verify", reports).exit_code == 4


def test_a_report_of_another_key_and_one_without_are_told_apart(table, tmp_path, signing_key):
    _, public = signing_key
    reports = tmp_path / "reports"
    done = erase(place_of(table), "--where", "email = 'bob'", "--history", "drop", "--yes", "--report", reports)
    assert done.exit_code == 0, done.output
    assert verify(reports) == []
    assert [text.partition(": ")[2] for text in verify(reports, public_key=public)] == ["it is not signed."]


def test_a_dry_run_shows_the_plan_and_changes_nothing(table, tmp_path):
    done = erase(place_of(table), "--where", "email IN ('ann@example.org', 'bob')", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "Versions 0 to 0 are given up." in done.output
    assert table.version == 0
    shown = erase(place_of(table), "--where", "email = 'bob'", "--dry-run", "--json")
    [plan] = json.loads(shown.output)
    assert (plan["givesUp"], plan["found"]["live"]["rows"], plan["clones"]) == ([0, 0], 1, [])


REFUSED = {
    "no table": (["--where", "email = 'bob'"], "No table was given"),
    "no keys": (["TABLE"], "Keys are given in one way"),
    "both": (["TABLE", "--where", "email = 'bob'", "--keys", "FILE"], "Keys are given in one way"),
    "lines without a column": (["TABLE", "--keys", "FILE"], "for which column is not said"),
    "a column beside a condition": (
        ["TABLE", "--where", "email = 'bob'", "--column", "id"],
        "names its columns itself",
    ),
    "a policy": (["TABLE", "--where", "email = 'bob'", "--history", "keep"], "must be 'drop', not 'keep'"),
    "no policy": (["TABLE", "--where", "email = 'bob'"], "has to be said"),
    "nobody was asked": (["TABLE", "--where", "email = 'bob'", "--history", "drop"], "nobody was asked"),
    "a condition without keys": (["TABLE", "--where", "id > 1"], "this condition names none"),
    "a key without a report": (["TABLE", "--where", "id = 1", "--sign", "FILE"], "no report to sign"),
    "no file": (["TABLE", "--keys", "/no/such/file.csv"], "cannot be read"),
    "no report": (["--verify", "/no/such/report"], "There is no report"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_why_and_changes_nothing(case, table, tmp_path):
    given, message = REFUSED[case]
    file = keys_in(tmp_path)
    done = erase(*({"TABLE": place_of(table), "FILE": file}.get(part, part) for part in given))
    assert done.exit_code != 0
    assert isinstance(done.exception, DeltaError), done.exception
    assert message in str(done.exception)
    assert done.exception.hint
    assert table.version == 0


def test_a_key_that_is_no_private_key(table, tmp_path):
    file = keys_in(tmp_path, "no.pem", "nothing")
    done = erase(place_of(table), "--where", "email = 'bob'", "--history", "drop", "--yes", "--report",
                 tmp_path / "r", "--sign", file)  # fmt: skip
    assert "no Ed25519 private key" in str(done.exception)


FILES = {
    "people.csv": 'email,id\nann,1\n"b,""o",\n,3\n',
    "people.ndjson": '{"email": "ann", "id": 1}\n\n{"email": "b,\\"o"}\n{"id": 3, "email": null}\n',
}


@pytest.mark.parametrize("name", FILES)
def test_files_with_columns(name, tmp_path):
    file = keys_in(tmp_path, name, FILES[name])
    assert keys_of_file(str(file), None) == {"email": ["ann", 'b,"o'], "id": ["1", "3"]}
    assert keys_of_file(str(file), "id") == {"id": ["1", "3"]}


def test_lines_keep_their_blanks_and_their_last_line(tmp_path):
    file = keys_in(tmp_path, "lines", "\ufeffann \r\n\r\n b\r\nann \r\nend")
    assert keys_of_file(str(file), "who") == {"who": ["ann ", " b", "end"]}


def test_parquet(tmp_path):
    file = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"id": [1, None], "who": ["a", "b"]}), file)
    assert keys_of_file(str(file), None) == {"id": ["1"], "who": ["a", "b"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "who\n"), ("a.ndjson", "[1]\n"), ("a.ndjson", '{"who": 1.5e}'), ("a.ndjson", '{"who": [1]}'),
     ("a.ndjson", '{"who": true}'), ("a.parquet", "who"), ("a.txt", "\n\n")],
)  # fmt: skip
def test_files_that_hold_no_keys_are_refused(name, text, tmp_path):
    with pytest.raises(InvalidArgumentError):
        keys_of_file(str(keys_in(tmp_path, name, text)), "who")


def test_constants_of_a_condition(table):
    snapshot = table._log.update()
    condition = "email IN ('a', 'b') OR 5 = id OR id = 7"
    assert keys_of_condition(condition, snapshot) == {"email": ["a", "b"], "id": ["5", "7"]}
    for other in ("email LIKE 'a%'", "NOT email = 'a'", "email = 'a' AND id = 1", "email <=> NULL", "email = email"):
        with pytest.raises(InvalidArgumentError, match="names none"):
            keys_of_condition(other, snapshot)
