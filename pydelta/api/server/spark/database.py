"""Give JDBC sessions the database of a local catalog, so that connections do not replace each other's pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydelta.engines.spark.jvm import Jvm

__all__ = ["share_database"]

_OF_THE_POOL: Final = "datanucleus|jdo"
"""Hive compares the settings with these words in their names, and makes its pool again if one differs."""


def share_database(jvm: Jvm, thrift: Any) -> None:
    """Copy the settings of the catalog's database to a Thrift server, for the sessions that it opens.

    Spark gives these a database in memory. Hive has one pool of connections per process, so that each switch between
    that database and the catalog's closes it and sets it up again, which takes a second of processor time.

    Args:
        jvm: Of the server's session.
        thrift: The started Thrift server.
    """
    external = jvm.session.sharedState().externalCatalog().unwrapped()
    if str(external.getClass().getSimpleName()) != "HiveExternalCatalog":
        return
    catalog, sessions = external.client().conf(), thrift.getHiveConf()
    if str(catalog.get("hive.metastore.uris") or "").strip():
        return  # A remote metastore has its own pool, in another process.
    names = {*jvm.to_dict(catalog.getValByRegex(_OF_THE_POOL)), *jvm.to_dict(sessions.getValByRegex(_OF_THE_POOL))}
    for name in names:
        value = catalog.get(name)
        if value is None:
            sessions.unset(name)
        else:
            sessions.set(name, value)
