#!/usr/bin/env python3
"""Tell which tests with servers, and which of the stack's further parts, a run takes.

Prints four lines: the room of tests with servers; the stack's further parts that run, in this order, as long as there
is time; those that are left to other commits; whether tests run with the oldest
Spark, too, "yes" or "no". What the commits of the last four hours before this one changed runs; of
the others one, with every fourth commit.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

# What begins the names of files that a part is about. Each part has its own tests below them, too.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "hdfs": ("tests/hdfs/", "pydelta/storage/hdfs"),
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
}
STACK: Mapping[str, tuple[str, ...]] = {
    "kafka": ("images/kafka/", "scripts/test-stack-kafka", "tests/stack/test_kafka", "pydelta/tools/ingest/"),
    "serve": ("scripts/test-stack-serve", "scripts/stack-sql", "tests/stack/test_serve", "tests/stack/outside/"),
    "presto": ("images/presto/", "scripts/test-stack-presto", "scripts/stack-presto", "tests/stack/test_presto"),
    "notebook": (
        "images/notebook/",
        "scripts/test-stack-notebook",
        "scripts/test-stack-history",
        "tests/stack/test_history",
    ),
    "same": ("scripts/stack-wait", "scripts/stack-up", "scripts/stack-lib", "scripts/test-stack-same"),
    "restore": ("scripts/stack-backup", "scripts/stack-restore", "scripts/test-stack-restore"),
    "hdfs": ("images/hdfs/", "tests/stack/test_hdfs", "trino_conf/catalog-hdfs", "pydelta/storage/hdfs"),
    "versity": ("images/versity/", "images/store/"),
    "faults": ("scripts/test-stack-faults", "tests/stack/faults"),
    "outages": (
        "scripts/test-stack-outages",
        "tests/stack/outages",
        "pydelta/storage/probe",
        "pydelta/storage/object_errors",
    ),
    "secure": ("scripts/test-stack-secure", "docker-compose.secure.yml", "tests/stack/test_secure"),
    "monitor": ("images/monitor/", "scripts/test-stack-monitor", "pydelta/tools/ui/metrics"),
}
OLDEST = (
    "pydelta/engines/spark/versions",
    "pydelta/engines/spark/jvm",
    "pydelta/engines/spark/local_rows",
    "scripts/test-spark-version",
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
    concerned, others = in_turn(ROOMS, changed, number)
    return [*concerned, *others][0]


def parts_of(changed: Sequence[str], number: int) -> tuple[list[str], list[str]]:
    """Choose the stack's further parts of a run: those concerned; with every fourth commit one more, whose turn it is.

    Returns:
        The parts that run, and those that do not.
    """
    concerned, others = in_turn(STACK, changed, number // 4)  # so that every part has its turn, however many there are
    more = 1 if number % 4 == 0 else 0
    return [*concerned, *others[:more]], others[more:]


def runs_oldest_spark(changed: Iterable[str], number: int) -> bool:
    """Return whether tests run with the oldest Spark too: where version code changed, and with every fourth commit."""
    return number % 4 == 2 or any(file.startswith(OLDEST) for file in changed)


def main() -> None:
    """See above."""
    number = int(_git("rev-parse", "HEAD")[:7], 16)
    since = datetime.fromisoformat(_git("show", "-s", "--format=%cI", "HEAD")) - timedelta(hours=4)
    changed = _git("log", f"--since={since.isoformat()}", "--name-only", "--format=").splitlines()
    run, left = parts_of(changed, number)
    oldest = "yes" if runs_oldest_spark(changed, number) else "no"
    sys.stdout.write(f"{room_of(changed, number)}\n{' '.join(run)}\n{' '.join(left)}\n{oldest}\n")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
