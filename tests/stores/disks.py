"""Stores that are folders: file systems in loop images, overlayfs, tmpfs, NFS, and buckets mounted by FUSE."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.stores.places import KEYS, NotRun, Place, check_root, mounted, need, output_of, process, unmount
from tests.stores.servers import minio, weed_servers

__all__ = ["btrfs", "local", "overlay", "rclone_mount", "rclone_writes", "s3fs", "seaweedfs_mount", "tmpfs", "xfs"]

_IMAGE_BYTES = 512 << 20


def _kernel(more: str = "") -> str:
    return f"Linux {platform.release().split('-')[0]}{more}"


def _folder(target: Path, version: str) -> Place:
    return Place(uri=str(target / "trial"), version=version, shown="FOLDER/trial")


@contextmanager
def local(folder: Path) -> Iterator[Place]:
    """Use a folder of this machine's own disk."""
    kind = output_of("df", "--output=fstype", str(folder)).split()[-1]
    yield _folder(folder, _kernel(f", {kind}"))


@contextmanager
def _image(folder: Path, *mkfs: str) -> Iterator[Place]:
    check_root()
    program = need(mkfs[0])
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    made = subprocess.run([program, *mkfs[1:], str(image)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise NotRun(f"{mkfs[0]} failed: {made.stderr.strip()[:200]}")
    target = folder / "mounted"
    with mounted(target, "mount", "-o", "loop", str(image), str(target)):
        yield _folder(target, _kernel())


@contextmanager
def xfs(folder: Path) -> Iterator[Place]:
    """Mount an image with XFS."""
    with _image(folder, "mkfs.xfs", "-q") as place:
        yield place


@contextmanager
def btrfs(folder: Path) -> Iterator[Place]:
    """Mount an image with Btrfs."""
    with _image(folder, "mkfs.btrfs", "-q") as place:
        yield place


@contextmanager
def tmpfs(folder: Path) -> Iterator[Place]:
    """Mount a tmpfs."""
    check_root()
    target = folder / "mounted"
    with mounted(target, "mount", "-t", "tmpfs", "-o", "size=512m", "none", str(target)):
        yield _folder(target, _kernel())


@contextmanager
def overlay(folder: Path) -> Iterator[Place]:
    """Mount an overlayfs, as containers have it, over two folders of a tmpfs."""
    check_root()
    base = folder / "base"
    with mounted(base, "mount", "-t", "tmpfs", "-o", "size=512m", "none", str(base)):
        parts = {name: base / name for name in ("lower", "upper", "work")}
        for part in parts.values():
            part.mkdir()
        target = folder / "mounted"
        options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
        with mounted(target, "mount", "-t", "overlay", "-o", options, "none", str(target)):
            yield _folder(target, _kernel())


# -- buckets mounted as folders ---------------------------------------------------------------------------------------


def _check_fuse() -> None:
    check_root()
    if not Path("/dev/fuse").exists():
        raise NotRun("this kernel has no FUSE")
    need("fusermount3", "fusermount")


@contextmanager
def _mounted_by(
    target: Path, folder: Path, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Mount a file system by a program that runs as long as it is mounted."""
    target.mkdir()
    try:
        with process(folder, command, lambda: os.path.ismount(target), environment):
            yield
    finally:
        unmount(target)


@contextmanager
def s3fs(folder: Path) -> Iterator[Place]:
    """Mount a bucket of MinIO by s3fs."""
    _check_fuse()
    program = need("s3fs")
    with _minio_bucket(folder) as (endpoint, bucket):
        keys = folder / "passwd"
        keys.touch(mode=0o600)
        keys.write_text(":".join(KEYS))
        target = folder / "mounted"
        options = f"url={endpoint},use_path_request_style,passwd_file={keys}"
        with mounted(target, program, bucket, str(target), "-o", options):
            yield _folder(target, output_of(program, "--version").split("V")[-1].split()[0])


@contextmanager
def _minio_bucket(folder: Path) -> Iterator[tuple[str, str]]:
    """Start MinIO and make a bucket in it. Gives its endpoint and the bucket."""
    below = folder / "minio"
    below.mkdir()
    with minio(below) as place:
        yield place.options["fs.s3a.endpoint"], urlsplit(place.uri).netloc


@contextmanager
def _rclone(folder: Path, *options: str) -> Iterator[Place]:
    _check_fuse()
    program = need("rclone")
    need("fusermount3")
    with _minio_bucket(folder) as (endpoint, bucket):
        remote = {"TYPE": "s3", "PROVIDER": "Minio", "ENDPOINT": endpoint}
        remote |= {"ACCESS_KEY_ID": KEYS[0], "SECRET_ACCESS_KEY": KEYS[1]}
        variables = {f"RCLONE_CONFIG_STORE_{name}": value for name, value in remote.items()}
        variables |= {"NO_PROXY": "127.0.0.1", "RCLONE_CACHE_DIR": str(folder / "cache")}
        target = folder / "mounted"
        command = [program, "mount", f"store:{bucket}", str(target), "--config", "/dev/null", *options]
        with _mounted_by(target, folder, command, variables):
            yield _folder(target, output_of(program, "version").split()[1].lstrip("v"))


@contextmanager
def rclone_mount(folder: Path) -> Iterator[Place]:
    """Mount a bucket of MinIO by rclone, with its defaults."""
    with _rclone(folder) as place:
        yield place


@contextmanager
def rclone_writes(folder: Path) -> Iterator[Place]:
    """Mount a bucket of MinIO by rclone, with its cache of files."""
    with _rclone(folder, "--vfs-cache-mode", "full") as place:
        yield place


@contextmanager
def seaweedfs_mount(folder: Path) -> Iterator[Place]:
    """Mount SeaweedFS by its own FUSE client."""
    _check_fuse()
    with weed_servers(folder) as (weed, s3, filer):
        del s3
        target = folder / "mounted"
        command = [weed, "mount", f"-filer={filer}", f"-dir={target}", f"-cacheDir={folder / 'cache'}"]
        with _mounted_by(target, folder, command):
            found = output_of(weed, "version").split()
            yield _folder(target, found[2] if len(found) > 2 else " ".join(found))
