"""Everything that users rely on: Python, command lines, jobs, settings, SQL, conditions, variables, targets."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

import typer

import catalog_sync.cli
from pydelta.api.cli.cli import app
from pydelta.api.verbs import VERBS
from pydelta.commands.write.options import HONOURED, PASSED_OVER
from pydelta.deprecation import DEPRECATED
from pydelta.errors.conditions import CONDITIONS
from pydelta.settings.maintenance import POLICY_PREFIX, MaintenancePolicy
from pydelta.settings.refused import refused_settings
from pydelta.settings.row import rows_of
from pydelta.settings.session import ALIASES, Settings
from pydelta.settings.table import TableProperties
from tests.api.entries import Entry
from tests.api.python_names import ROOT, default_text, python_entries

PROGRAMS = {"pydelta": app, "catalog_sync": catalog_sync.cli.app}
JOBS = sorted(path.stem for path in (ROOT / "jobs").glob("*.py") if path.stem not in ("__init__", "schedule"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_HELP = {"--help", "-h"}


def surface() -> list[Entry]:
    """All entries, sorted."""
    found = [
        *python_entries(),
        *command_entries(),
        *job_entries(),
        *setting_entries(),
        *statement_entries(),
        *(Entry("condition", name, condition_value(name)) for name in CONDITIONS),
        *(Entry("variable", name) for name in variables()),
        *package_entries(),
        *target_entries(),
        *deprecated_entries(),
    ]
    return sorted(set(found))


def command_entries() -> Iterator[Entry]:
    """The commands of both programs with their arguments and flags."""
    for program, its_app in PROGRAMS.items():
        group = typer.main.get_command(its_app)
        yield from _of_command(program, [item for item in group.params if _is_option(item)])
        for name, command in group.commands.items():
            given = [item for item in command.params if not _is_option(item)]
            places = [f"{item.name}{'' if item.required else '?'}{'…' if item.nargs != 1 else ''}" for item in given]
            yield Entry("command", f"{program} {name}", f"({', '.join(places)})")
            yield from _of_command(f"{program} {name}", [item for item in command.params if item not in given])


def _is_option(parameter: Any) -> bool:
    return parameter.opts[0].startswith("-")  # what else there is to ask differs between Typer's versions


def _of_command(place: str, options: Iterable[Any]) -> Iterator[Entry]:
    for option in options:
        if option.name in ("install_completion", "show_completion"):  # typer's
            continue
        long = next((name for name in option.opts if name.startswith("--")), option.opts[0])
        kind = "flag" if option.is_flag else "value"
        words = [kind, *(["required"] if option.required else []), *(["repeatable"] if option.multiple else [])]
        if not option.required and option.default not in (None, False) and not option.multiple:
            words.append(f"default {default_text(option.default)}")
        for name in {*option.opts, *option.secondary_opts} - _HELP:
            yield Entry("flag", f"{place} {name}", " ".join(words) if name == long else f"is {long}")


def job_entries() -> Iterator[Entry]:
    """The jobs with their arguments and flags."""
    for job in JOBS:
        actions = importlib.import_module(f"jobs.{job}").arguments()._actions
        places = [action for action in actions if not action.option_strings]
        shown = [
            f"{action.dest}{'?' if action.nargs in ('?', '*') else ''}{'…' if action.nargs in ('*', '+') else ''}"
            for action in places
        ]
        yield Entry("job", f"{job}.py", f"({', '.join(shown)})")
        for action in actions:
            if action.option_strings and not _HELP & set(action.option_strings):
                yield from _of_job(f"{job}.py", action)


def _of_job(place: str, action: argparse.Action) -> Iterator[Entry]:
    long = next((name for name in action.option_strings if name.startswith("--")), action.option_strings[0])
    kind = "flag" if action.nargs == 0 else "|".join(map(str, action.choices or ())) or "value"
    words = [kind, *(["required"] if action.required else []), *(["repeatable"] if action.nargs in ("*", "+") else [])]
    if action.default not in (None, False, argparse.SUPPRESS, []):
        of_this_machine = str(ROOT) in str(action.default) or sys.executable in str(action.default)
        words.append(f"default {'...' if of_this_machine else default_text(action.default)}")
    for name in action.option_strings:
        yield Entry("flag", f"{place} {name}", " ".join(words) if name == long else f"is {long}")


def setting_entries() -> Iterator[Entry]:
    """Settings of sessions, properties of tables and options of writes."""
    for key, row in rows_of(Settings).items():
        yield Entry("setting", f"spark.pydelta.{key}", row.default)
    for alias, row in ALIASES.items():
        yield Entry("setting", alias, f"is spark.pydelta.{row.key}")
    for name, refused in refused_settings().items():
        yield Entry("setting", name, f"only {refused.only}")
    for key, row in rows_of(TableProperties).items():
        yield Entry("property", key, row.default)
    for key, row in rows_of(MaintenancePolicy).items():
        yield Entry("property", POLICY_PREFIX + key, row.default)
    for name in HONOURED:
        yield Entry("option", f"write {name}")
    for name in PASSED_OVER:
        yield Entry("option", f"write {name}", "no effect")


def statement_entries() -> Iterator[Entry]:
    """The verbs of SQL, and the keywords of the statements that the grammar reads."""
    for verb in VERBS:
        if not verb.sql.startswith("("):
            for words in verb.sql.split(", "):
                if words[0].isupper():  # not a column, nor the name of a table
                    yield Entry("statement", words)
    rules = grammar_rules((ROOT / "pydelta/api/sql/grammar/grammar.lark").read_text())
    for name in re.findall(r"\w+", rules["statement"]):
        for word in sorted(keywords(rules, name)):
            yield Entry("keyword", f"{name.replace('_', ' ').upper()}: {word}")


def grammar_rules(text: str) -> dict[str, str]:
    """Name of a rule or a terminal -> its text."""
    lines = re.sub(r"^//.*\n", "", text, flags=re.MULTILINE)
    found = re.split(r"^\??(\w+)(?:\.\d+)?:", lines, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def keywords(rules: dict[str, str], rule: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """The keywords that a rule accepts, apart from those in conditions, which Spark reads."""
    if rule in seen or rule in ("_item", "_inside", "WORD", "QUOTED", "STRING") or rule not in rules:
        return set()
    text = rules[rule]
    plain = re.sub(r"/(?:[^/\\\n]|\\.)*/\w*", "", text)
    found = {word.upper() for word in re.findall(r'"([A-Za-z]+)"i', plain)}
    for pattern in re.findall(r"/((?:[^/\\\n]|\\.)*)/i", text):  # such as NO\s+STATISTICS\b
        words = re.sub(r"\\[sb]\+?", " ", pattern).strip("() ")
        found |= (
            {" ".join(word.split()).strip("()") for word in words.split("|")} if re.search("[A-Z]{2}", words) else set()
        )
    bare = re.sub(r'"[^"]*"i?', "", plain)
    for name in re.findall(r"\b_?[A-Za-z]\w*\b", bare):
        found |= keywords(rules, name, seen | {rule})
    return found


def condition_value(name: str) -> str:
    """The SQLSTATE of a condition."""
    return CONDITIONS[name] or ""


def variables() -> set[str]:
    """The variables of the environment that the code reads: each setting's, and those that it looks up by name."""
    found = {f"PYDELTA_{re.sub(r'(?<=[a-z])(?=[A-Z])|[.]', '_', key).upper()}" for key in rows_of(Settings)}
    for folder in ("pydelta", "catalog_sync", "jobs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            codes = {
                id(node.value)
                for node in ast.walk(tree)
                if isinstance(node, ast.Assign) and [ast.unparse(it) for it in node.targets] == ["code"]
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in codes:
                    found |= {name for name in [node.value] if re.fullmatch(r"(PYDELTA|OPENLINEAGE)_[A-Z0-9_]+", name)}
    return found


def package_entries() -> Iterator[Entry]:
    """What the distribution installs."""
    for extra in PROJECT["optional-dependencies"]:
        if extra not in ("bench", "dev", "stack-tests"):
            yield Entry("extra", extra)
    for group, rows in PROJECT["entry-points"].items():
        yield Entry("entry-points", group)
        for name in rows:
            yield Entry("entry-point", f"{group} {name}")
    for program in PROJECT["scripts"]:
        yield Entry("program", program)


def target_entries() -> Iterator[Entry]:
    """The targets of make, the verbs of scripts/lake, and the variables of the stack's files."""
    for name in re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE):
        yield Entry("target", f"make {name}")
    lake = (ROOT / "scripts/lake").read_text()
    for name in re.findall(r"^  ([a-z][a-z-]*) ", lake.partition("END\n}")[0], re.MULTILINE):
        yield Entry("target", f"scripts/lake {name}")
    for path in [*sorted(ROOT.glob("docker-compose*.yml")), *sorted((ROOT / "compose").glob("*.yml"))]:
        for name in re.findall(r"\$\{([A-Z][A-Z0-9_]*)", path.read_text()):
            yield Entry("stack-variable", name)


def deprecated_entries() -> Iterator[Entry]:
    """The deprecated names, each with the kind and the name that it had as an entry."""
    for row in DEPRECATED:
        place = "" if row.kind in ("command", "target") else f"{row.where} "
        yield Entry(
            "deprecated",
            f"{row.kind} {place}{row.old}",
            f"{row.new or 'nothing'}, since {row.since}, gone in {row.gone}",
        )
