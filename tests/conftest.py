"""One Spark session for all tests that need one: starting it costs more than most tests do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from leaks import look_at_plans, no_secret_is_left, no_secret_is_shown, secret
from selection.choosing import LeftOut, is_its_third, is_its_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["no_secret_is_left", "no_secret_is_shown"]  # of every test

settings.register_profile("shared machine", deadline=None)  # how long a case takes is nothing to fail for
settings.register_profile("mutants", deadline=None, derandomize=True, database=None)
settings.load_profile("shared machine")

# A test's tables have some rows: what Spark sets aside for millions of them, and describes for a page that nobody
# opens, would be a good part of its work.
FRUGAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.driver.memory": "3g",
    "spark.buffer.pageSize": "1m",
    "spark.broadcast.blockSize": "256k",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
}
# Most code of a test runs a few times: the second compiler and parallel collectors cost more than they give. With one
# compiler the JVM has room for 48 MB of compiled code, and once that is full it spends a third of its time on making
# room. For sessions in processes of their own, too.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m -XX:-UseCodeCacheFlushing -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)
# The session that most tests share lives long: a young generation of this size makes full collections rare.
HEAP = "-Xms1500m -Xmn700m -XX:MetaspaceSize=400m"

SERVERS = frozenset(
    {"hdfs", "kafka", "metastore", "minio", "serve", "yarn"}
)  # folders whose files share a server that is slow to start


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all tests of a file to one worker (``-n``), and all of a folder whose files share a server."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder = _folder(nodeid)
            return folder if folder in SERVERS else nodeid.split("::", 1)[0]

    return ByFile(config, log)


def _folder(nodeid: str) -> str:
    """The folder in ``tests`` that a test is in."""
    return nodeid.split("::", 1)[0].removeprefix("tests/").split("/")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("selection", "which tests run (tests/selection)")
    group.addoption("--selected", action="store_true", help="leave out what runs no branch that others do not")
    group.addoption(
        "--servers",
        metavar="A,B",
        help=f"of the folders {', '.join(sorted(SERVERS))} run these alone; none: no such tests",
    )
    group.addoption("--and-part", metavar="K/N", help="with --selected: and the K-th of N parts of those left out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left: list[pytest.Item] = []
    if config.getoption("--selected"):
        part = config.getoption("--and-part")
        left_out = LeftOut.read(part)
        left += [item for item in items if item.nodeid in left_out or (part is None and item.get_closest_marker("ci"))]
        left += [item for item in items if item.get_closest_marker("in_turn") and not is_its_turn(item.nodeid, part)]
        slow = [item for item in items if item.get_closest_marker("ci") or _folder(item.nodeid) in SERVERS]
        left += [item for item in slow if not is_its_third(item.nodeid, part)]
    unasked = _unasked_servers(config)
    left += [item for item in items if _folder(item.nodeid) in unasked]
    out = set(left)
    config.hook.pytest_deselected(items=list(out))
    items[:] = [item for item in items if item not in out]


def pytest_report_header(config: pytest.Config) -> list[str]:
    told = []
    if config.getoption("--selected"):
        part = config.getoption("--and-part")
        rest = (
            f", but for part {part} of them, a third of the tests of servers and of those marked ci, and some by turns"
        )
        more = rest if part else ", and tests marked ci and in_turn"
        told.append(f"tests and cases that run no branch of their own: left out{more}; make test SUITE=whole runs all")
    if unasked := _unasked_servers(config):
        told.append(f"tests of servers are left out ({', '.join(sorted(unasked))}); make test SUITE=servers runs them")
    return told


def _unasked_servers(config: pytest.Config) -> frozenset[str]:
    """Find the folders of servers that ``--servers`` does not name."""
    asked = config.getoption("--servers")
    if asked is None:
        return frozenset()
    names = frozenset(asked.split(",")) - {"none", ""}
    if unknown := names - SERVERS:
        there = ", ".join(sorted(SERVERS))
        raise pytest.UsageError(f"--servers: no folder {', '.join(sorted(unknown))}; there are {there}")
    return SERVERS - names


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give this process's clock the time zone Europe/Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


KEPT: set[str] = set()
"""Sessions that stay enabled to the end of the run."""


@pytest.fixture(autouse=True)
def no_session_stays_enabled() -> Iterator[None]:
    """Forget the sessions that a test enabled: PySpark's methods are put back when no enabled one is left."""
    patches = sys.modules.get("pydelta.engines.spark.session.patches")
    before = set(patches._enabled) if patches else set()
    yield
    if patches := sys.modules.get("pydelta.engines.spark.session.patches"):
        patches._enabled &= before | KEPT


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """An enabled local session with two cores, in UTC, with its warehouse in a temporary folder."""
    from jvm_contract.watching import complaint, watch_calls
    from pyspark.sql import SparkSession

    import pydelta
    from pydelta.engines.spark_versions import SPARKS

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("pydelta-tests")
    keys = {"spark.hadoop.fs.s3a.access.key": "AKIDEXAMPLE", "spark.hadoop.fs.s3a.secret.key": secret("session")}
    for name, value in {**FRUGAL, **keys, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
        builder = builder.config(name, value)
    options = f"-Dderby.system.home={folder / 'derby'} {JAVA_OPTIONS} {HEAP}"
    session = builder.config("spark.driver.extraJavaOptions", options).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    pydelta.enable(session)
    KEPT.add(str(session._jsparkSession.sessionUUID()))
    recorded = bool(os.environ.get("JVM_CALLS"))  # A recorder sees the callers only if nothing is in between.
    watch, end_watch = (None, None) if recorded else watch_calls()
    yield session
    if end_watch is not None:
        end_watch()
    look_at_plans(session)
    session.stop()
    # The register is of the newest version, which older ones differ from, and of the tests that `make test` runs.
    is_newest = session.version.startswith(".".join(map(str, SPARKS[-1])) + ".")
    is_recorded = request.config.getoption("--selected") and not request.config.getoption("--and-part")
    if watch is not None and is_newest and is_recorded:
        assert not watch.unknown, complaint(watch.unknown)
