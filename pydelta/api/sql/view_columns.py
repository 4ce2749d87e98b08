"""Match the fields of structs in the columns of a view by name, before Spark casts them to the types of the view.

::

    View [a, s: struct<x, y>]
     `--Project [cast(s as struct<x, y>)]      Spark's cast pairs fields by position
         `--Project [struct(s.x, s.y) AS s]    added here if the table has struct<y, x> or struct<x, y, z>
             `--scan
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pydelta.errors import SchemaMismatchError
from pydelta.errors.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql import Column

    from pydelta.engines.spark.jvm import Jvm

__all__ = ["fields_by_name"]

_CASTS: Final = ("Cast", "UpCast")


def fields_by_name(jvm: Jvm, plan: Any, view: Any, settings: Mapping[str, str]) -> Any:
    """Return the plan of a view's text whose structs have the fields of the view's columns, in their order.

    Args:
        jvm: The session's.
        plan: What is below Spark's ``View``: it casts each column to the type that the view was made with.
        view: Description of the view in the catalog.
        settings: Those under which the view was made.

    Raises:
        SchemaMismatchError: A struct lacks a field of the view, and its other fields are in other places.
    """
    wanted = StructType.fromJson(json.loads(str(view.schema().json())))
    if not any(_has_struct(field.dataType) for field in wanted) or str(plan.nodeName()) != "Project":
        return plan
    items = jvm.to_list(plan.projectList())
    names = [str(name) for name in jvm.to_list(view.viewQueryColumnNames())]
    if not len(names) == len(items) == len(wanted):
        return plan  # WITH SCHEMA EVOLUTION keeps no names: below the view is its text alone, which may be a star.
    casts = [str(item.child().nodeName()) in _CASTS for item in items]
    if not any(casts):
        return plan
    child = jvm.analysed_under(plan.child(), settings)
    attributes = jvm.to_list(child.output())
    found = StructType.fromJson(json.loads(str(child.schema().json())))
    columns: list[Any] = [ClassicColumn(jvm.column_of(attribute)) for attribute in attributes]
    changed = False
    free = list(range(len(attributes)))
    for name, cast, field in zip(names, casts, wanted, strict=True):
        place = next((at for at in free if found.fields[at].name.lower() == name.lower()), None)
        if place is None:
            continue  # Spark refuses the view.
        free.remove(place)
        if cast and not _is_arranged(found.fields[place].dataType, field.dataType, name):
            there = found.fields[place]
            columns[place] = _arranged(columns[place], there.dataType, field.dataType).alias(there.name)
            changed = True
    if not changed:
        return plan
    selected = jvm.frame(child).select(*columns)
    return plan.withNewChildren(jvm.indexed_seq([selected._jdf.queryExecution().analyzed()]))


def _has_struct(data_type: DataType) -> bool:
    if isinstance(data_type, ArrayType):
        return _has_struct(data_type.elementType)
    if isinstance(data_type, MapType):
        return _has_struct(data_type.keyType) or _has_struct(data_type.valueType)
    return isinstance(data_type, StructType)


def _is_arranged(found: DataType, wanted: DataType, path: str) -> bool:
    """Return whether pairing fields by position also pairs them by name.

    Raises:
        SchemaMismatchError: They can be paired neither by name nor by position.
    """
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        return _is_arranged(found.elementType, wanted.elementType, f"{path}.element")
    if isinstance(found, MapType) and isinstance(wanted, MapType):
        keys = _is_arranged(found.keyType, wanted.keyType, f"{path}.key")
        return _is_arranged(found.valueType, wanted.valueType, f"{path}.value") and keys
    if not (isinstance(found, StructType) and isinstance(wanted, StructType)):
        return True
    there = _places(found)
    by_position = len(found) == len(wanted) and all(
        there.get(field.name.lower(), place) == place for place, field in enumerate(wanted)
    )
    missing = [field.name for field in wanted if field.name.lower() not in there]
    if missing and len(found) == len(wanted) and not by_position:
        raise SchemaMismatchError(
            f"The view shows the field {f'{path}.{missing[0]}'!r}, which the table lacks, and the table has the other "
            "fields in another order.",
            hint="Create the view again: CREATE OR REPLACE VIEW.",
            condition=Condition.of("DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS", schemaDiff="", legacyFlagMessage=""),
        )
    if missing and not by_position:
        return True  # The numbers of fields differ, so Spark's cast refuses them.
    pairs = [
        (found.fields[place if by_position else there[field.name.lower()]], field) for place, field in enumerate(wanted)
    ]
    inner = [_is_arranged(have.dataType, field.dataType, f"{path}.{field.name}") for have, field in pairs]
    return by_position and all(inner)


def _arranged(column: Column, found: DataType, wanted: DataType) -> Column:
    """Return a value with the fields of its structs in the order of the wanted type, without any others."""
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        have, want = found.elementType, wanted.elementType
        return column if _is_arranged(have, want, "") else F.transform(column, lambda item: _arranged(item, have, want))
    if isinstance(found, MapType) and isinstance(wanted, MapType):
        keys, values = (found.keyType, wanted.keyType), (found.valueType, wanted.valueType)
        if not _is_arranged(*keys, ""):
            column = F.transform_keys(column, lambda key, _: _arranged(key, *keys))
        return column if _is_arranged(*values, "") else F.transform_values(column, lambda _, v: _arranged(v, *values))
    if not (isinstance(found, StructType) and isinstance(wanted, StructType)) or _is_arranged(found, wanted, ""):
        return column
    there, parts = _places(found), []
    for place, field in enumerate(wanted):
        have = found.fields[there.get(field.name.lower(), place)]
        parts.append(_arranged(column.getField(have.name), have.dataType, field.dataType).alias(have.name))
    return F.when(column.isNull(), F.lit(None)).otherwise(F.struct(*parts))


def _places(struct: StructType) -> dict[str, int]:
    return {field.name.lower(): place for place, field in enumerate(struct)}
