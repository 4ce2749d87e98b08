"""Show each user of the page the tables of her role: who asks, and what of everything watched is for that role.

A table that the role sees whole has all its pages. Of a table with a row filter or a masked column the page shows names
and types of columns and numbers of files: rows, statistics and commits hold values, and the page applies no filter.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from pydelta.api.access.roles import Access, Grant, Role, User
from pydelta.errors import UnsafeOperationError
from pydelta.tools.ui.catalog.facts import ShownRows, TableSums
from pydelta.tools.ui.commits import Detail
from pydelta.tools.ui.values import ShownTable
from pydelta.tools.ui.watch import Overview, Watch

__all__ = ["LIMITED_PAGES", "RoleWatch", "user_of"]

LIMITED_PAGES = frozenset(
    ("", "/table", "/commit", "/databases", "/database", "/preview", "/search", "/columns", "/tables")
)
"""The pages for users whose role is limited. Others show texts of queries, jobs and services."""


def user_of(access: Access, environ: Mapping[str, Any]) -> User | None:
    """Return the user whose name and password a request has (HTTP Basic); None without them."""
    kind, _, given = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return access.check(name, password) if colon else None


class RoleWatch:
    """Provides what a role sees of what a watch provides.

    Args:
        watch: Provides everything.
        role: The role.
    """

    def __init__(self, watch: Watch, role: Role) -> None:
        self._watch = watch
        self._role = role
        self.questions = self

    def grant(self, table: ShownTable) -> Grant | None:
        """Return what the role sees of a table; None if that is nothing, also if its name has no database."""
        database, _, name = table.place.name.rpartition(".")
        return self._role.grant(database, name) if database and "/" not in table.place.name else None

    def overview(self, *, waits: bool = True) -> Overview:
        """Return the tables of the role, and nothing else that is watched."""
        view = self._watch.overview(waits=waits)
        tables = tuple(self._shown(table, grant) for table in view.tables if (grant := self.grant(table)) is not None)
        return Overview(now_ms=view.now_ms, tables=tables, streams=(), services=(), troubles=())

    def detail(self, table: ShownTable, version: int) -> Detail:
        """Explain one commit of a table; see ``Watch.detail``.

        Raises:
            UnsafeOperationError: The role sees a part of the table.
        """
        self._check_whole(table)
        return self._watch.detail(table, version)

    def sums(self, table: ShownTable) -> TableSums:
        """Sum up the statistics of a table's columns; see ``Questions.sums``.

        Raises:
            UnsafeOperationError: The role sees a part of the table.
        """
        self._check_whole(table)
        return self._watch.questions.sums(table)

    def rows(self, table: ShownTable, rows: int) -> ShownRows:
        """Read a few rows of a table; see ``Questions.rows``.

        Raises:
            UnsafeOperationError: The role sees a part of the table.
        """
        self._check_whole(table)
        return self._watch.questions.rows(table, rows)

    def _shown(self, table: ShownTable, grant: Grant) -> ShownTable:
        if grant.is_whole:
            return table
        return replace(table, troubles=(), properties={}, writers={}, commits=(), looked_back=0)

    def _check_whole(self, table: ShownTable) -> None:
        grant = self.grant(table)
        if grant is None or not grant.is_whole:
            self._deny(table)

    def _deny(self, table: ShownTable) -> NoReturn:
        raise UnsafeOperationError(
            f"Your role sees a part of the table {table.place.name}, which this page does not apply to values.",
            hint="Query it with Trino or the SQL server.",
        )
