"""Keep the metastore entries of Delta tables up to date for Trino, Presto and Spark, without MSCK.

::

    snapshot --twin--> wanted entry        metastore (Thrift) --> current entry
                            `------- diff (pure) --------'
                                       |
    sync: manifests --> create, alter --> add partitions --> drop partitions --> forget manifests --> version, last
"""

from catalog_sync.diff import SyncPlan, plan_sync
from catalog_sync.names import TableName, twin_name
from catalog_sync.sync import SyncOptions, SyncResult, sync_table
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from catalog_sync.twin import Twin, twin_of

__all__ = [
    "Metastore",
    "MetastoreAddress",
    "SyncOptions",
    "SyncPlan",
    "SyncResult",
    "TableName",
    "Twin",
    "plan_sync",
    "sync_table",
    "twin_name",
    "twin_of",
]
