"""Read an external list of files in batches, for VACUUM USING INVENTORY to use instead of a listing.

An inventory has the columns ``path string`` (fully qualified, or relative to the table), ``length long``, ``isDir
boolean``, ``modificationTime long`` (epoch milliseconds). Others are ignored. A table of S3 Inventory rows, with
``bucket`` and ``key`` instead of ``path``, is also accepted. In a list with all versions of a bucket's objects
(``isLatest``, ``isDeleteMarker``) the current versions count, and the others are summed up.

::

    frames -> the columns, of the right types -> rows under the table's root -- by any spelling of it --> plain paths
           -> without rows that are newer than the inventory, or in a list dated in the future
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from pydelta.commands.vacuum.listing import ListedBatch
from pydelta.commands.vacuum.plan import KeptFiles
from pydelta.errors import InvalidArgumentError, InventoryUnusableError, SchemaMismatchError
from pydelta.errors.conditions import Condition
from pydelta.protocol.paths import decoded_paths, plain_root
from pydelta.storage.kinds import kind_of
from pydelta.storage.uris import LOCAL

__all__ = ["CLOCKS_DIFFER_MS", "INVENTORY_COLUMNS", "Inventory", "InventoryReader", "check_columns", "version_columns"]

CLOCKS_DIFFER_MS: Final = 3_600_000
"""Tolerance for a list dated ahead of this clock. Further ahead, the date is wrong."""
INVENTORY_COLUMNS: Final[dict[str, pl.DataType]] = {
    "path": pl.String(),
    "length": pl.Int64(),
    "isDir": pl.Boolean(),
    "modificationTime": pl.Int64(),
}
_VERSIONS: Final = {"islatest": "isLatest", "isdeletemarker": "isDeleteMarker", "versionid": "versionId"}
_SQL_NAMES: Final = {"path": "string", "length": "bigint", "isDir": "boolean", "modificationTime": "bigint"}
_LOCATION: Final = r"^(?:([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?)?(/.*)$"
_SCHEME_AND_HOST: Final = r"^([A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)/"
_IN_SECONDS: Final = 100_000_000_000
_IN_MICROSECONDS: Final = 100_000_000_000_000
_AGE_TO_WARN_OF_MS: Final = 7 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inventory:
    """A list of files as of a time.

    Args:
        description: Description for messages.
        frames: Function from the root URI of a table to frames with the inventory's columns and optionally ``asOf``,
            the time of the row's list (epoch milliseconds). The root allows skipping other rows early, but they may be
            included.
        as_of_ms: Latest time at which it was made, epoch milliseconds. Newer rows are ignored. If None, the newest
            ``modificationTime`` is used.
        encoded: Whether paths are URI-encoded (``%20`` for a blank). If None, it is detected from the log's own paths,
            by default not encoded.
    """

    description: str
    frames: Callable[[str], Iterator[pl.DataFrame]]
    as_of_ms: int | None = None
    encoded: bool | None = None


def version_columns(names: Iterable[str]) -> Mapping[str, str]:
    """Find the columns that distinguish versions (``is_latest``, ``IsLatest`` …), by our names for them."""
    plain = {name: _VERSIONS.get(name.replace("_", "").lower()) for name in names}
    return {name: ours for name, ours in plain.items() if ours is not None}


def check_columns(schema: pl.Schema, *, description: str) -> None:
    """Refuse a frame that is not an inventory, naming the differences.

    Raises:
        SchemaMismatchError: Columns are missing or of another type.
    """
    wanted = dict(INVENTORY_COLUMNS)
    if "path" not in schema and "bucket" in schema and "key" in schema:
        wanted = {"bucket": pl.String(), "key": pl.String()} | {k: v for k, v in wanted.items() if k != "path"}
    wrong = []
    for name, kind in wanted.items():
        spelt = _SQL_NAMES.get(name, "string")
        if name not in schema:
            close = next((other for other in schema if other.lower() == name.lower()), None)
            wrong.append(f"{name} {spelt} is missing" + (f" (there is {close!r})" if close else ""))
        elif schema[name] != kind:
            wrong.append(f"{name} is {str(schema[name]).lower()} and must be {spelt}")
    versions = set(version_columns(schema).values())
    if "versionId" in versions and "isLatest" not in versions:
        wrong.append("it lists versions, but isLatest boolean, which says which is current, is missing")
    if wrong:
        raise SchemaMismatchError(
            f"{description} is not an inventory: {', '.join(wrong)}.",
            hint="It needs path string, length bigint, isDir boolean and modificationTime bigint (epoch "
            "milliseconds); SELECT … AS or CAST them.",
            condition=Condition.of("DELTA_INVALID_INVENTORY_SCHEMA"),
        )


@dataclass(slots=True, kw_only=True)
class _Root:
    """The parts of a table's root that are compared with other locations."""

    family: str
    host: str
    base: str

    @classmethod
    def of(cls, uri: str) -> _Root:
        location = plain_root(uri)
        parts = pl.Series([location]).str.extract_groups(_LOCATION).struct.unnest().row(0)
        return cls(family=kind_of((parts[0] or "file").lower()).name, host=parts[1] or "", base=parts[2])

    def is_store_of(self, other: _Root) -> bool:
        """Return whether the two are in one store. ``file:/x`` has no host."""
        return (self.family, self.host) == (other.family, other.host)


@dataclass(slots=True)
class InventoryReader:
    """Reads an inventory for one table.

    Args:
        inventory: The list.
        root: URI of the table.
        needed: Plain paths that must stay. They also show how the inventory spells paths.
        now_ms: The current time, epoch milliseconds.
        noncurrent_files, noncurrent_bytes, delete_markers: Totals for the table, if the list distinguishes versions.
    """

    inventory: Inventory
    root: str
    needed: KeptFiles
    now_ms: int
    inside: int = 0
    newest_ms: int = 0
    newer: int = 0
    untimed: int = 0
    future: int = 0
    noncurrent_files: int = 0
    noncurrent_bytes: int = 0
    delete_markers: int = 0
    tells_versions: bool = False
    _made_ms: int = 0
    _made_inside_ms: int = 0
    _elsewhere: str | None = None
    _encoded: bool | None = None

    def __post_init__(self) -> None:
        self._encoded = self.inventory.encoded

    def batches(self) -> Iterator[ListedBatch]:
        """Return the files under the table's root, as a listing would give them.

        Raises:
            SchemaMismatchError: It is not an inventory.
            InvalidArgumentError: Its times are in another unit.
        """
        root = _Root.of(self.root)
        for frame in self.inventory.frames(self.root):
            check_columns(frame.schema, description=self.inventory.description)
            yield self._batch(frame, root)

    def _batch(self, frame: pl.DataFrame, root: _Root) -> ListedBatch:
        rows = self._current(self._usable(self._under(frame, root)))
        self._check_times(rows)
        is_directory = pl.col("isDir").fill_null(value=False) | pl.col("path").str.ends_with("/")
        places = rows.with_columns(path=pl.col("path").str.strip_chars_end("/"), directory=is_directory)
        directories = places.filter(pl.col("directory") & (pl.col("path") != ""))
        files = places.filter(~pl.col("directory"))
        untimed = pl.col("modificationTime").fill_null(0) <= 0
        self.untimed += files.filter(untimed).height
        files = files.filter(~untimed)
        newer = (pl.col("modificationTime") > pl.col("asOf")).fill_null(value=False)
        self.newer += files.filter(newer).height
        self.newest_ms = max(self.newest_ms, int(rows["asOf"].max() or 0))  # type: ignore[arg-type]
        files = self._spelt(files.filter(~newer)).filter(~pl.col("path").str.contains(r"(^|/)\.{0,2}(/|$)"))
        listed = files.select(
            "path",
            pl.col("length").fill_null(0).alias("size"),
            pl.col("modificationTime").alias("modification_time"),
        )
        times = directories["modificationTime"].fill_null(0).to_list()
        return ListedBatch(
            files=listed,
            directories=tuple(zip(self._spelt(directories)["path"].to_list(), times, strict=False)),
        )

    def _usable(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of lists that are not dated in the future."""
        ahead = (pl.col("asOf") > self.now_ms + CLOCKS_DIFFER_MS).fill_null(value=False)
        kept = rows.filter(~ahead)
        self.future += rows.height - kept.height
        self.inside += kept.height
        self._made_inside_ms = max(self._made_inside_ms, int(kept["asOf"].max() or 0))  # type: ignore[arg-type]
        return kept

    def _current(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the current versions, without keys whose current version is a delete marker."""
        marker = pl.col("isDeleteMarker").fill_null(value=False)
        latest = pl.col("isLatest").fill_null(value=True)
        old = rows.filter(~latest & ~marker)
        self.noncurrent_files += old.height
        self.noncurrent_bytes += int(old["length"].sum() or 0)
        self.delete_markers += rows.filter(marker).height
        return rows.filter(latest & ~marker)

    def _located(self, frame: pl.DataFrame, root: _Root) -> pl.DataFrame:
        """Return the inventory's columns, ``asOf``, and the location of each row.

        ``absolute`` rows name a location. ``inside`` ones lie under the root, ``raw`` ones as they are spelt, others
        decoded. ``rest`` is the location without scheme and host.
        """
        if "path" not in frame.columns:
            host = pl.col("bucket").replace(LOCAL, "") if root.family == "file" else pl.col("bucket")
            frame = frame.with_columns(path=f"{root.family}://" + host + "/" + pl.col("key"))
            self._encoded = False
        as_of = pl.col("asOf") if "asOf" in frame.columns else pl.lit(None, dtype=pl.Int64)
        if self.inventory.as_of_ms is not None:
            as_of = pl.min_horizontal(as_of, pl.lit(self.inventory.as_of_ms, dtype=pl.Int64))
        self.tells_versions = self.tells_versions or "isLatest" in frame.columns
        flags = [_flag(frame, name).alias(name) for name in ("isLatest", "isDeleteMarker")]
        rows = frame.select(*INVENTORY_COLUMNS, *flags, as_of.alias("asOf"))
        made = rows["asOf"].filter(rows["asOf"] <= self.now_ms + CLOCKS_DIFFER_MS)
        self._made_ms = max(self._made_ms, int(made.max() or 0))  # type: ignore[arg-type]
        path = rows["path"]
        prefix = path.str.extract(_SCHEME_AND_HOST)
        ours = [text for text in prefix.drop_nulls().unique() if _Root.of(text + "/").is_store_of(root)]
        same = prefix.is_null() | prefix.is_in(ours)
        absolute = (prefix.is_not_null() | path.str.starts_with("/")).fill_null(value=False)
        rest = rows.select(
            pl.when(absolute).then(pl.col("path").str.slice(prefix.str.len_chars().fill_null(0))).alias("rest")
        )["rest"]
        text = rest.fill_null("")
        raw = text.str.starts_with(root.base)
        decoded = decoded_paths(text).str.starts_with(root.base)
        return rows.with_columns(
            rest=rest,
            absolute=absolute,
            raw=same & raw,
            inside=(same & (raw | decoded)) | (~absolute & path.is_not_null()),
        )

    def _under(self, frame: pl.DataFrame, root: _Root) -> pl.DataFrame:
        """Return rows under the root, with relative paths in the inventory's spelling."""
        located = self._located(frame, root)
        outside = located.filter(~pl.col("inside"))
        if self._elsewhere is None and outside.height:
            self._elsewhere = str(outside["path"][0])
        kept = located.filter(pl.col("inside"))
        by_decoding = kept["absolute"] & ~kept["raw"]
        if bool(by_decoding.any()):
            self._encoded = True if self._encoded is None else self._encoded  # The root itself is encoded.
        # If the root is found only by decoding, the rest is decoded with it, and its percent signs are escaped again.
        whole = decoded_paths(kept["rest"].fill_null("")).str.slice(len(root.base)).str.replace_all("%", "%25")
        path = (
            pl.when(~pl.col("absolute"))
            .then(pl.col("path").str.replace(r"^(?:\./)+", ""))
            .when(pl.col("raw"))
            .then(pl.col("rest").str.slice(len(root.base)))
            .otherwise(whole)
        )
        columns = [*INVENTORY_COLUMNS, "isLatest", "isDeleteMarker", "asOf"]
        return kept.with_columns(path=path).select(columns).filter(pl.col("path") != "")

    def _check_times(self, rows: pl.DataFrame) -> None:
        newest = rows["modificationTime"].max()
        if not isinstance(newest, int) or newest <= 0:
            return
        self.newest_ms = max(self.newest_ms, newest)
        if _IN_SECONDS <= newest <= _IN_MICROSECONDS:
            return
        unit = "seconds" if newest < _IN_SECONDS else "microseconds"
        raise InvalidArgumentError(
            f"The modification times of {self.inventory.description} are in {unit} (the newest is {newest}): "
            "files would look far older or newer than they are.",
            hint="modificationTime is in milliseconds since 1970.",
        )

    def _spelt(self, files: pl.DataFrame) -> pl.DataFrame:
        """Return plain paths, without files whose path is needed in either spelling."""
        escaped = files["path"].str.contains("%", literal=True)
        if not bool(escaped.any()):
            return files
        odd = files.filter(escaped)
        decoded = decoded_paths(odd["path"])
        as_is, as_decoded = self.needed.may_hold(odd["path"]), self.needed.may_hold(decoded)
        # The log's escaped spelling of needed paths is among them, so only a path with another spelling decides.
        plain = int((as_is & ~as_decoded).sum())
        if self._encoded is None and plain != int(as_decoded.sum()):
            self._encoded = int(as_decoded.sum()) > plain
        path = decoded if self._encoded else odd["path"]
        needed = as_is | as_decoded
        return pl.concat([files.filter(~escaped), odd.with_columns(path=path).filter(~needed)])

    def finish(self, *, has_files: bool, created_ms: int | None) -> tuple[tuple[str, ...], int | None]:
        """Return warnings, and the inventory's age in milliseconds, after all of it was read.

        Args:
            has_files: Whether the table has files below its root.
            created_ms: Time of the table's creation. An older list cannot contain it.

        Raises:
            InventoryUnusableError: It lists nothing of the table, or was made in the future.
        """
        what = self.inventory.description
        warnings = []
        if not self.inside and self.future:
            raise InventoryUnusableError(
                f"{what} is dated in the future: none of its {self.future} rows can be trusted.",
                hint="Load an earlier list (load_inventory --delivery), and correct the clock that dated this one.",
            )
        if not self.inside and has_files:
            made = self._made_ms or self.inventory.as_of_ms
            if not made or created_ms is None or made >= created_ms:
                example = f"; it lists {self._elsewhere}, for example" if self._elsewhere is not None else ""
                raise InventoryUnusableError(
                    f"{what} lists nothing under {self.root}{example}.",
                    hint="Use an inventory of the bucket and folder that the table is in. Of several inventories "
                    "of a bucket load the one that covers the table (load_inventory --id).",
                )
            warnings.append(f"{what} was made before this table and does not list it: nothing is deleted.")
        as_of = self._made_inside_ms or self.inventory.as_of_ms or self.newest_ms
        age = max(0, self.now_ms - as_of) if as_of else None
        if age is not None and age > _AGE_TO_WARN_OF_MS:
            warnings.append(
                f"{what} is {age // 86_400_000} days old: files that were orphaned after it was taken are not deleted."
            )
        for count, why in (
            (self.newer, "are newer than itself"),
            (self.untimed, "have no modification time"),
            (self.future, "are of a list that is dated in the future"),
        ):
            if count:
                warnings.append(f"{count} rows of {what} {why} and were ignored.")
        return tuple(warnings), age


def _flag(frame: pl.DataFrame, name: str) -> pl.Expr:
    """Return a boolean column, parsed from text if needed, with null as false. All null without the column."""
    if name not in frame.columns:
        return pl.lit(None, dtype=pl.Boolean)
    says = pl.col(name)
    if frame.schema[name] == pl.String:
        says = says.str.strip_chars().str.to_lowercase() == "true"
    return says.cast(pl.Boolean).fill_null(value=False)
