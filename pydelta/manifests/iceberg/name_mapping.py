"""Read, merge and write an entry's name mapping: the ids of columns by their names in files. Pure.

It is ``schema.name-mapping.default`` of Iceberg's metadata, and the entry's memory of ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, create_mapping_from_schema, parse_mapping_from_json

__all__ = ["MappedName", "find_name", "ids_of", "mapping_text", "previous_mapping", "with_names", "with_retired"]


@dataclass(frozen=True, slots=True)
class MappedName:
    """A column or a part of one: its id, its names in files, and its parts.

    Args:
        field_id: Its id.
        names: Its names, the one in new files first.
        parts: Its fields, or its element, or its key and value.
    """

    field_id: int
    names: tuple[str, ...]
    parts: tuple[MappedName, ...] = ()


def previous_mapping(text: str | None, schema: Schema | None) -> tuple[MappedName, ...]:
    """Return the mapping that a text states, or without one that of a schema, or an empty one."""
    if text:
        return _of(parse_mapping_from_json(text))
    return _of(create_mapping_from_schema(schema)) if schema is not None else ()


def _of(fields: Iterable[MappedField]) -> tuple[MappedName, ...]:
    return tuple(
        MappedName(item.field_id, tuple(item.names), _of(item.fields)) for item in fields if item.field_id is not None
    )


def mapping_text(mapped: Sequence[MappedName]) -> str:
    """Return the JSON text of a mapping."""

    def plain(item: MappedName) -> dict[str, Any]:
        found: dict[str, Any] = {"field-id": item.field_id, "names": item.names}
        if item.parts:
            found["fields"] = [plain(part) for part in item.parts]
        return found

    return json.dumps([plain(item) for item in mapped], ensure_ascii=False, separators=(",", ":"))


def find_name(mapped: Sequence[MappedName], name: str) -> MappedName | None:
    """Return the column of that name, ignoring case. Its name in new files and exact matches take precedence."""
    for test in (
        lambda item: item.names[:1] == (name,),
        lambda item: name in item.names,
        lambda item: name.lower() in (other.lower() for other in item.names),
    ):
        found = next(filter(test, mapped), None)
        if found is not None:
            return found
    return None


def ids_of(mapped: Iterable[MappedName]) -> Iterator[int]:
    """Iterate over all ids, at any depth."""
    for item in mapped:
        yield item.field_id
        yield from ids_of(item.parts)


def with_names(
    mapped: Sequence[MappedName], paths: Iterable[Sequence[str]], new_id: Callable[[], int]
) -> tuple[MappedName, ...]:
    """Add columns and parts that only files have, by their paths in files. Those that are named stay as they are."""
    found = list(mapped)
    for path in paths:
        name, rest = path[0], path[1:]
        at = next((number for number, item in enumerate(found) if name in item.names), None)
        if at is None:
            at = len(found)
            found.append(MappedName(new_id(), (name,)))
        if rest:
            item = found[at]
            found[at] = MappedName(item.field_id, item.names, with_names(item.parts, [rest], new_id))
    return tuple(found)


def with_retired(
    mapped: Sequence[MappedName], previous: Sequence[MappedName], new_id: Callable[[], int]
) -> tuple[MappedName, ...]:
    """Add the previous names of columns, and columns that are gone, since older files have them.

    Args:
        mapped: The mapping of the schema.
        previous: The previous mapping.
        new_id: Returns an id that was never given, for a column that is gone whose id is in use.
    """
    return _merged(mapped, previous, set(ids_of(mapped)), new_id)


def _merged(
    mapped: Sequence[MappedName], previous: Sequence[MappedName], taken: set[int], new_id: Callable[[], int]
) -> tuple[MappedName, ...]:
    before = {item.field_id: item for item in previous}
    seen = {item.names[0] for item in mapped}
    merged = []
    for item in mapped:
        old = before.get(item.field_id)
        names = (item.names[0], *(name for name in item.names[1:] if name not in seen))
        seen.update(names)
        parts = _merged(item.parts, old.parts if old is not None else (), taken, new_id)
        merged.append(MappedName(item.field_id, names, parts))
    ids = {item.field_id for item in mapped}
    for item in previous:
        names = tuple(name for name in item.names if name not in seen)
        if item.field_id not in ids and names:
            seen.update(names)
            merged.append(_retired(item, names, taken, new_id))
    return tuple(merged)


def _retired(item: MappedName, names: tuple[str, ...], taken: set[int], new_id: Callable[[], int]) -> MappedName:
    identifier = new_id() if item.field_id in taken else item.field_id
    taken.add(identifier)
    return MappedName(identifier, names, tuple(_retired(part, part.names, taken, new_id) for part in item.parts))
