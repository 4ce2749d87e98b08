"""A stream into a table that kills its own process in its second batch, before or after the commit is put."""

from __future__ import annotations

import os
import signal
import sys

import pydelta
from pydelta.commands.stream.sink import EpochTransaction


def main() -> None:
    source, target, checkpoint, phase = sys.argv[1:]
    commit = EpochTransaction.commit

    def dying(self, *arguments, **options):
        second = self._epoch.epoch_id == 1
        if second and phase == "rows written":
            os.kill(os.getpid(), signal.SIGKILL)
        made = commit(self, *arguments, **options)
        if second:
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    EpochTransaction.commit = dying
    spark = pydelta.session("killed")
    frame = spark.readStream.schema("id long, p long, v long").option("maxFilesPerTrigger", 1).json(source)
    writer = frame.writeStream.format("delta").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start(target).awaitTermination()


main()
