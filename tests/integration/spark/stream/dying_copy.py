"""Copy a table, one file a batch, and kill this process and its JVM in the second batch, in the phase that is named."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydelta
from pydelta.commands.stream.sink import EpochTransaction
from pydelta.commands.stream.source import TableStream

PHASES = {
    "the next file is looked for": (TableStream, "latest", "before"),
    "the offset is known and not yet noted": (TableStream, "latest", "after"),
    "the offset is noted": (TableStream, "batch", "before"),
    "rows are being written": (TableStream, "batch", "at a new file"),
    "the rows are written": (EpochTransaction, "commit", "before"),
    "the commit is put": (EpochTransaction, "commit", "after"),
}


def main() -> None:
    source, target, checkpoint, phase = sys.argv[1:]
    spark = pydelta.session("killed")
    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    done: list[bool] = []  # batches of this process

    def die() -> None:
        os.kill(java, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def in_second(now: Callable[[], None]) -> Callable[[], None]:
        return lambda: now() if done else None

    owner, name, when = PHASES[phase]
    if when == "after":
        around(owner, name, after=in_second(die))
    elif when == "before":
        around(owner, name, before=in_second(die))
    else:
        around(owner, name, before=in_second(lambda: _at_a_new_file(Path(target), die)))
    around(EpochTransaction, "commit", after=lambda: done.append(True))
    frame = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(source)
    writer = frame.writeStream.format("delta").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start(target).awaitTermination()


def around(
    owner: type, name: str, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
) -> None:
    method = getattr(owner, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        before()
        found = method(*arguments, **options)
        after()
        return found

    setattr(owner, name, wrapped)


def _at_a_new_file(folder: Path, run: Callable[[], None]) -> None:
    before = _files(folder)

    def watch() -> None:
        while _files(folder) <= before:
            time.sleep(0.002)
        run()

    threading.Thread(target=watch, daemon=True).start()


def _files(folder: Path) -> int:
    return sum(len(names) for at, _, names in os.walk(folder) if "_delta_log" not in at)


if __name__ == "__main__":
    main()
