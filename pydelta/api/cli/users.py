"""Check the file of users and roles, make hashes of passwords, and write the files that Trino reads.

::

    pydelta users users.toml
    pydelta users --password            # asks for a password, and prints its hash for the file
    pydelta users users.toml --trino FOLDER
"""

from __future__ import annotations

import getpass
import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pydelta.api.access.passwords import hash_password
from pydelta.api.access.roles import Access
from pydelta.api.access.trino import TrinoService, passwords_text, rules_text
from pydelta.api.console.command_line import AsJson
from pydelta.errors import InvalidArgumentError, StorageError

__all__ = ["add_users"]

_SHORTEST = 8


def add_users(app: typer.Typer) -> None:
    """Add the command to an application."""

    @app.command()
    def users(
        file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="The file of users and roles, TOML.")] = None,
        password: Annotated[
            bool, typer.Option("--password", help="Ask for a password, or read a line of a pipe, and print its hash.")
        ] = False,
        trino: Annotated[
            Path | None,
            typer.Option(
                "--trino", metavar="FOLDER", help="Write rules.json and passwords there, as Trino reads them."
            ),
        ] = None,
        service: Annotated[
            str | None,
            typer.Option(
                "--service",
                metavar="NAME=VARIABLE",
                help="With --trino: a program that logs in to Trino by this name, with the password of a variable of "
                "the environment, and asks under the names of the users.",
            ),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Check the file of users and roles, and list what each user may read."""
        if password == (file is not None):
            raise InvalidArgumentError(
                "users takes a file, or --password.", hint="pydelta users FILE, or pydelta users --password."
            )
        if file is None:
            print(hash_password(_asked()))  # noqa: T201
            return
        access = Access.read(file)
        if trino is not None:
            program = _service(service)
            _write(trino, "rules.json", rules_text(access, program))
            _write(trino, "passwords", passwords_text(access, program))
        found = [
            {"user": user.name, "role": user.role.name,
             "tables": "everything" if user.role.admin else list(user.role.tables),
             "filtered": [name for name, grant in user.role.grants.items() if grant.filters],
             "masked": [name for name, grant in user.role.grants.items() if grant.masks]}
            for user in access.users.values()
        ]  # fmt: skip
        for line in [json.dumps(found, indent=2)] if as_json else map(_line, found):
            print(line)  # noqa: T201


def _service(text: str | None) -> TrinoService | None:
    if text is None:
        return None
    name, equals, variable = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) or not os.environ.get(variable):
        raise InvalidArgumentError(
            f"--service is {text!r}.", hint="Write NAME=VARIABLE, with a variable of the environment that is set."
        )
    return TrinoService(name, os.environ[variable])


def _line(found: dict[str, Any]) -> str:
    tables = found["tables"]
    shown = tables if isinstance(tables, str) else ", ".join(tables) or "nothing"
    more = [f"{what}: {', '.join(found[what])}" for what in ("filtered", "masked") if found[what]]
    return "; ".join([f"{found['user']} ({found['role']}): {shown}", *more])


def _asked() -> str:
    given = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if len(given) < _SHORTEST:
        raise InvalidArgumentError(
            f"The password has less than {_SHORTEST} characters.", hint="Give a longer one: openssl rand -hex 24."
        )
    return given


def _write(folder: Path, name: str, text: str) -> None:
    """Write a file that its owner alone may read, in place of the one before."""
    path = folder / name
    fresh = path.with_name(f"{name}.new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
            file.write(text)
        fresh.replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}.", hint="Give --trino a folder.") from error
