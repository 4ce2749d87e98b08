"""Verify published manifests against the log: every line is an existing live file, and no live file is missing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from pydelta.errors import ObjectNotFoundError, VersionNotFoundError
from pydelta.log import DeltaLog
from pydelta.manifests.contents import MANIFEST_DIR, MANIFEST_NAME, manifest_lines, manifest_path, manifests_of
from pydelta.manifests.publish import directories_with_manifest
from pydelta.manifests.state import read_state

__all__ = ["ManifestReport", "verify_manifests"]

_READERS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestReport:
    """The errors found in the manifests; ``ok`` if there are none.

    Args:
        table_version: The table's newest version.
        version: Version of the manifests, or None if nothing is published.
        partitions: Number of manifests compared.
        lines: Number of lines in them.
        missing_lines: Live files that no manifest names.
        extra_lines: Lines that do not name a live file.
        missing_manifests: Partitions with files but without a manifest.
        stray_manifests: Manifests of partitions without files, except the empty ones that are kept on purpose.
        other_files: Other files in the manifests' folders, which readers would take for manifests.
        absent_files: Live files that are missing in the store, among those that were checked.
        checked_files: Number of files that were checked.
    """

    table_version: int
    version: int | None
    partitions: int = 0
    lines: int = 0
    missing_lines: tuple[str, ...] = ()
    extra_lines: tuple[str, ...] = ()
    missing_manifests: tuple[str, ...] = ()
    stray_manifests: tuple[str, ...] = ()
    other_files: tuple[str, ...] = ()
    absent_files: tuple[str, ...] = ()
    checked_files: int = 0

    @property
    def ok(self) -> bool:
        """Whether readers of the manifests get the rows of ``version``."""
        return self.version is not None and not (
            self.missing_lines
            or self.extra_lines
            or self.missing_manifests
            or self.stray_manifests
            or self.other_files
            or self.absent_files
        )


def verify_manifests(log: DeltaLog, *, files: int | None = None) -> ManifestReport:
    """Read every manifest and compare it with the log at the published version.

    Args:
        log: Log of the table.
        files: Number of data files to look for in the store, evenly spread, or None for all of them.

    Raises:
        VersionNotFoundError: The log no longer has the published version. Publish again first.
        StorageError: The store failed.
    """
    newest = log.update().version
    store = log.store
    state = read_state(store)
    if state is None:
        return ManifestReport(table_version=newest, version=None)
    try:
        snapshot = log.snapshot(version=state.version)
    except VersionNotFoundError as error:
        error.hint = "The manifests are older than the log: publish them again, then verify."
        raise
    expected = manifests_of(snapshot, snapshot.files.core, schemes=state.schemes)
    present = set(directories_with_manifest(store))
    may_be_empty = set(state.emptied) | set(state.ahead) | ({""} if not snapshot.partition_columns else set())

    def lines_of(directory: str) -> tuple[str, list[str]]:
        try:
            path = manifest_path(directory)
            return directory, manifest_lines(store.read(path), source=path)
        except ObjectNotFoundError:
            return directory, []

    missing_lines: list[str] = []
    extra_lines: list[str] = []
    stray: list[str] = []
    lines = 0
    with ThreadPoolExecutor(_READERS) as pool:
        for directory, found in pool.map(lines_of, sorted(present)):
            lines += len(found)
            manifest = expected.get(directory)
            wanted = manifest_lines(manifest.text, source=directory) if manifest else []
            if manifest is None and (directory not in may_be_empty or found):
                stray.append(directory)
            missing_lines += sorted(set(wanted) - set(found))
            extra_lines += sorted(set(found) - set(wanted))
            extra_lines += (
                sorted({line for line in found if found.count(line) > 1}) if len(set(found)) < len(found) else []
            )
        absent, checked = _absent(log, snapshot.files.core["path"].to_list(), files, pool)
    return ManifestReport(
        table_version=newest,
        version=state.version,
        partitions=len(present),
        lines=lines,
        missing_lines=tuple(missing_lines),
        extra_lines=tuple(extra_lines),
        missing_manifests=tuple(sorted(set(expected) - present)),
        stray_manifests=tuple(stray),
        other_files=tuple(_other_files(log)),
        absent_files=absent,
        checked_files=checked,
    )


def _absent(
    log: DeltaLog, paths: list[str], limit: int | None, pool: ThreadPoolExecutor
) -> tuple[tuple[str, ...], int]:
    if limit is not None and limit < len(paths):
        paths = [paths[at * len(paths) // limit] for at in range(limit)]

    there = pool.map(log.file_exists, paths)
    return tuple(path for path, exists in zip(paths, there, strict=True) if not exists), len(paths)


def _other_files(log: DeltaLog) -> list[str]:
    """List files that readers take for manifests: they skip only names that begin with ``_`` or ``.``."""
    names = (info.path for info in log.store.list_all(MANIFEST_DIR))
    found = [(path, path.rpartition("/")[2]) for path in names]
    return sorted(path for path, name in found if name != MANIFEST_NAME and not name.startswith(("_", ".")))
