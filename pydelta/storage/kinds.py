"""List the kinds of stores, one per row: schemes, factory, folders or keys, other spellings, Spark's package.

A new built-in store is a module with a factory, and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["KINDS", "SparkPackage", "StoreKind", "elsewhere_scheme", "kind_of", "spark_scheme"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPackage:
    """What Spark needs to read a store, beside its own jars.

    Args:
        package: Maven group and artifact of its file system; its version is that of Spark's Hadoop.
        keys: Settings that it needs, for the hint.
        prefix: How the names of its settings begin.
    """

    package: str
    keys: str
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """A kind of store. Of a scheme in none of the rows only the name is known.

    Args:
        name: Its scheme in inventories, where all schemes of one store are the same.
        schemes: All of them; texts name the first.
        factory: ``module:function`` that opens a store; None where only Spark or a user's factory opens it.
        folders: Whether it has real folders, which can be renamed.
        buckets: Whether it has buckets with keys in them.
        container: Whether a container stands before the host (``container@account``), and not a user.
        in_spark: Scheme that Spark reads all locations of it by; None keeps the scheme of each.
        elsewhere: The same for Trino, Presto and OpenLineage.
        spark: What Spark needs to read it, where that is known.
        extra: Module that it needs, and the extra that installs it.
        named: Whether texts about locations name it.
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
            keys="spark.hadoop.fs.s3a.access.key and spark.hadoop.fs.s3a.secret.key; for a store that is not Amazon's "
            "spark.hadoop.fs.s3a.endpoint and spark.hadoop.fs.s3a.path.style.access=true, too",
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
    """Return the kind of store of a scheme in lower case.

    Example:
        >>> kind_of("s3n").in_spark, kind_of("oss").name
        ('s3a', 'oss')
    """
    return _BY_SCHEME.get(scheme) or StoreKind(name=scheme, schemes=(scheme,))


def spark_scheme(scheme: str) -> str:
    """Return the scheme by which Spark reads locations of a scheme; most keep theirs."""
    return kind_of(scheme).in_spark or scheme


def elsewhere_scheme(scheme: str) -> str:
    """Return the scheme by which Trino, Presto and OpenLineage know locations of a scheme; most keep theirs."""
    return kind_of(scheme).elsewhere or scheme
