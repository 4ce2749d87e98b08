#!/usr/bin/env python3
"""Decide what a run of CI takes: print it as shell variables, which ``.ci/run`` reads.

A run has time for a part of the tests only, so that each commit takes its turn. What rotates goes by the number of the
commit, the first seven digits of its hash; what the commits of the last four hours changed runs in any case. With
``ALL_PROFILES`` in the environment everything that can be left out runs, and nothing is left to other commits.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path

# One run takes the K-th of this many parts.
LEFT_OUT_PARTS = 24  # of the tests and the cases that `make test` leaves out
PROGRAM_PARTS = 80  # of the programs that are compared with the reference engine
THIRDS = 3  # of a room's tests, by K: tests/selection/choosing.py
STORES = ("local", "minio")  # those of tests/stores/rows.py that are at hand: certified with a seed of the commit
STACK_TEST_PARTS = 6  # of the stack's tests that take minutes
# With every fourth commit one part of the stack runs that no change concerns, with another fourth one more Spark, and
# with a third fourth one more Python.
EVERY = 4
# The oldest Spark, and of each line the newest release that there is.
SPARKS = ("4.1.0", "4.1", "4.2", "4.3")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# No further part of the stack begins after this many seconds, so that a run ends within its time. One runs in any case.
STACK_SECONDS = 33 * 60

# What the names of files begin with that a part is about, its own tests among them.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "hdfs": ("tests/hdfs/", "tests/kdc", "pydelta/storage/hdfs"),
    "kafka": (
        "tests/kafka/",
        "pydelta/tools/ingest/",
        "pydelta/api/streams/",
        "jobs/ingest_stream",
        "jobs/stream_copy",
    ),
    "metastore": (
        "tests/metastore/",
        "catalog_sync/",
        "pydelta/manifests/",
        "pydelta/engines/spark/catalog/",
    ),
    "minio": (
        "tests/minio/",
        "images/minio/",
        "images/store/",
        "images/versity/",
        "pydelta/storage/",
        "pydelta/tools/inventory/",
        "jobs/schedule",
    ),
    "serve": (
        "tests/serve/",
        "pydelta/api/server/",
        "pydelta/api/routing/",
        "pydelta/api/python/",
    ),
    "yarn": (
        "tests/yarn/",
        "tests/hadoop_servers",
        "tests/hdfs/guarded_hdfs",
        "tests/kdc",
        "pydelta/engines/spark/session/tokens",
        "tests/submitting",
        "tests/cluster/archive_job",
        "scripts/make-archive",
    ),
}
STACK: Mapping[str, tuple[str, ...]] = {
    "kafka": (
        "images/kafka/",
        "compose/profiles",
        "scripts/test-stack-kafka",
        "tests/stack/test_kafka",
        "pydelta/tools/ingest/",
        "docs/tutorials/stream-from-kafka",
    ),
    "serve": (
        "compose/profiles",
        "scripts/test-stack-serve",
        "scripts/stack-sql",
        "tests/stack/test_serve",
        "tests/stack/outside/",
    ),
    "presto": (
        "images/presto/",
        "compose/profiles",
        "scripts/test-stack-presto",
        "scripts/stack-presto",
        "tests/stack/test_presto",
    ),
    "iceberg": (
        "compose/profiles",
        "images/ui/iceberg-catalog",
        "trino_conf/catalog/iceberg",
        "images/presto/conf/catalog/iceberg",
        "scripts/test-stack-iceberg",
        "tests/stack/outside/test_iceberg",
        "tests/iceberg/",
        "catalog_sync/iceberg/",
        "catalog_sync/rest/",
        "pydelta/manifests/iceberg/",
    ),
    "cdc": (
        "compose/changes",
        "images/connect/",
        "jobs/changes/",
        "scripts/test-stack-cdc",
        "scripts/stack-verify-changes",
        "tests/stack/change_history",
    ),
    "bi": (
        "compose/bi",
        "images/superset/",
        "images/demo/",
        "jobs/verify/superset",
        "jobs/verify/charts",
        "scripts/test-stack-bi",
        "scripts/stack-verify-charts",
        "tests/stack/outside/test_superset",
    ),
    "notebook": (
        "images/notebook/",
        "compose/profiles",
        "scripts/test-stack-notebook",
        "scripts/test-stack-history",
        "tests/stack/test_history",
    ),
    "same": (
        "docker-compose.yml",
        "compose/",
        "scripts/stack-wait",
        "scripts/stack-up",
        "scripts/stack-lib",
        "scripts/test-stack-same",
    ),
    "restore": ("scripts/stack-backup", "scripts/stack-restore", "scripts/test-stack-restore"),
    "hdfs": ("images/hdfs/", "compose/stores", "tests/stack/test_hdfs", "trino_conf/store/", "pydelta/storage/hdfs"),
    "versity": ("images/versity/", "images/store/", "compose/stores"),
    "faults": ("scripts/test-stack-faults", "tests/stack/faults"),
    "outages": (
        "scripts/test-stack-outages",
        "tests/stack/outages",
        "pydelta/storage/probe",
        "pydelta/storage/object_errors",
    ),
    "secure": (
        "scripts/test-stack-secure",
        "docker-compose.secure.yml",
        "trino_conf/secure/",
        "tests/stack/test_secure",
    ),
    "users": (
        "docker-compose.users.yml",
        "scripts/test-stack-users",
        "tests/stack/outside/test_users",
        "tests/stack/outside/users",
        "pydelta/api/access/",
        "pydelta/api/server/allowed",
        "pydelta/api/server/spark/limits",
        "pydelta/tools/ui/roles",
    ),
    "monitor": (
        "images/monitor/",
        "compose/profiles",
        "docker-compose.alerts.yml",
        "scripts/test-stack-monitor",
        "pydelta/tools/alerts/",
        "pydelta/tools/ui/metrics",
    ),
    "airflow": (
        "compose/airflow",
        "images/airflow/",
        "jobs/schedule",
        "jobs/verify/trino",
        "scripts/test-stack-airflow",
        "tests/stack/dags/",
    ),
}
OLDEST = (
    "pydelta/engines/spark_versions",
    "pydelta/engines/spark/jvm",
    "pydelta/engines/spark/local_rows",
    "scripts/test-spark-version",
)
PACKAGES = ("pyproject.toml", "constraints.txt", "scripts/test-python-version")


@dataclass(frozen=True)
class Turns:
    """What one run takes; the names are those of the variables in ``.ci/run``.

    Attributes:
        rooms: Which tests with servers run: the name of a room, or ``all``.
        and_part: The part of what ``make test`` leaves out, as ``K/N``.
        programs_part: The part of the programs that are compared with the reference engine, as ``K/N``.
        store: The store that ``pydelta certify`` tries.
        stack_turn: The part of the stack's slow tests, as ``K/N``.
        stack_parts: Further parts of the stack that run, in this order, as long as there is time.
        stack_others: Further parts of the stack that are left to other commits.
        stack_seconds: After this many seconds no further part of the stack begins; empty for no limit.
        sparks: Versions or lines of Spark with which a few tests run, too.
        pythons: Versions of Python with which the tests without Spark run, too, if the machine has them.
        other_suite: The suite of another project that runs, and the number of its part; without a name each runs.
    """

    rooms: str
    and_part: str
    programs_part: str
    store: str
    stack_turn: str
    stack_parts: tuple[str, ...]
    stack_others: tuple[str, ...]
    stack_seconds: str
    sparks: tuple[str, ...]
    pythons: tuple[str, ...]
    other_suite: str

    def shell(self) -> str:
        """Write the turns as assignments of a shell, a list as an array."""
        return "".join(f"{field.name}={_quoted(getattr(self, field.name))}\n" for field in fields(self))


def decide(number: int, changed: Sequence[str], *, everything: bool = False) -> Turns:
    """Decide what a run takes.

    Args:
        number: Of the commit; any number that differs from commit to commit.
        changed: Names of the files that the last commits changed.
        everything: Whether nothing is left to other commits.

    Returns:
        What the run takes.
    """
    run, left = parts_of(changed, number)
    return Turns(
        rooms="all" if everything else room_of(changed, number),
        and_part=_part(number, LEFT_OUT_PARTS),
        programs_part=_part(number, PROGRAM_PARTS),
        store=STORES[number % len(STORES)],
        stack_turn=_part(number, STACK_TEST_PARTS),
        stack_parts=(*run, *left) if everything else tuple(run),
        stack_others=() if everything else tuple(left),
        stack_seconds="" if everything else str(STACK_SECONDS),
        sparks=SPARKS if everything else tuple(sparks_of(changed, number)),
        pythons=PYTHONS if everything else tuple(pythons_of(changed, number)),
        other_suite=f"--turn {number}" if everything else other_suite(changed, number),
    )


def in_turn(parts: Mapping[str, tuple[str, ...]], changed: Iterable[str], number: int) -> tuple[list[str], list[str]]:
    """Sort parts: those that a change concerns, and the others, each from the one whose turn it is.

    Args:
        parts: For each part, what begins the names of its files.
        changed: Names of files.
        number: Of the commit; any number that differs from commit to commit.

    Returns:
        The parts concerned, and the others.
    """
    names = list(parts)
    first = number % len(names)
    ordered = names[first:] + names[:first]
    files = list(changed)
    concerned = [name for name in ordered if any(file.startswith(parts[name]) for file in files)]
    return concerned, [name for name in ordered if name not in concerned]


def room_of(changed: Sequence[str], number: int) -> str:
    """Choose the room of tests with servers whose turn it is: of those concerned, if there are any."""
    # Of a room the part K/N chooses a third: by the number itself a room would meet the same third each time.
    concerned, others = in_turn(ROOMS, changed, number // THIRDS)
    return [*concerned, *others][0]


def parts_of(changed: Sequence[str], number: int) -> tuple[list[str], list[str]]:
    """Choose the stack's further parts of a run: those concerned; with every fourth commit one more, whose turn it is.

    Returns:
        The parts that run, and those that do not.
    """
    # By the number itself some parts would have a turn seldom: one more runs at multiples of EVERY alone.
    concerned, others = in_turn(STACK, changed, number // EVERY)
    more = 1 if number % EVERY == 0 else 0
    return [*concerned, *others[:more]], others[more:]


def sparks_of(changed: Iterable[str], number: int) -> list[str]:
    """Choose further Sparks: the oldest if version code changed; with every fourth commit the one whose turn it is."""
    found = [SPARKS[0]] if any(file.startswith(OLDEST) for file in changed) else []
    if number % EVERY == 2:
        found.append(SPARKS[number // EVERY % len(SPARKS)])
    return list(dict.fromkeys(found))


def pythons_of(changed: Iterable[str], number: int) -> list[str]:
    """Choose the further Python whose turn it is: if the packages changed, and with every fourth commit."""
    is_asked = number % EVERY == 3 or any(file in PACKAGES for file in changed)
    return [PYTHONS[number // EVERY % len(PYTHONS)]] if is_asked else []


def others() -> dict[str, tuple[str, ...]]:
    """Read which suites of other projects there are, and what the names of files begin with that concern each."""
    places = [f"tests/suites/{folder}/" for folder in ("packages", "programs", "reasons", "results")]
    rows = tomllib.loads((Path(__file__).resolve().parents[1] / "tests" / "suites" / "suites.toml").read_text())
    return {name: (*(place + name for place in places), *row.get("concerns", ())) for name, row in rows.items()}


def other_suite(changed: Iterable[str], number: int) -> str:
    """Choose the suite of another project whose turn it is, of those concerned if there are any, and its part."""
    there = others()
    concerned, left = in_turn(there, changed, number)
    return f"{[*concerned, *left][0]} --turn {number // len(there)}"


def main() -> None:
    """Print the turns of the commit that is checked out."""
    number = int(_git("rev-parse", "HEAD")[:7], 16)
    since = datetime.fromisoformat(_git("show", "-s", "--format=%cI", "HEAD")) - timedelta(hours=4)
    changed = _git("log", f"--since={since.isoformat()}", "--name-only", "--format=").splitlines()
    sys.stdout.write(decide(number, changed, everything=bool(os.environ.get("ALL_PROFILES"))).shell())


def _part(number: int, parts: int) -> str:
    return f"{number % parts + 1}/{parts}"


def _quoted(value: str | tuple[str, ...]) -> str:
    return shlex.quote(value) if isinstance(value, str) else f"({shlex.join(value)})"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
