"""MinIO's server on the loopback, with the users and the rights that the stack gives it.

The program is ``$MINIO``, the ``minio`` of the path, or that of the stack's image, which is copied out of it once.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from leaks import secret as marked

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = f"{os.environ.get('LAKEHOUSE_IMAGES', 'lakehouse')}/minio:{os.environ.get('LAKEHOUSE_VERSION', VERSION)}"
SCRIPTS = ROOT / "images" / "minio"
PLACES = ("warehouse", "inventory", "work")


class NoServer(Exception):
    """There is no program to start; says what was looked for."""


def program(folder: Path) -> str:
    """Find MinIO's program, or copy it out of the image into a folder."""
    found = os.environ.get("MINIO") or shutil.which("minio")
    if found:
        return found
    if shutil.which("docker") is None:
        raise NoServer("there is no minio in the path, and no docker; set MINIO to the program")
    made = subprocess.run(["docker", "create", IMAGE], capture_output=True, text=True, check=False)
    if made.returncode:
        raise NoServer(f"there is no minio in the path, and no image {IMAGE}: scripts/stack-build minio makes it")
    container = made.stdout.strip()
    try:
        copied = folder / "minio"
        subprocess.run(["docker", "cp", "-q", f"{container}:/usr/local/bin/minio", copied], check=True)
    finally:
        subprocess.run(["docker", "rm", container], capture_output=True, check=True)
    return str(copied)


def users() -> list[str]:
    """The users that the file of rights names."""
    lines = (line.split() for line in (SCRIPTS / "rights").read_text().splitlines() if not line.startswith("#"))
    return list(dict.fromkeys(words[0] for words in lines if words and "+" not in words[0]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class MinioServer:
    """A server of its own, in a folder.

    Args:
        folder: For its data and what it says.
        root: Key and secret of who may do everything.
        secrets: Of each user of the file of rights; its key is its name.
    """

    folder: Path
    root: tuple[str, str] = ("the-root-user", marked("root"))
    secrets: dict[str, str] = field(
        default_factory=lambda: {name: marked(secrets.token_urlsafe(16)) for name in users()}
    )

    def __post_init__(self) -> None:
        self.endpoint = f"http://127.0.0.1:{_free_port()}"
        environment = os.environ | {
            "MINIO_ROOT_USER": self.root[0],
            "MINIO_ROOT_PASSWORD": self.root[1],
            "MINIO_BROWSER": "off",
        }
        command = [program(self.folder), "server", "--quiet", "--address", self.endpoint.removeprefix("http://")]
        with (self.folder / "said").open("wb") as said:
            self._process = subprocess.Popen(
                [*command, str(self.folder / "data")], env=environment, stdout=said, stderr=subprocess.STDOUT
            )
        self._wait()

    def _wait(self) -> None:
        """Until it answers, however long that takes, or has ended."""
        while True:
            assert self._process.poll() is None, (self.folder / "said").read_text()
            try:
                urllib.request.urlopen(f"{self.endpoint}/minio/health/live", timeout=30).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
            else:
                return

    def run(self, script: str, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the image as the stack's first container does, with some variables changed."""
        environment = {
            "PATH": os.environ["PATH"],
            "S3_ENDPOINT": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.root[0],
            "AWS_SECRET_ACCESS_KEY": self.root[1],
            "RIGHTS": str(SCRIPTS / "rights"),
        }
        for name, held in self.secrets.items():
            environment |= {f"STORE_{name.upper()}_KEY": name, f"STORE_{name.upper()}_SECRET": held}
        return subprocess.run(
            [SCRIPTS / script, *arguments], env=environment | changed, capture_output=True, text=True, check=False
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

    def ask(self, user: str, method: str, path: str) -> int:
        """Send a request as a user, such as for a name that ends with a slash; the code of the answer."""
        command = [
            "curl",
            "-sS",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--aws-sigv4",
            "aws:amz:us-east-1:s3",
            "-K",
            "-",
        ]
        command += ["-I"] if method == "HEAD" else ["-X", method]
        credentials = f'user = "{user}:{self.secrets[user]}"'
        done = subprocess.run(
            [*command, f"{self.endpoint}/{path}"], input=credentials, capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
