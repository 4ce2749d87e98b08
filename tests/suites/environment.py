"""Make the environment that a suite runs in, once for each state of its list of packages."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.suites.rows import Suite

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "suites"


def python_of(suite: Suite) -> Path:
    """Return the interpreter of a suite's environment, after making it if it is not there."""
    return environment(suite.name, suite.packages, with_project=suite.project)


def environment(name: str, packages: Path, *, with_project: bool) -> Path:
    """Return the interpreter of an environment, after making it if it is not there.

    Args:
        name: Its name.
        packages: The file of pinned packages.
        with_project: Whether it finds the project's packages behind its own, in the place where this process has them.
    """
    shared = sysconfig.get_path("purelib") if with_project else ""
    key = hashlib.sha256(packages.read_bytes() + f"{sys.version} {shared}".encode()).hexdigest()[:12]
    folder = BUILD / f"{name}-{key}"
    python = folder / "bin" / "python"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            print(f"Making an environment for {name} in {folder.relative_to(ROOT)}", flush=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = [python, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-deps"]
            subprocess.run([*pip, "-r", packages], check=True)
            if shared:
                (packages_of(python) / "project.pth").write_text(f"{shared}\n")
            (folder / "ready").touch()
    return python


def packages_of(python: Path) -> Path:
    """Return the folder with the packages of an environment like this one's."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return python.parent.parent / "lib" / version / "site-packages"
