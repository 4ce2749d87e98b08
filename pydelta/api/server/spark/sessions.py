"""Map each client session to the PySpark object that the engine works with.

::

    first call of a session's parser --> prepare(): data source "delta", mark  --> the object, among the recent ones
    a session that ends              --> nothing to do: only recent objects are held, and not the JVM's session

Anything else that a session on the server needs belongs in ``prepare``.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.sql import SparkSession

from pydelta.api.routing.datasource import DeltaDataSource
from pydelta.engines.spark.data_sources import register_data_source
from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.session.inside import inside
from pydelta.engines.spark.session.patches import is_marked, mark_like
from pydelta.errors import (
    CommitStateUnknownError,
    CommittedError,
    DeltaConcurrentModificationException,
    DeltaEnvironmentError,
)
from pydelta.txn.commit import committing_for

if TYPE_CHECKING:
    from pydelta.api.server.spark.gate import Gate
    from pydelta.api.server.spark.users import UserOf

__all__ = ["Outcome", "Sessions", "prepare"]

_RECENT: Final = 64
_Around: TypeAlias = Callable[[], AbstractContextManager[None]]
Texts: TypeAlias = Callable[[str], Callable[[SparkSession, _Around], Any] | None]
Outcome: TypeAlias = Literal["done", "conflict", "unknown", "failed"]


def _no_texts(text: str) -> None:
    return None


def _unobserved(outcome: Outcome, seconds: float) -> None:
    return None


def _unobserved_text() -> None:
    return None


def prepare(spark: SparkSession, root: SparkSession) -> None:
    """Prepare a client's session on its first use.

    Args:
        spark: The session.
        root: The server's own session, which is enabled.
    """
    register_data_source(Jvm.of(spark), DeltaDataSource)
    mark_like(spark, root)


class Sessions:
    """The sessions of a server's clients and their running statements. Safe to use from several threads.

    Args:
        root: The server's own session, enabled.
        user_of: Returns the user who runs a statement.
        first_seen: Called once per session of the JVM.
    """

    def __init__(
        self,
        root: SparkSession,
        user_of: UserOf,
        first_seen: Callable[[SparkSession, SparkSession], None] = prepare,
    ) -> None:
        self.root = root
        self._user_of = user_of
        self._first_seen = first_seen
        self._recent: OrderedDict[str, SparkSession] = OrderedDict()
        self.gate: Gate | None = None
        """Decides what each user may do; None if everyone may do everything."""
        self.texts: Texts = _no_texts
        """Called with each text; returns the planner of a text that is not SQL, or None."""
        self.observe: Callable[[Outcome, float], None] = _unobserved
        """Called with the outcome and the seconds of each statement with an effect."""
        self.observe_text: Callable[[], None] = _unobserved_text
        """Called for each SQL text that a client sends."""
        self.watching: _Around = nullcontext
        """Entered around each statement with an effect, in its thread; cancels its jobs on the client's interrupt."""
        self._condition = threading.Condition()
        self._running = 0
        self._stopping = False

    def __len__(self) -> int:
        return len(self._recent)

    @property
    def running(self) -> int:
        """The number of running statements with an effect."""
        return self._running

    def of(self, key: str, jvm_session: Callable[[], Any]) -> SparkSession:
        """Return the PySpark object for a session.

        Args:
            key: The session's id.
            jvm_session: Returns the JVM's session.
        """
        with self._condition:
            found = self._recent.get(key)
            if found is not None:
                self._recent.move_to_end(key)
                return found
        made = SparkSession(self.root.sparkContext, jvm_session())
        if not is_marked(made):
            with inside():
                self._first_seen(made, self.root)
        with self._condition:
            found = self._recent.setdefault(key, made)
            while len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
        return found

    @contextmanager
    def statement(self, spark: SparkSession) -> Iterator[None]:
        """Run a block as a statement with an effect: counted, cancelled with its client, committed for its user.

        Raises:
            DeltaEnvironmentError: The server is stopping.
        """
        with self._condition:
            self._refuse_when_stopping()
            self._running += 1
        began = time.monotonic()
        outcome: Outcome = "done"
        try:
            with self.watching(), committing_for(self._user_of(spark)):
                yield
        except BaseException as error:
            outcome = _outcome_of(error)
            raise
        finally:
            self.observe(outcome, time.monotonic() - began)
            with self._condition:
                self._running -= 1
                self._condition.notify_all()

    def refuse_when_stopping(self) -> None:
        """Refuse a statement that begins after ``stop``.

        Raises:
            DeltaEnvironmentError: The server is stopping.
        """
        with self._condition:
            self._refuse_when_stopping()

    def stop(self, seconds: float) -> int:
        """Refuse new statements, and wait for the running ones that have an effect.

        Returns:
            How many of them are still running after that time.
        """
        with self._condition:
            self._stopping = True
            self._condition.wait_for(lambda: self._running == 0, timeout=seconds)
            return self._running

    def _refuse_when_stopping(self) -> None:
        if self._stopping:
            stopping = DeltaEnvironmentError(
                "The server is stopping and accepts no more statements. Nothing was run.",
                hint="Run it again when the server is back.",
            )
            stopping.retryable = True
            raise stopping


def _outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, DeltaConcurrentModificationException):
        return "conflict"
    return "unknown" if isinstance(error, (CommitStateUnknownError, CommittedError)) else "failed"
