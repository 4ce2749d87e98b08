"""Verify the stack that this runs in: ``python -m jobs.verify``. ``make verify`` starts it in a client container.

Prints a line per hop, then the times until commits became visible in each catalog. Exit codes: 0 every hop is right; 1
``VERIFY_BREAK`` or an address is invalid; 4 a hop is wrong or could not run.

``VERIFY_BREAK=sync`` skips the sync after the DELETE, to show that this is noticed.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import polars as pl

from jobs.verify.lake import Lake, Names, open_lake
from jobs.verify.plan import Hop, Outcome, State, exit_code, lines_of, run_plan, summary, table_of
from jobs.verify.rest import RestCatalogError, RestReader
from jobs.verify.trino import Trino, TrinoError
from pydelta.api.console.standard_output import sparing_output
from pydelta.errors import DeltaError, InvalidArgumentError

__all__ = ["Choice", "all_hops", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The settings from the environment.

    Args:
        without_sync: Skip the sync after the DELETE.
        trino: Address of Trino.
        kafka: Address of a Kafka broker; None if the stack has none.
        presto: Address of Presto; None if the stack has none.
        iceberg: Address of the Iceberg REST catalog; None if the stack has none.
        sync_seconds: How often the scheduler syncs.
        root: Prefix of every place in the store.
        trino_user: User name for Trino.
        trino_password: Password of that user, if Trino requires one.
        iceberg_token: Token for the REST catalog.
    """

    without_sync: bool
    trino: str
    kafka: str | None
    presto: str | None
    sync_seconds: int
    iceberg: str | None = None
    root: str = "s3a://"
    trino_user: str = "verify"
    trino_password: str | None = field(default=None, repr=False)
    iceberg_token: str = field(default="", repr=False)

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Choice:
        """Read the environment variables.

        Raises:
            InvalidArgumentError: A variable is invalid.
        """
        broken, every = env.get("VERIFY_BREAK", ""), env.get("SYNC_EVERY_SECONDS") or "60"
        if broken not in ("", "sync"):
            raise InvalidArgumentError(
                f"VERIFY_BREAK is {broken!r}.", hint="Leave it out, or set it to sync: no sync after the DELETE."
            )
        if not every.isdigit() or int(every) < 1:
            raise InvalidArgumentError(
                f"SYNC_EVERY_SECONDS is {every!r}.", hint="Set it in .env to whole seconds, such as 60."
            )
        return cls(
            without_sync=broken == "sync",
            trino=env.get("TRINO") or "trino:8080",
            kafka=env.get("VERIFY_KAFKA") or None,
            presto=env.get("VERIFY_PRESTO") or None,
            sync_seconds=int(every),
            iceberg=env.get("VERIFY_ICEBERG") or None,
            iceberg_token=env.get("VERIFY_ICEBERG_TOKEN", ""),
            root=env.get("STORE_ROOT") or "s3a://",
            trino_user=env.get("TRINO_USER") or "verify",
            trino_password=env.get("TRINO_PASSWORD") or None,
        )


def all_hops(lake: Lake, choice: Choice) -> Iterator[Hop]:
    """Plan a run.

    Args:
        lake: Resources of the run.
        choice: The settings.
    """
    from jobs.verify.cleaning import cleaning_hops
    from jobs.verify.hidden import hidden_hops
    from jobs.verify.hops import change_hops, first_hops
    from jobs.verify.streamed import kafka_hops
    from jobs.verify.timed import clock_hops

    made, seen = clock_hops(lake, choice.sync_seconds)
    yield from first_hops(lake)
    yield made
    yield from hidden_hops(lake)
    yield from change_hops(lake, without_sync=choice.without_sync)
    if choice.kafka is not None:
        yield from kafka_hops(lake, choice.kafka)
    yield from cleaning_hops(lake)
    yield from seen


def _errors() -> tuple[type[Exception], ...]:
    """Return the errors that the parts of a stack raise when they fail."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (DeltaError, PySparkException, Py4JError, TrinoError, RestCatalogError, OSError, pl.exceptions.PolarsError)


def _tell(outcome: Outcome) -> None:
    print("\n".join(lines_of(outcome)), flush=True)


def _run(choice: Choice, began: float) -> int:
    presto = None if choice.presto is None else Trino(choice.presto, "verify", "Presto")
    trino = Trino(choice.trino, choice.trino_user, password=choice.trino_password)
    rest = None if choice.iceberg is None else RestReader(address=choice.iceberg, token=choice.iceberg_token)
    lake = open_lake(Names.at(dt.datetime.now(dt.UTC)), trino, presto, rest, choice.root)
    print(f"{lake.names.run}: a session on the cluster after {time.monotonic() - began:.1f} s", flush=True)
    outcomes: list[Outcome] = []
    try:
        outcomes += run_plan(all_hops(lake, choice), _tell, errors=_errors())
    finally:
        problems = lake.drop(lake.names.run)
        for problem in problems:
            print(f"Not dropped: {problem}", file=sys.stderr)
        lake.spark.stop()
    outcomes.append(_dropped(problems))
    print("\n" + "\n".join(table_of(lake.timings)))
    print("\n" + "\n".join(summary(outcomes, time.monotonic() - began)), flush=True)
    return exit_code(outcomes)


def _dropped(problems: Sequence[str]) -> Outcome:
    outcome = Outcome(
        name="what this run made is dropped",
        state=State.WRONG if problems else State.RIGHT,
        expected="nothing left",
        found=f"{len(problems)} things left, the first: {problems[0]}" if problems else "nothing left",
        hint="make verify drops what is left of runs that began two hours ago or earlier" if problems else "",
    )
    _tell(outcome)
    return outcome


def _interrupted(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """Run the plan, and return the exit code."""
    began = time.monotonic()
    logging.getLogger("py4j").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        return _run(Choice.of(os.environ), began)
    except DeltaError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted: what this run made is dropped, but for what is named above.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    with sparing_output():
        code = main()
    sys.exit(code)
