"""NFS on the loopback, if the kernel of this machine has a client for it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.stores.places import NotRun, Place, check_root, mounted

__all__ = ["nfs"]

EXPORT = "127.0.0.1:/"


@contextmanager
def nfs(folder: Path) -> Iterator[Place]:
    """Mount the NFS that this machine exports on its loopback."""
    check_root()
    if "nfs4" not in Path("/proc/filesystems").read_text().split():
        raise NotRun("this kernel has no NFS client")
    target = folder / "mounted"
    with mounted(target, "mount", "-t", "nfs4", EXPORT, str(target)):
        yield Place(uri=str(target / "trial"), version=f"Linux {platform.release()}", shown="FOLDER/trial")
