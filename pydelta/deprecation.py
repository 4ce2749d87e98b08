"""List deprecated names, and warn where a program or a command line uses one.

::

    DEPRECATED --row--+--> warn_deprecated    a DeltaDeprecationWarning at the line that used it
                      `--> print_deprecated   one line on standard error, for command lines

A row works from the version in which it was deprecated until the version that drops it, at least two minor versions
later. A test checks each row, and ``docs/upgrading.md`` has the table.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "DEPRECATED",
    "DeltaDeprecationWarning",
    "Deprecated",
    "deprecated_table",
    "print_deprecated",
    "warn_deprecated",
]

_OURS: Final = ("pydelta", "catalog_sync", "jobs")
_SHOWN: Final[set[tuple[str, int, Deprecated]]] = set()
"""Python forgets what it has shown whenever a library changes the filters of warnings, as some do in each call."""


class DeltaDeprecationWarning(FutureWarning):
    """A name that a later version drops was used.

    It is shown once per line of the program, in imported modules too, where Python hides its ``DeprecationWarning``.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecated:
    """A deprecated name.

    Args:
        kind: What it is.
        where: The command, class or function it belongs to; ``a session`` for a setting, ``SQL`` for an option of a
            statement.
        old: The deprecated name, or the call in its old form.
        new: What to write instead; empty if nothing is needed.
        since: The version that deprecated it.
        gone: The version that drops it.
    """

    kind: Literal["argument", "command", "flag", "function", "option", "setting", "target"]
    where: str
    old: str
    new: str
    since: str
    gone: str

    @property
    def said(self) -> str:
        """Its warning."""
        if self.kind in ("argument", "function", "option", "setting"):
            return (
                f"Write {self.new} instead of {self.old}, which is deprecated since {self.since}; {self.gone} drops it."
            )
        now = f"is now {self.new}" if self.new else "is the default"
        return f"{self.old} {now}; the old name is deprecated since {self.since}, and {self.gone} drops it."


_FLAGS_OF_1_0: Final[Mapping[str, Mapping[str, str]]] = {
    "pydelta certify": {"--retention": "--retention-seconds", "-n": "--operations"},
    "pydelta delete": {"--all": "--all-rows"},
    "pydelta detail": {"-v": "--version"},
    "pydelta files": {"-v": "--version"},
    "pydelta maintain": {"--book": "--journal"},
    "pydelta sql": {"--format csv": "--csv", "--format json": "--json", "--format table": ""},
    "pydelta update": {"--all": "--all-rows"},
    "pydelta vacuum": {"--rate": "--deletes-per-second", "--retain": "--retention-hours"},
    **{
        f"catalog_sync {name}": {"--table": "--entry"}
        for name in ("sync", "status", "drop", "verify", "preview", "add-partition", "ddl")
    },
    "inventory.py": {"--workers": "--parallel"},
    "maintain.py": {"--all": "--all-databases", "--book": "--journal", "--book-location": "--journal-location"},
    "manifests.py": {"--table": "--entry"},
    "stream_copy.py": {"--key": "--merge-key"},
    "vacuum.py": {"--all": "--all-databases", "--retain": "--retention-hours"},
}
"""Flags by command. Where the value decides, the old name includes it."""
_FORMS_OF_1_0: Final[Mapping[tuple[str, str], str]] = {
    ("LocalTable.delete", "delete(where=…)"): "delete(condition=…)",
    ("LocalTable.update", "update({…}, condition)"): "update(condition, {…})",
    ("LocalTable.update", "update(where=…)"): "update(condition=…)",
    ("LocalTable.purge", "purge(where=…)"): "purge(condition=…)",
}
_TARGETS_OF_1_0: Final = ("policies", "pyspark", "cluster-sql", "presto", "inventory", "archive", "sbom")
"""Targets of ``make`` that became verbs of ``scripts/lake``."""


def _of_1_0() -> Iterator[Deprecated]:
    def row(kind: Literal["argument", "command", "flag", "target"], where: str, old: str, new: str) -> Deprecated:
        return Deprecated(kind=kind, where=where, old=old, new=new, since="1.0", gone="1.2")

    yield row("command", "pydelta", "pydelta maintenance", "pydelta maintain")
    for where, names in _FLAGS_OF_1_0.items():
        for old, new in names.items():
            yield row("flag", where, old, new)
    for (where, old), new in _FORMS_OF_1_0.items():
        yield row("argument", where, old, new)
    for name in _TARGETS_OF_1_0:
        yield row("target", "make", f"make {name}", f"scripts/lake {name}")


DEPRECATED: Final[tuple[Deprecated, ...]] = tuple(_of_1_0())
"""All deprecated names. A new one is a row here, and one call where it is used."""


def warn_deprecated(where: str, old: str, *, rows: tuple[Deprecated, ...] = DEPRECATED) -> None:
    """Warn that a program uses a deprecated name, at the line outside of this project that led here.

    Args:
        where: The row's ``where``.
        old: The row's ``old``.
        rows: The table.

    Raises:
        LookupError: The table has no such row.
    """
    row = _found(where, old, rows)
    # The caller's caller and so on: how deep in our own code the call is differs from name to name.
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    place = (frame.f_code.co_filename, frame.f_lineno, row)
    if place not in _SHOWN:
        warnings.warn(row.said, DeltaDeprecationWarning, stacklevel=level)  # raises where a program asks for errors
        _SHOWN.add(place)


def print_deprecated(where: str, old: str, *, rows: tuple[Deprecated, ...] = DEPRECATED) -> None:
    """Print on standard error that a command line uses a deprecated name.

    Args:
        where: The row's ``where``.
        old: The row's ``old``.
        rows: The table.

    Raises:
        LookupError: The table has no such row.
    """
    sys.stderr.write(f"Warning: {_found(where, old, rows).said}\n")


def _found(where: str, old: str, rows: tuple[Deprecated, ...]) -> Deprecated:
    for row in rows:
        if (row.where, row.old) == (where, old):
            return row
    raise LookupError(f"{old!r} of {where!r} has no row in the table of deprecated names")


def deprecated_table(rows: tuple[Deprecated, ...] = DEPRECATED) -> str:
    """Render the deprecated names as a Markdown table, those that are dropped first above the others."""
    lines = [
        f"| `{row.old}` | {row.kind}{'' if row.kind in ('command', 'target') else f' of `{row.where}`'} | "
        f"{f'`{row.new}`' if row.new else 'nothing: it is the default'} | {row.since} | {row.gone} |"
        for row in sorted(rows, key=lambda row: tuple(map(int, row.gone.split("."))))
    ]
    head = "| deprecated | what it is | instead | since | dropped by |\n|---|---|---|---|---|"
    return "\n".join([head, *(lines or ["| nothing | | | | |"])])
