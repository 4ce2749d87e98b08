"""What a store is while it runs: location, options and version; how programs and mounts are started and ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from leaks import secret

__all__ = [
    "KEYS", "NotRun", "Place", "check_root", "mounted", "need", "output_of", "process", "s3_place",
    "unmount", "work_folder",
]  # fmt: skip

KEYS = ("the-root-user", secret("stores"))
"""Key and secret of every S3 server that is started here."""


class NotRun(Exception):
    """A store cannot be started on this machine; says why."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A store that runs.

    Args:
        uri: An empty location in it.
        version: What it says of itself.
        shown: The location as the page shows it.
        options: Options for pydelta, none of them secret.
        environment: Variables for pydelta, which may be secret.
    """

    uri: str
    version: str
    shown: str
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def need(*names: str) -> str:
    """Find a program: the variable of its name in capitals, the path, or the folder of this interpreter.

    Raises:
        NotRun: None of the names is there.
    """
    for name in names:
        found = os.environ.get(name.upper().replace(".", "_")) or shutil.which(name)
        if found:
            return found
    raise NotRun(f"there is no program {' or '.join(names)}")


def check_root() -> None:
    """Check that this user may mount.

    Raises:
        NotRun: It may not.
    """
    if os.geteuid() != 0:
        raise NotRun("only root may mount a file system")


def output_of(*command: str) -> str:
    """Return all that a program prints, on one line."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return " ".join((done.stdout + done.stderr).split())


@contextmanager
def work_folder(name: str) -> Iterator[Path]:
    """Give a folder for a store's data and for what its programs say, and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"store-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def process(
    folder: Path, command: Sequence[str], ready: Callable[[], bool], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program, wait until it is ready, and end it afterwards.

    Raises:
        NotRun: It ended by itself, before or after it was ready; the last lines that it printed are named.
    """
    said = folder / f"{Path(command[0]).name}-{time.monotonic_ns()}.log"
    with said.open("wb") as output:
        started = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=folder, env=os.environ | dict(environment or {})
        )
    try:
        while not ready():
            _check_alive(started, said)
            time.sleep(0.1)
        yield started
        _check_alive(started, said)
    finally:
        started.terminate()
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def _check_alive(started: subprocess.Popen[bytes], said: Path) -> None:
    if started.poll() is not None:
        lines = said.read_text(errors="replace").strip().splitlines() or [f"exit code {started.returncode}"]
        raise NotRun(f"{said.name.partition('-')[0]} ended: {' / '.join(lines[-3:])}")


@contextmanager
def mounted(target: Path, *command: str) -> Iterator[None]:
    """Mount a file system by a command that ends once it is mounted, and unmount it afterwards.

    Raises:
        NotRun: It cannot be mounted.
    """
    target.mkdir(exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise NotRun(f"{Path(command[0]).name} failed: {reason[0] if reason else done.returncode}")
    try:
        yield
    finally:
        unmount(target)


def unmount(target: Path) -> None:
    """Unmount a file system, even if something still looks at it."""
    for command in (["umount", str(target)], ["umount", "-l", str(target)]):
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return


def s3_place(endpoint: str, version: str, bucket: str = "trials") -> Place:
    """Create a bucket and return it as a place; the keys are in the environment, as a user has them."""
    import boto3

    boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEYS[0],
        aws_secret_access_key=KEYS[1],
    ).create_bucket(Bucket=bucket)
    return Place(
        uri=f"s3a://{bucket}/trial",
        version=version,
        shown=f"s3a://{bucket}/trial",
        options={"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"},
        environment={
            "AWS_ACCESS_KEY_ID": KEYS[0],
            "AWS_SECRET_ACCESS_KEY": KEYS[1],
            "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        },
    )
