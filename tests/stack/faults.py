"""Two applications write one table while the stack's containers are killed; then it is counted what they were told.

::

    work ---> writer 0, writer 1: a process each, started again whenever it ends
                  each step in a ledger: what it begins, then how it ended: done, failed, unknown
              until the file STOP is there
         ---> the rows in Spark, in Trino's delta, in Trino's hive, against both ledgers

``scripts/test-stack-faults`` calls ``faults.py work`` within the stack, and that ``begin``, ``write N``, ``check`` and
``end``; ``faults.py done`` says how many steps each writer was told are done.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import time
from pathlib import Path

TABLE = "lake.stack_tests_faults"
FOLDER = Path("/tmp/faults")
STOP = FOLDER / "stop"
WRITERS, ROWS = 2, 100
CONF = {
    "spark.driver.memory": "512m",
    "spark.cores.max": "1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


def ledger(writer: int) -> Path:
    """Name the file of a writer's steps: a line of JSON each."""
    return FOLDER / f"{writer}.jsonl"


def steps(text: str) -> dict[int, str]:
    """How each step of a ledger ended; a process that was killed left one ``begun``, and its last line half written."""
    found = {}
    for line in text.split("\n")[:-1]:
        step, said = json.loads(line)
        found[step] = said
    return found


def begin(writer: int) -> tuple[int, str]:
    """The number of the next step, and what it does: two of three append a batch, the third deletes half of one."""
    step = max(steps(ledger(writer).read_text()), default=-1) + 1 if ledger(writer).exists() else 0
    return step, "delete" if step % 3 == 2 else "append"


def write(writer: int) -> None:
    """Take one step after the other, noting each, until told to stop."""
    import pydelta
    from pydelta.errors import CommitStateUnknownError, CommittedError

    spark = pydelta.session(f"faults-{writer}", conf=CONF)
    failures = 0
    with ledger(writer).open("a+") as notes:
        notes.seek(0)
        notes.truncate(notes.read().rfind("\n") + 1)  # half a line, left by a process that was killed, is none

        def note(step: int, said: str) -> None:
            notes.write(json.dumps([step, said]) + "\n")
            notes.flush()
            os.fsync(notes.fileno())

        while not STOP.exists():
            step, kind = begin(writer)
            note(step, "begun")
            try:
                if kind == "append":
                    rows = spark.range(ROWS).selectExpr(f"{writer} AS writer", f"{step} AS step", "id AS n")
                    rows.write.format("delta").mode("append").saveAsTable(TABLE)
                else:
                    spark.sql(f"DELETE FROM {TABLE} WHERE writer = {writer} AND step = {step - 2} AND n < {ROWS // 2}")
                note(step, "done")
                failures = 0
            except CommittedError as error:
                note(step, "done")
                print(f"writer {writer}, step {step}: {error}", flush=True)
            except CommitStateUnknownError as error:
                note(step, "unknown")
                print(f"writer {writer}, step {step}: {error}", flush=True)
            except Exception as error:  # noqa: BLE001  whatever it is: it says that nothing was committed
                note(step, "failed")
                print(f"writer {writer}, step {step}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                failures += 1
                if failures == 3:  # a session whose cluster forgot it is not mended by waiting
                    os._exit(1)
                time.sleep(1)
    spark.stop()


def allowed(said: dict[int, str], step: int) -> set[int]:
    """How many rows a batch may have: what was acknowledged counts, what failed does not, the rest may have landed."""
    appended, deleted = said[step], said.get(step + 2 - step % 3, "failed") if step % 3 == 0 else "failed"
    whole = {"done": {ROWS}, "failed": {0}}.get(appended, {0, ROWS})
    halves = {"done": {True}, "failed": {False}}.get(deleted, {True, False})
    if appended not in ("done", "failed"):
        halves = halves | {False}  # it may land after the DELETE that looked for it
    return {rows // 2 if half else rows for rows in whole for half in halves}


def wrong(said: list[dict[int, str]], counted: dict[tuple[int, int], tuple[int, int]]) -> list[str]:
    """Say what differs between ledgers and a table.

    Args:
        said: Each writer's steps.
        counted: Rows and distinct rows by writer and step.
    """
    found = [f"writer {key[0]} step {key[1]} began in no ledger" for key in counted if key[1] not in said[key[0]]]
    for writer, one in enumerate(said):
        for step, outcome in one.items():
            rows, distinct = counted.get((writer, step), (0, 0))
            if rows != distinct:
                found.append(f"writer {writer} step {step}: {rows - distinct} rows are doubled")
            elif step % 3 != 2 and rows not in allowed(one, step):
                found.append(f"writer {writer} step {step} is {outcome}: {rows} rows, not {sorted(allowed(one, step))}")
            elif step % 3 == 2 and rows:
                found.append(f"writer {writer} step {step} appends nothing, and has {rows} rows")
    return found


def check() -> list[str]:
    """Count the table in Spark and in both catalogs of Trino, which the scheduler brings up to date by itself."""
    from conftest import run_on_trino

    import pydelta

    said = [steps(ledger(writer).read_text()) for writer in range(WRITERS)]
    for writer, one in enumerate(said):
        print(f"writer {writer}: {dict(collections.Counter(one.values()))}", flush=True)
    spark = pydelta.session("faults-check", conf=CONF)
    counts = f"SELECT writer, step, count(*), count(DISTINCT n) FROM {TABLE} GROUP BY writer, step"
    spark.sql(f"REFRESH TABLE {TABLE}")
    here = {(row[0], row[1]): (row[2], row[3]) for row in spark.sql(counts).collect()}
    spark.stop()
    found = [f"Spark: {words}" for words in wrong(said, here)]
    twin = TABLE.replace("lake.", "hive.lake_symlink.")
    for name, give_up in ((f"delta.{TABLE}", 60), (twin, 900)):
        since = time.monotonic()
        there: dict[tuple[int, int], tuple[int, int]] = {}
        while there != here and time.monotonic() - since < give_up:
            try:
                answer = run_on_trino(counts.replace(TABLE, name))
            except Exception as error:  # noqa: BLE001  said below, if it stays
                print(f"{name}: {str(error)[:300]}", flush=True)
                answer = []
            there = {(row[0], row[1]): (row[2], row[3]) for row in answer}
            if there != here:
                time.sleep(5)
        if there != here:
            found.append(f"{name} has other rows than Spark")
    return found


def prepare(*, create: bool) -> None:
    """Remove the table, with what a run that was ended left of it where its entry has gone; make it anew if asked."""
    from conftest import STORE_OPTIONS, WAREHOUSE

    import pydelta
    from pydelta.storage import open_store

    spark = pydelta.session("faults-prepare", conf=CONF)
    spark.sql(f"DROP TABLE IF EXISTS {TABLE}")
    store = open_store(f"{WAREHOUSE}/{TABLE.replace('.', '/')}", STORE_OPTIONS)
    store.delete_many([info.path for info in store.list_all()])
    if create:
        spark.sql(f"CREATE TABLE {TABLE} (writer INT, step INT, n BIGINT) USING DELTA")
    spark.stop()


def work() -> int:
    """Keep both writers running until told to stop, then compare; returns the exit code.

    Whatever takes a JVM is a process of its own, since the container holds two of them and not more.
    """
    FOLDER.mkdir(parents=True)
    here = [sys.executable, __file__]
    subprocess.run([*here, "begin"], check=True)
    command = ["as-user", "spark", *here, "write"]  # with the key that a user's applications have
    running: list[subprocess.Popen[bytes] | None] = [None] * WRITERS
    while not STOP.exists():
        for writer in range(WRITERS):
            process = running[writer]
            if process is None or process.poll() is not None:
                running[writer] = subprocess.Popen([*command, str(writer)])
        time.sleep(0.5)
    for process in running:
        if process is not None:
            process.wait()
    code = subprocess.run([*here, "check"], check=False).returncode
    if code == 0:
        subprocess.run([*here, "end"], check=True)
    return code


def main(words: list[str]) -> int:
    """Do what the first word says."""
    if words[0] == "work":
        return work()
    if words[0] == "write":
        write(int(words[1]))
    elif words[0] == "check":
        found = check()
        print("\n".join(found) if found else "All that was acknowledged is there once, and nothing else.", flush=True)
        return 1 if found else 0
    elif words[0] == "done":
        for writer in range(WRITERS):
            text = ledger(writer).read_text() if ledger(writer).exists() else ""
            print(sum(said == "done" for said in steps(text).values()))
    else:
        prepare(create=words[0] == "begin")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
