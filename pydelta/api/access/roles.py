"""Read the file of users and roles, and decide what a role may read.

::

    [roles.operator]
    admin = true

    [roles.analyst]
    tables = ["lake.orders", "sales.*"]
    filters = {"lake.orders" = "region = 'EU'"}
    masks."lake.orders" = {customer = "hash", phone = "last-4", note = "null", card = {constant = "hidden"}}

    [users.ann]
    role = "analyst"
    password = "100000:…:…"

A table that no role names cannot be read by its users. What the file does not say exactly is an error.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydelta.api.access.conditions import Comparison, ConditionError, Constant, is_bigint, parse_condition
from pydelta.api.access.passwords import Passwords, hash_password, is_password_hash
from pydelta.errors import InvalidArgumentError

__all__ = ["ALL", "ENTRIES", "Access", "Grant", "Mask", "Role", "User"]

ALL: Final = "*"
ENTRIES: Final = ("_symlink", "_iceberg")
"""Ends of the names of databases that hold further entries of the same tables: twins and Iceberg entries."""
KINDS: Final = ("null", "hash", "last-4")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TABLE: Final = re.compile(r"\*|[a-z0-9_]+\.(?:\*|[a-z0-9_]+)")
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Mask:
    """What a column shows in place of its values.

    Args:
        kind: ``null``, ``hash`` (SHA-256 of a text, in hexadecimal), ``last-4`` (characters of a text) or ``constant``.
        value: The constant.
    """

    kind: str
    value: Constant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a role sees of a table.

    Args:
        filters: Only rows for which all of these are true.
        masks: By column, in lower case.
    """

    filters: tuple[Comparison, ...] = ()
    masks: Mapping[str, Mask] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether every row and every value is shown."""
        return not self.filters and not self.masks


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role.

    Args:
        name: Its name.
        admin: Whether its users may do everything.
        tables: What its users may read: ``*``, ``database.*`` or ``database.table``, in lower case.
        grants: What is filtered or masked, by ``database.table``.
    """

    name: str
    admin: bool = False
    tables: tuple[str, ...] = ()
    grants: Mapping[str, Grant] = field(default_factory=dict)

    def grant(self, database: str, table: str) -> Grant | None:
        """Return what the role sees of a table; None if that is nothing."""
        if self.admin:
            return Grant()
        database, table = _base(database), table.lower()
        name = f"{database}.{table}"
        if name in self.grants:
            return self.grants[name]
        return Grant() if {name, f"{database}.*", ALL}.intersection(self.tables) else None

    def sees_database(self, database: str) -> bool:
        """Return whether the role may read a table of a database."""
        return self.admin or any(name == ALL or name.partition(".")[0] == _base(database) for name in self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user.

    Args:
        name: Its name.
        role: Its role.
        password: Hash of its password.
    """

    name: str
    role: Role
    password: str = field(repr=False)


class Access:
    """The users, by name.

    Args:
        users: Every user; there is at least one.
    """

    def __init__(self, users: Mapping[str, User]) -> None:
        self.users = dict(users)
        self._passwords = Passwords({user.name: user.password for user in users.values()})

    @classmethod
    def read(cls, path: str | Path, env: Mapping[str, str] | None = None) -> Access:
        """Read the file.

        Args:
            path: A TOML file.
            env: Has the passwords that the file does not have itself; the environment by default.

        Raises:
            InvalidArgumentError: It cannot be read, or says something that is not allowed; the error names what.
        """
        try:
            data = Path(path).read_bytes()
            if len(data) > _MOST_BYTES:
                raise InvalidArgumentError(f"{path} is larger than 1 MiB.", hint="Name the file of users and roles.")
            found = tomllib.loads(data.decode())
        except OSError as error:
            raise InvalidArgumentError(
                f"{path} cannot be read: {error.strerror}.", hint="Name a file that this user may read."
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgumentError(f"{path} is not TOML: {error}.", hint="Correct it there.") from error
        return cls.parse(found, str(path), os.environ if env is None else env)

    @classmethod
    def parse(cls, found: Mapping[str, Any], where: str, env: Mapping[str, str]) -> Access:
        """Check the values of the file; arguments and errors are those of ``read``."""
        top = _Table(where, "", found)
        top.only("roles", "users")
        roles = {name: _role(name, table) for name, table in top.tables("roles").items()}
        users = {name: _user(name, table, roles, env) for name, table in top.tables("users").items()}
        if not users:
            raise top.wrong("users", "names no user", "Write [users.NAME] with a role and a password.")
        return cls(users)

    def check(self, user: str, password: str) -> User | None:
        """Return the user who has this password; None if there is none."""
        return self.users[user] if self._passwords.check(user, password) else None


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the file with its place, which errors name."""

    where: str
    place: str
    values: Mapping[str, Any]

    def wrong(self, key: str, what: str, hint: str) -> InvalidArgumentError:
        place = ".".join(part for part in (self.place, key) if part)
        return InvalidArgumentError(f"{self.where}: {place} {what}.", hint=hint)

    def only(self, *names: str) -> None:
        for name in self.values:
            if name not in names:
                raise self.wrong(name, "is not known", f"Remove it, or write one of: {', '.join(names)}.")

    def tables(self, key: str) -> dict[str, _Table]:
        """Return the tables below a key, by name."""
        found = self.values.get(key, {})
        if not isinstance(found, Mapping):
            raise self.wrong(key, "is not a table", f"Write [{key}.NAME].")
        place = f"{self.place}.{key}" if self.place else key
        result = {}
        for name, values in found.items():
            if not isinstance(values, Mapping):
                raise self.wrong(f"{key}.{_shown(name)}", "is not a table", f"Write [{place}.{_shown(name)}].")
            result[name] = _Table(self.where, f"{place}.{_shown(name)}", values)
        return result


def _base(database: str) -> str:
    """Return the database of a table whose entry is in a database."""
    name = database.lower()
    return next((name.removesuffix(end) for end in ENTRIES if name.endswith(end) and name != end), name)


def _shown(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else f'"{name}"'


def _role(name: str, table: _Table) -> Role:
    if not _NAME.fullmatch(name):
        raise table.wrong("", "is not a name", "Use letters, digits, _, - and the dot, at most 64.")
    table.only("admin", "tables", "filters", "masks")
    admin = table.values.get("admin", False)
    if not isinstance(admin, bool):
        raise table.wrong("admin", f"is {admin!r}", "Write true or false.")
    if admin:
        for key in ("tables", "filters", "masks"):
            if key in table.values:
                raise table.wrong(key, "restricts a role that may do everything", "Remove it, or admin = true.")
        return Role(name=name, admin=True)
    names = _names(table)
    filters = {key: _filters(table, key) for key in _of_tables(table, "filters", names)}
    masks = {key: _masks(item) for key, item in table.tables("masks").items()}
    for key in masks:
        _check_granted(table, f"masks.{_shown(key)}", key, names)
    grants = {key: Grant(filters=filters.get(key, ()), masks=masks.get(key, {})) for key in {**filters, **masks}}
    return Role(name=name, tables=names, grants=grants)


def _names(table: _Table) -> tuple[str, ...]:
    names = table.values.get("tables", [])
    if not isinstance(names, list):
        raise table.wrong("tables", "is not a list", 'Write ["database.table", "database.*"], or ["*"].')
    for name in names:
        if isinstance(name, str) and _base(name.partition(".")[0]) != name.partition(".")[0]:
            hint = "Name the table itself: its twin and its Iceberg entry go with it."
            raise table.wrong("tables", f"has {name!r}, which is another entry of a table", hint)
        if not isinstance(name, str) or not _TABLE.fullmatch(name):
            raise table.wrong(
                "tables", f"has {name!r}", "Write database.table or database.* in lower case, or * for all tables."
            )
    return tuple(dict.fromkeys(names))


def _of_tables(table: _Table, key: str, names: tuple[str, ...]) -> Mapping[str, Any]:
    found = table.values.get(key, {})
    if not isinstance(found, Mapping):
        raise table.wrong(key, "is not a table", f'Write {key} = {{"database.table" = …}}.')
    for name in found:
        _check_granted(table, f"{key}.{_shown(name)}", name, names)
    return found


def _check_granted(table: _Table, place: str, name: str, names: tuple[str, ...]) -> None:
    if not _TABLE.fullmatch(name) or ALL in name:
        raise table.wrong(place, "is not the name of one table", "Write database.table in lower case.")
    if not {name, f"{name.partition('.')[0]}.*", ALL}.intersection(names):
        raise table.wrong(place, "is a table that the role may not read", f"Add it to {table.place}.tables.")


def _filters(table: _Table, name: str) -> tuple[Comparison, ...]:
    text, place = table.values["filters"][name], f"filters.{_shown(name)}"
    if not isinstance(text, str):
        raise table.wrong(place, f"is {text!r}", "Write a condition as a text.")
    try:
        return parse_condition(text)
    except ConditionError as error:
        raise table.wrong(
            place,
            f"is not a condition that every engine decides alike: {error}",
            "Compare columns with constants (=, <>, <, <=, >, >=, IN), joined by AND.",
        ) from error


def _masks(table: _Table) -> dict[str, Mask]:
    found: dict[str, Mask] = {}
    for column, given in table.values.items():
        if column.lower() in found:
            raise table.wrong(_shown(column), "is there twice", "Names of columns ignore case: keep one.")
        if not column.strip() or not column.isprintable():
            raise table.wrong(_shown(column), "is not the name of a column", "Write the name of a column of the table.")
        found[column.lower()] = _mask(table, column, given)
    if not found:
        raise table.wrong("", "masks no column", "Name columns, or remove it.")
    return found


def _mask(table: _Table, column: str, given: Any) -> Mask:
    if isinstance(given, str) and given in KINDS:
        return Mask(given)
    if isinstance(given, Mapping) and list(given) == ["constant"]:
        value = given["constant"]
        if isinstance(value, str) or (isinstance(value, int) and is_bigint(value)):
            return Mask("constant", value)
    hint = f"Write one of {', '.join(map(repr, KINDS))}, or {{constant = …}} with a text, an integer, true or false."
    raise table.wrong(_shown(column), f"is {given!r}, which is not a mask that every engine has", hint)


def _user(name: str, table: _Table, roles: Mapping[str, Role], env: Mapping[str, str]) -> User:
    if not _NAME.fullmatch(name):
        raise table.wrong("", "is not a name", "Use letters, digits, _, - and the dot, at most 64.")
    table.only("role", "password", "password-variable")
    role = table.values.get("role")
    if not isinstance(role, str) or role not in roles:
        raise table.wrong("role", f"is {role!r}", f"Write one of: {', '.join(roles) or '[roles.NAME] first'}.")
    return User(name=name, role=roles[role], password=_password(table, env))


def _password(table: _Table, env: Mapping[str, str]) -> str:
    if ("password" in table.values) == ("password-variable" in table.values):
        raise table.wrong(
            "", "needs either password or password-variable", "Write the hash that pydelta users --password prints."
        )
    if "password" in table.values:
        hashed = table.values["password"]
        if not isinstance(hashed, str) or not is_password_hash(
            hashed
        ):  # The value may be a password, so it is not shown.
            raise table.wrong(
                "password", "is not the hash of a password", "Write what pydelta users --password prints."
            )
        return hashed
    variable = table.values["password-variable"]
    if not isinstance(variable, str) or not env.get(variable):
        raise table.wrong(
            "password-variable", f"is {variable!r}, which is not set", "Name a variable of the environment that is set."
        )
    return hash_password(env[variable])
