"""Write, verify and load lists of what is in a bucket, in the layout of S3 Inventory.

::

    bucket --list_keys--> keys --write_delivery--> data files, manifest.json, manifest.checksum (last)
    delivery (ours or AWS's) --load_deliveries--> the inventory table, one partition per bucket, one commit
    inventory table --split_by_table--> the rows of each table, for VACUUM
"""

from pydelta.storage.uris import BucketPlace, bucket_of
from pydelta.tools.inventory.choice import ChosenDeliveries, choose_deliveries
from pydelta.tools.inventory.delivery import (
    Delivery,
    DeliveryResult,
    ListingOptions,
    buckets_with_deliveries,
    find_deliveries,
    read_manifest,
    write_delivery,
)
from pydelta.tools.inventory.listing import key_source, list_keys
from pydelta.tools.inventory.load import LoadedBucket, LoadResult, load_deliveries, loaded_until
from pydelta.tools.inventory.manifest import InventoryManifest
from pydelta.tools.inventory.split import places_of, read_split, split_by_table, with_longest_prefix

__all__ = [
    "BucketPlace",
    "ChosenDeliveries",
    "Delivery",
    "DeliveryResult",
    "InventoryManifest",
    "ListingOptions",
    "LoadResult",
    "LoadedBucket",
    "bucket_of",
    "buckets_with_deliveries",
    "choose_deliveries",
    "find_deliveries",
    "key_source",
    "list_keys",
    "load_deliveries",
    "loaded_until",
    "places_of",
    "read_manifest",
    "read_split",
    "split_by_table",
    "with_longest_prefix",
    "write_delivery",
]
