"""Replace old names of flags and commands, which work for one release, and warn about each of them.

::

    ["vacuum", "t", "--retain", "1"] --current_names--> ["vacuum", "t", "--retention-hours", "1"]
                                          `--> Warning: --retain is now --retention-hours; … (standard error)
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["OLD_COMMANDS", "OLD_FLAGS", "current_names", "warn_old_argument"]

_ENTRY: Final = {"--table": "--entry"}
_NAMING: Final = ("sync", "status", "drop", "verify", "preview", "add-partition", "ddl")
"""The commands of ``catalog_sync`` that can be given the name of an entry."""
OLD_COMMANDS: Final[Mapping[str, str]] = {"pydelta maintenance": "maintain"}
"""New names of commands, by program and old name."""
OLD_FLAGS: Final[Mapping[str, Mapping[str, str]]] = {
    "pydelta certify": {"--retention": "--retention-seconds", "-n": "--operations"},
    "pydelta delete": {"--all": "--all-rows"},
    "pydelta detail": {"-v": "--version"},
    "pydelta files": {"-v": "--version"},
    "pydelta maintain": {"--book": "--journal"},
    "pydelta sql": {"--format csv": "--csv", "--format json": "--json", "--format table": ""},
    "pydelta update": {"--all": "--all-rows"},
    "pydelta vacuum": {"--rate": "--deletes-per-second", "--retain": "--retention-hours"},
    **{f"catalog_sync {name}": _ENTRY for name in _NAMING},
    "inventory.py": {"--workers": "--parallel"},
    "maintain.py": {"--all": "--all-databases", "--book": "--journal", "--book-location": "--journal-location"},
    "manifests.py": {"--table": "--entry"},
    "stream_copy.py": {"--key": "--merge-key"},
    "vacuum.py": {"--all": "--all-databases", "--retain": "--retention-hours"},
}
"""New names of flags, by command and old name. Where the value decides, the old name includes it; an empty new name
means that the flag can be left out."""


def current_names(program: str, arguments: Sequence[str], *, has_commands: bool) -> list[str]:
    """Replace the old names in the arguments of a program, with one warning per name on standard error.

    Args:
        program: Name of the program: ``pydelta``, ``vacuum.py`` …
        arguments: Its arguments.
        has_commands: Whether the first argument is a command of the program.

    Example:
        >>> current_names("maintain.py", ["--all", "t"], has_commands=False)
        ['--all-databases', 't']
    """
    found = list(arguments)
    if not found:
        return found
    command = program
    if has_commands:
        if new := OLD_COMMANDS.get(f"{program} {found[0]}"):
            _warn(f"{program} {found[0]}", f"{program} {new}")
            found[0] = new
        command = f"{program} {found[0]}"
    names = OLD_FLAGS.get(command, {})
    start = int(has_commands)
    return [*found[:start], *_replaced(found[start:], names)] if names else found


def _replaced(words: Sequence[str], names: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    warned: set[str] = set()
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":  # Only positional arguments follow.
            return [*found, *words[place:]]
        flag, equals, value = word.partition("=")
        following = value if equals else "".join(words[place + 1 : place + 2])
        with_value = f"{flag} {following.lower()}"
        if with_value in names:
            old, new, place = with_value, [names[with_value]] if names[with_value] else [], place + (1 if equals else 2)
        elif flag in names:
            old, new, place = flag, [names[flag] + equals + value], place + 1
        else:
            found.append(word)
            place += 1
            continue
        found += new
        if old not in warned:
            warned.add(old)
            _warn(old, names[old])
    return found


def _warn(old: str, new: str) -> None:
    now = f"is now {new}" if new else "is the default"
    print(f"Warning: {old} {now}; the old name works until the next release.", file=sys.stderr)


def warn_old_argument(old: str, new: str) -> None:
    """Warn that a method was called in an old form, which works for one release.

    Args:
        old: The call as it was written.
        new: The same call in the current form.
    """
    text = f"Write {new} in place of {old}, which works until the next release."
    warnings.warn(text, DeprecationWarning, stacklevel=3)
