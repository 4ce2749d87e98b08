"""Plan a change of a table's properties, constraints or clustering. Pure; see ``plan_alter``.

Protocol: "Change Metadata", "Table Features", "CHECK Constraints", "Clustered Table".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pydelta.commands.alter.clustering import (
    CLUSTERING_FEATURES,
    clustering_domain,
    clustering_paths,
    path_text,
    plan_clustering,
)
from pydelta.commands.alter.dependants import CONSTRAINT_PREFIX
from pydelta.commands.alter.requests import (
    AddConstraint,
    AlterPlan,
    ClusterBy,
    DropConstraint,
    MustHold,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from pydelta.commands.alter.unmap import plan_without_mapping
from pydelta.commands.change_feed import refuse_reserved_names
from pydelta.errors import InvalidArgumentError
from pydelta.errors.conditions import Condition
from pydelta.log import Snapshot
from pydelta.protocol.actions import Metadata, Protocol, encode_json
from pydelta.protocol.column_mapping import MODE, check_mode_change, mapped_metadata, mode_of
from pydelta.protocol.features import at_least, is_request, upgrade, with_feature
from pydelta.protocol.schema_edits import suggestion
from pydelta.settings import (
    KEPT_PROPERTIES,
    TableProperties,
    canonical_properties,
    canonical_property,
    check_property_names,
    refuse_kept_properties,
)
from pydelta.txn import Operation

__all__ = [
    "add_constraint",
    "cluster_by",
    "drop_constraint",
    "set_comment",
    "set_properties",
    "unset_properties",
]

_FEATURE: Final = "delta.feature."
_COMMENT: Final = "comment"
RESERVED_CONSTRAINT: Final = "__char_varchar_string_length_check__"


def set_properties(snapshot: Snapshot, change: SetProperties) -> AlterPlan:
    """Set properties, and add the features that they need."""
    metadata, given = _metadata(snapshot), canonical_properties(change.properties)
    for name in given:
        _refuse_constraint(name)
        if name == f"{_FEATURE}clustering":
            raise InvalidArgumentError(
                "The table feature clustering cannot be set by a property.",
                hint="Write ALTER TABLE … CLUSTER BY (columns).",
                condition=Condition.of(
                    "DELTA_ALTER_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED", tableFeature="clustering"
                ),
            )
    refuse_kept_properties(given, metadata.configuration)
    check_property_names(given, metadata.configuration)
    operation = Operation(name="SET TBLPROPERTIES", parameters={"properties": encode_json(given)})
    description = given.get(_COMMENT, metadata.description)
    configuration = {**metadata.configuration, **{k: v for k, v in given.items() if not is_request(k)}}
    if MODE in given:
        if mode_of(given) == "none" and snapshot.column_mapping_mode != "none":
            return _without_mapping(snapshot, configuration, given, description)
        check_mode_change(snapshot.column_mapping_mode, mode_of(given))
    made = metadata.replace(configuration=configuration, description=description)
    before = metadata
    if snapshot.column_mapping_mode == "none":  # The property has no effect without the feature.
        before = metadata.replace(configuration={k: v for k, v in metadata.configuration.items() if k != MODE})
    if mode_of(configuration) != "none":
        made = mapped_metadata(made, before)
    if TableProperties.parse(configuration).enable_change_data_feed:
        refuse_reserved_names(snapshot.schema.fields)
    protocol = _requested(_protocol(snapshot), given)
    return AlterPlan(
        metadata=made,
        operation=operation,
        protocol=protocol,
        changed=made != metadata or protocol != snapshot.protocol,
    )


def _requested(protocol: Protocol, given: Mapping[str, str]) -> Protocol:
    """Return the protocol that ``delta.feature.*`` and minimum versions request."""
    for name, value in given.items():
        if name.startswith(_FEATURE):
            if value.strip().lower() not in ("supported", "enabled"):
                raise InvalidArgumentError(
                    f"{name} is {value!r}.",
                    hint="Set it to 'supported'.",
                    condition=Condition.of(
                        "DELTA_UNSUPPORTED_FEATURE_STATUS", feature=name.removeprefix(_FEATURE), status=value
                    ),
                )
            protocol = with_feature(protocol, name.removeprefix(_FEATURE))
    versions = {}
    for key, now in (
        ("delta.minReaderVersion", protocol.min_reader_version),
        ("delta.minWriterVersion", protocol.min_writer_version),
    ):
        text = given.get(key, str(now))
        if not text.isdigit():
            raise InvalidArgumentError(
                f"{key} is {text!r}.",
                hint="Set it to a whole number.",
                condition=Condition.of("DELTA_PROTOCOL_PROPERTY_NOT_INT", key=key, value=text),
            )
        versions[key] = max(int(text), now)
    return at_least(protocol, reader=versions["delta.minReaderVersion"], writer=versions["delta.minWriterVersion"])


def unset_properties(snapshot: Snapshot, change: UnsetProperties) -> AlterPlan:
    """Remove properties; features stay in the protocol. A property that is not set needs no removal."""
    metadata = _metadata(snapshot)
    names = [canonical_property(name) for name in change.names]
    parameters = {"properties": encode_json(names), "ifExists": change.if_exists}
    operation = Operation(name="UNSET TBLPROPERTIES", parameters=parameters)
    for name in names:
        _refuse_constraint(name)
        if name in KEPT_PROPERTIES and name in metadata.configuration:
            raise InvalidArgumentError(
                f"{name} is managed by the engine and cannot be unset.",
                hint="Leave it out.",
                condition=Condition.of("DELTA_CANNOT_MODIFY_TABLE_PROPERTY", prop=name),
            )
    left = {key: value for key, value in metadata.configuration.items() if key not in names}
    description = None if _COMMENT in names else metadata.description
    if MODE in names and snapshot.column_mapping_mode != "none":
        return _without_mapping(snapshot, left, {}, description)
    made = metadata.replace(configuration=left, description=description)
    return AlterPlan(metadata=made, operation=operation, changed=made != metadata)


def _without_mapping(
    snapshot: Snapshot, configuration: Mapping[str, str], given: Mapping[str, str], description: str | None
) -> AlterPlan:
    """Remove column mapping, together with the statement's other changes of properties."""
    plan = plan_without_mapping(snapshot, configuration)
    protocol = _requested(_protocol(snapshot), given)
    return replace(plan, metadata=plan.metadata.replace(description=description), protocol=protocol)


def set_comment(snapshot: Snapshot, change: SetComment) -> AlterPlan:
    """Set the table's description."""
    metadata = _metadata(snapshot)
    operation = Operation(
        name="SET TBLPROPERTIES", parameters={"properties": encode_json({_COMMENT: change.text or ""})}
    )
    made = metadata.replace(description=change.text)
    return AlterPlan(metadata=made, operation=operation, changed=made != metadata)


def add_constraint(snapshot: Snapshot, change: AddConstraint) -> AlterPlan:
    """Add a condition for new and existing rows."""
    metadata = _metadata(snapshot)
    name = change.name.strip().lower()
    if not name or not change.expression.strip():
        raise InvalidArgumentError(
            "A constraint needs a name and a condition.", hint="Write ADD CONSTRAINT name CHECK (…)."
        )
    if name == RESERVED_CONSTRAINT:
        raise InvalidArgumentError(
            f"{change.name!r} is reserved for checking the lengths of char and varchar.",
            hint="Choose another name.",
            condition=Condition.of("DELTA_INVALID_CONSTRAINT_NAME", name=change.name),
        )
    key = CONSTRAINT_PREFIX + name
    existing = {item.lower(): item for item in metadata.configuration}
    if key in existing:
        raise InvalidArgumentError(
            f"The table already has a constraint {name!r}: {metadata.configuration[existing[key]]}.",
            hint=f"Choose another name, or drop it first: ALTER TABLE … DROP CONSTRAINT {name}.",
            condition=Condition.of(
                "DELTA_CONSTRAINT_ALREADY_EXISTS",
                constraintName=change.name,
                oldConstraint=metadata.configuration[existing[key]],
            ),
        )
    made = metadata.replace(configuration={**metadata.configuration, key: change.expression})
    operation = Operation(name="ADD CONSTRAINT", parameters={"name": change.name, "expr": change.expression})
    rule = MustHold(what=f"CHECK constraint {name!r} ({change.expression})", expression=change.expression)
    return AlterPlan(metadata=made, operation=operation, must_hold=(rule,))


def drop_constraint(snapshot: Snapshot, change: DropConstraint) -> AlterPlan:
    """Drop a constraint: new rows need not satisfy it."""
    metadata = _metadata(snapshot)
    wanted = (CONSTRAINT_PREFIX + change.name.strip()).lower()
    key = next((item for item in metadata.configuration if item.lower() == wanted), None)
    if key is None:
        names = [
            item.removeprefix(CONSTRAINT_PREFIX)
            for item in metadata.configuration
            if item.startswith(CONSTRAINT_PREFIX)
        ]
        if not change.if_exists:
            raise InvalidArgumentError(
                f"The table has no constraint {change.name!r} to drop.",
                hint=suggestion(change.name, names, what="constraints"),
                condition=Condition.of(
                    "DELTA_CONSTRAINT_DOES_NOT_EXIST", constraintName=change.name, tableName=snapshot.table_uri
                ),
            )
        operation = Operation(name="DROP CONSTRAINT", parameters={"name": change.name, "existed": "false"})
        return AlterPlan(metadata=metadata, operation=operation, changed=False)
    parameters = {"name": change.name, "expr": metadata.configuration[key], "existed": "true"}
    left = {item: value for item, value in metadata.configuration.items() if item != key}
    return AlterPlan(
        metadata=metadata.replace(configuration=left),
        operation=Operation(name="DROP CONSTRAINT", parameters=parameters),
    )


def cluster_by(snapshot: Snapshot, change: ClusterBy) -> AlterPlan:
    """Change the columns that OPTIMIZE orders rows by; until it runs, files stay unchanged."""
    metadata = _metadata(snapshot)
    before = clustering_paths(snapshot)
    domain = plan_clustering(metadata, change.columns or ()) or clustering_domain(snapshot.schema, ())
    old = ",".join(path_text(path) for path in before)
    operation = Operation(
        name="CLUSTER BY",
        parameters={"oldClusteringColumns": old, "newClusteringColumns": ",".join(change.columns or ())},
    )
    existing = snapshot.domain_metadata.get(domain.domain)
    same = domain == existing if existing is not None else not change.columns
    protocol = _protocol(snapshot) if same else upgrade(_protocol(snapshot), CLUSTERING_FEATURES)
    return AlterPlan(metadata=metadata, operation=operation, protocol=protocol, clustering=domain, changed=not same)


def _refuse_constraint(name: str) -> None:
    if name.lower().startswith(CONSTRAINT_PREFIX):
        short = name[len(CONSTRAINT_PREFIX) :]
        raise InvalidArgumentError(
            f"{name} is a constraint, not a property to set or unset: the rows have to be checked.",
            hint=f"ALTER TABLE … ADD CONSTRAINT {short} CHECK (…), or DROP CONSTRAINT {short}.",
            condition=Condition.of("DELTA_ADD_CONSTRAINTS"),
        )


def _metadata(snapshot: Snapshot) -> Metadata:
    assert snapshot.metadata is not None
    return snapshot.metadata


def _protocol(snapshot: Snapshot) -> Protocol:
    assert snapshot.protocol is not None
    return snapshot.protocol
