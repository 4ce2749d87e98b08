"""Write or read the tables by an engine of Spark: ``python spark_side.py ENGINE write|read FOLDER OUT``.

ENGINE is ``ours`` or ``reference``. Tables lie in ``FOLDER/WRITER/NUMBER`` by their number in the list; ``read`` reads
those of every writer. OUT gets a JSON object: of the names when writing, of writers and names when reading.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matrix.answers import outcome, said, values
from matrix.cases import CASES


def session(engine: str) -> Any:
    """A session of either engine; times are UTC."""
    if engine == "reference":
        from reference_session import scripts_session

        return scripts_session()
    import pydelta

    conf = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    spark = pydelta.session("interop", master="local[2]", conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    return spark


def write(spark: Any, folder: Path) -> dict[str, str]:
    """Make each table; what says why one could not be made, otherwise nothing."""
    told = {}
    for number, case in enumerate(CASES):
        place = folder / str(number)
        try:
            for text in case.statements(str(place)):
                spark.sql(text)
            told[case.name] = ""
        except Exception as error:
            told[case.name] = said(error, str(place)) or type(error).__name__
            shutil.rmtree(place, ignore_errors=True)
    return told


def read(spark: Any, folder: Path) -> dict[str, dict[str, str]]:
    """Read each table of each writer."""
    told: dict[str, dict[str, str]] = {}
    for writer in sorted(item for item in folder.iterdir() if item.is_dir()):
        for number, case in enumerate(CASES):
            place = writer / str(number)
            if not place.is_dir():
                continue
            try:
                table = spark.sql(f"SELECT {case.read} FROM delta.`{place}`").toArrow()
                answer = outcome(values(table), case.rows)
            except Exception as error:
                answer = f"refused: {said(error, str(place))}"
            told.setdefault(writer.name, {})[case.name] = answer
    return told


def main(engine: str, action: str, folder: str, out: str) -> None:
    """See above."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    spark = session(engine)
    place = Path(folder)
    told = write(spark, place / engine) if action == "write" else read(spark, place)
    Path(out).write_text(json.dumps(told, indent=1, ensure_ascii=False))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
