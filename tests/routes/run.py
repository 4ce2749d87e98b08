"""Run a seed: a table and commands, each by every way, and compare what the logs say and what readers read."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import pyarrow as pa

import pydelta
from pydelta.api.python.remote_calls import is_remote
from pydelta.errors import DeltaError, UnsupportedFeatureError
from pydelta.log import DeltaLog, Snapshot
from pydelta.protocol.types import StructType
from tests.arrow_rows import canonical
from tests.routes.commands import Command, Table, draw_command, draw_table
from tests.routes.logs import LogReader, left_in
from tests.routes.ways import Api, Local, NotTaken, Sql, Way, write_rows

__all__ = ["Outcome", "run_commands", "run_seed", "ways_of"]

_OF_STATEMENTS = {"DELTA_MISSING_NOT_NULL_COLUMN_VALUE": "DELTA_INSERT_COLUMN_MISMATCH"}
"""What the reference says of an INSERT, by what it says of the same rows in a DataFrame."""


@dataclass(slots=True)
class Outcome:
    """What became of a seed.

    Args:
        wrong: What differed; empty for nothing.
        trace: What was done.
        counts: Steps, steps that all refuse, and per way those that it does itself.
    """

    wrong: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def ways_of(spark: Any) -> list[Way]:
    """Return the ways that there are with a session, classic or remote; the first one stands in for the others."""
    if is_remote(spark):
        from pyspark.sql.connect import functions as remote_functions

        return [Api(spark, remote_functions, "connect api"), Sql(spark, "connect sql"), Local()]
    from pyspark.sql import functions

    return [Api(spark, functions), Sql(spark), Local()]


def run_seed(seed: int, ways: Sequence[Way], folder: Path, spark: Any, steps: int = 6) -> Outcome:
    """Run a seed.

    Args:
        seed: Decides everything.
        ways: Each has a table of its own, at a place of its own.
        folder: For the tables.
        spark: Reads them.
        steps: How many commands.
    """
    random = Random(f"routes {seed}")

    def drawn(snapshot: Snapshot) -> Command:
        return draw_command(random, snapshot.schema, tuple(snapshot.partition_columns), snapshot.version)

    return _Run(draw_table(random), ways, folder, spark).run([drawn] * steps, seed)


def run_commands(table: Table, commands: Sequence[Command], ways: Sequence[Way], folder: Path, spark: Any) -> Outcome:
    """Run these commands on a new table, as ``run_seed`` runs those that it draws."""
    return _Run(table, ways, folder, spark).run([lambda _, command=command: command for command in commands], 0)


class _Run:
    def __init__(self, table: Table, ways: Sequence[Way], folder: Path, spark: Any) -> None:
        self._table, self._ways, self._folder, self._spark = table, ways, folder, spark
        self._outcome = Outcome()
        self._paths = {way.name: str(folder / way.name.replace(" ", "-") / table.folder) for way in ways}
        self._logs = {name: LogReader(path, texts=name != Local.name) for name, path in self._paths.items()}
        self._textless = LogReader(self._paths[ways[0].name], texts=False)

    def run(self, commands: Sequence[Callable[[Snapshot], Command]], seed: int) -> Outcome:
        outcome = self._outcome
        outcome.trace.append(str(self._table))
        said = {way.name: self._create(way) for way in self._ways}
        if not self._same(said) or said[self._ways[0].name]:
            return outcome
        for number, make in enumerate(commands):
            command = make(DeltaLog.for_table(self._paths[self._ways[0].name]).update())
            outcome.trace.append(f"{number}: {command}")
            if not self._step(number, command):
                return outcome
        reader = self._ways[seed % len(self._ways)].name
        outcome.wrong += [f"reading the table of {reader}: {text}" for text in self._differing(self._paths[reader])]
        return outcome

    def _step(self, number: int, command: Command) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        rows = self._folder / f"rows-{number}.parquet"
        write_rows(command, rows)
        said = {way.name: self._run(way, command, rows) for way in self._ways}
        self._outcome.counts["steps"] += 1
        same = self._same(said)
        self._outcome.counts["refused"] += bool(said[self._ways[0].name])
        return same

    def _create(self, way: Way) -> str:
        try:
            way.create(self._table, self._paths[way.name])
        except NotTaken:
            self._ways[0].create(self._table, self._paths[way.name])
        except Exception as error:  # noqa: BLE001 - all ways must say the same
            return _name(error)
        return ""

    def _run(self, way: Way, command: Command, rows: Path) -> str:
        path = self._paths[way.name]
        before = left_in(path)
        try:
            try:
                way.run(command, path, rows)
            except NotTaken as refused:
                self._outcome.trace.append(f"   {way.name}: {refused}")
                self._unchanged(way, before, "refused")
                self._ways[0].run(command, path, rows)
            else:
                self._outcome.counts[way.name] += 1
        except Exception as error:  # noqa: BLE001 - all ways must say the same
            self._outcome.trace.append(f"   {way.name}: {_name(error)}: {str(error)[:300]}")
            if not _is_ours(error):
                self._outcome.wrong.append(f"{way.name}: not an error of ours: {traceback.format_exc()[-1500:]}")
            self._unchanged(way, before, "failed")
            return _name(error)
        finally:
            DeltaLog.clear_cache()
        return ""

    def _unchanged(self, way: Way, before: set[str], what: str) -> None:
        if more := left_in(self._paths[way.name]) ^ before:
            self._outcome.wrong.append(f"{way.name} {what} and left {sorted(more)}")

    def _same(self, said: dict[str, str]) -> bool:
        """Whether all ways said the same and committed the same; what differs is noted."""
        first = self._ways[0].name
        wrong = self._outcome.wrong
        wrong += [
            f"{first} says {said[first]!r}, {name} {text!r}"
            for name, text in said.items()
            if text != (_OF_STATEMENTS.get(said[first], said[first]) if name.endswith("sql") else said[first])
        ]
        commits = {name: log.commits() for name, log in self._logs.items()}
        plain = self._textless.commits()
        for name, found in commits.items():
            expected = plain if name == Local.name else commits[first]
            if len(found) != len(expected):
                wrong.append(f"{first} made {len(expected)} versions, {name} {len(found)}")
                continue
            for ours, theirs in zip(expected, found, strict=True):
                missing, more = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
                if missing or more:
                    lines = _told_apart(sorted(missing.elements()), sorted(more.elements()))
                    wrong.append("\n".join([f"the logs of {first} and {name} differ:", *lines]))
        return not wrong

    def _differing(self, path: str) -> Iterator[str]:
        """What readers do not read alike: a session, no JVM, delta-rs."""
        schema = DeltaLog.for_table(path).update().schema
        expected = _rows(self._spark.read.format("delta").load(path).toArrow(), schema)
        try:
            found = _rows(pydelta.open(path).scan(), schema)
        except UnsupportedFeatureError:
            self._outcome.counts["scans refused"] += 1
        else:
            if found != expected:
                yield f"Spark {expected - found}, no JVM {found - expected}"
        try:
            theirs = deltalake.DeltaTable(path)
            read = deltalake.QueryBuilder().register("t", theirs).execute("select * from t").read_all()
            found = _rows(pa.table(read), schema)
        except Exception as error:  # noqa: BLE001 - it reads what it can
            self._outcome.trace.append(f"delta-rs: {str(error)[:200]}")
            self._outcome.counts["not read by delta-rs"] += 1
        else:
            if found != expected:
                yield f"Spark {expected - found}, delta-rs {found - expected}"


def _rows(table: pa.Table, schema: StructType) -> Counter[str]:
    columns = [canonical(table.column(item.name), item.data_type) for item in schema.fields]
    return Counter(map(repr, zip(*columns, strict=True)))


def _is_ours(error: Exception) -> bool:
    if isinstance(error, DeltaError):
        return True
    get = getattr(error, "getCondition", None)
    return get is not None and bool(get()) and not str(get()).startswith("INTERNAL")


def _name(error: Exception) -> str:
    get: Any = getattr(error, "getCondition", None)
    return str(get() if get is not None else None) or type(error).__name__


def _told_apart(left: list[str], right: list[str]) -> list[str]:
    """Describe what differs, by the keys of actions where as many of a kind are on both sides."""
    if [line.split(" ")[0] for line in left] != [line.split(" ")[0] for line in right]:
        return [*(f"  - {line}" for line in left), *(f"  + {line}" for line in right)]
    found = []
    for ours, theirs in zip(left, right, strict=True):
        kind, _, text = ours.partition(" ")
        mine, other = json.loads(text), json.loads(theirs.partition(" ")[2])
        for key in sorted({*mine, *other}):
            if mine.get(key) != other.get(key):
                found.append(f"  {kind}.{key}: {mine.get(key)} and {other.get(key)}")
    return found
