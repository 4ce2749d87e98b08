"""What a program is, and the list that modules of the corpus add theirs to. Runs in both environments.

A program of SQL is statements, one outcome each; a program in Python is a function of a ``Place``, with one outcome for
the function and one for each value it tells. Both end with what is in the table.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Corpus", "Place", "Program", "Statement", "all_programs", "statements_of"]


@dataclass(frozen=True)
class Statement:
    """A statement of SQL.

    Args:
        text: With ``{t}`` for the table's name, ``{p}`` for its path, ``{d}`` for a folder of the program's own.
        sees: What of its result is compared: ``rows`` and schema, ``ordered`` rows, the ``schema``, or ``nothing``.
    """

    text: str
    sees: str = "rows"


@dataclass(frozen=True)
class Program:
    """A program.

    Args:
        name: ``subject/what it does``.
        statements: Of SQL, or
        function: in Python.
        settings: Of the session while it runs.
        history: Whether operations and metrics are compared.
    """

    name: str
    statements: tuple[Statement, ...] = ()
    function: Callable[[Place], Any] | None = None
    settings: tuple[tuple[str, str], ...] = ()
    history: bool = True


@dataclass
class Place:
    """Where a program runs.

    Args:
        spark: The session.
        t: Name of the program's table, in a database of its own.
        p: A path for a table of the program.
        d: A folder of the program.
        engine: What ``delta.tables`` is in this environment: a module.
        told: Values that the program tells on its way.
    """

    spark: Any
    t: str
    p: str
    d: str
    engine: Any
    told: list[Any] = field(default_factory=list)

    @property
    def DeltaTable(self) -> Any:
        """The class."""
        return self.engine.DeltaTable

    def sql(self, text: str) -> Any:
        """Run a statement with the names of this place."""
        return self.spark.sql(self.named(text))

    def named(self, text: str) -> str:
        """The text with the names of this place."""
        return text.replace("{t}", self.t).replace("{p}", self.p).replace("{d}", self.d)

    def tell(self, value: Any) -> None:
        """Have a value compared."""
        self.told.append(value)

    def attempt(self, run: Callable[[], Any]) -> None:
        """Have an outcome compared, an error too, and go on."""
        try:
            self.told.append(run())
        except Exception as error:
            self.told.append(error)


def statements_of(text: str) -> Iterator[Statement]:
    """Take a script apart: statements end with ``;`` at the end of a line; ``--nothing`` before one says what it sees."""
    for part in text.strip().split(";\n"):
        found, sees = part.strip().rstrip(";").strip(), "rows"
        for kind in ("ordered", "schema", "nothing"):
            if found.startswith(f"--{kind}"):
                found, sees = found.removeprefix(f"--{kind}").strip(), kind
        if found:
            yield Statement(found, sees)


class Corpus:
    """The programs of one subject."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.programs: list[Program] = []

    def sql(self, name: str, text: str, *, history: bool = True, **settings: str) -> None:
        """Add a script; settings are written with ``__`` for a dot."""
        self._add(name, tuple(statements_of(text)), None, settings, history)

    def python(self, name: str, *, history: bool = True, **settings: str) -> Callable[[Callable[[Place], Any]], None]:
        """Add a function: a decorator."""

        def add(function: Callable[[Place], Any]) -> None:
            self._add(name, (), function, settings, history)

        return add

    def _add(
        self,
        name: str,
        statements: tuple[Statement, ...],
        function: Callable[[Place], Any] | None,
        settings: dict[str, str],
        history: bool,
    ) -> None:
        full = f"{self.subject}/{name}"
        assert all(program.name != full for program in self.programs), f"two programs are called {full}"
        pairs = tuple((key.replace("__", "."), value) for key, value in settings.items())
        self.programs.append(Program(full, statements, function, pairs, history))


def all_programs() -> list[Program]:
    """The whole corpus, in a fixed order."""
    import corpus

    found: list[Program] = []
    for name in sorted(item.name for item in pkgutil.iter_modules(corpus.__path__)):
        found += importlib.import_module(f"corpus.{name}").corpus.programs
    return found
