"""S3 servers on the loopback, MinIO's and Versity's, with the users and the rights that the stack gives them.

The program is ``$MINIO`` or ``$VERSITYGW``, the one of the path, or that of the stack's image, copied out of it once.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import time
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from leaks import secret as marked
from ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
SHARED = ROOT / "images" / "store"
PLACES = ("warehouse", "inventory", "work")
_NO_BODY: Final = hashlib.sha256(b"").hexdigest()


class NoServer(Exception):
    """There is no program to start; says what was looked for."""


def program(name: str, image: str, folder: Path) -> str:
    """Find a server's program, or copy it out of its image into a folder."""
    found = os.environ.get(name.upper()) or shutil.which(name)
    if found:
        return found
    if shutil.which("docker") is None:
        raise NoServer(f"there is no {name} in the path, and no docker; set {name.upper()} to the program")
    prefix, version = os.environ.get("LAKEHOUSE_IMAGES", "lakehouse"), os.environ.get("LAKEHOUSE_VERSION", VERSION)
    whole = f"{prefix}/{image}:{version}"
    made = subprocess.run(["docker", "create", whole], capture_output=True, text=True, check=False)
    if made.returncode:
        raise NoServer(f"there is no {name} in the path, and no image {whole}: scripts/stack-build {image} makes it")
    container = made.stdout.strip()
    try:
        copied = folder / name
        subprocess.run(["docker", "cp", "-q", f"{container}:/usr/local/bin/{name}", copied], check=True)
    finally:
        subprocess.run(["docker", "rm", container], capture_output=True, check=True)
    return str(copied)


def users() -> list[str]:
    """The users that the file of rights names."""
    lines = (line.split() for line in (SHARED / "rights").read_text().splitlines() if not line.startswith("#"))
    return list(dict.fromkeys(words[0] for words in lines if words and "+" not in words[0]))


@dataclass
class StoreServer:
    """A server of its own, in a folder.

    Args:
        folder: For its data and what it says.
        root: Key and secret of who may do everything.
        secrets: Of each user of the file of rights; its key is its name.
    """

    IMAGE: ClassVar[str]
    """Name of the stack's image, and of the folder of its scripts."""
    PROGRAM: ClassVar[str]
    READY: ClassVar[str]
    """The path that answers once it is there."""
    USERS: ClassVar[tuple[str, str]]
    """A request for all users, which only the root user may send: method and path."""

    folder: Path
    root: tuple[str, str] = ("the-root-user", marked("root"))
    secrets: dict[str, str] = field(
        default_factory=lambda: {name: marked(secrets.token_urlsafe(16)) for name in users()}
    )

    def __post_init__(self) -> None:
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.endpoint = f"http://{self.address}"
        (self.folder / "data").mkdir()
        environment, arguments = self.started_with()
        self.command = [program(self.PROGRAM, self.IMAGE, self.folder), *arguments]
        self.variables = environment
        with (self.folder / "said").open("wb") as said:
            self._process = subprocess.Popen(
                self.command, env=os.environ | environment, stdout=said, stderr=subprocess.STDOUT
            )
        self._wait()

    def started_with(self) -> tuple[dict[str, str], list[str]]:
        """Say variables and arguments of the program."""
        raise NotImplementedError

    def _wait(self) -> None:
        """Until it answers, however long that takes, or has ended."""
        while True:
            assert self._process.poll() is None, (self.folder / "said").read_text()
            try:
                urllib.request.urlopen(f"{self.endpoint}{self.READY}", timeout=30).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
            else:
                return

    def run(self, script: str, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the image as the stack's first container does, with some variables changed."""
        environment = {
            "PATH": f"{ROOT / 'images' / self.IMAGE}:{SHARED}:{os.environ['PATH']}",
            "S3_ENDPOINT": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.root[0],
            "AWS_SECRET_ACCESS_KEY": self.root[1],
            "RIGHTS": str(SHARED / "rights"),
        }
        for name, held in self.secrets.items():
            environment |= {f"STORE_{name.upper()}_KEY": name, f"STORE_{name.upper()}_SECRET": held}
        return subprocess.run(
            ["/usr/bin/env", script, *arguments],
            env=environment | changed,
            capture_output=True,
            text=True,
            check=False,
        )

    def options(self, user: str | None) -> dict[str, str]:
        """Settings for who works with a user's key; None for the root user's."""
        key, secret = self.root if user is None else (user, self.secrets[user])
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": key,
            "fs.s3a.secret.key": secret,
        }

    def ask(self, user: str, method: str, path: str, *more: str) -> int:
        """Send a request as a user, such as for a name that ends with a slash; the code of the answer."""
        command = ["curl", "-sS", "--path-as-is", "-o", "/dev/null", "-w", "%{http_code}"]
        command += ["--aws-sigv4", "aws:amz:us-east-1:s3", "-H", f"x-amz-content-sha256: {_NO_BODY}", "-K", "-"]
        command += ["-I"] if method == "HEAD" else ["-X", method]
        credentials = f'user = "{user}:{self.secrets[user]}"'
        done = subprocess.run(
            [*command, *more, f"{self.endpoint}/{path}"], input=credentials, capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


class MinioServer(StoreServer):
    """MinIO's."""

    IMAGE = "minio"
    PROGRAM = "minio"
    READY = "/minio/health/live"
    USERS = ("GET", "minio/admin/v3/list-users")

    def started_with(self) -> tuple[dict[str, str], list[str]]:
        environment = {"MINIO_ROOT_USER": self.root[0], "MINIO_ROOT_PASSWORD": self.root[1], "MINIO_BROWSER": "off"}
        return environment, ["server", "--quiet", "--address", self.address, str(self.folder / "data")]


class VersityServer(StoreServer):
    """Versity's gateway, which has its users beside the buckets, as in the stack."""

    IMAGE = "versity"
    PROGRAM = "versitygw"
    READY = "/health"
    USERS = ("PATCH", "list-users")

    def started_with(self) -> tuple[dict[str, str], list[str]]:
        data = self.folder / "data"
        hidden = data / ".users"
        hidden.mkdir(mode=0o700)
        arguments = ["--port", self.address, "--region", "us-east-1", "--health", "/health", "--quiet"]
        environment = {"ROOT_ACCESS_KEY_ID": self.root[0], "ROOT_SECRET_ACCESS_KEY": self.root[1]}
        return environment, [*arguments, "--iam-dir", str(hidden), "--iam-cache-disable", "posix", str(data)]


SERVERS: Final[dict[str, type[StoreServer]]] = {"minio": MinioServer, "versity": VersityServer}
