"""List the kinds of stores, one per row: schemes, factory, folders or keys, other spellings, Spark's package.

A new built-in store needs a module with a factory, and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["KINDS", "SparkPackage", "StoreKind", "elsewhere_scheme", "kind_of", "spark_scheme"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPackage:
    """The package and settings with which Spark reads a store.

    Args:
        package: Maven group and artifact of the file system, which has the version of Spark's Hadoop.
        keys: Required settings, for the hint.
        prefix: Prefix of its settings.
    """

    package: str
    keys: str
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """A kind of store. Only the name is known for a scheme that has no row.

    Args:
        name: Scheme in inventories, where all schemes of a store are the same.
        schemes: All schemes; messages use the first one.
        factory: ``module:function`` that opens a store, or None if only Spark or a user's factory opens it.
        folders: Whether it has real folders, which can be renamed.
        buckets: Whether it has buckets that contain keys.
        container: Whether the part before the host is a container (``container@account``), not a user.
        in_spark: Scheme by which Spark reads all its locations. None keeps the scheme of each location.
        elsewhere: Scheme for Trino, Presto and OpenLineage. None keeps the scheme of each location.
        spark: Package with which Spark reads it, if known.
        extra: Required module, and the extra that installs it.
        named: Whether messages about locations mention it.
    """

    name: str
    schemes: tuple[str, ...]
    factory: str | None = None
    folders: bool = False
    buckets: bool = False
    container: bool = False
    in_spark: str | None = None
    elsewhere: str | None = None
    spark: SparkPackage | None = None
    extra: tuple[str, str] | None = None
    named: bool = False


_OBJECTS: Final = "pydelta.storage.objects:open_object_store"

KINDS: Final = (
    StoreKind(name="file", schemes=("file",), factory="pydelta.storage.registry:_local", folders=True),
    StoreKind(name="memory", schemes=("memory",), factory="pydelta.storage.registry:_memory"),
    StoreKind(
        name="s3",
        schemes=("s3a", "s3", "s3n"),
        factory=_OBJECTS,
        buckets=True,
        in_spark="s3a",
        elsewhere="s3",
        spark=SparkPackage(
            package="org.apache.hadoop:hadoop-aws",
            keys="spark.hadoop.fs.s3a.access.key and spark.hadoop.fs.s3a.secret.key; beyond Amazon also "
            "spark.hadoop.fs.s3a.endpoint and spark.hadoop.fs.s3a.path.style.access=true",
            prefix="spark.hadoop.fs.s3a.",
        ),
        named=True,
    ),
    StoreKind(name="gs", schemes=("gs",), factory=_OBJECTS, buckets=True, named=True),
    StoreKind(
        name="abfs",
        schemes=("abfss", "abfs"),
        factory=_OBJECTS,
        buckets=True,
        container=True,
        spark=SparkPackage(
            package="org.apache.hadoop:hadoop-azure",
            keys="spark.hadoop.fs.azure.account.key.<account>.dfs.core.windows.net",
            prefix="spark.hadoop.fs.azure.",
        ),
        named=True,
    ),
    StoreKind(name="az", schemes=("az",), factory=_OBJECTS, buckets=True, container=True),
    StoreKind(name="wasb", schemes=("wasbs", "wasb"), container=True),
    StoreKind(
        name="hdfs",
        schemes=("hdfs",),
        factory="pydelta.storage.hdfs:open_hdfs_store",
        folders=True,
        extra=("hdfs_native", "hdfs"),
        named=True,
    ),
    StoreKind(name="viewfs", schemes=("viewfs",), folders=True),
)
_BY_SCHEME: Final[Mapping[str, StoreKind]] = {scheme: kind for kind in KINDS for scheme in kind.schemes}


def kind_of(scheme: str) -> StoreKind:
    """Return the kind of store for a scheme in lower case.

    Example:
        >>> kind_of("s3n").in_spark, kind_of("oss").name
        ('s3a', 'oss')
    """
    return _BY_SCHEME.get(scheme) or StoreKind(name=scheme, schemes=(scheme,))


def spark_scheme(scheme: str) -> str:
    """Return the scheme by which Spark reads locations of a scheme. Most schemes are unchanged."""
    return kind_of(scheme).in_spark or scheme


def elsewhere_scheme(scheme: str) -> str:
    """Return the scheme by which Trino, Presto and OpenLineage know locations of a scheme. Most are unchanged."""
    return kind_of(scheme).elsewhere or scheme
