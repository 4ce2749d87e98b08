"""Replace deprecated names of flags and commands, which still work, and warn about each of them.

::

    ["vacuum", "t", "--retain", "1"] --current_names--> ["vacuum", "t", "--retention-hours", "1"]
                                          `--> Warning: --retain is now --retention-hours; … (standard error)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pydelta.deprecation import DEPRECATED, print_deprecated

__all__ = ["OLD_COMMANDS", "OLD_FLAGS", "current_names"]

OLD_COMMANDS: Final[Mapping[str, str]] = {
    row.old: row.new.partition(" ")[2] for row in DEPRECATED if row.kind == "command"
}
"""New names of commands, by program and old name."""
OLD_FLAGS: Final[Mapping[str, Mapping[str, str]]] = {
    where: {row.old: row.new for row in DEPRECATED if row.kind == "flag" and row.where == where}
    for where in dict.fromkeys(row.where for row in DEPRECATED if row.kind == "flag")
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
            print_deprecated(program, f"{program} {found[0]}")
            found[0] = new
        command = f"{program} {found[0]}"
    start = int(has_commands)
    return [*found[:start], *_replaced(found[start:], command)] if command in OLD_FLAGS else found


def _replaced(words: Sequence[str], command: str) -> list[str]:
    names = OLD_FLAGS[command]
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
            print_deprecated(command, old)
    return found
