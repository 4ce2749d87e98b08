"""Log users of the stack in to Superset, and give each the role that fits what the stack lets her do.

Superset keeps no password: who is not a user of the stack is not let in, and who was one before is out with the next
request.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

from superset.security import SupersetSecurityManager

from lakehouse_superset.known_users import users_of

ADMIN = "Admin"
"""Superset's own role that may do everything."""
READER = "Stack reader"
"""The role of all others. It asks Trino, which decides by the name of the user."""


class StackSecurityManager(SupersetSecurityManager):  # type: ignore[misc]
    """Superset's security manager, with the users of the stack in place of its own."""

    def __init__(self, appbuilder: Any) -> None:
        super().__init__(appbuilder)
        self.stack_users = users_of(os.environ)

    def auth_user_db(self, username: str | None, password: str | None) -> Any:
        """Return the user who has this name and password, made at the first log-in; None if there is none."""
        user = self.stack_users.check(username or "", password or "")
        if user is None:
            return None
        found = self.find_user(username=user.name) or self.make_user(user.name)
        self.give_role(found)
        self.update_user_auth_stat(found, True)
        return found

    def load_user(self, pk: int) -> Any:
        """Return the user of a session, as long as the stack has a user of this name."""
        found = super().load_user(pk)
        return found if found is not None and found.username in self.stack_users.users else None

    def give_role(self, found: Any) -> None:
        """Give a user the role of the stack's user of this name, and no other one."""
        known = self.stack_users.users.get(found.username)
        found.roles = [] if known is None else [self.find_role(ADMIN if known.role.admin else READER)]
        self.update_user(found)

    def make_user(self, name: str) -> Any:
        """Add a user of the stack, who has no password in Superset."""
        made = self.add_user(
            username=name,
            first_name=name,
            last_name="",
            email=f"{name}@lakehouse.invalid",
            role=self.find_role(READER),
            password=secrets.token_urlsafe(32),
        )
        if not made:
            raise RuntimeError(f"Superset could not add the user {name}. Next: make logs SERVICE=superset")
        return made
