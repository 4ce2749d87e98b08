"""Find keys in texts, bytes, bounds and partition values of a log, as any writer spells them.

A text key counts as found where it stands by itself: not within a longer word. Keys of fewer than four characters, and
numbers, would be found by chance in any log; they are only compared with whole values, in bounds and partitions.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import msgspec
import polars as pl

from pydelta.commands.erase.keys import KeyColumn, Subject
from pydelta.errors import LogCorruptedError
from pydelta.protocol.actions import Action, AddCDCFile, AddFile, RemoveFile
from pydelta.protocol.malformed import MALFORMED_JSON
from pydelta.protocol.partitions import hive_escape, hive_unescape, parse_partition_value

__all__ = ["KeyTexts", "is_key_text", "kinds_in_actions", "named_partitions", "texts_of_parquet", "values_of_avro"]

_SHORTEST: Final = 4
_TOGETHER: Final = 500
_WORD: Final = r"0-9A-Za-z_\x80-\xff\-"
_SAFE: Final = "/:=@!$&'()*+,;~"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTexts:
    """The spellings of text keys, as characters that stand for single bytes.

    Args:
        spellings: All of them.
        whole: Expressions that find them where no word goes on.
    """

    spellings: tuple[str, ...]
    whole: tuple[re.Pattern[str], ...] = field(repr=False)

    @classmethod
    def of(cls, subject: Subject) -> KeyTexts:
        """Find the spellings of the keys that are long enough to be searched for."""
        keys = [text for column in subject.columns if column.is_text for text in column.texts]
        found = {spelt for key in keys if len(key) >= _SHORTEST for spelt in _spellings(key)}
        ordered = sorted(_bytewise(text) for text in found)
        parts = [ordered[at : at + _TOGETHER] for at in range(0, len(ordered), _TOGETHER)]
        return cls(
            spellings=tuple(ordered),
            whole=tuple(
                re.compile(f"(?<![{_WORD}])(?:{'|'.join(map(re.escape, part))})(?![{_WORD}])") for part in parts
            ),
        )

    def are_in(self, texts: pl.Series) -> pl.Series:
        """Return for each text whether it holds a key. Null holds none."""
        nothing = pl.repeat(value=False, n=len(texts), dtype=pl.Boolean, eager=True)
        if not self.spellings or not len(texts):
            return nothing
        plain = pl.Series([None if text is None else _bytewise(text) for text in texts], dtype=pl.String)
        likely = plain.str.contains_any(list(self.spellings)).fill_null(value=False)
        if not likely.any():
            return nothing
        return pl.Series([bool(hit) and self._stands_in(text) for hit, text in zip(likely, plain, strict=True)])

    def is_in(self, data: bytes) -> bool:
        """Return whether bytes hold a key."""
        if not self.spellings:
            return False
        text = data.decode("latin-1")
        return bool(pl.Series([text]).str.contains_any(list(self.spellings))[0]) and self._stands_in(text)

    def _stands_in(self, text: str) -> bool:
        return any(pattern.search(text) is not None for pattern in self.whole)


def _bytewise(text: str) -> str:
    """Return a text with a character for each byte of its UTF-8 encoding."""
    return text.encode(errors="surrogatepass").decode("latin-1")


def _spellings(key: str) -> Iterator[str]:
    """Yield a key as logs, paths and manifests spell it."""
    plain = [key, hive_escape(key)]
    plain += [quote(text, safe=_SAFE) for text in plain] + [quote(text, safe="") for text in plain]
    for text in plain:
        yield text
        for ascii_only in (True, False):
            once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
            yield once
            yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]  # Statistics are JSON within JSON.


def is_key_text(text: str | None, column: KeyColumn) -> bool:
    """Return whether a partition value is a key of a column."""
    if text is None or text == "":
        return False
    try:
        return parse_partition_value(text, column.data_type) in column.values
    except LogCorruptedError:
        return text in column.texts


def named_partitions(paths: pl.Series, column: KeyColumn) -> pl.Series:
    """Return for each path the value of a partition column that its folders name; null if they name none."""
    names = "|".join(re.escape(hive_escape(name)) for name in dict.fromkeys((*column.physical, *column.path)))
    texts = paths.str.extract(rf"(?s)(?:^|/)(?:{names})=([^/]*)(?:/|$)")
    escaped = texts.drop_nulls().unique()
    return texts.replace_strict(
        escaped, [hive_unescape(text) for text in escaped], default=None, return_dtype=pl.String
    )


def kinds_in_actions(actions: Iterable[Action], subject: Subject) -> set[str]:
    """Return where file actions of a commit name a key: ``partition``, ``bounds``."""
    found: set[str] = set()
    for action in actions:
        if not isinstance(action, (AddFile, RemoveFile, AddCDCFile)):
            continue
        values = action.partition_values or {}
        stats = None if isinstance(action, AddCDCFile) else action.stats
        for column in subject.columns:
            if column.is_partition and is_key_text(values.get(column.physical[0]), column):
                found.add("partition")
            elif stats and not column.is_partition and _in_stats(stats, column):
                found.add("bounds")
    return found


def _in_stats(stats: str, column: KeyColumn) -> bool:
    try:
        decoded: Any = msgspec.json.decode(stats)
    except MALFORMED_JSON:
        return False
    for kind in ("minValues", "maxValues"):
        value = decoded.get(kind) if isinstance(decoded, dict) else None
        for name in column.physical:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None and (value in column.values or str(value) in column.texts):
            return True
    return False


def values_of_avro(data: bytes) -> bytes:
    """Return all texts and bytes in an Avro file, such as a manifest of Iceberg, which is compressed."""
    leaves = _leaves(pl.read_avro(io.BytesIO(data)))
    texts = (column.drop_nulls().cast(pl.Binary) for column in leaves if column.dtype in (pl.String, pl.Binary))
    return b"\0".join(value for column in texts for value in column)


def texts_of_parquet(data: bytes) -> Iterator[pl.Series]:
    """Yield all columns of text in a Parquet file of a log, however deep they lie."""
    for column in _leaves(pl.read_parquet(io.BytesIO(data))):
        if column.dtype == pl.String:
            yield column.drop_nulls()


def _leaves(frame: pl.DataFrame) -> Iterator[pl.Series]:
    """Yield the columns of values, also those in structs and lists."""
    waiting = frame.get_columns()
    while waiting:
        column = waiting.pop()
        kind = column.dtype
        if isinstance(kind, pl.Struct):
            waiting += column.struct.unnest().get_columns()
        elif isinstance(kind, (pl.List, pl.Array)):
            waiting.append(column.explode())
        else:
            yield column
