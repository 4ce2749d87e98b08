"""Generate what other engines read a table by (GENERATE): symlink manifests, or an Iceberg entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydelta.commands.run import Context, Task
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.manifests import ManifestOptions, PublishResult, publish

if TYPE_CHECKING:
    from pydelta.manifests.iceberg import IcebergPublished

__all__ = ["ICEBERG", "MODES", "SYMLINK_MANIFESTS", "Generate", "GenerateIceberg", "generation"]

SYMLINK_MANIFESTS: Final = "symlink_format_manifest"
ICEBERG: Final = "iceberg"
MODES: Final = (SYMLINK_MANIFESTS, ICEBERG)
"""The modes of GENERATE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate(Task[PublishResult]):
    """GENERATE symlink_format_manifest: publish the manifests that changed.

    Args:
        where: A condition over partition columns that limits the manifests to these partitions.
        time_zone: Zone of times in ``where`` without one; None refuses such times.
        full: Write every manifest again.

    Raises:
        UnsupportedFeatureError: Files have deletion vectors, or columns are mapped to other names.
        And what ``publish`` raises.
    """

    where: str | None = None
    time_zone: str | None = None
    full: bool = False

    def perform(self, context: Context) -> PublishResult:
        """See ``Task.perform``."""
        options = ManifestOptions(where=self.where, time_zone=self.time_zone, full=self.full)
        return publish(context.log, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateIceberg(Task["IcebergPublished"]):
    """GENERATE iceberg: publish the Iceberg entry.

    Args:
        full: Compare every file with the entry.
        adopt: Replace an entry that another writer changed.

    Raises:
        DeltaEnvironmentError: PyIceberg is not installed.
        And what ``publish_iceberg`` raises.
    """

    full: bool = False
    adopt: bool = False

    def perform(self, context: Context) -> IcebergPublished:
        """See ``Task.perform``."""
        from pydelta.manifests.iceberg import IcebergOptions, publish_iceberg

        return publish_iceberg(context.log, IcebergOptions(full=self.full, adopt=self.adopt))


def generation(mode: str, *, where: str | None = None, time_zone: str | None = None, full: bool = False) -> Task[Any]:
    """Return the task of a mode.

    Args:
        mode: One of ``MODES``, ignoring case.
        where: See ``Generate``.
        time_zone: See ``Generate``.
        full: See ``Generate`` and ``GenerateIceberg``.

    Raises:
        InvalidArgumentError: The mode is unknown, or the Iceberg entry was asked for with a condition.
    """
    found = mode.lower()
    if found == SYMLINK_MANIFESTS:
        return Generate(where=where, time_zone=time_zone, full=full)
    if found != ICEBERG:
        raise InvalidArgumentError(
            f"GENERATE has no mode {mode!r}.",
            hint=f"Use {' or '.join(MODES)}.",
            condition=Condition.of("DELTA_MODE_NOT_SUPPORTED", mode=mode, supportedModes=", ".join(MODES)),
        )
    if where is not None:
        raise InvalidArgumentError(
            "An Iceberg entry has all partitions of one version, so it takes no condition.",
            hint="Leave the WHERE out.",
        )
    return GenerateIceberg(full=full)
