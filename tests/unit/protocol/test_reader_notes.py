"""Which engines read a table wrongly: the list is that of the interop page, and an ALTER says it where it matters."""

from __future__ import annotations

import logging
import re
import uuid
from pathlib import Path

import pytest

from pydelta.commands.alter.requests import AddColumns, ChangeColumn, NewColumn
from pydelta.log import DeltaLog
from pydelta.protocol.reader_notes import WRONG_READERS, reader_notes
from pydelta.protocol.types import PrimitiveType
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import alter_table
from pydelta.testing.operations import create_table

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "interop.md"


def test_every_feature_that_the_page_says_some_engine_reads_wrongly_is_listed_with_that_engine():
    ours = PAGE.read_text().split("## Written by pydelta")[1].split("## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in ours.splitlines() if line.startswith("|")]
    engines = [re.sub(r" [\d.]+$", "", cell) for cell in rows[0]]
    wrong = {
        row[0]: engine for row in rows[2:] for engine, cell in zip(engines, row, strict=True) if cell == "**WRONG**"
    }
    wrong.pop(
        "every primitive type", None
    )  # of delta-rs over INT96 times, which are the writer's choice and no feature
    assert {feature: engine for feature, (engine, _) in WRONG_READERS.items()} == wrong


@pytest.fixture
def log():
    log = DeltaLog(MemoryStore(f"memory://{uuid.uuid4()}/t"))
    create_table(log, [], delta_enableTypeWidening="true")
    alter_table(log, AddColumns(columns=(NewColumn(path=("n",), data_type=PrimitiveType("integer")),)))
    return log


WIDER = ChangeColumn(path=("n",), data_type=PrimitiveType("long"))


def test_a_column_that_is_widened_is_a_warning_where_a_metastore_is_configured(log, caplog, monkeypatch):
    monkeypatch.setenv("PYDELTA_METASTORE", "thrift://127.0.0.1:1")
    with caplog.at_level(logging.WARNING):
        alter_table(log, WIDER)
        alter_table(log, ChangeColumn(path=("n",), comment="later"))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1, "once, by the change that makes it so"
    assert log.uri in said[0]
    assert "Trino shows no values of a column whose type was widened" in said[0]
    assert reader_notes(log.update().metadata)


def test_without_a_metastore_nothing_is_said(log, caplog, monkeypatch):
    monkeypatch.delenv("PYDELTA_METASTORE", raising=False)
    with caplog.at_level(logging.WARNING):
        alter_table(log, WIDER)
    assert caplog.records == []


@pytest.mark.parametrize("feature", sorted(WRONG_READERS))
def test_a_table_that_only_may_use_a_feature_is_not_marked(feature):
    log = DeltaLog(MemoryStore(f"memory://{uuid.uuid4()}/t"))
    create_table(log, [])
    metadata = log.update().metadata
    assert reader_notes(metadata) == ()
    if feature.startswith("iceberg"):
        on = metadata.replace(configuration={f"delta.enable{feature[0].upper()}{feature[1:]}": "true"})
        assert "DuckDB" in reader_notes(on)[0]
