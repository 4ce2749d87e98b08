"""The stores that are tried, one per row, each with the settings that it is tried with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.stores import disks, nfs, servers
from tests.stores.places import Place

__all__ = ["BY_NAME", "ROWS", "StoreRow"]

_DELTA_RS = ("--with", "delta-rs")
_WITHOUT_OPTIMIZE = (*_DELTA_RS, "--without", "delta-rs:optimize")
_WEAKER = ("--property", "delta.isolationLevel=WriteSerializable", "--property", "delta.enableDeletionVectors=true")


@dataclass(frozen=True, kw_only=True)
class StoreRow:
    """A store with its settings.

    Args:
        name: Its name for ``--stores``.
        title: The store on the page.
        start: Starts it in an empty folder, and ends it.
        settings: What is peculiar to this row, on the page.
        arguments: Further arguments of certify.
        kind: The part of the page: ``object stores``, ``file systems``, ``buckets as folders`` or ``imitations``.
    """

    name: str
    title: str
    start: Callable[[Path], AbstractContextManager[Place]]
    kind: str
    settings: str = ""
    arguments: tuple[str, ...] = ()


_SERVER, _DISK, _BUCKET, _FAKE = "Object stores and HDFS", "File systems", "Buckets as folders", "Imitations of S3"

ROWS = (
    StoreRow(name="minio", title="MinIO", start=servers.minio, kind=_SERVER),
    StoreRow(
        name="minio-weaker", title="MinIO", start=servers.minio, kind=_SERVER, arguments=_WEAKER,
        settings="`WriteSerializable`, deletion vectors",
    ),
    StoreRow(
        name="minio-delta-rs", title="MinIO", start=servers.minio, kind=_SERVER, arguments=_WITHOUT_OPTIMIZE,
        settings="delta-rs writes too, but not OPTIMIZE",
    ),
    StoreRow(
        name="minio-delta-rs-optimize", title="MinIO", start=servers.minio, kind=_SERVER, arguments=_DELTA_RS,
        settings="delta-rs writes too, and runs OPTIMIZE: "
        "[known to double rows](../guides/certify.md#found-with-it), though not with these seeds",
    ),
    StoreRow(name="versity", title="Versity's gateway", start=servers.versity, kind=_SERVER),
    StoreRow(
        name="versity-two", title="Versity's gateway", start=servers.two_versity, kind=_SERVER,
        settings="two gateways over one folder, behind a balancer",
    ),
    StoreRow(name="seaweedfs", title="SeaweedFS", start=servers.seaweedfs, kind=_SERVER),
    StoreRow(
        name="seaweedfs-two", title="SeaweedFS", start=servers.two_seaweedfs, kind=_SERVER,
        settings="two S3 gateways of one filer, behind a balancer",
    ),
    StoreRow(name="rclone-serve", title="`rclone serve s3`", start=servers.rclone_server, kind=_SERVER),
    StoreRow(name="hdfs", title="HDFS", start=servers.hdfs, kind=_SERVER, settings="one NameNode, one DataNode"),
    StoreRow(name="local", title="This machine's disk", start=disks.local, kind=_DISK),
    StoreRow(
        name="local-delta-rs", title="This machine's disk", start=disks.local, kind=_DISK, arguments=_WITHOUT_OPTIMIZE,
        settings="delta-rs writes too, but not OPTIMIZE",
    ),
    StoreRow(name="xfs", title="XFS", start=disks.xfs, kind=_DISK, settings="in a loop image"),
    StoreRow(name="btrfs", title="Btrfs", start=disks.btrfs, kind=_DISK, settings="in a loop image"),
    StoreRow(name="overlay", title="overlayfs", start=disks.overlay, kind=_DISK, settings="over a tmpfs"),
    StoreRow(name="tmpfs", title="tmpfs", start=disks.tmpfs, kind=_DISK),
    StoreRow(name="nfs", title="NFS", start=nfs.nfs, kind=_DISK, settings="version 4.2, one mount"),
    StoreRow(name="s3fs", title="s3fs over MinIO", start=disks.s3fs, kind=_BUCKET),
    StoreRow(name="rclone-mount", title="`rclone mount` over MinIO", start=disks.rclone_mount, kind=_BUCKET),
    StoreRow(
        name="rclone-writes", title="`rclone mount` over MinIO", start=disks.rclone_writes, kind=_BUCKET,
        settings="`--vfs-cache-mode full`",
    ),
    StoreRow(
        name="seaweedfs-mount", title="`weed mount` over SeaweedFS", start=disks.seaweedfs_mount, kind=_BUCKET,
        settings="one mount",
    ),
    StoreRow(name="moto", title="moto", start=servers.moto, kind=_FAKE, settings="its own server, with threads"),
    StoreRow(
        name="moto-deaf", title="moto", start=servers.deaf_moto, kind=_FAKE,
        settings="`If-None-Match` taken out of each request, as by an old store or a proxy",
    ),
)  # fmt: skip
BY_NAME = {row.name: row for row in ROWS}
