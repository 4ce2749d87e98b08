"""Make commits that are refused: ``refuse_commits.py LOCATION COUNT``. It prints how many were.

``scripts/test-stack-monitor`` runs it. Each change begins at a version that another change has since replaced, so that
it loses for good, as a change of a user does.
"""

from __future__ import annotations

import sys

from pydelta.commands.alter.command import Alter
from pydelta.commands.alter.requests import SetProperties
from pydelta.commands.run import Context, run
from pydelta.errors import DeltaConcurrentModificationException
from pydelta.log import DeltaLog
from pydelta.txn import start_transaction


def main(location: str, count: int) -> int:
    """Return the number of refused commits."""
    log = DeltaLog.for_table(location)
    before, refused = log.update(), 0
    run(Alter(SetProperties(properties={"tests.winner": "yes"})), Context(log))
    late = Context(log, begin=lambda table: start_transaction(table, before))
    for number in range(count):
        try:
            run(Alter(SetProperties(properties={"tests.loser": str(number)})), late)
        except DeltaConcurrentModificationException:
            refused += 1
    return refused


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2])))
