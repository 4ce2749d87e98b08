"""Run the chapters: ``python -m jobs.demo [--chapter NAME] [--keep FOLDER]``. Exits with 4 if a check fails."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from jobs.demo import changes, cleaning, flights, following, sql, twin
from jobs.demo.stage import Stage
from pydelta.api.console.standard_output import sparing_output
from pydelta.api.console.terminal import Terminal, styled
from pydelta.api.routing.quiet import quiet_session
from pydelta.errors import DeltaError

CHAPTERS: dict[str, tuple[str, Callable[[Stage], None]]] = {
    "flights": ("A table of flights: load, correct, delete, travel in time", flights.run),
    "changes": ("Corrections, a person forgotten, and the feed of what changed", changes.run),
    "stream": ("A stream of flights, killed in the middle and started again", following.run),
    "sql": ("SQL alone: made, filled, corrected, altered, cloned, restored", sql.run),
    "twin": ("A twin in the metastore: what Trino and Presto read follows the table", twin.run),
    "vacuum": ("What no version needs: an inventory, and three tables vacuumed by it", cleaning.run),
}

_QUIET = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}


def main(argv: list[str] | None = None) -> int:
    """Run the chosen chapters. The exit code shows whether every check held."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--chapter", choices=sorted(CHAPTERS), help="run only this one")
    parser.add_argument("--keep", type=Path, help="an empty folder for tables that stay after the run")
    options = parser.parse_args(argv)
    terminal = Terminal()
    if options.keep is not None and options.keep.exists() and any(options.keep.iterdir()):
        terminal.say(f"--keep {options.keep}: the folder is not empty. Name a new or an empty one.")
        return 1
    folder = options.keep or Path(tempfile.mkdtemp(prefix="lakehouse-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    started = time.monotonic()
    try:
        with terminal.status("Starting Spark …"):
            warehouse = (folder.absolute() / "warehouse").as_uri()
            spark = quiet_session("demo", conf=_QUIET | {"spark.sql.warehouse.dir": warehouse})
        terminal.say(f"Spark {spark.version} is up after {time.monotonic() - started:.1f} s")
        stage = Stage(spark=spark, folder=folder, terminal=terminal)
        for name in [options.chapter] if options.chapter else CHAPTERS:
            title, run = CHAPTERS[name]
            terminal.rule(title)
            chapter_started = time.monotonic()
            run(stage)
            terminal.say(f"  chapter {name}: {time.monotonic() - chapter_started:.0f} s")
    except DeltaError as error:
        terminal.say(styled("The demo stopped. ", "red"), str(error))
        return error.exit_code
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return _summary(stage, time.monotonic() - started, options.keep)


def _summary(stage: Stage, seconds: float, kept: Path | None) -> int:
    failed = [check for check in stage.checks if not check.passed]
    stage.table(
        f"{len(stage.checks)} results compared with Polars, {len(failed)} differ, {seconds:.0f} s in all",
        ["check", "", "result"],
        [(check.name, "ok" if check.passed else "DIFFERS", check.detail[:70]) for check in stage.checks],
    )
    if kept is not None:
        stage.terminal.say(f"The tables are in {kept}. Next: .venv/bin/pydelta history {kept}/flights")
    return 4 if failed or not stage.checks else 0


if __name__ == "__main__":
    with sparing_output():
        code = main()
    sys.exit(code)
