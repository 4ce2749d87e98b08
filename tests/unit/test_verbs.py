"""The table of verbs names what the interfaces have, all of it and nothing else; the page is printed from it."""

from __future__ import annotations

from pathlib import Path

import typer

from pydelta.api.cli.cli import app
from pydelta.api.python.local import LocalTable
from pydelta.api.python.table import RemoteDeltaTable
from pydelta.api.sql.grammar import is_ours
from pydelta.api.verbs import VERBS, interfaces_page
from pydelta.tables import DeltaTable

ROOT = Path(__file__).parents[2]
PROGRAMS = {"sql", "serve", "ui", "users", "doctor", "certify", "maintain"}
"""Commands that are programs, not verbs of a table."""
JOBS = {"inventory", "load_inventory", "maintain", "schedule", "verify", "demo", "changes"}
"""Jobs over many tables, which run other jobs or make lists."""
OF_SESSIONS = {"df.write", "the statement"}


def named(attribute):
    found = [getattr(verb, attribute) for verb in VERBS]
    return [name for names in found if not isinstance(names, str) for name in names]


def public(cls):
    return {name for kind in cls.__mro__[:-1] for name in vars(kind) if not name.startswith("_")}


def test_every_method_of_a_table_is_a_verb_and_every_verb_is_a_method():
    assert set(named("python")) - OF_SESSIONS == public(DeltaTable)


def test_a_remote_table_has_the_verbs_that_say_so():
    remote = {name for name in dir(RemoteDeltaTable) if not name.startswith("_")}
    makers = {"create", "createIfNotExists", "replace", "createOrReplace"}  # given by DeltaTable itself
    for verb in VERBS:
        for name in set(verb.python) - OF_SESSIONS - makers:
            assert (name in remote) == (verb.connect == "yes"), name


def test_every_method_without_a_session_is_a_verb():
    assert set(named("local")) == public(LocalTable)


def test_every_command_is_a_verb_or_a_program():
    commands = set(typer.main.get_command(app).commands)
    assert set(named("cli")) == commands - PROGRAMS
    assert commands >= PROGRAMS


def test_every_job_is_a_verb_or_a_program():
    jobs = {path.stem for path in (ROOT / "jobs").iterdir() if path.suffix == ".py" or (path / "__main__.py").exists()}
    assert set(named("job")) == jobs - JOBS - {"__init__"}


def test_the_statements_of_our_own_are_known():
    ours = (
        "OPTIMIZE t",
        "VACUUM t",
        "DESCRIBE HISTORY t",
        "DESCRIBE DETAIL t",
        "RESTORE t TO VERSION AS OF 1",
        "REORG TABLE t APPLY (PURGE)",
        "GENERATE symlink_format_manifest FOR TABLE t",
        "FSCK REPAIR TABLE t",
        "CONVERT TO DELTA parquet.`x`",
    )
    assert all(is_ours(text) for text in ours)
    said = " ".join(verb.sql for verb in VERBS)
    assert all(" ".join(text.split()[:1]) in said for text in ours)


def test_the_page_is_the_table():
    page = ROOT / "docs" / "reference" / "interfaces.md"
    assert page.read_text() == interfaces_page(), (
        "print it again: python -c 'from pydelta.api.verbs import *; print(interfaces_page())'"
    )


def test_a_verb_without_an_interface_has_a_reason():
    for verb in VERBS:
        assert verb.what and verb.sql and verb.python and verb.local and verb.cli, verb.what
