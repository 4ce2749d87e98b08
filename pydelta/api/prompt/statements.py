"""Run statements from a prompt or a script, draw their results, and return an exit code: ``pydelta sql``.

::

    lines --split--> statement --spark.sql--> frame --write_rows--> table, CSV, JSON lines
                         |                      '--> an error: one line; a script ends, a prompt continues
                         '--> help, quit
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.utils import is_remote

from pydelta.api.console.terminal import Terminal
from pydelta.api.prompt.output import Format, exit_code, explained, write_rows
from pydelta.api.prompt.session import prompt_session, remote_session
from pydelta.api.sql.grammar.splitting import Piece, is_blank, split_statements
from pydelta.errors import DeltaError, InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Prompt", "keep_history", "run_sql"]

_HELP: Final = """Statements end with a semicolon and may take several lines.

  SHOW TABLES; SHOW DATABASES; USE db;        what there is
  DESCRIBE EXTENDED t; DESCRIBE HISTORY t;    a table, and what was done to it
  SELECT * FROM t VERSION AS OF 3;            the table as it was; TIMESTAMP AS OF '2024-05-31'
  SELECT * FROM delta.`/path/to/table`;       a table by its path
  help; quit;                                 also Ctrl-D; Ctrl-C stops a statement

Every statement is described in docs/guides/sql.md."""
_ERRORS: Final = (DeltaError, PySparkException, Py4JError)
_STOPPED: Final = 130
_LOCAL_OPTIONS: Final = ("master", "warehouse", "metastore")


class Prompt:
    """Runs statements on one session.

    Args:
        spark: An enabled session.
        out: Receives results.
        err: Receives errors, times and progress.
        style: How results are written.
        limit: Rows shown of a result; 0 for all.
    """

    def __init__(
        self, spark: SparkSession, *, out: Terminal, err: Terminal, style: Format = "table", limit: int = 100
    ) -> None:
        self._spark, self._out, self._err = spark, out, err
        self._style, self._limit = style, limit

    def loop(self, read: Callable[[str], str], remember: Callable[[str], None] = lambda text: None) -> int:
        """Ask for statements until the user leaves.

        Args:
            read: Shows a prompt and returns a line; raises EOFError at the end, KeyboardInterrupt to discard the line.
            remember: Adds statements to the history.

        Returns:
            0, because an error at the prompt does not make the program fail.
        """
        pending = ""
        while True:
            try:
                line = read("sql> " if is_blank(pending) else "...> ")
            except KeyboardInterrupt:
                self._err.say()
                pending = ""
                continue
            except EOFError:
                self._err.say()
                return 0
            word = line.strip().rstrip(";").strip().lower()
            if is_blank(pending) and word in ("quit", "exit"):
                return 0
            if is_blank(pending) and word in ("help", "?"):
                self._err.say(_HELP)
                continue
            pieces, rest = split_statements(f"{pending}{line}\n")
            if pieces:
                remember(f"{pending}{line}".strip())
            for piece in pieces:
                if self._run(piece) is not None:
                    break  # Later statements on the line may depend on it.
            pending = "" if is_blank(rest) else rest

    def script(self, text: str, *, name: str | None = None) -> int:
        """Run statements one after the other until one fails.

        Args:
            text: Any number of statements; the last one needs no semicolon.
            name: The file's name, for messages.

        Returns:
            0, or the exit code of the error.
        """
        pieces, rest = split_statements(f"{text}\n;")
        if rest:  # The added semicolon ended nothing, so the script is incomplete and must not run.
            line = text.count("\n", 0, len(text) + 2 - len(rest.lstrip())) + 1
            self._say(f"{_place(name, line)}: Error: a string, quoted name, comment or block is not closed.")
            return 1
        for piece in pieces:
            code = self._run(piece, where=_place(name, piece.line) if len(pieces) > 1 or name else None)
            if code is not None:
                return code
        return 0

    def _run(self, piece: Piece, *, where: str | None = None) -> int | None:
        """Run one statement; returns the exit code of its error, or None."""
        started = time.monotonic()
        try:
            with self._progress():
                frame = self._spark.sql(piece.text)
            self._show(frame, started)
        except KeyboardInterrupt:
            if is_remote():
                self._spark.interruptAll()
            else:
                self._spark.sparkContext.cancelAllJobs()
            self._err.say("Stopped.")
            return _STOPPED
        except _ERRORS as error:
            text = f"Error: {explained(error)}"
            if where:
                text = f"{where}: {text}"
            self._say(text)
            return exit_code(error)
        return None

    def _say(self, text: str) -> None:
        self._err.say(text, style="red", wrap=False)

    def _show(self, frame: DataFrame, started: float) -> None:
        if not frame.columns:
            self._time("Done", started)
            return
        with self._progress():
            rows = write_rows(frame, self._out, style=self._style, limit=self._limit)
        self._time(
            f"The first {self._limit} rows" if rows < 0 else f"{rows} row{'' if rows == 1 else 's'}",
            started,
            " (--limit shows more)" if rows < 0 else "",
        )

    def _time(self, what: str, started: float, more: str = "") -> None:
        self._err.say(f"{what}, {time.monotonic() - started:.2f} s{more}", style="dim")

    @contextmanager
    def _progress(self) -> Iterator[None]:
        """Show the progress of the session's jobs, if standard error is a terminal."""
        if not self._err.is_terminal:
            yield
            return
        done = threading.Event()
        with self._err.status("") as show:
            thread = threading.Thread(target=self._follow, args=(done, show), daemon=True)
            thread.start()
            try:
                yield
            finally:
                done.set()
                thread.join(1.0)

    def _follow(self, done: threading.Event, show: Callable[[str], None]) -> None:
        tracker = None if is_remote() else self._spark.sparkContext.statusTracker()
        started = time.monotonic()
        while not done.wait(0.25):
            try:
                found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()] if tracker else []
            except Py4JError:
                return
            stages = [stage for stage in found if stage is not None]
            tasks, finished = sum(s.numTasks for s in stages), sum(s.numCompletedTasks for s in stages)
            what = f" {finished} of {tasks} tasks in {len(stages)} stages" if stages else ""
            show(f"{time.monotonic() - started:.0f} s{what}")


def _place(name: str | None, line: int) -> str:
    return f"{name}, line {line}" if name else f"line {line}"


def run_sql(
    *,
    statements: Sequence[str] = (),
    files: Sequence[str] = (),
    style: Format = "table",
    limit: int | None = None,
    remote: str | None = None,
    **session: Any,
) -> int:
    """Run ``pydelta sql``: the given scripts, else piped standard input, else a prompt.

    Args:
        statements: Texts of scripts.
        files: Files of scripts; they run first.
        style: How results are written.
        limit: Rows shown of a result; None for 100 of a table and all of any other style.
        remote: A server that runs the statements; see ``remote_session``.
        session: See ``prompt_session``; with ``remote`` only its settings.

    Returns:
        The exit code.

    Raises:
        InvalidArgumentError: A file cannot be read, or a server was given together with options of a local session.
        DeltaEnvironmentError: See ``prompt_session`` and ``remote_session``.
    """
    if remote and (beside := next((name for name in _LOCAL_OPTIONS if session.get(name)), None)):
        raise InvalidArgumentError(
            f"--remote names a running server, so --{beside} has no effect.", hint="Leave one of them out."
        )
    scripts = [(_read(file), file) for file in files] + [(text, None) for text in statements]
    typed = not scripts and sys.stdin.isatty()
    if not scripts and not typed:
        scripts = [(sys.stdin.read(), None)]
    out, err = Terminal(), Terminal(error=True)
    if limit is None:
        limit = 100 if style == "table" else 0
    with remote_session(remote, session.get("conf")) if remote else prompt_session(**session) as spark:
        prompt = Prompt(spark, out=out, err=err, style=style, limit=limit)
        if typed:
            place = spark.conf.get("spark.sql.warehouse.dir")
            err.say(f"Spark {spark.version}, warehouse {place}. Type help; or quit;", style="dim")
            return prompt.loop(input, keep_history(Path.home() / ".pydelta_sql_history"))
        codes = (prompt.script(text, name=name) for text, name in scripts)
        return next((code for code in codes if code), 0)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(f"{file} cannot be read: {error.strerror}.", hint="Check its name.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{file} is not UTF-8 text.", hint="Save it as UTF-8.") from error


def keep_history(file: Path) -> Callable[[str], None]:
    """Use a file for the history of ``input``.

    Args:
        file: Created if missing, readable only by its owner.

    Returns:
        A function that adds a statement and ignores failures to store it.
    """
    try:
        import readline
    except ImportError:  # pragma: no cover - Some builds of Python lack it.
        return lambda text: None
    if sys.stdin.isatty():
        readline.set_auto_history(False)
    try:
        file.touch(mode=0o600, exist_ok=True)
        readline.read_history_file(file)
    except OSError:
        return lambda text: readline.add_history(" ".join(text.split("\n")))
    readline.set_history_length(5000)

    def remember(text: str) -> None:
        lines = text.split("\n")
        one = text if len(lines) == 1 else " ".join(line.strip() for line in lines)
        for item in lines if "--" in text else [one]:
            readline.add_history(item)
        try:
            readline.append_history_file(len(lines) if "--" in text else 1, file)
        except OSError:
            return

    return remember
