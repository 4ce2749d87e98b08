"""Hold what every command receives: the table, the engine, the settings, the clock and how a transaction begins."""

from __future__ import annotations

from pydelta.commands.engine import NO_ENGINE, Engine
from pydelta.log import DeltaLog
from pydelta.settings import Settings
from pydelta.settings.clock import Clock, epoch_ms
from pydelta.txn import Begin, OptimisticTransaction, start_transaction

__all__ = ["Context"]


class Context:
    """The arguments that all commands share; immutable.

    Args:
        log: The table.
        engine: Reads and writes rows. Without one, a command that needs rows is refused.
        settings: The session's settings; by default those that the log was opened with.
        begin: Begins a transaction.
        clock: Epoch milliseconds, for timestamps in the log.
    """

    __slots__ = ("begin", "clock", "engine", "log", "settings")

    def __init__(
        self,
        log: DeltaLog,
        engine: Engine = NO_ENGINE,
        *,
        settings: Settings | None = None,
        begin: Begin = start_transaction,
        clock: Clock = epoch_ms,
    ) -> None:
        self.log = log
        self.engine = engine
        self.settings = log.settings if settings is None else settings
        self.begin = begin
        self.clock = clock

    def start(self) -> OptimisticTransaction:
        """Begin a transaction, and notify the engine of its commit."""
        return self.begin(self.log).notifying(self.engine.committed)

    def beginning(self, begin: Begin) -> Context:
        """Return a copy that begins transactions in another way."""
        return Context(self.log, self.engine, settings=self.settings, begin=begin, clock=self.clock)
