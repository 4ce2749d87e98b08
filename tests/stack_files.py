"""Docker Compose's files of the stack, read without Docker."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
MAIN = ROOT / "docker-compose.yml"
FILES = (
    MAIN,
    ROOT / "docker-compose.secure.yml",
    ROOT / "docker-compose.alerts.yml",
    *sorted((ROOT / "compose").glob("*.yml")),
)


def scripts_in(folder: Path) -> Callable[..., str]:
    """Copy the stack's scripts into a folder where no docker answers, and return what runs a line there."""
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "docker").write_text("#!/bin/sh\nexit 1\n")
    (folder / "docker").chmod(0o755)

    def run(line: str, **env: str) -> str:
        path = {"PATH": f"{folder}:{os.environ['PATH']}"}
        command = ["bash", "-c", line]
        done = subprocess.run(command, cwd=folder, env=path | env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return run


def services() -> dict[str, dict[str, Any]]:
    """Return the services of the stack, each with what it extends."""
    return {name: _extended(MAIN, name) for name in yaml.safe_load(MAIN.read_text())["services"]}


def _extended(file: Path, name: str) -> dict[str, Any]:
    own = dict(yaml.safe_load(file.read_text())["services"][name])
    base = own.pop("extends", None)
    if base is None:
        return own
    return _joined(_extended(file.parent / base.get("file", file.name), base["service"]), own)


def _joined(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in own.items():
        old = base.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            found[key] = old | value
        elif isinstance(old, list) and isinstance(value, list) and key not in ("command", "entrypoint"):
            found[key] = old + value
        else:
            found[key] = value
    return found
