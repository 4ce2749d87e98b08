"""Make and check hashes of passwords, in the form that Trino's password file has: iterations, salt, digest."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from typing import Final

__all__ = ["Passwords", "hash_password", "is_password_hash", "matches"]

_ITERATIONS: Final = 100_000
_LEAST_ITERATIONS: Final = 1_000
_MOST_ITERATIONS: Final = 10_000_000
_BYTES: Final = 64
_SALT_BYTES: Final = 16
_FORM: Final = re.compile(r"(\d{4,8}):((?:[0-9a-f]{2}){8,64}):((?:[0-9a-f]{2}){20,64})")
_DIGEST: Final = "sha1"
"""The one digest that Trino knows in this form."""
_NOBODY: Final = f"{_ITERATIONS}:{'00' * _SALT_BYTES}:{'00' * _BYTES}"


def hash_password(password: str) -> str:
    """Return the hash of a password, with a new salt."""
    salt = secrets.token_bytes(_SALT_BYTES)
    found = hashlib.pbkdf2_hmac(_DIGEST, password.encode(), salt, _ITERATIONS, _BYTES)
    return f"{_ITERATIONS}:{salt.hex()}:{found.hex()}"


def is_password_hash(text: str) -> bool:
    """Return whether a text has the form of a hash, with a reasonable number of iterations."""
    match = _FORM.fullmatch(text)
    return match is not None and _LEAST_ITERATIONS <= int(match[1]) <= _MOST_ITERATIONS


def matches(password: str, hashed: str) -> bool:
    """Return whether a hash is that of a password."""
    iterations, salt, digest = hashed.split(":")
    expected = bytes.fromhex(digest)
    found = hashlib.pbkdf2_hmac(_DIGEST, password.encode(), bytes.fromhex(salt), int(iterations), len(expected))
    return hmac.compare_digest(found, expected)


class Passwords:
    """Checks passwords of users. A password that was right is found again fast. Safe to use from several threads.

    Args:
        hashes: Hash of each user's password.
    """

    def __init__(self, hashes: dict[str, str]) -> None:
        self._hashes = hashes
        self._key = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def check(self, user: str, password: str) -> bool:
        """Return whether a user exists and has this password. An unknown user takes as long as a wrong password."""
        if not password:
            return False
        mark = hmac.digest(self._key, f"{user}:{password}".encode(), "sha256")
        with self._lock:
            known = self._right.get(user)
        if known is not None and hmac.compare_digest(known, mark):
            return True
        hashed = self._hashes.get(user)
        if not matches(password, hashed or _NOBODY) or hashed is None:
            return False
        with self._lock:
            self._right[user] = mark
        return True
