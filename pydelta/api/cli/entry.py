"""Start the command line. Run plain calls of ``history`` directly, because importing Typer takes longer than they do.

::

    history PATH [-n N] [--json] [-o NAME=VALUE] --> show_history
    anything else, also help and mistakes        --> the Typer application, which also has history
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["PlainHistory", "main", "parse_plain_history"]

_LIMIT, _OPTION, _JSON = ("--limit", "-n"), ("--option", "-o"), "--json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainHistory:
    """A call of ``history`` that uses only the common spelling of its options."""

    path: str
    limit: int | None = None
    as_json: bool = False
    options: tuple[tuple[str, str], ...] = ()


def parse_plain_history(arguments: Sequence[str]) -> PlainHistory | None:
    """Parse a call of ``history``; None for other commands, and for arguments that only Typer can judge.

    Args:
        arguments: Arguments without the program's name.

    Example:
        >>> parse_plain_history(["history", "t", "-n", "3"])
        PlainHistory(path='t', limit=3, as_json=False, options=())
        >>> parse_plain_history(["history", "t", "--help"]) is None
        True
    """
    if not arguments or arguments[0] != "history":
        return None
    paths: list[str] = []
    limit: int | None = None
    as_json = False
    options: list[tuple[str, str]] = []
    rest = iter(arguments[1:])
    for word in rest:
        if word == _JSON:
            as_json = True
        elif word in _LIMIT:
            text = next(rest, "")
            if not (text.isascii() and text.isdigit() and int(text) > 0):
                return None
            limit = int(text)
        elif word in _OPTION:
            name, equals, value = next(rest, "").partition("=")
            if not name or not equals:
                return None
            options.append((name, value))
        elif word.startswith("-") or not word:
            return None
        else:
            paths.append(word)
    if len(paths) != 1:
        return None
    return PlainHistory(path=paths[0], limit=limit, as_json=as_json, options=tuple(options))


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit as ``pydelta.api.cli.cli.main`` does."""
    os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")  # Half-filled huge pages of Arrow would take 40 MB more.
    plain = parse_plain_history(sys.argv[1:] if argv is None else argv)
    if plain is None:
        from pydelta.api.cli.cli import main as whole

        whole(argv)
        return
    from pydelta.api.cli.history import show_history
    from pydelta.api.console.standard_output import sparing_output
    from pydelta.errors import DeltaError

    code = 0
    with sparing_output() as output:
        try:
            show_history(plain.path, dict(plain.options), limit=plain.limit, as_json=plain.as_json)
        except DeltaError as error:
            print(f"Error: {error}", file=sys.stderr)
            code = error.exit_code
    if code or output.is_incomplete:
        raise SystemExit(code or 1)


if __name__ == "__main__":
    main()
