"""Keep what the reference engine answered: one packed file a subject, each answer with a fingerprint of its program.

An answer counts as long as its program is the same text, with the functions that its module shares.
"""

from __future__ import annotations

import ast
import functools
import gzip
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from differ.programs import Program

__all__ = ["FOLDER", "fingerprint", "read_answers", "write_answers"]

FOLDER = Path(__file__).resolve().parent.parent / "answers"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Where a function is in memory, which differs from run to run: its text is in its module's."""
ENGINE = "delta-spark 4.4.0, pyspark 4.2.0"


def fingerprint(program: Program) -> str:
    """What an answer depends on, in sixteen digits."""
    if program.function is None:
        told: object = [[statement.text, statement.sees] for statement in program.statements]
    else:
        function = program.function
        told = [
            inspect.getsource(function),
            _shared(function.__module__),
            _ADDRESS.sub("", repr(function.__defaults__)),
        ]
    text = json.dumps([ENGINE, program.name, told, program.settings, program.history])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _shared(module: str) -> str:
    """The text of a module without the programs that stand for themselves: top-level functions with a decorator."""
    source = inspect.getsource(sys.modules[module])
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            first = node.decorator_list[0].lineno
            lines[first - 1 : node.end_lineno] = [""] * (node.end_lineno - first + 1)
    return "\n".join(line for line in lines if line)


def read_answers(programs: Iterable[Program], folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """The answers that are kept for these programs as they are."""
    found = {}
    subjects: dict[str, dict[str, Any]] = {}
    for program in programs:
        subject = program.name.partition("/")[0]
        if subject not in subjects:
            subjects[subject] = _read(folder / f"{subject}.jsonl.gz")
        answer = subjects[subject].get(program.name)
        if answer is not None and answer["of"] == fingerprint(program):
            found[program.name] = answer
    return found


def write_answers(programs: Iterable[Program], answers: Mapping[str, Mapping[str, Any]], folder: Path = FOLDER) -> None:
    """Keep the answers of these programs beside those of others; those of programs that are gone go."""
    folder.mkdir(exist_ok=True)
    known = list(programs)
    for subject in {program.name.partition("/")[0] for program in known}:
        own = [program for program in known if program.name.startswith(f"{subject}/")]
        path = folder / f"{subject}.jsonl.gz"
        kept = read_answers(own, folder)
        for program in own:
            if program.name in answers:
                answer = {key: value for key, value in answers[program.name].items() if key != "seconds"}
                kept[program.name] = answer | {"of": fingerprint(program)}
        text = "".join(json.dumps(kept[name], sort_keys=True) + "\n" for name in sorted(kept))
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _read(path: Path) -> dict[str, Any]:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines() if path.exists() else []
    return {item["name"]: item for item in map(json.loads, lines)}
