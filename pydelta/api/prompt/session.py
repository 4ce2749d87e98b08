"""Start an enabled session for the prompt, with its start-up messages hidden."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pydelta.api.console.addresses import CONNECT_PORT
from pydelta.api.routing.quiet import quiet_session
from pydelta.engines.spark.session.places import CATALOG, METASTORE, WAREHOUSE, own_catalog, own_warehouse
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["prompt_session", "remote_session"]

_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j", "pydelta")


@contextmanager
def prompt_session(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    warehouse: str | None = None,
    metastore: str | None = None,
    verbose: bool = False,
) -> Iterator[SparkSession]:
    """Open a session for as long as the prompt is open.

    Args:
        master: Cluster to use; None for the configured one, else all local cores.
        conf: Spark settings, which take precedence over those set here.
        warehouse: Folder for managed tables and, without ``metastore``, for the catalog of their names; None for a
            default below the working directory, unless another setting chooses a catalog (``places``).
        metastore: ``thrift://host:port`` of a Hive Metastore.
        verbose: Show Spark's messages during the start.

    Raises:
        DeltaEnvironmentError: Spark does not start, or another process has the warehouse open.
    """
    given = dict(conf or {})
    folder = Path(warehouse).expanduser().absolute() if warehouse else None
    if folder is None and _is_our_own(master, metastore, given):
        folder = own_warehouse()
    settings = {
        "spark.ui.showConsoleProgress": "false",  # The prompt shows its own progress.
        "spark.log.level": "ERROR",
        **({"spark.ui.enabled": "false"} if master is None or master.startswith("local") else {}),
    }
    if folder is not None:
        settings[WAREHOUSE] = folder.as_uri()
    if metastore is not None:
        settings |= {CATALOG: "hive", METASTORE: metastore}
    derby = folder is not None and metastore is None and given.get(CATALOG, "hive") == "hive"
    derby = derby and METASTORE not in given
    lock: IO[str] | None = None
    if derby:
        assert folder is not None
        lock = _lock(folder)
        settings |= own_catalog(folder)
    try:
        if not verbose:
            _silence()
        spark = quiet_session("pydelta sql", master=master, conf=settings | given, verbose=verbose)
        try:
            yield spark
        finally:
            with suppress(Py4JError, OSError):  # Its process has ended, which was already reported.
                spark.stop()
    finally:
        if lock is not None:
            lock.close()


@contextmanager
def remote_session(address: str, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Open a session of a running server, ``pydelta serve``, while the prompt is open. It needs no local JVM.

    Args:
        address: ``sc://host:port``, with Spark Connect's parameters after it: ``/;user_id=ada;token=…``.
        conf: Spark settings of the session.

    Raises:
        InvalidArgumentError: The address is malformed.
        DeltaEnvironmentError: No server answers or accepts the user, or Spark Connect's client is not installed.
    """
    place = urlsplit(address)
    try:
        host, port = place.hostname, place.port or CONNECT_PORT
    except ValueError:
        host, port = None, 0
    if place.scheme != "sc" or not host:
        raise InvalidArgumentError(f"{address} is not an address of Spark Connect.", hint="Write sc://host:15002.")
    try:
        # Spark's own client would retry for ten minutes.
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        raise DeltaEnvironmentError(
            f"Nothing answers at {host}:{port}: {error.strerror or error}.", hint="Start pydelta serve there."
        ) from error
    _silence()
    try:
        from pyspark.sql import SparkSession as Session

        builder = Session.builder.remote(address)
        for name, value in (conf or {}).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    except ImportError as error:
        raise DeltaEnvironmentError(
            f"Spark Connect's client is not installed: {error}", hint='Install it: pip install "pyspark[connect]".'
        ) from error
    except PySparkException as error:
        raise DeltaEnvironmentError(
            f"{host}:{port} did not open a session: {error}", hint="Look at its log."
        ) from error
    try:
        yield spark
    finally:
        with suppress(PySparkException):
            spark.stop()


def _silence() -> None:
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _is_our_own(master: str | None, metastore: str | None, given: Mapping[str, str]) -> bool:
    """Return whether only this prompt decides where names are kept: no cluster, installation or setting does."""
    elsewhere = {CATALOG, METASTORE, "spark.master", WAREHOUSE} & set(given)
    return not (master or metastore or elsewhere or {"SPARK_HOME", "MASTER", "SPARK_CONF_DIR"} & set(os.environ))


def _lock(folder: Path) -> IO[str]:
    """Lock the folder, because Derby allows only one process and its own error does not explain that."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "_catalog.lock").open("w")
    except OSError as error:
        raise DeltaEnvironmentError(
            f"The warehouse {folder} cannot be used: {error.strerror}.", hint="Name another one with --warehouse."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise DeltaEnvironmentError(
            f"Another prompt has the warehouse {folder} open.",
            hint="Close it, name another one with --warehouse, or share a Hive Metastore with --metastore.",
        ) from error
    return file
