"""``python -m differ --python PEER``, in this folder's parent: run programs on the reference engine and on this one, and compare.

Prints how many are equal, and each difference that is not in the kept list. Ends with 1 when there is one, or when the
reference engine does not answer as it did when its answers were kept (``answers``; a program without one is asked there).
With ``--record`` it keeps new answers, and which programs differ and why (see ``differ.report``). Of all programs, it tells
of kept differences that are gone.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import asdict
from pathlib import Path

from differ.answers import read_answers, write_answers
from differ.compare import Difference, Kept, differences, kept_of
from differ.doors import as_thrift_shows
from differ.programs import Program, all_programs
from differ.report import note_differing, read_differing, reasons_of, report_of

HERE = Path(__file__).resolve().parent
KEPT = HERE.parent / "kept.toml"
DOORS = HERE.parent / "kept_doors.toml"
ZONE = "America/Los_Angeles"
"""Where Python makes a time of Spark's its own: the sessions' own zone, in which Thrift shows times."""


def main() -> int:
    """See above."""
    asked = _arguments().parse_args()
    programs = all_programs()
    if asked.door:
        return _by_door(asked, programs)
    names = chosen([program.name for program in programs], asked.only, asked.part)
    kept_answers = read_answers(program for program in programs if program.name in set(names))
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        results = asked.results or Path(folder)
        results.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        ours = results_of("ours", names, results, asked.python)
        again = sorted(kept_answers)[: asked.again or 0]
        new = [name for name in names if name not in kept_answers] + again
        answered = results_of("reference", new, results, asked.python)
        seconds = time.monotonic() - began
    theirs = kept_answers | {name: answered[name] for name in new}
    changed = [item for name in again for item in differences(name, answered[name], kept_answers[name])]
    found = [item for name in names for item in differences(name, ours[name], theirs[name])]
    kept = kept_of(tomllib.loads(KEPT.read_text())["kept"]) if KEPT.exists() else []
    if asked.record:
        write_answers(programs, {name: answered[name] for name in new})
        note_differing([program.name for program in programs], names, reasons_of(found, kept))
    if len(names) == len(programs):
        for item in kept:
            if not any(item.holds(difference) for difference in found):
                print(f"kept and not found: {item.program} {', '.join(item.where)}")
    print(f"{len(again)} answers asked for again, {len({item.program for item in changed})} are others now")
    for item in changed:
        print(f"not as kept: {item}")
    return _say(names, found, kept, seconds, asked.report) or int(bool(changed))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make test SUITE=peers", description="One corpus of programs on two engines.")
    parser.add_argument(
        "--python", required=True, help="the interpreter of the environment with PySpark 4.2 and pydelta"
    )
    parser.add_argument("--only", help="a pattern of names, as a shell has them")
    parser.add_argument("--part", default="1/40", help="K/N: each program falls into one of N parts; 1/1 is all (1/40)")
    parser.add_argument(
        "--results", type=Path, help="a folder for what came of the programs; what is there is not run again"
    )
    parser.add_argument("--report", type=Path, help="a file for the counts and the differences, as JSON")
    parser.add_argument(
        "--record", action="store_true", help="keep what the reference engine answers, and what differs"
    )
    parser.add_argument("--again", type=int, metavar="N", help="ask the reference engine again about N of them")
    parser.add_argument(
        "--door", choices=("connect", "thrift"), help="compare pydelta serve by this door with the engine in process"
    )
    return parser


def _by_door(asked: argparse.Namespace, programs: list[Program]) -> int:
    """Compare a door with the engine in process; Thrift runs the programs that are only SQL.

    In process the engine answers as the reference does, which is kept, but for programs that are known to differ: it is
    asked about those, and about those where the door gives something else than what is kept.
    """
    fit = [program.name for program in programs if asked.door == "connect" or program.function is None]
    names = chosen(fit, asked.only, asked.part)

    def shown(name: str) -> list[dict]:
        return [_by_thrift(item[name]) if asked.door == "thrift" else item[name] for item in (through, inside)]

    os.environ["TZ"] = ZONE
    with tempfile.TemporaryDirectory(prefix="doors-") as folder:
        results = asked.results or Path(folder)
        results.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        through = results_of(asked.door, names, results, asked.python)
        others = set(read_differing())
        inside = read_answers(program for program in programs if program.name in set(names) - others)
        asked_again = [name for name in names if name not in inside or differences(name, *shown(name))]
        inside |= results_of("ours", asked_again, results, asked.python)
        seconds = time.monotonic() - began
    found = [item for name in names for item in differences(name, *shown(name))]
    kept = kept_of(tomllib.loads(DOORS.read_text())[asked.door])
    return _say(names, found, kept, seconds, asked.report)


def _by_thrift(result: dict) -> dict:
    return result | {"outcomes": [as_thrift_shows(outcome) for outcome in result["outcomes"]]}


def _say(names: list[str], found: list[Difference], kept: list[Kept], seconds: float, file: Path | None) -> int:
    opened = [item for item in found if not any(entry.holds(item) for entry in kept)]
    report = report_of(names, reasons_of(found, kept))
    if file is not None:
        told = {**asdict(report.total), "reasons": report.reasons, "differences": list(map(str, opened))}
        file.write_text(json.dumps(told, indent=1))
    for item in opened:
        print(item)
    total = report.total
    print(
        f"{total.programs} programs: {total.equal} equal, {total.kept} with kept differences, {total.open} with others; "
        f"{seconds:.0f} s"
    )
    for reason, number in sorted(report.reasons.items(), key=lambda item: -item[1]):
        print(f"  kept in {number:4}: {reason}")
    return int(bool(opened))


def chosen(names: list[str], only: str | None, part: str) -> list[str]:
    """The programs of a part; a program stays in its part when others come."""
    if only:
        return [name for name in names if fnmatch.fnmatchcase(name, only)]
    number, of = map(int, part.split("/"))
    return [name for name in names if int(hashlib.sha256(name.encode()).hexdigest(), 16) % of == number % of]


def results_of(engine: str, names: list[str], results: Path, python: str) -> dict[str, dict]:
    """What came of programs on an engine, ``ours`` or ``reference``; what is in ``results`` already is not run again."""
    target = results / f"{engine}.jsonl"
    known = _read(target)
    missing = [name for name in names if name not in known]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    environment |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    while missing:
        with tempfile.TemporaryDirectory(prefix=f"programs-{engine}-") as folder:
            wanted, out = Path(folder, "names"), Path(folder, "out")
            wanted.write_text("\n".join(missing))
            with Path(folder, "said").open("wb") as said:
                command = [python, str(HERE / "run.py"), engine, folder, str(out), str(wanted)]
                subprocess.run(command, stdout=said, stderr=said, env=environment, cwd=folder, check=False)
            new = _read(out)
            if not new:
                text = Path(folder, "said").read_text(errors="replace")[-3000:]
                raise SystemExit(f"The programs could not be run on {engine}:\n{text}")
            with target.open("a") as file:
                file.writelines(json.dumps(item) + "\n" for item in new.values())
        known |= new
        missing = [name for name in missing if name not in new]
    return known


def _read(path: Path) -> dict[str, dict]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {item["name"]: item for item in map(json.loads, lines)}


if __name__ == "__main__":
    sys.exit(main())
