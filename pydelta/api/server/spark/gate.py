"""Find the role of a session's user, which limits what the session may do.

::

    a parser or an analyzer of Spark --key of the session--> Gate --user--> role --admin--> no limits
                                                                              --else---> spark/limits.py
                                                            --user unknown--> a role that may read nothing
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pydelta.api.access.roles import Access, Role
from pydelta.api.server.spark.limits import check_expression, limited_plan, refuse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.engines.spark.jvm import Jvm

__all__ = ["Gate"]

_REMEMBERED: Final = 10_000
_NOBODY: Final = Role(name="nobody")
_PARSES_NAMES: Final = frozenset({
    "parseTableIdentifier", "parseFunctionIdentifier", "parseMultipartIdentifier", "parseDataType", "parseTableSchema",
})  # fmt: skip


class Gate:
    """Decides what a session may do. Safe to use from several threads.

    Args:
        access: The users and their roles.
        user_of: Returns the user of a session, by its key; None if that is not known.
    """

    def __init__(self, access: Access, user_of: Callable[[str], str | None]) -> None:
        self.access = access
        self.mark = secrets.token_hex(16)
        """Value of the mark that granted plans carry."""
        self._user_of = user_of
        self._users: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def role(self, key: str) -> Role | None:
        """Return the role that limits a session; None if its user may do everything.

        Args:
            key: The session's id.
        """
        with self._lock:
            user = self._users.get(key)
        if user is None:
            user = self._user_of(key)
            if user is None:
                return _NOBODY
            with self._lock:
                self._users[key] = user
                while len(self._users) > _REMEMBERED:
                    self._users.popitem(last=False)
        found = self.access.users.get(user)
        if found is None:
            return _NOBODY
        return None if found.role.admin else found.role

    def plan(self, spark: SparkSession, role: Role, text: str, parse: Callable[[], Any]) -> Any:
        """Return the plan of a statement in a limited session; see ``limited_plan``."""
        return limited_plan(spark, text, parse, role, self.mark)

    def parsed(self, jvm: Jvm, name: str, parse: Callable[[], Any]) -> Any:
        """Run another method of Spark's parser in a limited session.

        Raises:
            AccessDeniedError: The role may not use what it returns.
        """
        if name == "parseExpression":
            found = parse()
            check_expression(jvm, found, subqueries=False)
            return found
        if name not in _PARSES_NAMES:
            refuse("a text of this kind")
        return parse()
