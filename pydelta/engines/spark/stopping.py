"""Watch for SIGTERM in this process and its JVM, which would otherwise exit immediately and abort running work."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JNetworkError

from pydelta.engines.spark.jvm import Jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Stopping"]


class Stopping:
    """Records whether SIGTERM was sent to this process or to its JVM.

    Args:
        spark: The session.
    """

    class Java:
        """py4j: the interface this object implements for the JVM."""

        implements = ("sun.misc.SignalHandler",)

    def __init__(self, spark: SparkSession) -> None:
        self.asked = threading.Event()
        self._jvm = Jvm.of(spark)

    def handle(self, _: Any) -> None:
        """Handle the JVM's signal."""
        self.asked.set()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen for the signal within the block, and restore both handlers afterwards."""
        signals = self._jvm.view.sun.misc.Signal
        term = signals("TERM")
        before = signals.handle(term, self)
        main = threading.current_thread() is threading.main_thread()
        own = signal.signal(signal.SIGTERM, lambda *_: self.asked.set()) if main else None
        try:
            yield
        finally:
            with contextlib.suppress(Py4JNetworkError, OSError):  # A JVM that has exited has no handlers.
                signals.handle(term, before)
            if main:
                signal.signal(signal.SIGTERM, own)
