"""Run the chapters, and draw a page: ``python -m jobs.demo [--chapter NAME] [--checks] [--keep FOLDER] [--page FILE]``.

Exit codes: 0 every check held; 1 an argument is wrong, or the page cannot be written; 4 a check failed.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from jobs.demo import changes, cleaning, flights, following, sql, twin
from jobs.demo.page import DemoRun, page, summary
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
    parser.add_argument("--page", type=Path, help="the page that shows the run; demo-data/demo.html by default")
    parser.add_argument("--checks", action="store_true", help="print every check, not only those that failed")
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
            with stage.chapter(name, title):
                run(stage)
    except DeltaError as error:
        terminal.say(styled("The demo stopped. ", "red"), str(error))
        return error.exit_code
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    done = DemoRun(
        chapters=[chapter for chapter in stage.chapters if chapter.name],
        seconds=time.monotonic() - started,
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        spark=spark.version,
    )
    return _end(terminal, done, options)


def _end(terminal: Terminal, run: DemoRun, options: argparse.Namespace) -> int:
    """Show how a run ended, and write its page. Returns the exit code."""
    shown = run.checks if options.checks else run.failed
    if shown:
        terminal.table(
            ["check", "", "result"],
            [(check.name, "ok" if check.passed else "DIFFERS", check.detail[:70]) for check in shown],
            title=f"{len(run.checks)} results compared, {len(run.failed)} differ",
        )
    terminal.rule("What happened")
    for word, text in summary(run):
        terminal.say(styled(f"  {word:<11}", "bold"), text)
    if options.keep is not None:
        terminal.say(f"The tables are in {options.keep}. Next: .venv/bin/pydelta history {options.keep}/flights")
    file = options.page or (options.keep or Path("demo-data")) / "demo.html"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(run), encoding="utf-8")
    except OSError as error:
        terminal.say(styled("The page could not be written. ", "red"), str(error))
        return 4 if run.failed else 1
    terminal.say("  The page:  ", str(file), wrap=False)
    return 4 if run.failed or not run.checks else 0


if __name__ == "__main__":
    with sparing_output():
        code = main()
    sys.exit(code)
