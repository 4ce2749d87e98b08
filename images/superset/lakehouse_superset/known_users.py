"""Read the users of the stack, with their passwords and roles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydelta.api.access.roles import Access

USERS_FILE = Path("/tmp/users.toml")
"""The stack's ``users.toml``, if it has one."""


def users_of(environment: Mapping[str, str], file: Path = USERS_FILE) -> Access:
    """Read the users of the stack.

    They are those of ``users.toml``. Without that file they are, in a secure stack, Trino's users ``admin`` and
    ``reader``; else there is one, ``admin``, with the password BI_PASSWORD.

    Args:
        environment: Has the passwords that the file does not have itself.
        file: ``users.toml``, if the stack has one.

    Raises:
        InvalidArgumentError: The file says something that is not allowed, or a password is missing.
    """
    if file.exists():
        return Access.read(file, environment)
    users = {"admin": {"role": "operator", "password-variable": "BI_PASSWORD"}}
    if environment.get("SECURE") == "yes":
        users = {
            "admin": {"role": "operator", "password-variable": "TRINO_ADMIN_PASSWORD"},
            "reader": {"role": "reader", "password-variable": "TRINO_READER_PASSWORD"},
        }
    roles = {"operator": {"admin": True}, "reader": {"tables": ["*"]}}
    return Access.parse({"roles": roles, "users": users}, ".env", environment)
