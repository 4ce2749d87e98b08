"""The page of who reads what is made of the kept answers, and says what readers of the Iceberg entry were asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).resolve().parents[1] / "peers"


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(PEERS))
    from matrix import report

    yield report
    for name in [name for name in sys.modules if name == "matrix" or name.startswith("matrix.")]:
        del sys.modules[name]


def test_the_page_is_that_of_the_kept_answers(report):
    assert report.page(json.loads(report.KEPT.read_text())) == report.PAGE.read_text()


def test_readers_of_the_entry_have_tables_of_their_own_and_each_difference_a_note(report):
    cases = [case.name for case in report.CASES]
    answers = dict.fromkeys(cases, "same") | {cases[1]: "other rows: 7", cases[2]: "no entry: Column v has a type."}
    told = {
        "written": {"ours": dict.fromkeys(cases, "") | {cases[0]: "not made"}},
        "read": {"ours": {"ours": dict.fromkeys(cases, "same")}, "pyiceberg": {"ours": answers}},
    }
    page = report.page(told)
    before, _, after = page.partition("## Through the Iceberg entry")
    after = after.partition("## Two engines")[0]
    assert "| table | itself |" in before
    assert "| table | PyIceberg 0.12 |" in after
    assert [f"| {cases[0]} | – |", f"| {cases[1]} | **WRONG** |", f"| {cases[2]} | no entry |"] == [
        line for line in after.splitlines() if line.startswith("| ") and not line.endswith("| yes |")
    ][1:]
    assert f"- {cases[2]} by pydelta: `no entry: Column v has a type.`" in page
    assert f"- PyIceberg 0.12 reads {cases[1]} by pydelta through the entry: `other rows: 7`" in page
    assert f"- pydelta does not make {cases[0]}: `not made`" in page


def test_a_reader_that_was_not_asked_for_the_tables_of_a_writer_has_no_column_there(report):
    names = dict.fromkeys([case.name for case in report.CASES], "same")
    made = dict.fromkeys(names, "")
    told = {
        "written": {"ours": made, "kernel": made},
        "read": {reader: {"ours": names, "kernel": names} for reader in ("ours", "kernel")},
    }
    told["read"] |= {reader: {"ours": names} for reader in ("trino", "trino-iceberg", "polars")}
    page = report.page(told)
    of_ours, _, of_kernel = page.partition("## Written by Delta Kernel 4.4")
    assert "| table | itself | Delta Kernel 4.4 | Trino 476 |" in of_ours
    assert "| table | itself | pydelta |\n" in of_kernel.partition("## ")[0]
    assert "### Further readers of tables by pydelta" in of_ours
    assert "### Further readers of tables by Delta Kernel 4.4" not in page
    assert "### Tables by pydelta" in page
    assert "### Tables by Delta Kernel 4.4" not in page
    assert "not asked" not in page
