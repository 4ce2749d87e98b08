"""Decide who may use Spark Connect, by users' tokens or passwords, and with which certificate calls are encrypted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from typing import Final

from pydelta.api.access.roles import Access
from pydelta.errors import InvalidArgumentError

__all__ = ["Guard"]

_OTHERS: Final = 0o077
_SHORTEST: Final = 16


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Decides who may connect, and how.

    Args:
        users: Name of the user by token; empty admits everyone who reaches the port.
        access: The users with their passwords and roles; None if there are no roles.
        certificate: Chain of certificates, PEM; with ``key``, calls are encrypted.
        key: Private key, PEM.
    """

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    access: Access | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)

    @classmethod
    def read(cls, users: str | None, certificate: str | None, key: str | None, access: str | None = None) -> Guard:
        """Read the files that the options name.

        Args:
            users: A file of lines ``name:token`` that only its owner may read.
            access: The file of users and roles.
            certificate: A PEM file.
            key: A PEM file.

        Raises:
            InvalidArgumentError: A file is missing, readable by others or malformed, or one PEM file was given alone.
        """
        if users is not None and access is not None:
            raise InvalidArgumentError("--users and --access exclude each other.", hint="Give --access alone.")
        if (certificate is None) != (key is None):
            raise InvalidArgumentError(
                "A certificate and its key belong together, and only one of them was given.",
                hint="Give --certificate and --key.",
            )
        return cls(
            users={} if users is None else _users(Path(users)),
            access=None if access is None else Access.read(access),
            certificate=None if certificate is None else _read(Path(certificate), "--certificate"),
            key=None if key is None else _read(Path(key), "--key", private=True),
        )

    @property
    def is_closed(self) -> bool:
        """Whether other machines may reach a server with this guard."""
        return self.asks and self.certificate is not None

    @property
    def asks(self) -> bool:
        """Whether a client has to show who it is."""
        return bool(self.users) or self.access is not None

    def user_of(self, authorization: str) -> str | None:
        """Return the user whose token is in an ``authorization`` header; None for an unknown token.

        With roles, a token is the name, a colon and the password.
        """
        if self.access is not None:
            name, _, password = authorization.removeprefix("Bearer ").partition(":")
            known = self.access.check(name, password)
            return None if known is None else known.name
        shown = authorization.removeprefix("Bearer ").encode()
        found = None
        for token, user in self.users.items():  # All are compared, so that the time reveals nothing.
            if compare_digest(token.encode(), shown):
                found = user
        return found


def _users(path: Path) -> dict[str, str]:
    users: dict[str, str] = {}
    for number, line in enumerate(_read(path, "--users", private=True).decode().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, token = line.strip().partition(":")
        if not name or not colon or len(token) < _SHORTEST:
            raise InvalidArgumentError(
                f"Line {number} of {path} is not a user's name, a colon and a token of at least {_SHORTEST} "
                "characters.",
                hint="Write a line for each user, such as  ann:  and 32 random characters after it.",
            )
        if token in users:
            raise InvalidArgumentError(
                f"{name} and {users[token]} share a token in {path}.", hint="Give each user a different token."
            )
        users[token] = name
    if not users:
        raise InvalidArgumentError(f"{path} names no user.", hint="Write lines of the form name:token.")
    return users


def _read(path: Path, option: str, *, private: bool = False) -> bytes:
    try:
        data = path.read_bytes()
        others = private and os.stat(path).st_mode & _OTHERS
    except OSError as error:
        raise InvalidArgumentError(
            f"{path} cannot be read: {error.strerror}.", hint=f"Give {option} a file that this user may read."
        ) from error
    if others:
        raise InvalidArgumentError(
            f"Other users of this machine may read {path}.", hint=f"chmod 600 {path}, and make new secrets."
        )
    return data
