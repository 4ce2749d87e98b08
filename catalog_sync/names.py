"""Parse the names of tables in the metastore, and derive those of twins."""

from __future__ import annotations

from dataclasses import dataclass

from pydelta.errors import InvalidArgumentError
from pydelta.manifests.native_entry import twin_database

__all__ = ["TableName", "iceberg_name", "twin_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A name in the metastore, in lower case."""

    database: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read ``database.table``.

        Raises:
            InvalidArgumentError: The text has another form.
        """
        database, dot, name = text.strip().lower().replace("`", "").partition(".")
        if not dot or not database or not name or "." in name:
            raise InvalidArgumentError(f"{text!r} is not the name of a table.", hint="Write it as database.table.")
        return cls(database=database, name=name)

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


def twin_name(native: TableName, rule: str = "{database}_symlink") -> TableName:
    """Return the twin's name: the database comes from the rule (``spark.pydelta.sync.name``), the name is unchanged.

    Raises:
        InvalidArgumentError: The rule gives the same database, so the twin would have the table's name.
    """
    return _beside(native, rule, "twin", "spark.pydelta.sync.name", "{database}_symlink")


def iceberg_name(native: TableName, rule: str = "{database}_iceberg") -> TableName:
    """Return the name of a table's Iceberg entry, by the rule of ``spark.pydelta.sync.icebergName``.

    Raises:
        InvalidArgumentError: The rule gives the same database, so the entry would have the table's name.
    """
    return _beside(native, rule, "Iceberg entry", "spark.pydelta.sync.icebergName", "{database}_iceberg")


def _beside(native: TableName, rule: str, what: str, setting: str, example: str) -> TableName:
    database = twin_database(rule, native.database)
    if not database or database == native.database:
        raise InvalidArgumentError(
            f"By the rule {rule!r} the {what} of {native} would have the same name.",
            hint=f"Set {setting} to a rule such as {example}.",
        )
    return TableName(database=database, name=native.name)
