"""Generate the symlink manifests of a table's newest version, by which other engines read it (GENERATE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydelta.commands.run import Context, Task
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.manifests import ManifestOptions, PublishResult, publish

__all__ = ["SYMLINK_MANIFESTS", "Generate"]

SYMLINK_MANIFESTS: Final = "symlink_format_manifest"
"""The only mode of GENERATE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate(Task[PublishResult]):
    """GENERATE: publish the manifests that changed.

    Args:
        mode: ``symlink_format_manifest``, ignoring case.
        where: A condition over partition columns that limits the manifests to these partitions.
        time_zone: Zone of times in ``where`` without one; None refuses such times.
        full: Write every manifest again.

    Raises:
        InvalidArgumentError: The mode is unknown.
        UnsupportedFeatureError: Files have deletion vectors, or columns are mapped to other names.
        And what ``publish`` raises.
    """

    mode: str = SYMLINK_MANIFESTS
    where: str | None = None
    time_zone: str | None = None
    full: bool = False

    def perform(self, context: Context) -> PublishResult:
        """See ``Task.perform``."""
        if self.mode.lower() != SYMLINK_MANIFESTS:
            raise InvalidArgumentError(
                f"GENERATE has no mode {self.mode!r}.",
                hint=f"The only mode is {SYMLINK_MANIFESTS}.",
                condition=Condition.of("DELTA_MODE_NOT_SUPPORTED", mode=self.mode, supportedModes=SYMLINK_MANIFESTS),
            )
        options = ManifestOptions(where=self.where, time_zone=self.time_zone, full=self.full)
        return publish(context.log, options)
