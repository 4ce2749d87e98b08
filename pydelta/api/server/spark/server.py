"""Start Spark's two servers in a session's JVM, and stop them after their statements have ended.

::

    root session --injectParser--> every later session parses through the engine
                 --HiveThriftServer2----> JDBC, ODBC, beeline: a session per connection
                 --SparkConnectService--> remote PySpark: a session per user and session id
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.api.console.addresses import Addresses, check_exposed, check_login
from pydelta.api.server.spark.accepting import wait_until_accepting
from pydelta.api.server.spark.cancelling import Cancelling
from pydelta.api.server.spark.checks import install_checks
from pydelta.api.server.spark.database import share_database
from pydelta.api.server.spark.gate import Gate
from pydelta.api.server.spark.parser import install
from pydelta.api.server.spark.sessions import Sessions
from pydelta.api.server.spark.users import connect_user, session_user, thrift_session_user, thrift_user
from pydelta.engines.spark.jvm import Jvm, scala_object
from pydelta.errors import DeltaEnvironmentError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydelta.api.access.roles import Access

__all__ = ["Server"]

_THRIFT: Final = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
_CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectService"
_AFTER_CANCEL: Final = 15.0
_SETTLE: Final = 1.0
"""Seconds in which clients can receive the results of their last statements."""


class Server:
    """Spark's servers over one session.

    Args:
        root: An enabled session that nothing else uses.
        addresses: Where to listen; Spark Connect's own server listens behind the front that clients reach.
        closed: Whether that front has a certificate and users with tokens.
        access: The users and their roles; None if everyone may do everything.
        seen: Users and sessions that the front of Spark Connect has seen, the last one first.
    """

    def __init__(
        self,
        root: SparkSession,
        addresses: Addresses,
        *,
        closed: bool = False,
        access: Access | None = None,
        seen: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._closed = closed
        self._root = root
        self._jvm = Jvm.of(root)
        self._addresses = addresses
        self._thrift: Any = None
        self._connect: Any = None
        self.sessions = Sessions(root, self._user_of)
        self._seen = seen
        if access is not None:
            self.sessions.gate = Gate(access, self._user_of_key)
        self.sessions.watching = Cancelling(root.sparkContext, self._jvm).watching

    def start(self, asked: Event) -> None:
        """Start the requested servers, and return when they accept connections.

        Args:
            asked: Set when the process is asked to stop, which ends the wait for a server.

        Raises:
            DeltaEnvironmentError: This Spark lacks a server, a server does not start or may not listen there, or Spark
                ended.
        """
        if not self._root.sparkContext._gateway.__class__.__name__ == "ClientServer":
            raise DeltaEnvironmentError(
                "A server needs one Python thread per JVM thread, but PYSPARK_PIN_THREAD=false turns that off.",
                hint="Unset PYSPARK_PIN_THREAD.",
            )
        found = self._jvm.to_dict(self._jvm.hadoop_conf().getPropsWithPrefix("hive.server2."))
        hive = {f"hive.server2.{name}": str(value) for name, value in found.items()}
        check_exposed(self._addresses, hive, closed=self._closed)
        if self._addresses.thrift is not None:
            check_login(hive)
            self._publish_logins(hive)
            self._require(_THRIFT, "spark-hive-thriftserver", "--thrift")
        if self._addresses.connect is not None:
            self._require(_CONNECT, "spark-connect", "--connect")
        install(self.sessions)
        if self.sessions.gate is not None:
            install_checks(self.sessions, self.sessions.gate)
        if self._addresses.thrift is not None:
            self._thrift = self._started("Thrift", self._start_thrift)
            thrift = self._addresses.thrift_behind or (self._addresses.host, self._addresses.thrift)
            wait_until_accepting("Thrift", thrift, self._check_starting, asked)
        if self._addresses.connect is not None:
            self._connect = self._started("Spark Connect", self._start_connect)
            assert self._addresses.behind is not None
            wait_until_accepting("Spark Connect", self._addresses.behind, self._check_starting, asked)

    @property
    def process(self) -> Any:
        """Spark's process, a ``Popen``; None if another process started it."""
        return self._jvm.process

    @property
    def jvm_process(self) -> int | None:
        """The id of Spark's process."""
        return None if self.process is None else int(self.process.pid)

    @property
    def has_lost_spark(self) -> bool:
        """Whether Spark stopped by itself, for example because the cluster ended the application."""
        try:
            return bool(self._root.sparkContext._jsc.sc().isStopped())
        except (Py4JError, OSError):
            return False  # The JVM is exiting; ``process`` will show it.

    def check_process(self) -> None:
        """Raise if Spark's process has ended.

        Raises:
            DeltaEnvironmentError: It has.
        """
        if self.process is not None and self.process.poll() is not None:
            raise DeltaEnvironmentError(
                f"Spark's process ended by itself, with code {self.process.returncode}.",
                hint="Look for what ended it (memory, a signal) and start the server again; commits that were reported "
                "to clients are there.",
            )

    def stop(self, seconds: float) -> int:
        """Refuse new statements, wait for those with an effect, and stop.

        Args:
            seconds: How long they may take before their jobs are cancelled.

        Returns:
            How many were still running at the end; their clients do not know the outcome.
        """
        left = self.sessions.stop(seconds)
        if left:
            self._root.sparkContext.cancelAllJobs()
            left = self.sessions.stop(_AFTER_CANCEL)
        time.sleep(_SETTLE)
        for stop in (self._stop_connect, self._stop_thrift):
            try:
                stop()
            except Py4JError:
                continue  # The JVM is exiting, which stops the server too.
        return left

    # --- parts -----------------------------------------------------------------------------------------------

    def _user_of(self, spark: SparkSession) -> str | None:
        return connect_user(spark) or (None if self._thrift is None else thrift_user(self._jvm, self._thrift, spark))

    def _user_of_key(self, key: str) -> str | None:
        """Return the user of a session by its id, in any thread."""
        found = None if self._thrift is None else thrift_session_user(self._thrift, key)
        return session_user(self._jvm, self._seen, key) if found is None and self._connect is not None else found

    def _require(self, name: str, package: str, option: str) -> None:
        if not bool(self._jvm.view.org.apache.spark.util.Utils.classIsLoadable(name)):
            version = str(self._root.version)
            raise DeltaEnvironmentError(
                f"This Spark has no {package} on its class path.",
                hint=f"Start with --conf spark.jars.packages=org.apache.spark:{package}_2.13:{version}, "
                f"or leave out {option}.",
            )

    def _started(self, what: str, start: Any) -> Any:
        try:
            return start()
        except (Py4JError, PySparkException) as error:
            cause = getattr(error, "java_exception", None)
            reason = first_line(error) if cause is None else _root_cause(cause)
            raise DeltaEnvironmentError(
                f"The {what} server did not start: {reason}", hint="Check its settings; --verbose shows all messages."
            ) from error

    def _publish_logins(self, hive: Mapping[str, str]) -> None:
        """Set the log-in settings as JVM properties, because the servers' log-in code does not read the session's."""
        for name, value in hive.items():
            if name.startswith(("hive.server2.authentication", "hive.server2.custom.authentication")):
                self._jvm.view.java.lang.System.setProperty(name, value)

    def _start_thrift(self) -> Any:
        module = scala_object(self._jvm.view.org.apache.spark.sql.hive.thriftserver, "HiveThriftServer2")
        thrift = module.startWithContext(self._root._jsparkSession.newSession().sqlContext())
        share_database(self._jvm, thrift)
        return thrift

    def _start_connect(self) -> Any:
        module = scala_object(self._jvm.view.org.apache.spark.sql.connect.service, "SparkConnectService")
        module.start(self._root.sparkContext._jsc.sc())
        return module

    def _stop_thrift(self) -> None:
        if self._thrift is not None:
            self._thrift.stop()

    def _stop_connect(self) -> None:
        if self._connect is not None:
            self._connect.stop(self._jvm.none, self._jvm.none)

    def _check_starting(self) -> None:
        """Raise if Spark has ended or stopped before its servers accepted a connection."""
        self.check_process()
        if self.has_lost_spark:
            raise DeltaEnvironmentError(
                "Spark stopped by itself before its servers accepted connections.",
                hint="Look at the page of the cluster's master, and start the server again with --verbose.",
            )


def _root_cause(error: Any) -> str:
    while error.getCause() is not None:
        error = error.getCause()
    return f"{error.getClass().getSimpleName()}: {error.getMessage()}"
