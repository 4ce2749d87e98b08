"""Five hundred persons leave a lake of every feature while others write: nothing of them is left, all others are."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from s3_server import S3Server

from pydelta.api.python.local import LocalTable, open_table
from pydelta.commands.run import Context
from pydelta.engines.arrow.engine import ArrowEngine
from pydelta.engines.spark.logs import log_for_path
from pydelta.engines.spark.running import session_context
from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.storage.pages import UNFINISHED_PREFIX
from pydelta.tables import DeltaTable
from pydelta.tools.erasure.report import report_of, verify, write_report
from pydelta.tools.erasure.running import ErasureRequest, choose, erase_all, look_at
from tests.erasure.lake import KINDS, Lake, email, found_in, found_on_disk, made, persons_in, rows_of

pytestmark = pytest.mark.ci
WRITTEN = ("plain", "feed", "vectors")


class Writer(threading.Thread):
    """Appends rows of others until it is stopped; ``acknowledged`` are those whose commit was confirmed."""

    def __init__(self, path: str, first: int) -> None:
        super().__init__(daemon=True)
        self.path, self.number = path, first
        self.stopped = threading.Event()
        self.acknowledged: Counter = Counter()
        self.refused = 0

    def run(self) -> None:
        while not self.stopped.is_set():
            row = (f"other-{self.number}", self.number, self.number)
            self.number += 1
            rows = pa.table({"mail": [row[0]], "id": [row[1]], "n": [row[2]], "region": ["r0"]})
            try:
                open_table(self.path).append(rows)
            except DeltaError:
                self.refused += 1
            else:
                self.acknowledged[row] += 1
            time.sleep(0.2)


@pytest.fixture(scope="module")
def server():
    found = S3Server()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    return made(spark, tmp_path_factory.mktemp("lake"))


def in_bucket(server: S3Server, lake: Lake) -> tuple[str, object]:
    """A table in a bucket that keeps versions, and the bucket's client."""
    client, bucket, options = server.client(), server.versioned_bucket(), server.options()
    location = f"s3a://{bucket}/people"
    persons = range(300)
    rows = pa.table({"mail": list(map(email, persons)), "id": list(persons), "n": list(persons)})
    table = LocalTable.create(location, rows, options=options)
    table.delete(f"mail = '{email(min(lake.erased))}'")
    table.vacuum()
    return location, client


def duckdb_rows(path: str, column: str) -> Counter:
    from tests.iceberg.readers import duck

    scan = f"iceberg_scan('{path}/_pydelta/iceberg')"
    return Counter(duck().sql(f'SELECT "{column}", id, n FROM {scan}').fetchall())


@pytest.mark.spark
def test_nothing_of_five_hundred_is_left_and_everything_of_others_is(spark, lake, server, tmp_path):
    DeltaTable.forPath(spark, lake.path("plain")).clone(lake.path("shallow clone"), isShallow=True)
    DeltaTable.forPath(spark, lake.path("vectors")).clone(lake.path("deep clone"))
    for name, source in (("shallow clone", "plain"), ("deep clone", "vectors")):
        lake.expected[name] = Counter(lake.expected[source])
    location, client = in_bucket(server, lake)
    assert len(persons_in(str(list(Path(lake.root).rglob("*"))))) > 0
    held = {place.split("/")[0] for place in found_on_disk(lake.root, lake.erased)}
    assert held >= {*KINDS, "deep clone"}
    stream = (
        spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        .selectExpr("concat('stream-', value) AS mail", "value AS id", "value AS n")
        .writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 second").start(lake.path("streamed"))
    )  # fmt: skip
    writers = [Writer(lake.path(name), 100_000 * place) for place, name in enumerate(WRITTEN, 1)]
    for writer in writers:
        writer.start()
    while not DeltaLog.for_table(lake.path("streamed")).table_exists():
        time.sleep(0.5)
    spark.createDataFrame([(email(person), person, person) for person in sorted(lake.erased)[:50]], "mail string, id long, n long").write.format("delta").mode("append").save(lake.path("streamed"))  # fmt: skip  # noqa: E501
    (tmp_path / "keys.csv").write_text(lake.keys_csv())
    more = [(lake.path(name), "mail") for name in ("shallow clone", "deep clone", "streamed")]
    (tmp_path / "map.toml").write_text(lake.mapping(*more, (location, "mail")))
    contexts = {
        lake.path(name): session_context(spark, log_for_path(spark, lake.path(name)))
        for name in (*KINDS, "shallow clone", "deep clone", "streamed")
    }
    log = DeltaLog.for_table(location, options=server.options())
    contexts[location] = Context(log, ArrowEngine(log))
    request = ErasureRequest(
        keys_file=str(tmp_path / "keys.csv"),
        mapping_file=str(tmp_path / "map.toml"),
        history="drop",
        object_versions="drop",
    )
    targets = choose(request, contexts)
    assert len(targets.chosen) == len(KINDS) + 4

    for _ in range(3):  # A table is run again if other writers won each time.
        outcomes = erase_all(look_at(targets.chosen, request), request)
        if all(outcome.erasure is not None and outcome.erasure.is_proven for outcome in outcomes):
            break
    for writer in writers:
        writer.stopped.set()
        writer.join(60)
    stream.stop()

    failed = {outcome.target.name: outcome.error or outcome.erasure.left for outcome in outcomes
              if outcome.erasure is None or not outcome.erasure.is_proven}  # fmt: skip
    assert failed == {}
    report = write_report(report_of(outcomes, request), tmp_path / "reports", key_file=None)
    assert verify(report) == []
    assert persons_in(report.read_text()) == set()

    assert found_on_disk(lake.root, lake.erased) == []
    bucket = location.split("/")[2]
    for version in client.list_object_versions(Bucket=bucket).get("Versions", ()):
        data = client.get_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])["Body"].read()
        assert list(found_in(version["Key"], data, lake.erased)) == [], version["Key"]
    mails = open_table(location, options=server.options()).scan(columns=["mail"]).to_pydict()["mail"]
    assert sorted(mails) == [email(person) for person in range(300) if person not in lake.erased]
    for writer, name in zip(writers, WRITTEN, strict=True):
        assert writer.acknowledged, name
        lake.expected[name] += writer.acknowledged
    for name in (*KINDS, "shallow clone", "deep clone"):
        assert rows_of(spark, lake, name) == lake.expected[name], name
        if name in KINDS and KINDS[name].iceberg:
            DeltaTable.forPath(spark, lake.path(name)).generate("iceberg")
            assert duckdb_rows(lake.path(name), KINDS[name].renamed or "mail") == lake.expected[name], name
    streamed = Counter(row[0] for row in rows_of(spark, lake, "streamed"))
    assert set(streamed.values()) == {1}
    assert set(streamed) == {f"stream-{number}" for number in range(len(streamed))}


def test_killed_at_any_moment_and_run_again(tmp_path):
    """Tables without a JVM, in processes that are killed after a random time, until one comes to its end."""
    chance = random.Random(11)
    root = tmp_path / "killed"
    root.mkdir()
    persons = range(400)
    erased = frozenset(chance.sample(persons, 100))
    rows = pa.table({"mail": list(map(email, persons)), "id": list(persons), "n": list(persons)})
    tables = {}
    for name, properties in (("a", {}), ("b", {"delta.enableDeletionVectors": "true"})):
        table = LocalTable.create(root / name, rows.slice(0, 200), properties=properties)
        table.append(rows.slice(200))
        table.delete(f"mail IN ('{email(min(erased))}', '{email(1999)}')")
        tables[name] = table
    (tmp_path / "keys.csv").write_text("mail\n" + "".join(f"{email(person)}\n" for person in sorted(erased)))
    command = [sys.executable, "-m", "pydelta.api.cli.cli", "erase", str(root / "a"), str(root / "b"), "--keys",
               str(tmp_path / "keys.csv"), "--history", "drop", "--yes"]  # fmt: skip
    ends = []
    while len(ends) < 40 and 0 not in ends:
        for path in root.rglob(f"{UNFINISHED_PREFIX}*"):  # As if each run came a retention after the killed one.
            os.utime(path, (0, 0))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ))
        try:
            process.communicate(timeout=chance.uniform(0.3, 1) * 1.2 ** len(ends))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        ends.append(process.returncode)
        for name in tables:
            mails = open_table(root / name).scan(columns=["mail"]).to_pydict()["mail"]
            assert Counter(mail for mail in mails if not persons_in(mail) & erased) == Counter(
                email(person) for person in persons if person not in erased
            )
    assert ends[-1] == 0
    assert ends.count(-signal.SIGKILL) >= 3
    assert found_on_disk(root, erased) == []
