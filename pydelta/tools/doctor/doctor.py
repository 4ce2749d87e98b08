"""Examine a machine, a store or a log: what is fine, what is not, and what to do about it. Starts no session.

::

    check_environment()        Python, PySpark, Java, PYSPARK_PYTHON, Hadoop's jars, extras
    check_store(uri)           write, race 64 put-if-absent calls, compare clocks, delete
    doctor_log.read_log(...)   known messages in a job's log
    -> Examination             text lines for people, JSON for programs
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydelta.engines.spark_versions import SPARKS, installed_spark
from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError, StorageError
from pydelta.storage import Store, open_store
from pydelta.storage.kinds import KINDS
from pydelta.storage.probe import probe_put_if_absent
from pydelta.storage.uris import HERE, normalize_uri, scheme_of
from pydelta.tools.doctor.doctor_log import LogReport, read_log

__all__ = ["Check", "Examination", "check_environment", "check_store", "examine"]

RACERS: Final = 64
_PYTHONS: Final = ((3, 11), (3, 12), (3, 13), (3, 14))
_JAVAS: Final = ("17", "21", "25")
_SKEW_NOTED_SECONDS: Final = 5.0
_SKEW_FAILED_SECONDS: Final = 60.0
"""Retention, time travel and VACUUM's minimum file ages are counted in minutes or more."""
_EXTRAS: Final = (
    *(
        (kind.extra[1], (kind.extra[0],), f"tables on {kind.schemes[0]}://", f"pip install '.[{kind.extra[1]}]'")
        for kind in KINDS
        if kind.extra is not None
    ),
    ("sync", ("pymetastore",), "catalog_sync", "pip install '.[sync]'"),
    ("kerberos", ("gssapi",), "a metastore with Kerberos", "pip install '.[kerberos]'"),
)

State = Literal["ok", "note", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check.

    Args:
        name: Name of the check.
        state: ``ok``; ``note`` if it may be harmless; ``failed``; ``skipped`` after an earlier failure.
        says: The finding.
        cure: What to do about it.
    """

    name: str
    state: State
    says: str
    cure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All results. ``log`` is None if no log was examined."""

    checks: tuple[Check, ...] = ()
    log: LogReport | None = None

    @property
    def ok(self) -> bool:
        """Whether no check failed and the log has no known trouble."""
        return not any(check.state == "failed" for check in self.checks) and not (self.log and self.log.findings)

    def lines(self) -> Iterator[str]:
        """Format the examination for people."""
        for check in self.checks:
            yield f"{check.state:8}{check.name}: {check.says}"
            if check.cure:
                yield f"        Next: {check.cure}"
        if self.log is not None:
            for finding in self.log.findings:
                more = f", {finding.count} lines" if finding.count > 1 else ""
                yield f"{'found':8}{finding.trouble.name}: line {finding.line}{more}: {finding.excerpt}"
                yield f"        Cause: {finding.trouble.cause}"
                yield f"        Next: {finding.trouble.cure}"
            if not self.log.findings:
                yield f"{'ok':8}log: no known message in {self.log.lines} lines"

    def json(self) -> dict[str, Any]:
        """Format the examination for programs."""
        found: dict[str, Any] = {"ok": self.ok}
        found["checks"] = [
            {"name": check.name, "state": check.state, "says": check.says, "next": check.cure} for check in self.checks
        ]
        if self.log is not None:
            found["log"] = {
                "lines": self.log.lines,
                "findings": [
                    {
                        "name": finding.trouble.name,
                        "line": finding.line,
                        "count": finding.count,
                        "excerpt": finding.excerpt,
                        "cause": finding.trouble.cause,
                        "next": finding.trouble.cure,
                    }
                    for finding in self.log.findings
                ],
            }
        return found


def examine(uri: str | None = None, *, log: str | None = None, options: Mapping[str, str] | None = None) -> Examination:
    """Examine this machine, and a store if one is named; or only a log, if a log but no store is named.

    Args:
        uri: A directory of a store, in which the checks leave nothing behind.
        log: A log file, or ``-`` for standard input.
        options: Options of the store, as for ``open_store``.

    Raises:
        InvalidArgumentError: The URI is invalid, or the log cannot be read.
    """
    checks = check_environment() if uri is not None or log is None else ()
    if uri is not None:
        checks += check_store(uri, options)
    return Examination(checks=checks, log=_read(log) if log is not None else None)


def _read(log: str) -> LogReport:
    if log == "-":
        return read_log(line.decode(errors="replace") for line in sys.stdin.buffer)
    try:
        with Path(log).open(encoding="utf-8", errors="replace") as lines:
            return read_log(lines)
    except OSError as error:
        raise InvalidArgumentError(
            f"The log {log} cannot be read: {error.strerror}.", hint="Name a file, or - for standard input."
        ) from error


# --- this machine ------------------------------------------------------------------------------------------


def check_environment(environment: Mapping[str, str] = os.environ) -> tuple[Check, ...]:
    """Check Python, PySpark, Java, the workers' Python, Hadoop's jars, and extras."""
    return (
        _python(sys.version_info[:2]),
        _pyspark(installed_spark()),
        _java(environment),
        _worker_python(environment),
        *_hadoop_jars(_jars()),
        *_delta_settings(_defaults_file(environment)),
        *_extras(),
    )


def _python(version: tuple[int, ...]) -> Check:
    found = f"{version[0]}.{version[1]} ({sys.executable})"
    if version in _PYTHONS:
        return Check(name="Python", state="ok", says=found)
    return Check(name="Python", state="failed", says=f"{found} is not supported", cure="Use Python 3.11 to 3.14.")


def _pyspark(version: str | None) -> Check:
    cure = "pip install 'pydelta-lakehouse[spark]'"
    if version is None:
        return Check(name="PySpark", state="failed", says="is not installed", cure=cure)
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) in SPARKS:
        return Check(name="PySpark", state="ok", says=version)
    return Check(name="PySpark", state="failed", says=f"{version} is not supported", cure=cure)


def _output(*command: str) -> str | None:
    """Return the output of a program; None if it fails to run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def _java(environment: Mapping[str, str]) -> Check:
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    output = _output(java, "-version") if java else None
    if output is None:
        where = f"JAVA_HOME is {home}, and no Java starts there" if home else "there is none"
        return Check(
            name="Java", state="failed", says=where, cure="Install Java 17, 21 or 25, and let JAVA_HOME name it."
        )
    found = re.search(r'version "(\d+)', output)
    major = found.group(1) if found else "of an unknown version"
    if major in _JAVAS:
        return Check(name="Java", state="ok", says=f"{major} ({java})")
    return Check(
        name="Java",
        state="failed",
        says=f"{major} ({java}) is not supported",
        cure="Use Java 17, 21 or 25 (JAVA_HOME).",
    )


def _worker_python(environment: Mapping[str, str]) -> Check:
    name = "PYSPARK_PYTHON"
    chosen = environment.get(name)
    program = shutil.which(chosen or "python3", path=environment.get("PATH"))
    what = chosen or "not set; Spark's workers take python3"
    cure = f"export PYSPARK_PYTHON={sys.executable}"
    if program is None:
        return Check(name=name, state="failed", says=f"{what}, which is not a program", cure=cure)
    output = _output(program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if output is None or output.strip() != mine:
        theirs = f"Python {output.strip()}" if output else "no Python"
        says = f"{what}: {program} is {theirs}, and this is Python {mine}"
        return Check(name=name, state="failed", says=says, cure=cure)
    if _output(program, "-c", "import pyarrow, pydelta") is None:
        says = f"{what}: {program} lacks the packages of pydelta"
        return Check(name=name, state="failed" if chosen else "note", says=says, cure=cure)
    return Check(name=name, state="ok", says=f"{chosen or 'not set'} ({program}, {mine})")


def _jars() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None


def _hadoop_jars(folder: Path | None) -> tuple[Check, ...]:
    """Check that all Hadoop modules have the same version. Returns nothing if there are no jars."""
    if folder is None or not folder.is_dir():
        return ()
    versions: dict[str, list[str]] = {}
    for jar in sorted(folder.glob("hadoop-*.jar")):
        if found := re.fullmatch(r"(hadoop-(?:aws|azure|client-api|client-runtime|common|hdfs))-(\d.*)\.jar", jar.name):
            versions.setdefault(found.group(2), []).append(found.group(1))
    said = "; ".join(f"{version}: {', '.join(modules)}" for version, modules in versions.items())
    if len(versions) > 1:
        cure = f"Keep those of the version of hadoop-client-api in {folder}, and remove the others."
        return (Check(name="Hadoop's jars", state="failed", says=f"versions are mixed ({said})", cure=cure),)
    return (Check(name="Hadoop's jars", state="ok", says=said or "none"),)


def _defaults_file(environment: Mapping[str, str]) -> Path | None:
    """Find the file with Spark's default settings; None if its folder is unknown."""
    jars = _jars()
    home = environment.get("SPARK_HOME") or (str(jars.parent) if jars is not None else None)
    folder = environment.get("SPARK_CONF_DIR") or (str(Path(home, "conf")) if home else None)
    return Path(folder, "spark-defaults.conf") if folder else None


def _delta_settings(file: Path | None) -> tuple[Check, ...]:
    """Explain what default settings for the JVM engine require of every program. Returns nothing without them."""
    try:
        text = file.read_text(errors="replace") if file is not None else ""
    except OSError:
        return ()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    if not any("DeltaCatalog" in line or "DeltaSparkSessionExtension" in line for line in lines):
        return ()
    if any("delta-spark" in line or "delta-core" in line for line in lines):
        cure = "Take the jar out of the settings, and keep the two that name Delta's extension and catalog."
        return (Check(name="Delta's settings", state="note", says=f"{file} loads the JVM engine", cure=cure),)
    cure = "Each program that uses Delta tables needs import pydelta.tables before it makes its session."
    says = f"{file} names the JVM engine's classes without its jar: programs that import nothing fail"
    return (Check(name="Delta's settings", state="note", says=says, cure=cure),)


def _extras() -> Iterator[Check]:
    for name, modules, purpose, cure in _EXTRAS:
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        if missing:
            says = f"{', '.join(missing)} not installed; only {purpose} needs it"
            yield Check(name=f"extra {name}", state="note", says=says, cure=cure)
        else:
            yield Check(name=f"extra {name}", state="ok", says=f"installed ({purpose})")


# --- a store -----------------------------------------------------------------------------------------------


def check_store(
    uri: str, options: Mapping[str, str] | None = None, *, clock: Callable[[], float] = time.time
) -> tuple[Check, ...]:
    """Write, race, compare clocks and delete under ``_pydelta/`` of a directory, which is left unchanged.

    Args:
        uri: A directory of a store. A local one must exist.
        options: Options of the store, as for ``open_store``.
        clock: Returns this machine's time in seconds since the epoch.

    Raises:
        InvalidArgumentError: The URI is invalid.
    """
    root = normalize_uri(uri)
    local = Path(HERE.path(root.removeprefix("file://"))) if scheme_of(root) == "file" else None
    if local is not None and not local.is_dir():
        return (
            Check(name="store", state="failed", says=f"there is no directory {local}", cure="Create it, or name one."),
        )
    try:
        store = open_store(uri, options)
    except DeltaEnvironmentError as error:
        return (Check(name="store", state="failed", says=error.args[0], cure=error.hint),)
    try:
        return tuple(_store_checks(store, clock))
    finally:
        if local is not None:
            with suppress(OSError):  # The folder may be in use.
                (local / "_pydelta").rmdir()


def _store_checks(store: Store, clock: Callable[[], float]) -> Iterator[Check]:
    path = f"_pydelta/doctor-{uuid.uuid4()}"
    before = clock()
    try:
        store.put(path, b"written by pydelta doctor")
        written = store.read(path) == b"written by pydelta doctor"
        after = clock()
        found = store.head(path)
    except StorageError as error:
        yield _failed("write", error, "Check the address, the keys and their permission to put and read objects.")
        yield from (
            Check(name=name, state="skipped", says="nothing could be written")
            for name in ("put-if-absent", "clock", "delete")
        )
        return
    if written and found is not None:
        yield Check(name="write", state="ok", says=f"{store.root} takes objects and gives them back")
    else:
        yield Check(
            name="write",
            state="failed",
            says="an object was written and did not come back as it was",
            cure="Use a store that is consistent: what was put must be read by the next request.",
        )
    yield _race(store)
    if found is None:
        yield Check(name="clock", state="skipped", says="the object that was written is not there")
    else:
        yield _skew(found.modification_time_ms / 1000, before, after)
    yield _delete(store, path)


def _failed(name: str, error: StorageError, cure: str) -> Check:
    return Check(name=name, state="failed", says=str(error.args[0]), cure=error.hint or cure)


def _race(store: Store) -> Check:
    name = "put-if-absent"
    try:
        result = probe_put_if_absent(store, writers=RACERS)
    except StorageError as error:
        return _failed(name, error, "Check that the keys may put, read and delete objects.")
    if result.safe:
        return Check(
            name=name, state="ok", says=f"SAFE: {RACERS} writers raced to create one object, one did, and it stayed"
        )
    stayed = "stayed" if result.kept and result.latecomer_refused else "did not stay"
    return Check(
        name=name,
        state="failed",
        says=f"UNSAFE: of {RACERS} writers that raced to create one object {result.created} were told that they "
        f"succeeded, "
        f"and the first one's bytes {stayed}; transactions could overwrite each other",
        cure="Use a store that honours If-None-Match on PUT (AWS S3, MinIO), or a log store of your own for the scheme "
        "(spark.pydelta.logStore.<scheme>).",
    )


def _skew(theirs: float, before: float, after: float) -> Check:
    """Compare clocks. They agree if the store's time, maybe cut to a second, lies between ours before and after."""
    apart = max(0.0, before - (theirs + 1.0), theirs - after)
    if apart < _SKEW_NOTED_SECONDS:
        return Check(name="clock", state="ok", says="this machine's and the store's agree within seconds")
    side = "ahead of" if theirs > after else "behind"
    return Check(
        name="clock",
        state="failed" if apart >= _SKEW_FAILED_SECONDS else "note",
        says=f"the store's is {apart:.0f} s {side} this machine's; retention and time travel by timestamp are off by "
        "as much",
        cure="Set both clocks by NTP.",
    )


def _delete(store: Store, path: str) -> Check:
    cure = "VACUUM and log clean-up need permission to delete; a key that only appends does not need it."
    try:
        report = store.delete_many([path])
        deleted = store.head(path) is None
    except StorageError as error:
        return _failed("delete", error, cure)
    if report.failed or not deleted:
        why = report.failed[0][1] if report.failed else "it is still there"
        return Check(name="delete", state="failed", says=f"{path} was left behind: {why}", cure=cure)
    return Check(name="delete", state="ok", says="permitted")
