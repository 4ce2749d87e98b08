"""Measure how full disks are: the file system of a folder, or a store that publishes its capacity for Prometheus."""

from __future__ import annotations

import http.client
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from pydelta.errors import InvalidArgumentError
from pydelta.errors.redaction import hide_text
from pydelta.tools.ui.formats import amount, duration
from pydelta.tools.ui.services import get, is_page, reason_of
from pydelta.tools.ui.values import ServiceState

__all__ = ["Disk", "DiskState", "disk_line", "measure_disk"]

_LARGEST: Final = 4 << 20
_FULL: Final = 0.95
_FORMS: Final = "Write NAME=FOLDER, or NAME=ADDRESS of a MinIO's metrics: Volumes=/opt/status"
_TOTAL: Final = "minio_cluster_capacity_usable_total_bytes"
_FREE: Final = "minio_cluster_capacity_usable_free_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk to measure.

    Args:
        name: Name to show.
        place: A folder on it, or the ``http://`` or ``https://`` address of a MinIO's metrics.
    """

    name: str
    place: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``NAME=FOLDER`` or ``NAME=ADDRESS``.

        Raises:
            InvalidArgumentError: The text does not name a disk. The message never shows a password.
        """
        name, _, place = text.partition("=")
        if not name or not (place.startswith("/") or is_page(place)):
            raise InvalidArgumentError(f"{hide_text(text)!r} does not name a disk.", hint=_FORMS)
        return cls(name=name, place=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskState:
    """How full a disk is.

    Args:
        name: Name as configured.
        size_bytes: What its users can use, both free and used; None if unknown.
        free_bytes: What they can still use; None if unknown.
        problem: Why it could not be measured.
    """

    name: str
    size_bytes: int | None = None
    free_bytes: int | None = None
    problem: str | None = None

    @property
    def used_ratio(self) -> float | None:
        """The used part, from 0 to 1; None if unknown."""
        if not self.size_bytes or self.free_bytes is None:
            return None
        return 1 - self.free_bytes / self.size_bytes


def measure_disk(disk: Disk, *, seconds: float) -> DiskState:
    """Measure a disk once. Errors become the problem of the state.

    Args:
        disk: The disk.
        seconds: Maximum duration of one step of a request.
    """
    try:
        size, free = _of_store(disk.place, seconds) if is_page(disk.place) else _of_folder(disk.place)
    except TimeoutError:
        return DiskState(name=disk.name, problem=f"it has not answered within {duration(seconds)}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return DiskState(name=disk.name, problem=reason_of(error))
    return DiskState(name=disk.name, size_bytes=size, free_bytes=free)


def disk_line(disk: DiskState, *, checked_ms: int) -> ServiceState:
    """Describe a disk as a line among the services."""
    used = disk.used_ratio
    name = f"Disk: {disk.name}"
    if used is None:
        return ServiceState(
            name=name, ok=False, said=f"cannot be measured: {disk.problem or 'it has no size'}", kind="disk",
            next="Check --disk, and that the folder or the address can be reached from here.", checked_ms=checked_ms,
        )  # fmt: skip
    is_full = used > _FULL
    return ServiceState(
        name=name, ok=not is_full, said=f"{used:.0%} full, {amount(disk.free_bytes)} free", kind="disk",
        next="Make room: run VACUUM, or delete what Docker holds (docker system df)." if is_full else None,
        checked_ms=checked_ms,
    )  # fmt: skip


def _of_folder(folder: str) -> tuple[int, int]:
    """Return size and free bytes without what is reserved for root, as ``df`` computes its percentage."""
    found = os.statvfs(Path(folder))
    free = found.f_bavail * found.f_frsize
    return (found.f_blocks - found.f_bfree) * found.f_frsize + free, free


def _of_store(address: str, seconds: float) -> tuple[int, int]:
    with get(address, seconds) as reply:
        text = reply.read(_LARGEST).decode(errors="replace")
    if reply.status != http.client.OK:
        raise ValueError(f"it answers with HTTP status {reply.status}")
    return _sample(text, _TOTAL), _sample(text, _FREE)


def _sample(text: str, name: str) -> int:
    found = re.search(rf"^{name}(?:\{{[^}}\n]*\}})? (\S+)", text, re.MULTILINE)
    if found is None:
        raise ValueError("its answer does not have the capacity of a MinIO")
    return int(float(found[1]))
