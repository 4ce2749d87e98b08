"""One name of a flag for one thing, in the command lines and in the jobs; the page is printed from their parsers."""

from __future__ import annotations

import importlib
from collections import defaultdict
from pathlib import Path

import pytest
import typer

import catalog_sync.cli
from pydelta.api.cli.cli import app
from pydelta.api.console.old_names import OLD_COMMANDS, OLD_FLAGS, current_names
from pydelta.deprecation import DeltaDeprecationWarning

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "flags.md"
PROGRAMS = {"pydelta": app, "catalog_sync": catalog_sync.cli.app}
JOBS = sorted(path.stem for path in (ROOT / "jobs").glob("*.py") if path.stem not in ("__init__", "schedule"))
"""The schedule is a program of one machine, with arguments of its own."""
OF_PARSERS = {"--help", "-h"}


def collected():
    """Place -> flag -> its text and all of its names."""
    found = defaultdict(dict)
    for program, it in PROGRAMS.items():
        for name, command in typer.main.get_command(it).commands.items():
            for option in command.params:
                for flag in [*option.opts, *option.secondary_opts]:
                    found[f"{program} {name}"][flag] = (option.help or "", tuple(option.opts))
    for job in JOBS:
        for action in importlib.import_module(f"jobs.{job}").arguments()._actions:
            for flag in action.option_strings:
                found[f"{job}.py"][flag] = (action.help or "", tuple(action.option_strings))
    return {
        place: {flag: it for flag, it in flags.items() if flag.startswith("-") and flag not in OF_PARSERS}
        for place, flags in found.items()
    }


def long_names(names):
    return tuple(name for name in names if name.startswith("--"))


def flags_page():
    """Format the page of the documentation."""
    rows = defaultdict(list)
    for place, flags in collected().items():
        for flag, (text, names) in flags.items():
            if flag.startswith("--"):
                short = "".join(f", `{name}`" for name in names if not name.startswith("--"))
                rows[f"`{flag}`{short}", _sentence(text)].append(f"`{place}`")
    old = [
        f"| `{name}` | `{place}` | {f'`{new}`' if new else 'nothing: it is the default'} |"
        for place, names in OLD_FLAGS.items()
        for name, new in names.items()
    ]
    commands = [f"| `{old}` | | `{old.split()[0]} {new}` |" for old, new in OLD_COMMANDS.items()]
    return "\n".join(
        [
            "# Flags",
            "",
            "Every flag of the command lines and of the jobs: one name for one thing. Generated from their parsers by",
            "`python -m tests.unit.test_flags > docs/reference/flags.md`; a test compares them.",
            "",
            "| flag | meaning | in |",
            "|---|---|---|",
            *[f"| {flag} | {text} | {', '.join(places)} |" for (flag, text), places in sorted(rows.items())],
            "",
            "## Old names",
            "",
            "They still work, with a warning on standard error.",
            "[Upgrading](../upgrading.md#deprecated-names) says until which version, and has the forms of Python.",
            "",
            "| old | in | new |",
            "|---|---|---|",
            *commands,
            *old,
            "",
        ]
    )


def _sentence(text):
    text = text.replace("|", "\\|").replace("<", "&lt;").strip().rstrip(".")
    return text[:1].upper() + text[1:]


def test_the_page_is_that_of_the_parsers():
    assert PAGE.read_text() == flags_page(), "print it again: python -m tests.unit.test_flags > docs/reference/flags.md"


def test_a_short_name_stands_for_one_long_name_and_every_long_name_has_the_same_one():
    short, long = defaultdict(set), defaultdict(set)
    for flags in collected().values():
        for flag, (_, names) in flags.items():
            if flag.startswith("--"):
                long[flag].add(tuple(name for name in names if not name.startswith("--")))
            else:
                short[flag].add(long_names(names))
    assert {flag: names for flag, names in short.items() if len(names) > 1} == {}
    programs = {flag: names - {()} for flag, names in long.items()}
    assert {flag: names for flag, names in programs.items() if len(names) > 1} == {}


def test_an_old_name_is_gone_from_its_parser_and_its_new_name_is_there():
    found = collected()
    for place, names in OLD_FLAGS.items():
        for old, new in names.items():
            assert old.split()[0] not in found[place], (place, old)
            assert not new or new in found[place], (place, new)
    for old, new in OLD_COMMANDS.items():
        program, _, name = old.partition(" ")
        commands = typer.main.get_command(PROGRAMS[program]).commands
        assert name not in commands
        assert new in commands


@pytest.mark.parametrize(
    "synonym",
    [
        "--retain",
        "--rate",
        "--all",
        "--book",
        "--workers",
        "--confirm",
        "--debug",
        "--dryrun",
        "--metastore-uri",
    ],
)
def test_a_synonym_of_a_flag_is_nowhere(synonym):
    assert [place for place, flags in collected().items() if synonym in flags] == []


@pytest.mark.parametrize(
    ("program", "given", "expected", "warned"),
    [
        ("pydelta", ["vacuum", "t", "--retain", "1", "--rate=5"],
         ["vacuum", "t", "--retention-hours", "1", "--deletes-per-second=5"],
         ["--retain is now --retention-hours", "--rate is now --deletes-per-second"]),
        ("pydelta", ["delete", "t", "--all"], ["delete", "t", "--all-rows"], ["--all is now --all-rows"]),
        ("pydelta", ["maintenance", "t", "--book", "b"], ["maintain", "t", "--journal", "b"],
         ["pydelta maintenance is now pydelta maintain", "--book is now --journal"]),
        ("pydelta", ["detail", "t", "-v", "3"], ["detail", "t", "--version", "3"], ["-v is now --version"]),
        ("pydelta", ["sql", "-e", "SELECT 1", "--format", "JSON"], ["sql", "-e", "SELECT 1", "--json"],
         ["--format json is now --json"]),
        ("pydelta", ["sql", "--format=table", "-v"], ["sql", "-v"], ["--format table is the default"]),
        ("pydelta", ["append", "t", "f", "--format", "csv"], ["append", "t", "f", "--format", "csv"], []),
        ("pydelta", ["delete", "--", "--all"], ["delete", "--", "--all"], []),
        ("pydelta", ["--version"], ["--version"], []),
        ("pydelta", [], [], []),
        ("catalog_sync", ["sync", "/t", "--table", "a.b"], ["sync", "/t", "--entry", "a.b"],
         ["--table is now --entry"]),
        ("maintain.py", ["--all", "--all", "--book-location=b"],
         ["--all-databases", "--all-databases", "--journal-location=b"],
         ["--all is now --all-databases", "--book-location is now --journal-location"]),
    ],
)  # fmt: skip
def test_old_names_are_replaced_with_one_warning_each(capsys, program, given, expected, warned):
    assert current_names(program, given, has_commands=program in PROGRAMS) == expected
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.removeprefix("Warning: ").partition(";")[0] for line in said.err.splitlines()] == warned


def test_a_command_and_a_job_accept_their_old_names(capsys, tmp_path):
    import pydelta
    from jobs import maintain, vacuum
    from pydelta.api.cli.cli import main

    table = str(tmp_path / "t")
    pydelta.LocalTable.create(table, {"id": "int"})
    with pytest.raises(SystemExit) as stopped:
        main(["vacuum", table, "--retain", "200", "--dry-run", "--json"])
    assert (stopped.value.code or 0, "--retain is now" in capsys.readouterr().err) == (0, True)
    assert vacuum.main([table, "--retain", "200", "--dry-run"]) == 0
    assert capsys.readouterr().err.count("--retain is now --retention-hours") == 1
    assert maintain.arguments().parse_args(["--all"]).all_databases
    assert "--all is now" in capsys.readouterr().err


def test_python_accepts_the_old_forms_with_a_warning(tmp_path):
    import polars as pl

    import pydelta

    table = pydelta.LocalTable.create(str(tmp_path / "t"), pl.DataFrame({"id": [1, 2, 3], "s": ["a", "b", "c"]}))
    old = {
        r"update\(condition, \{…\}\)": lambda: table.update({"s": "'x'"}, "id = 1"),
        r"delete\(condition=…\)": lambda: table.delete(where="id = 2"),
        r"update\(condition=…\)": lambda: table.update(set={"s": "'y'"}, where="id = 3"),
        r"purge\(condition=…\)": lambda: table.purge(where="true"),
    }
    for new, call in old.items():
        with pytest.warns(DeltaDeprecationWarning, match=new) as seen:
            call()
        assert seen[0].filename == __file__
    assert sorted(pl.from_arrow(table.scan()).rows()) == [(1, "x"), (3, "y")]
    with pytest.warns(DeltaDeprecationWarning):
        assert table.update({"s": "'z'"}).num_updated_rows == 2
    with pytest.raises(pydelta.errors.InvalidArgumentError, match="new values must be a dict"):
        table.update("id = 1")


if __name__ == "__main__":
    print(flags_page(), end="")
