"""Watch for steps in Trino: ``python -m jobs.verify.changes``; scripts/stack-verify-changes makes them in a database.

Reads statements of Trino from standard input, a line each, which count rows. Prints when each first counted one, in
epoch seconds, in their order. Exit codes: 0 all were seen, which is right; 4 one was not: the check failed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from jobs.verify.trino import Trino, TrinoError

__all__ = ["main", "seen"]

_PATIENCE_SECONDS: Final = 240.0
_PAUSE_SECONDS: Final = 0.2


def seen(
    statements: Iterable[str], count: Callable[[str], int], clock: Callable[[], float], pause: Callable[[float], None]
) -> Iterator[float | None]:
    """Wait for each statement to count a row.

    Args:
        statements: The statements, in order.
        count: Runs a statement.
        clock: Returns epoch seconds.
        pause: Sleeps.

    Yields:
        When a statement first did; None, at last, if one did not within its time.
    """
    for statement in statements:
        give_up = clock() + _PATIENCE_SECONDS
        while count(statement) == 0:
            if clock() > give_up:
                yield None
                return
            pause(_PAUSE_SECONDS)
        yield clock()


def main() -> int:
    """Watch, and return the exit code."""
    trino = Trino(
        os.environ.get("TRINO") or "trino:8080",
        os.environ.get("TRINO_USER") or "verify",
        password=os.environ.get("TRINO_PASSWORD"),
    )

    def count(statement: str) -> int:
        try:
            return int(trino.rows(statement)[0][0])
        except TrinoError:
            return 0  # The table or the column is not there yet.

    lines = (line.strip() for line in sys.stdin if line.strip())
    for moment in seen(lines, count, time.time, time.sleep):
        if moment is None:
            print("never", flush=True)
            return 4
        print(f"{moment:.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
