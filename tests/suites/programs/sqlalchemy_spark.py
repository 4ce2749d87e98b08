"""Give SQLAlchemy's suite for dialects the one that PyHive has for Hive, and say the rest in Spark's words: a plugin.

The dialect takes Spark's lists of tables by their first column, which is the schema, and looks for Hive's words when a
table is absent. It writes keys and indexes, which Delta tables lack, and takes the list of columns out of INSERT.
Few tests could begin with these, so they are said in Spark's words here. All else is PyHive's.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from pyhive import hive
from pyhive.sqlalchemy_hive import HiveCompiler, HiveDialect
from sqlalchemy import exc, text
from sqlalchemy.dialects import registry
from sqlalchemy.sql.compiler import DDLCompiler, SQLCompiler

REQUIREMENTS = "tests.suites.programs.sqlalchemy_requirements:Requirements"
SCHEMAS = ("test_schema", "test_schema_2")
"""Schemas that the suite expects."""
ABSENT = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")


class SparkStatements(HiveCompiler):
    """Statements of PyHive's dialect, with the columns of an INSERT."""

    visit_insert = SQLCompiler.visit_insert


class SparkDDL(DDLCompiler):
    """CREATE TABLE without keys, and a statement that does nothing instead of one for an index."""

    def _nothing(self, constraint: Any, **given: Any) -> None:
        return None

    def _idle(self, statement: Any, **given: Any) -> str:
        return "SELECT 1"

    visit_create_index = _idle
    visit_drop_index = _idle
    visit_primary_key_constraint = _nothing
    visit_foreign_key_constraint = _nothing
    visit_unique_constraint = _nothing


class SparkDialect(HiveDialect):
    """PyHive's dialect with Spark's lists of tables and Spark's error for an absent one."""

    ddl_compiler = SparkDDL
    statement_compiler = SparkStatements
    supports_statement_cache = False

    def _get_table_columns(self, connection: Any, table_name: str, schema: str | None) -> Any:
        try:
            return super()._get_table_columns(connection, table_name, schema)
        except exc.OperationalError as error:
            if any(name in str(error) for name in ABSENT):
                raise exc.NoSuchTableError(table_name) from error
            raise

    def get_table_names(self, connection: Any, schema: str | None = None, **given: Any) -> list[str]:
        """Return the names in Spark's second column without those of views."""
        views = self.get_view_names(connection, schema)
        return [name for name in self._second(connection, "TABLES", schema) if name not in views]

    def get_view_names(self, connection: Any, schema: str | None = None, **given: Any) -> list[str]:
        """Return the names in Spark's second column."""
        return self._second(connection, "VIEWS", schema)

    def _second(self, connection: Any, kind: str, schema: str | None) -> list[str]:
        place = f" IN {self.identifier_preparer.quote_identifier(schema)}" if schema else ""
        return [row[1] for row in connection.execute(text(f"SHOW {kind}{place}"))]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let SQLAlchemy find the dialect and what it can do, and make the schemas."""
    settings = f"[sqla_testing]\nrequirement_cls = {REQUIREMENTS}\nprofile_file = profiles.txt\n"
    (config.rootpath / "setup.cfg").write_text(settings)
    registry.register("hive", __name__, SparkDialect.__name__)
    registry.register("hive.thrift", __name__, SparkDialect.__name__)
    connection = hive.connect("127.0.0.1", port=int(os.environ["PYDELTA_THRIFT_PORT"]), username="suite")
    for schema in SCHEMAS:
        connection.cursor().execute(f"CREATE DATABASE IF NOT EXISTS {schema}")
    connection.close()
