"""Make the register from recorded calls, or compare a version of Spark with it.

``record FOLDER`` reads what ``recording`` wrote; ``check`` exits with 1 if the version lacks something that is used.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

from jvm_contract.calls import NEW
from jvm_contract.checking import compared, differences, lacks
from jvm_contract.classes import Classes, classes_of
from jvm_contract.compiling import compile_errors
from jvm_contract.register import ANY, DEFAULT, PATH, Member, member_of, read, written
from jvm_contract.sources import class_names, implementations


def general(classes: Classes, member: Member) -> Member | None:
    """Return the most general public class or interface that declares a member, or None if no jar has it.

    The class that a call meets may be private or made by the compiler: what code relies on is the declaration above it.
    """
    if member.parameters in (None, ANY) or member.name == NEW:
        return member if classes.has(member) else None
    declared = [member._replace(owner=name) for name in classes.above(member.owner)]
    found = [item for item in declared if item in (classes.members(item.owner) or ())]
    public = [item for item in found if classes.is_public(item.owner)]
    return (public or found or [None])[-1]


def without_defaults(register: dict[Member, set[str]]) -> dict[Member, set[str]]:
    """Join the signatures of a method of which the engine asks the class itself for what it does not give.

    Scala has a method for each default, such as ``copy$default$7``; so more parameters in another version do no harm.
    """
    asked = {(member.owner, member.name.partition(DEFAULT)[0]) for member in register if DEFAULT in member.name}
    joined: dict[Member, set[str]] = defaultdict(set)
    for member, modules in register.items():
        if (member.owner, member.name) in asked:
            joined[member._replace(parameters=ANY)] |= modules
        elif DEFAULT not in member.name:
            joined[member] |= modules
    return joined


def record(folder: Path, jars: Path) -> None:
    """Write the register."""
    raw: dict[Member, set[str]] = defaultdict(set)
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            module, _, _, text = json.loads(line)
            raw[member_of(text)].add(module)
    register: dict[Member, set[str]] = defaultdict(set)
    unknown = []
    with classes_of(jars) as classes:
        for member, modules in raw.items():
            found = general(classes, member)
            if found is None:
                unknown.append(f"  {member.owner} {member}")
            else:
                register[found] |= modules
        register = without_defaults(register)
        callers = frozenset().union(*register.values())
        known = class_names(callers, classes.simple_names)
        names = [name for name in known if "." not in name or classes.members(name) is not None]
    PATH.write_text(written({member: frozenset(modules) for member, modules in register.items()}, names))
    print(
        f"{len(register)} members of {len({member.owner for member in register})} classes, {len(names)} names: {PATH}"
    )
    if unknown:
        print("Left out, since Spark's jars do not have them:", *sorted(unknown), sep="\n")


def check(jars: Path) -> int:
    """Compare; 1 if something is wrong."""
    (catalyst,) = jars.glob("spark-catalyst_*.jar")
    version = re.sub(r"spark-catalyst_[\d.]+-(.*)\.jar", r"\1", catalyst.name)
    register, names = read(PATH.read_text())
    with classes_of(jars) as classes:
        found = lacks(classes, register, names, implementations())
    wrong = compared(found, differences(), version) + compile_errors(jars)
    about = f"Spark {version}: {len(register)} members and {len(names)} names that the engine uses, and its own Java"
    if wrong:
        print(f"{about}; {len(wrong)} are not as it needs them:", *wrong, sep="\n")
        return 1
    print(f"{about}; all are there, but for {len(found)} known differences." if found else f"{about}; all are there.")
    return 0


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(prog="python -m jvm_contract", description=__doc__)
    parser.add_argument("command", choices=("record", "check"))
    parser.add_argument("folder", nargs="?", type=Path, help="what was recorded")
    parser.add_argument("--jars", type=Path, required=True, help="the folder with the jars of a Spark version")
    options = parser.parse_args()
    if options.command == "check":
        return check(options.jars)
    record(options.folder, options.jars)
    return 0


if __name__ == "__main__":
    sys.exit(main())
