"""Keep an Iceberg table beside a Delta table, over the same data files, for engines that read Iceberg.

::

    log since the last published version --changes--> files --build--> manifests --metadata--> vN.metadata.json
                                          `-- vectors --deletes--> position delete files
    publish: put vN+1 if it is absent, then move version-hint.text
    expire: drop snapshots before VACUUM deletes their files

Everything is in ``_pydelta/iceberg`` under the table. PyIceberg (``pip install 'pydelta-lakehouse[iceberg]'``) is
imported when an entry is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pydelta.errors import DeltaEnvironmentError

if TYPE_CHECKING:
    from pydelta.manifests.iceberg.check import damaged_files
    from pydelta.manifests.iceberg.entry import IcebergEntry, IcebergOptions, IcebergPublished, read_entry
    from pydelta.manifests.iceberg.expire import ExpireResult, expire_snapshots, unreferenced_files
    from pydelta.manifests.iceberg.publish import publish_iceberg

__all__ = [
    "ExpireResult",
    "IcebergEntry",
    "IcebergOptions",
    "IcebergPublished",
    "damaged_files",
    "expire_snapshots",
    "publish_iceberg",
    "read_entry",
    "unreferenced_files",
]

_ROOM: Final = "pydelta.manifests.iceberg"
_HOMES: Final = {
    "ExpireResult": "expire",
    "IcebergEntry": "entry",
    "IcebergOptions": "entry",
    "IcebergPublished": "entry",
    "damaged_files": "check",
    "expire_snapshots": "expire",
    "publish_iceberg": "publish",
    "read_entry": "entry",
    "unreferenced_files": "expire",
}


def __getattr__(name: str) -> Any:
    """Import PyIceberg only if a name that needs it is used."""
    if name in _HOMES:
        try:
            return getattr(import_module(f"{_ROOM}.{_HOMES[name]}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyiceberg":
                raise
            raise DeltaEnvironmentError(
                "PyIceberg is not installed; an Iceberg entry is made with it.",
                hint="Install it: pip install 'pydelta-lakehouse[iceberg]'.",
            ) from error
    raise AttributeError(f"module {_ROOM!r} has no attribute {name!r}")
