"""Check every plan of a session whose user's role is limited, before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydelta.api.server.spark.limits import check_plan
from pydelta.engines.spark.java_objects import JavaObject, crossing
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.session.inside import is_inside, is_jvm_inside

if TYPE_CHECKING:
    from pydelta.api.server.spark.gate import Gate
    from pydelta.api.server.spark.sessions import Sessions

__all__ = ["install_checks"]


def install_checks(sessions: Sessions, gate: Gate) -> None:
    """Make every later session of the root's kind check its plans.

    Args:
        sessions: The server's sessions.
        gate: Decides about them.
    """
    sessions.root._jsparkSession.extensions().injectCheckRule(_Builder(sessions, gate))


class _Builder(JavaObject):
    """Builds the check of a new session when Spark asks for it."""

    class Java:
        implements = ("scala.Function1",)

    def __init__(self, sessions: Sessions, gate: Gate) -> None:
        self._sessions = sessions
        self._gate = gate

    def apply(self, session: Any) -> Any:
        """Return the check."""
        return _PlanCheck(self._sessions, self._gate, str(session.sessionUUID()))


class _PlanCheck(JavaObject):
    """Checks the analyzed plans of one session."""

    class Java:
        implements = ("scala.Function1",)

    def __init__(self, sessions: Sessions, gate: Gate, key: str) -> None:
        self._root = sessions.root
        self._gate = gate
        self._key = key
        self._jvm = Jvm.of(sessions.root)

    def apply(self, plan: Any) -> None:
        """Refuse a plan that the role of the session's user does not allow."""
        own = is_inside() or is_jvm_inside(self._root)
        if own:
            return
        with crossing(self._jvm):
            role = self._gate.role(self._key)
            if role is not None:
                check_plan(self._jvm, plan, self._gate.mark)
