"""Build a release into a folder, and try it: ``python scripts/release.py``, or ``make release``.

::

    a commit --git archive, twice--> two folders --hatchling--> wheel, source distribution: equal, byte for byte
        `--> contents, version, changelog                           |
             SHA256SUMS, sbom.json, provenance.json <---------------+--> empty environments --> tutorials

The two builds differ in folder, file modes, time zone and hash seed, and both take their times from the commit, so that
anybody who has the commit can make the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = "import sys; from hatchling import build; build.build_wheel(sys.argv[1]); build.build_sdist(sys.argv[1])"
SURROUNDINGS: Final = ({"TZ": "UTC", "PYTHONHASHSEED": "1"}, {"TZ": "Asia/Kolkata", "PYTHONHASHSEED": "2"})
WITHOUT_JVM: Final = "run-without-spark"
IN_SPARK: Final = "load-a-csv"
_TRY: Final = """
import sys
from pathlib import Path
from tutorial_pages import Runner, in_shell
folder = Path(sys.argv[2])
folder.mkdir()
print(Runner(folder, in_shell(folder)).run(Path(sys.argv[1]).read_text()))
"""


class ReleaseError(Exception):
    """A release that must not be published; the text says why and what to do."""


def commit_of(root: Path) -> str:
    """Return the checkout's commit.

    Raises:
        ReleaseError: The checkout has changes that are not committed, so that nobody could build the same.
    """
    if changed := _git(root, "status", "--porcelain").decode().splitlines():
        raise ReleaseError(f"{len(changed)} files differ from the commit, such as {changed[0][3:]}: commit them first.")
    return _git(root, "rev-parse", "HEAD").decode().strip()


def build(root: Path, commit: str, scratch: Path) -> list[Path]:
    """Build a commit twice and return the files of the first build: the wheel, then the source distribution.

    Raises:
        ReleaseError: The builds differ.
    """
    seconds = _time_of(root, commit)
    builds = []
    for number, surroundings in enumerate(SURROUNDINGS):
        source, out = scratch / f"{'x' * number}source", scratch / f"built-{number}"
        with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", "--format=tar", commit))) as packed:
            packed.extractall(source, filter="data")
        if number:
            for path in source.rglob("*"):
                path.chmod(0o700 if path.is_dir() else 0o600)
        environment = {**os.environ, **surroundings, "SOURCE_DATE_EPOCH": seconds}
        command = [sys.executable, "-c", BUILD, str(out)]
        subprocess.run(command, cwd=source, env=environment, check=True, stdout=subprocess.DEVNULL)
        builds.append([next(out.glob("*.whl")), next(out.glob("*.tar.gz"))])
    for first, second in zip(*builds, strict=True):
        if first.name != second.name or first.read_bytes() != second.read_bytes():
            raise ReleaseError(
                f"Two builds of {first.name} differ: {', '.join(differing(first, second)) or 'headers'}."
            )
    return builds[0]


def differing(first: Path, second: Path) -> list[str]:
    """Return the names of members that two archives do not have in common, byte for byte."""
    one, other = members(first), members(second)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def members(archive: Path) -> dict[str, bytes]:
    """Return the files of a wheel, or of a source distribution without its first folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            return {name: packed.read(name) for name in packed.namelist() if not name.endswith("/")}
    with tarfile.open(archive) as packed:
        files = [(item, packed.extractfile(item)) for item in packed if item.isfile()]
        return {item.name.partition("/")[2]: file.read() for item, file in files if file is not None}


def check_contents(wheel: Path, sdist: Path, source: Path) -> None:
    """Compare the archives with the commit's files: what they hold, their version, and the changelog.

    Raises:
        ReleaseError: They hold other files than they should, or the changelog does not know the version.
    """
    project = tomllib.loads((source / "pyproject.toml").read_text())
    release = project["project"]["version"]
    names = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    packages = tuple(f"{name}/" for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    code = {name for name in names if name.startswith(packages)}
    for archive, expected in ((wheel, code), (sdist, code | {"LICENSE", "CHANGELOG.md", "pyproject.toml"})):
        if f"-{release}" not in archive.name:
            raise ReleaseError(f"{archive.name} does not have the version {release} of pyproject.toml.")
        held = members(archive)
        if lacking := sorted(expected - held.keys()):
            raise ReleaseError(f"{archive.name} lacks {len(lacking)} files, such as {lacking[0]}.")
        if foreign := sorted(name for name in held.keys() - names if not _is_metadata(name)):
            raise ReleaseError(f"{archive.name} has {len(foreign)} files beyond the commit's, such as {foreign[0]}.")
        for name in names & held.keys():
            if held[name] != (source / name).read_bytes():
                raise ReleaseError(f"{name} in {archive.name} differs from the commit's.")
    given = re.search(r'^__version__ = "([^"]+)"', (source / "pydelta" / "__init__.py").read_text(), re.MULTILINE)
    if given is None or given.group(1) != release:
        raise ReleaseError(f"pydelta.__version__ is {given and given.group(1)}, pyproject.toml has {release}.")
    headings = re.findall(r"^## (.+)$", (source / "CHANGELOG.md").read_text(), re.MULTILINE)
    if not any(heading == "Unreleased" or heading.split()[0] == release for heading in headings):
        raise ReleaseError(f"CHANGELOG.md has no heading for {release}, nor one for what is unreleased.")


def try_out(distribution: Path, root: Path, scratch: Path, *, spark: bool) -> list[str]:
    """Install a distribution in an empty environment, away from the checkout, and run tutorials there.

    Returns:
        A line for each tutorial.

    Raises:
        ReleaseError: It cannot be installed, or a page shows another output.
    """
    scratch.mkdir()
    python = scratch / "environment" / "bin" / "python"
    _run([sys.executable, "-m", "venv", str(scratch / "environment")], scratch)
    shutil.copy(root / "tests" / "tutorials" / "tutorial_pages.py", scratch)
    said = []
    for extra, page in (("", WITHOUT_JVM), ("[spark]", IN_SPARK)) if spark else (("", WITHOUT_JVM),):
        _run(
            [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q", f"{distribution}{extra}"],
            scratch,
        )
        shutil.copy(root / "docs" / "tutorials" / f"{page}.md", scratch)
        compared = _run([str(python), "-c", _TRY, f"{page}.md", str(scratch / page)], scratch).split()[-1]
        said.append(f"{distribution.name}{extra}: {page}, {compared} outputs as shown")
    return said


def provenance(files: Sequence[Path], root: Path, commit: str) -> dict[str, Any]:
    """Return an in-toto statement (SLSA provenance 1.0) of how the files were built; the same for the same commit."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": digest(path)}} for path in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "scripts/release.py",
                "externalParameters": {"commit": commit},
                "internalParameters": {"SOURCE_DATE_EPOCH": _time_of(root, commit)},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    {"name": "hatchling", "annotations": {"version": version("hatchling")}},
                    {"name": "python", "annotations": {"version": ".".join(map(str, sys.version_info[:2]))}},
                ],
            },
            "runDetails": {"builder": {"id": "scripts/release.py"}},
        },
    }


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_metadata(name: str) -> bool:
    return name == "PKG-INFO" or ".dist-info/" in name


def _time_of(root: Path, commit: str) -> str:
    """Return the time of a commit, in seconds since 1970."""
    return _git(root, "show", "-s", "--format=%ct", commit).decode().strip()


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, check=True, stdout=subprocess.PIPE).stdout


def _run(command: Sequence[str], folder: Path) -> str:
    """Run a program of an environment, which sees neither the checkout nor this environment.

    Raises:
        ReleaseError: It failed; with the end of its output.
    """
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"PATH": f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        shown = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise ReleaseError(f"{' '.join(command[:4])} … ended with {done.returncode}:\n{shown}")
    return done.stdout


def release(root: Path, out: Path, *, spark: bool) -> None:
    """Build, check and try the checkout's commit, then write the release to a folder."""
    commit = commit_of(root)
    with tempfile.TemporaryDirectory(prefix="pydelta-release-") as name:
        scratch = Path(name)
        wheel, sdist = build(root, commit, scratch)
        print(f"{wheel.name}, {sdist.name}: the same bytes twice, from {commit[:12]}")
        check_contents(wheel, sdist, scratch / "source")
        for number, path in enumerate((wheel, sdist)):
            for line in try_out(path, root, scratch / f"empty-{number}", spark=spark):
                print(line)
        out.mkdir(parents=True, exist_ok=True)
        for old in out.iterdir():
            if old.suffix in (".whl", ".gz"):
                old.unlink()
        files = [Path(shutil.copy(path, out)) for path in (wheel, sdist)]
    command = [sys.executable, str(root / "scripts" / "sbom.py"), "--out", str(out / "sbom.json")]
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
    (out / "provenance.json").write_text(json.dumps(provenance(files, root, commit), indent=1) + "\n")
    listed = [*files, out / "sbom.json", out / "provenance.json"]
    (out / "SHA256SUMS").write_text("".join(f"{digest(path)}  {path.name}\n" for path in listed))
    print((out / "SHA256SUMS").read_text(), end="")


def main() -> int:
    """Make the release; 1 if it must not be published."""
    parser = argparse.ArgumentParser(prog="release.py", description="Build a release twice, check it and try it.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--no-spark", action="store_true", help="run the tutorial without a JVM only")
    asked = parser.parse_args()
    try:
        release(ROOT, asked.out, spark=not asked.no_spark)
    except ReleaseError as error:
        print(f"There is no release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
