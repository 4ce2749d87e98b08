"""List what the project installs and what its images download, as CycloneDX JSON: ``python scripts/sbom.py``.

Everything is read from the files that the installations themselves go by, so that nothing is said twice:
``constraints.txt``, ``images/*/*requirements*.txt``, ``images/*/*.sha256``, ``images/*/Dockerfile``. Names of groups
come from Maven, where it is installed: a list of jars does not say them.

``unpinned`` says what a Dockerfile would download without comparing it with a hash.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
_POM = "{http://maven.apache.org/POM/4.0.0}"
_REQUIREMENT = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")
_JAR_LINE = re.compile(r"^([0-9a-f]{64}) [ *](\S+)$")
_JAR = re.compile(r"^(.+?)-(\d+\.\d.*)\.jar$")
_CHECKED = re.compile(r"""echo ["']([0-9a-f]{64}) +(\S+?)["'] \| sha256sum -c --strict""")
_ARTIFACT = re.compile(r"-Dartifact=([\w.-]+):([\w.-]+):([^:\s]+)(?::([\w.]+))?(?::([\w-]+))?")
_MODULE = re.compile(r'go mod download -json "?([\w./-]+)@([^\s"]+)')
_SUM = re.compile(r"(h1:[A-Za-z0-9+/]{43}=)")
_PIP = ("install", "wheel", "download", "uninstall")
_FETCHING = frozenset(
    ("curl", "wget", "git", "svn", "rsync", "scp", "ftp", "npm", "npx", "yarn", "cargo", "gem", "conda", "uv", "pipx")
) | frozenset(("poetry", "gradle", "sbt", "cs", "docker", "add-apt-repository", "apt-key"))


@dataclass(slots=True)
class Part:
    """Something that is installed: a CycloneDX component without its spelling.

    Args:
        purl: Its package URL, by which parts are told apart.
        hashes: SHA-256 of each file that is accepted for it.
        sums: Checksums of Go modules.
        used: What it is installed by, a file and what that is for.
    """

    purl: str
    name: str
    version: str = ""
    group: str = ""
    kind: str = "library"
    hashes: set[str] = field(default_factory=set)
    sums: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)


# -- what the files say -----------------------------------------------------------------------------------------------


def instructions(text: str) -> list[tuple[str, str]]:
    """Split a Dockerfile into instructions and what follows them, with the values of ``ARG`` and ``ENV`` put in."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found: list[tuple[str, str]] = []
    known: dict[str, str] = {}
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        name, rest = name.upper(), re.sub(r"\s+", " ", rest.strip())
        if name in ("ARG", "ENV"):
            for variable, value in re.findall(r"(\w+)=(\"[^\"]*\"|\S+)", rest):
                known[variable] = _filled(value.strip('"'), known)
        found.append((name, _filled(rest, known)))
    return found


def _filled(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda found: known.get(found[1] or found[2], found[0]), text)


def requirements(text: str) -> Iterator[tuple[str, str, set[str]]]:
    """Read the packages of a file for pip: name, version and hashes of each."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        found = _REQUIREMENT.match(line.strip())
        if found:
            yield found[1], found[2], set(_HASH.findall(line))


def listed_jars(text: str) -> Iterator[tuple[str, str]]:
    """Read a list of ``sha256sum``: the file and its hash."""
    for line in filter(None, map(str.strip, text.splitlines())):
        found = _JAR_LINE.match(line)
        if not found:
            raise SystemExit(f"This is not a line that sha256sum writes: {line}")
        yield found[2], found[1]


def groups_of(pom: str) -> dict[str, str]:
    """The group of each artifact that a ``pom.xml`` names itself."""
    tree = ElementTree.fromstring(pom)  # noqa: S314 -- a file of this project
    found = {}
    for item in tree.iter(f"{_POM}dependency"):
        group, artifact = item.find(f"{_POM}groupId"), item.find(f"{_POM}artifactId")
        if group is not None and artifact is not None:
            found[str(artifact.text)] = str(group.text)
    return found


def groups_by_maven(pom: Path, plugin: str) -> dict[str, str]:
    """Ask Maven for the group of each artifact that a ``pom.xml`` leads to; it reads descriptions and no jar."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "tree"
        command = ["mvn", "-q", "-B", "-ntp", "-f", str(pom), f"{plugin}:tree", f"-DoutputFile={out}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode or not out.exists():
            raise SystemExit(f"Maven could not read {pom}: {done.stdout[-600:]}{done.stderr[-600:]}")
        return {
            artifact: group for group, artifact in re.findall(r"([\w.-]+):([\w.-]+):jar:", out.read_text()) if artifact
        }


# -- parts ------------------------------------------------------------------------------------------------------------


def parts(root: Path, *, ask_maven: bool) -> dict[str, Part]:
    """Find what is installed, by package URL."""
    found: dict[str, Part] = {}

    def add(part: Part) -> None:
        kept = found.setdefault(part.purl, part)
        kept.hashes |= part.hashes
        kept.sums |= part.sums
        kept.used |= part.used

    for name, version, hashes in requirements((root / "constraints.txt").read_text()):
        add(_python(name, version, hashes, "constraints.txt"))
    for image in sorted(path for path in (root / "images").iterdir() if path.is_dir()):
        for path in sorted(image.glob("*requirements*.txt")):
            for name, version, hashes in requirements(path.read_text()):
                add(_python(name, version, hashes, _named(path, root)))
        dockerfile = image / "Dockerfile"
        steps = instructions(dockerfile.read_text()) if dockerfile.exists() else []
        for part in _downloads(steps, _named(dockerfile, root)):
            add(part)
        groups = _groups(image, steps, ask_maven=ask_maven)
        for path in sorted(image.glob("*.sha256")):
            for file, digest in listed_jars(path.read_text()):
                add(_jar(file, digest, groups, _named(path, root)))
    return dict(sorted(found.items()))


def _named(path: Path, root: Path) -> str:
    return str(path.relative_to(root))


def _python(name: str, version: str, hashes: set[str], used: str) -> Part:
    plain = re.sub(r"[-_.]+", "-", name).lower()
    return Part(purl=f"pkg:pypi/{plain}@{version}", name=plain, version=version, hashes=hashes, used={used})


def _groups(image: Path, steps: list[tuple[str, str]], *, ask_maven: bool) -> dict[str, str]:
    texts = " ".join(rest for _, rest in steps)
    found = {artifact: group for group, artifact, *_ in _ARTIFACT.findall(texts)}
    for prefix in re.findall(r"-Dartifact=([\w.-]+):\$", texts):
        found[""] = prefix  # artifacts of one group in a loop
    plugin = re.search(r"org\.apache\.maven\.plugins:maven-dependency-plugin:[\w.]+", texts)
    for pom in sorted(image.glob("*.xml")):
        found |= groups_of(pom.read_text())
        if ask_maven and plugin:
            found |= groups_by_maven(pom, plugin[0])
    return found


def _jar(file: str, digest: str, groups: Mapping[str, str], used: str) -> Part:
    plain = file.removesuffix(".jar")
    known = next(
        (name for name in sorted(groups, key=len, reverse=True) if name and plain.startswith(f"{name}-")), None
    )
    found = _JAR.match(file)
    name, version = (found[1], found[2]) if found else (plain, "")
    if known is not None and plain[len(known) + 1 : len(known) + 2].isdigit():
        name, version = known, plain[len(known) + 1 :]
    group = groups.get(name, groups.get("", ""))
    purl = f"pkg:maven/{group}/{name}@{version}" if group else f"pkg:generic/{name}@{version}?checksum=sha256:{digest}"
    return Part(purl=purl, name=name, version=version, group=group, hashes={digest}, used={used})


def _downloads(steps: list[tuple[str, str]], used: str) -> Iterator[Part]:
    """What a Dockerfile names itself: its base, Debian's packages, archives and modules."""
    stages = {words[-1] for name, rest in steps if name == "FROM" and len(words := rest.split()) > 2}
    for name, rest in steps:
        base = rest.split()[0] if name == "FROM" else ""
        if base and base not in stages:
            image, _, tag = base.partition(":")
            yield Part(purl=f"pkg:docker/{image}@{tag}", name=image, version=tag, kind="container", used={used})
        for command in commands(rest) if name == "RUN" else ():
            if command[:2] == ["apt-get", "install"]:
                for package in (word for word in command[2:] if not word.startswith("-")):
                    yield Part(purl=f"pkg:deb/debian/{package}", name=package, kind="application", used={used})
        checked = {file: digest for digest, file in _CHECKED.findall(rest)}
        for group, artifact, version, kind, classifier in _ARTIFACT.findall(rest):
            if "$" in version + artifact:
                continue  # in a list of hashes
            file = f"{artifact}-{version}{f'-{classifier}' if classifier else ''}.{kind or 'jar'}"
            more = "&".join(filter(None, [classifier and f"classifier={classifier}", kind and f"type={kind}"]))
            yield Part(
                purl=f"pkg:maven/{group}/{artifact}@{version}{f'?{more}' if more else ''}", name=artifact,
                version=version, group=group, hashes={checked[file]} if file in checked else set(), used={used},
            )  # fmt: skip
        for module, version in _MODULE.findall(rest):
            purl = f"pkg:golang/{module}@{version}"
            yield Part(purl=purl, name=module, version=version, sums=set(_SUM.findall(rest)), used={used})
        for tool, version in set(re.findall(r"org\.apache\.maven\.plugins:([\w-]+):([\d.]+)", rest)):
            group = "org.apache.maven.plugins"
            purl = f"pkg:maven/{group}/{tool}@{version}"
            yield Part(purl=purl, name=tool, version=version, group=group, kind="application", used={used})
        for toolchain in re.findall(r"GOTOOLCHAIN=go([\d.]+)", rest) if name == "ENV" else ():
            yield Part(purl=f"pkg:golang/toolchain@go{toolchain}", name="go", version=toolchain, used={used})


# -- pinned or not ----------------------------------------------------------------------------------------------------


def commands(text: str) -> list[list[str]]:
    """Split a line of a shell into its simple commands, each into words; what cannot be split is one word."""
    found = []
    for piece in re.split(r"&&|\|\||[;|]|\bdo\b|\bthen\b|\$\(|\(", re.sub(r"--mount=\S+ ", "", text)):
        try:
            words = shlex.split(piece, comments=False)
        except ValueError:
            words = piece.split()
        words = [word for at, word in enumerate(words) if not (at == 0 and re.match(r"^\w+=", word))]
        if words:
            found.append(words)
    return found


def unpinned(text: str, files: Mapping[str, str]) -> list[str]:
    """What a Dockerfile downloads and compares with no hash; apt verifies Debian's packages by their signatures.

    Args:
        text: Of the Dockerfile.
        files: Texts of the image's folder by name, in which packages and jars are listed.
    """
    steps, wrong = instructions(text), []
    stages = {words[-1] for name, rest in steps if name == "FROM" and len(words := rest.split()) > 2}
    environment = " ".join(rest for name, rest in steps if name == "ENV")
    for name, rest in steps:
        if name == "FROM" and rest.split()[0] not in {*stages, "scratch"} and "debian:" not in rest:
            wrong.append(f"a base that is not Debian: {rest}")
        if name == "ADD" and "://" in rest and "--checksum=sha256:" not in rest:
            wrong.append(f"ADD of an address without a hash: {rest}")
        if name in ("COPY", "ADD"):
            wrong += [
                f"a copy out of another image: {rest}" for of in re.findall(r"--from=(\S+)", rest) if of not in stages
            ]
        if name == "RUN":
            wrong += [f"{why}: {rest[:160]}" for why in _unpinned_step(rest, environment, files)]
    for file, content in files.items():
        if "requirements" in file and file.endswith(".txt"):
            wrong += [f"no hash in {file}: {package}" for package, _, hashes in requirements(content) if not hashes]
            plain = re.sub(r"\\\n", " ", content).splitlines()
            wrong += [f"no version in {file}: {line}" for line in plain if line.strip() and not _is_pinned(line)]
    return wrong


def _is_pinned(line: str) -> bool:
    return line.lstrip().startswith("#") or _REQUIREMENT.match(line.strip()) is not None


def _unpinned_step(text: str, environment: str, files: Mapping[str, str]) -> Iterator[str]:
    lists = [
        file for file in re.findall(r"sha256sum -c --strict (?:--quiet )?\S*?([\w.-]+\.sha256)", text) if file in files
    ]
    checked = {file for _, file in _CHECKED.findall(text)}
    for command in commands(text):
        program = Path(command[0]).name
        if program in _FETCHING:
            yield f"{program} checks nothing"
        if program == "mvn":
            yield from _unpinned_maven(command, text, lists, checked)
        if program in ("pip", "pip3") or command[1:3] == ["-m", "pip"]:
            does = next((word for word in command if word in _PIP), "")
            if does != "uninstall" and not {"--require-hashes", "--no-index"} & set(command):
                yield "pip without --require-hashes"
        if program == "go":
            if not (_MODULE.search(text) and _SUM.search(text) and "grep -F" in text):
                yield "a Go module whose checksum is not compared"
            if "-mod=readonly" not in environment or re.search(
                r"GONOSUMDB|GONOSUMCHECK|GOINSECURE|GOSUMDB=off", environment
            ):
                yield "Go's modules are not held to go.sum"
        if program == "apt-get" and any("unauthenticated" in word or "Insecure" in word for word in command):
            yield "apt without signatures"


def _unpinned_maven(command: list[str], text: str, lists: list[str], checked: set[str]) -> Iterator[str]:
    """Maven's own plug-in is not compared, and what it fetched is: with a list, or with a hash in the same step."""
    if any(word.endswith(":copy-dependencies") for word in command):
        if not lists:
            yield "jars that no list of hashes names"
        elif not re.search(r'\[ "\$\(ls \| wc -l\)" = "\$\(wc -l < \S+\.sha256\)" \]', text):
            yield "jars beside those of the list are not noticed"
    for _, artifact, version, kind, classifier in _ARTIFACT.findall(" ".join(command)):
        file = f"{artifact}-{version}{f'-{classifier}' if classifier else ''}.{kind or 'jar'}"
        if file not in checked and not (lists and "$" in file):
            yield f"{file} is not compared with a hash"


# -- the document -----------------------------------------------------------------------------------------------------


def document(root: Path, found: Mapping[str, Part]) -> dict[str, Any]:
    """Make the CycloneDX document; the same files make the same one."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    components = [_component(part) for part in found.values()]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components, sort_keys=True))
    name, version = project["name"], project["version"]
    own = {"type": "application", "bom-ref": f"pkg:pypi/{name}@{version}", "name": name, "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": own | {"purl": own["bom-ref"], "description": project["description"]}},
        "components": components,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": sorted(found)}],
    }


def _component(part: Part) -> dict[str, Any]:
    properties = [{"name": "lakehouse:installed-by", "value": used} for used in sorted(part.used)]
    properties += [{"name": "lakehouse:go-sum", "value": value} for value in sorted(part.sums)]
    known: dict[str, Any] = {"type": part.kind, "bom-ref": part.purl, "group": part.group, "name": part.name}
    known |= {"version": part.version, "purl": part.purl}
    known |= {"hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(part.hashes)]}
    return {name: value for name, value in (known | {"properties": properties}).items() if value}


def main() -> None:
    """Write the document, and say what is in it."""
    parser = argparse.ArgumentParser(prog="sbom.py", description="What is installed and downloaded, as CycloneDX JSON.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "sbom.json")
    parser.add_argument("--no-maven", action="store_true", help="do not ask Maven for the groups of jars")
    asked = parser.parse_args()
    ask_maven = shutil.which("mvn") is not None and not asked.no_maven
    found = parts(ROOT, ask_maven=ask_maven)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(document(ROOT, found), indent=1) + "\n")
    kinds = {"pypi": "Python packages", "maven": "jars and archives", "generic": "jars without their group"}
    kinds |= {"golang": "Go modules", "deb": "packages of Debian", "docker": "base images"}
    counts = {kind: sum(purl.startswith(f"pkg:{kind}/") for purl in found) for kind in kinds}
    print(f"{asked.out}: " + ", ".join(f"{count} {kinds[kind]}" for kind, count in counts.items() if count))
    if counts["generic"] and not ask_maven:
        print(
            "  Next: install Maven to have the groups of all jars named; vulnerability scanners look jars up by them."
        )


if __name__ == "__main__":
    sys.exit(main())
