"""Look for the tests' own secrets in whatever the tests bring about, and fail the test that showed one.

Keys, passwords and tokens with which tests run have ``MARK`` in them. It is looked for in:

- what each test printed, logged or read back from ``capsys``; what processes printed that it started; answers to its
  requests by HTTP, such as a page; messages of this engine's errors, those that were caught, too;
- at the end of the run in every file that it left below pytest's folder (logs of tables, event logs, reports, what
  servers said), in the objects of stores in memory and of the S3 look-alike, and in the plans of Spark's queries.

Parquet files are not opened: what they hold of a table's properties is in its commits as well.
"""

from __future__ import annotations

import gzip
import http.client
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

MARK = "hush-q7Zk"
FOUND: list[str] = []
"""Where secrets were seen since the last look; never what they are."""
_HELD_BY = frozenset({".env", "env", "users", "people.ldif", "core-site.xml"})
"""Names of files whose purpose is to hold a secret: of the stack, its backup, tokens, a directory, a server."""
_HELD_BELOW = frozenset({".minio.sys", ".users"})
"""Folders in which a MinIO and a Versity of the tests keep their users."""
_OPENED = (".parquet", ".jar", ".p12", ".tar.gz")
_LARGEST = 64 << 20


def secret(name: str) -> str:
    """A secret to run with, which is known when it shows."""
    return f"{name}-{MARK}"


def look(where: str, text: str | bytes | None) -> None:
    """Look for a secret in a text."""
    if not text:
        return
    mark: Any = MARK if isinstance(text, str) else MARK.encode()
    at = text.find(mark)
    if at >= 0:
        before = text[max(at - 80, 0) : at]
        FOUND.append(f"{where}: …{before if isinstance(before, str) else before.decode(errors='replace')}(a secret)")


def taken() -> list[str]:
    """What was found, which is forgotten."""
    found = list(FOUND)
    FOUND.clear()
    return found


# -- while tests run --------------------------------------------------------------------------------------------------


def watch(patch: pytest.MonkeyPatch) -> None:
    """Look at what passes by: captured output, processes, answers, errors."""
    from _pytest.capture import CaptureFixture

    from pydelta.errors import DeltaError

    _after(patch, CaptureFixture, "readouterr", lambda read: [look("what was printed", text) for text in read])
    _after(patch, subprocess.Popen, "communicate", lambda said: [look("what a process said", text) for text in said])
    _after(patch, http.client.HTTPResponse, "read", lambda body: look("an answer by HTTP", body))
    made = DeltaError.__init__

    def init(self: Any, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        look(f"the message of {type(self).__name__}", f"{self.message} {self.hint or ''}")

    patch.setattr(DeltaError, "__init__", init)


def _after(patch: pytest.MonkeyPatch, owner: Any, name: str, see: Any) -> None:
    inner = getattr(owner, name)

    def wrapped(self: Any, *given: Any, **named: Any) -> Any:
        result = inner(self, *given, **named)
        see(result)
        return result

    patch.setattr(owner, name, wrapped)


def look_at_sections(sections: Iterable[tuple[str, str, str]]) -> None:
    """Look at what pytest captured of a test: phase, kind and text."""
    for when, kind, text in sections:
        look(f"captured {kind} of {when}", text)


# -- at the end -------------------------------------------------------------------------------------------------------


def look_at_files(folder: Path) -> int:
    """Look at every file below a folder; how many there were."""
    count = 0
    for path in _files(folder):
        count += 1
        try:
            look(f"the file {path.relative_to(folder)}", _content(path))
        except OSError:  # a pipe, or one that a test has made unreadable
            continue
    return count


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _HELD_BELOW]
        for name in names:
            path = Path(place, name)
            if name not in _HELD_BY and not name.endswith(_OPENED) and path.is_file() and not path.is_symlink():
                yield path


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(_LARGEST)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return b"".join(_zstd_frames(data))
    if data[:2] == b"\x1f\x8b":
        try:
            return gzip.decompress(data)
        except (OSError, EOFError):
            return data
    return data


def _zstd_frames(data: bytes) -> Iterator[bytes]:
    """Spark writes one frame after the other, and the last may be cut off."""
    import zstandard

    while data:
        one = zstandard.ZstdDecompressor().decompressobj()
        try:
            yield one.decompress(data)
        except zstandard.ZstdError:
            return
        data = one.unused_data


def look_at_stores() -> int:
    """Look at the objects of stores in memory, and of the S3 look-alike; how many there were."""
    from pydelta.storage import memory

    count = 0
    for name, space in list(memory._SPACES.items()):
        for key, item in list(space.objects.items()):
            count += 1
            look(f"the object memory://{name}/{key}", item.data)
    if "moto.s3.models" in sys.modules:
        for account in sys.modules["moto.s3.models"].s3_backends.values():
            for backend in account.values():
                for name, bucket in list(backend.buckets.items()):
                    for key in list(bucket.keys):
                        for item in bucket.keys.getlist(key):  # with older versions and delete markers
                            count += 1
                            look(f"the object s3://{name}/{key}", getattr(item, "value", b""))
    return count


def look_at_plans(spark: Any) -> int:
    """Look at the plans of Spark's last queries, as its pages and event logs show them; how many there were."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    for place in range(executions.size()):
        one = executions.apply(place)
        look(f"the plan of the query {one.description()[:80]!r}", one.physicalPlanDescription())
        look(f"the settings of the query {one.description()[:80]!r}", one.modifiedConfigs().toString())
    return int(executions.size())


# -- pytest -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def no_secret_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Watch, and look at what is left when all fixtures have ended."""
    with pytest.MonkeyPatch.context() as patch:
        watch(patch)
        yield
    look_at_files(tmp_path_factory.getbasetemp())
    look_at_stores()
    _fail_if_any()


@pytest.fixture(autouse=True)
def no_secret_is_shown(request: pytest.FixtureRequest, no_secret_is_left: None) -> Iterator[None]:
    """Fail a test that showed a secret."""
    yield
    look_at_sections(request.node._report_sections)
    _fail_if_any()


def _fail_if_any() -> None:
    if found := taken():
        pytest.fail("A secret was shown:\n  " + "\n  ".join(dict.fromkeys(found)), pytrace=False)
