"""Print text on a terminal exactly as given: the only module that imports rich.

::

    say("pip install '.[sync]'")                        one line, unchanged
    say(styled("✓ ", "green"), "done")                  styles are arguments, never part of a text
    table(("name",), [("[red]",)])   status("…")        cells, titles and progress are unchanged, too

No text is interpreted as markup, as an emoji code or as something to highlight.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final, NamedTuple

from rich import box
from rich.console import Console, Group
from rich.measure import Measurement
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

__all__ = ["Styled", "Terminal", "styled", "visible"]

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NARROWEST: Final = 12
_EDGELESS: Final = 100_000


class Styled(NamedTuple):
    """A text and its style, in rich's notation (``bold red``)."""

    text: str
    style: str


def styled(text: str, style: str) -> Styled:
    """Combine text with a style."""
    return Styled(text, style)


def visible(value: str) -> str:
    r"""Show control characters as ``\n``, ``\x1b`` …."""
    return _CONTROL.sub(lambda match: repr(match.group())[1:-1], value)


class Terminal:
    """Shows the output of commands to people.

    Args:
        error: Write to standard error instead of standard output.
        file: Write to this stream instead.
        width: Columns; None for the terminal's width or ``COLUMNS``, else 80.
        is_terminal: Whether it is interactive; None to detect it.
        color: Whether styles may use colours.
    """

    def __init__(
        self,
        *,
        error: bool = False,
        file: IO[str] | None = None,
        width: int | None = None,
        is_terminal: bool | None = None,
        color: bool = True,
    ) -> None:
        self._console = _console(
            stderr=error, file=file, width=width, force_terminal=is_terminal, no_color=None if color else True
        )

    @property
    def is_terminal(self) -> bool:
        """Whether it is interactive."""
        return self._console.is_terminal

    @property
    def width(self) -> int:
        """Its width in columns."""
        return self._console.width

    def say(self, *parts: str | Styled, style: str = "", wrap: bool = True) -> None:
        """Write a line.

        Args:
            parts: Its strings, one after the other.
            style: The style of parts without one.
            wrap: Break the line at the terminal's width.
        """
        self._console.print(_text(parts, style), soft_wrap=not wrap)

    def write(self, line: str) -> None:
        """Write a line of a result unchanged, at any length."""
        self._console.out(line, highlight=False)

    def rule(self, title: str) -> None:
        """Begin a section."""
        self._console.print(Rule(Text(title, style="bold", overflow="ellipsis", no_wrap=True), align="left"))

    @contextmanager
    def status(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show the current activity in one line until the block ends; yields a function that changes the text."""
        with self._console.status(_one_line(text)) as shown:
            yield lambda text: shown.update(_one_line(text))

    @contextmanager
    def bar(self, description: str) -> Iterator[Callable[[str, int | None, int, str], None]]:
        """Show a progress bar until the block ends.

        Yields:
            A function that updates it: (description, total or None if unknown, done, counts).
        """
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        one = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        columns = (
            SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=10),
            TextColumn("{task.fields[counts]}", markup=False, table_column=one), TimeElapsedColumn(),
        )  # fmt: skip
        with Progress(*columns, console=self._console, transient=True, expand=True) as bar:
            task = bar.add_task(description, total=None, counts="")

            def update(description: str, total: int | None, done: int, counts: str) -> None:
                bar.update(task, description=description, total=total, completed=done, counts=counts)

            yield update

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        title: str | None = None,
        file_width: int | None = None,
    ) -> None:
        """Draw a table and wrap cells that do not fit.

        Args:
            columns: Their names; empty names for a table of names and values.
            rows: Values; None is an empty cell, and ``styled`` gives a cell a style.
            title: Shown above the table.
            file_width: Width if the output is not a terminal; None for a terminal's default.
        """
        if title is not None:
            self.say(styled(visible(title), "bold"))
        named = (Column(Text(visible(name)), overflow="fold") for name in columns)
        table = Table(*named, box=box.SIMPLE_HEAD, show_header=any(columns))
        for row in rows:
            table.add_row(*map(_cell, row))
        console = self._console
        if file_width is not None and not self.is_terminal:
            console = _console(file=console.file, width=file_width)
        console.print(table)

    def result(self, columns: Sequence[str], rows: Sequence[Sequence[str | None]], *, numeric: Sequence[bool]) -> None:
        """Draw a query's result: row by row if the terminal is too narrow for a table, at full width in a file.

        Args:
            columns: Their names.
            rows: Values as text; None is NULL.
            numeric: For each column, whether its values are numbers.
        """
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name, right in zip(columns, numeric, strict=True):
            table.add_column(Text(visible(name)), justify="right" if right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_value(value) for value in row))
        if not columns:
            return
        if self.is_terminal:
            self._console.print(table if self._fits(table) else _records(columns, rows))
            return
        file = _console(file=io.StringIO(), width=_EDGELESS)
        wide = _console(file=io.StringIO(), width=Measurement.get(file, file.options, table).maximum + 1)
        with wide.capture() as captured:
            wide.print(table)
        for line in captured.get().rstrip("\n").split("\n"):
            self.write(line.rstrip())

    def _fits(self, table: Table) -> bool:
        """Return whether every column gets its full width or at least twelve characters."""
        console = self._console
        wanted = [Measurement.get(console, console.options, column.header).maximum for column in table.columns]
        cells = [
            max((Measurement.get(console, console.options, cell).maximum for cell in column.cells), default=0)
            for column in table.columns
        ]
        needed = sum(min(_NARROWEST, max(pair)) + 2 for pair in zip(wanted, cells, strict=True))
        return needed <= console.width


def _console(**how: Any) -> Console:
    return Console(markup=False, emoji=False, highlight=False, **how)


def _text(parts: Sequence[str | Styled], style: str = "") -> Text:
    whole = Text(style=style)
    for part in parts:
        whole.append(part.text, style=part.style) if isinstance(part, Styled) else whole.append(part)
    return whole


def _one_line(text: str) -> Text:
    return Text(text, overflow="ellipsis", no_wrap=True)


def _cell(value: object) -> Text:
    if isinstance(value, Styled):
        return Text(visible(value.text), style=value.style)
    return Text("" if value is None else visible(str(value)))


def _value(value: str | None) -> Text:
    return Text("NULL", style="dim italic") if value is None else Text(visible(value))


def _records(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Group:
    """Format rows one after the other, one line per column, for results wider than the terminal."""
    parts: list[Table | Text] = []
    for number, row in enumerate(rows, start=1):
        parts.append(Text(f"row {number}", style="dim"))
        grid = Table.grid(Column(overflow="fold"), Column(overflow="fold"), padding=(0, 2))
        for name, value in zip(names, row, strict=True):
            grid.add_row(Text(visible(name), style="bold"), _value(value))
        parts.append(grid)
    return Group(*parts)
