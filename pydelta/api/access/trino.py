"""Translate users and roles into Trino's files: access rules, with row filters and column masks, and passwords.

Every table has up to three names in Trino: ``delta.lake.orders``, the twin ``hive.lake_symlink.orders`` and the Iceberg
entry ``iceberg.lake_iceberg.orders``. A role sees the same rows and values under each. Tables about tables
(``"orders$files"``) show values of hidden rows, so that only a user who may do everything sees them.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from pydelta.api.access.conditions import Comparison, Constant
from pydelta.api.access.passwords import hash_password
from pydelta.api.access.roles import ALL, ENTRIES, Access, Grant, Mask, Role
from pydelta.errors import InvalidArgumentError

__all__ = ["TrinoService", "filter_text", "mask_text", "passwords_text", "rules_text", "trino_rules"]

_OF_TABLES: Final = "delta|hive|iceberg"
"""Catalogs of the stack's tables."""
_ENDS: Final = f"({'|'.join(ENTRIES)})?"
_PLAIN: Final = "[^$]*"
"""Matches names of tables, and not those of tables about tables."""
_EVERYTHING: Final = ["SELECT", "INSERT", "DELETE", "UPDATE", "OWNERSHIP", "GRANT_SELECT"]


@dataclass(frozen=True, slots=True)
class TrinoService:
    """A program that logs in to Trino and asks under the names of users, such as a tool for charts.

    Args:
        name: Its name, which no user has.
        password: Its password.
    """

    name: str
    password: str = field(repr=False)


def rules_text(access: Access, service: TrinoService | None = None) -> str:
    """Return the file of access rules."""
    return json.dumps(trino_rules(access, service), indent=2, ensure_ascii=False) + "\n"


def passwords_text(access: Access, service: TrinoService | None = None) -> str:
    """Return the password file."""
    hashes = {user.name: user.password for user in access.users.values()}
    if service is not None:
        hashes[service.name] = hash_password(service.password)
    return "".join(f"{name}:{hashed}\n" for name, hashed in hashes.items())


def trino_rules(access: Access, service: TrinoService | None = None) -> dict[str, Any]:
    """Return the access rules. The first rule that fits a user and a table holds; without one nothing is allowed.

    A service may take the name of each user, and has no other right.
    """
    if service is not None and service.name in access.users:
        raise InvalidArgumentError(
            f"users.{service.name} has the name of a program that logs in to Trino.", hint="Give the user another name."
        )
    users: dict[str, tuple[Role, list[str]]] = {}
    for user in access.users.values():
        users.setdefault(user.role.name, (user.role, []))[1].append(user.name)
    admins = [name for role, names in users.values() if role.admin for name in names]
    readers = [(role, _any_of(names)) for role, names in users.values() if not role.admin]
    everything = [{"user": _any_of(admins)}] if admins else []
    return {
        "catalogs": [
            *({**rule, "catalog": ".*", "allow": "all"} for rule in everything),
            *({"user": names, "catalog": _OF_TABLES, "allow": "read-only"} for role, names in readers if role.tables),
        ],
        "schemas": [*({**rule, "owner": True} for rule in everything), {"user": ".*", "owner": False}],
        "tables": [
            *({**rule, "privileges": _EVERYTHING} for rule in everything),
            *(rule for role, names in readers for rule in _tables(role, names)),
        ],
        "functions": [
            *({**rule, "privileges": ["EXECUTE", "GRANT_EXECUTE", "OWNERSHIP"]} for rule in everything),
            {"catalog": "system", "schema": "builtin", "privileges": ["EXECUTE"]},
        ],
        "queries": [
            *({**rule, "allow": ["execute", "kill", "view"]} for rule in everything),
            *({"user": names, "allow": ["execute"]} for _, names in readers),
        ],
        "system_information": [{**rule, "allow": ["read", "write"]} for rule in everything],
        "impersonation": []
        if service is None
        else [{"original_user": _any_of([service.name]), "new_user": _any_of(access.users)}],
    }


def _any_of(names: Iterable[str]) -> str:
    return "|".join(re.escape(name).replace(r"\-", "-") for name in names)


def _tables(role: Role, users: str) -> list[dict[str, Any]]:
    """Return the rules of a role's tables: those that are filtered or masked come first, patterns last."""
    names = [*role.grants, *(name for name in role.tables if name not in role.grants)]
    found = []
    for name in sorted(names, key=lambda name: (name not in role.grants, ALL in name, name == ALL)):
        database, _, table = name.partition(".")
        grant = role.grants.get(name, Grant())
        place = {"catalog": _OF_TABLES}
        if name != ALL:
            place["schema"] = database + _ENDS
        place["table"] = _PLAIN if ALL in name else table
        found.append({"user": users, **place, **_shown(grant)})
    return found


def _shown(grant: Grant) -> dict[str, Any]:
    found: dict[str, Any] = {"privileges": ["SELECT"]}
    if grant.filters:
        found["filter"] = filter_text(grant.filters)
    if grant.masks:
        found["columns"] = [{"name": name, "mask": mask_text(name, mask)} for name, mask in grant.masks.items()]
    return found


def filter_text(filters: Iterable[Comparison]) -> str:
    """Return a row filter as a condition of Trino."""
    return " AND ".join(map(_comparison, filters))


def _comparison(one: Comparison) -> str:
    values = ", ".join(map(_literal, one.values))
    return f"{_column(one.column)} {one.operator} {f'({values})' if one.operator == 'IN' else values}"


def mask_text(column: str, mask: Mask) -> str:
    """Return a mask as an expression of Trino."""
    name = _column(column)
    if mask.kind == "null":
        return "NULL"
    if mask.kind == "hash":
        return f"lower(to_hex(sha256(to_utf8({name}))))"
    if mask.kind == "last-4":
        last = f"WHEN length({name}) > 4 THEN '****' || substr({name}, -4) ELSE '****'"
        return f"CASE WHEN {name} IS NULL THEN NULL {last} END"
    assert mask.value is not None, "a constant has a value"
    return _literal(mask.value)


def _column(name: str) -> str:
    return '"' + name.lower().replace('"', '""') + '"'


def _literal(value: Constant) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'"
