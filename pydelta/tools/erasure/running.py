"""Erase the keys of one request from several tables, shallow clones before the tables whose files they read.

::

    request --choose--> targets --look_at--> plans --consent--> erase_all --> outcomes --> report, register, list
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydelta.commands.erase.command import Erase, Erasure, History, KeptObjects
from pydelta.commands.run import Context, existing_table, run
from pydelta.errors import DeltaError, InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.storage.uris import normalize_uri
from pydelta.tools.erasure.mapping import keys_of_table, read_mapping
from pydelta.tools.erasure.requests import keys_of_condition, keys_of_file

__all__ = ["ErasureOutcome", "ErasureRequest", "ErasureTarget", "Targets", "choose", "erase_all", "look_at"]

_NO_COLUMN: Final = "it has none of the columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """The wish to erase keys.

    Args:
        keys_file, column: See ``keys_of_file``.
        where: Instead of a file: a condition with the keys; see ``keys_of_condition``.
        mapping_file: See ``read_mapping``; None if keys belong to the columns of their names.
        history, object_versions: The policies of ``Erase``.
    """

    keys_file: str | None = None
    column: str | None = None
    where: str | None = field(default=None, repr=False)
    mapping_file: str | None = None
    history: History | None = None
    object_versions: KeptObjects = "keep"

    def check(self) -> None:
        """Refuse what does not fit together.

        Raises:
            InvalidArgumentError: Keys are given in no way, or in two; or options contradict each other.
        """
        if (self.keys_file is None) == (self.where is None):
            raise InvalidArgumentError(
                "Keys are given in one way: by --keys or by --where.", hint="Give one of them, not both."
            )
        if self.where is not None and self.column is not None:
            raise InvalidArgumentError("--where names its columns itself.", hint="Leave --column out.")
        if self.where is not None and self.mapping_file is not None:
            raise InvalidArgumentError("A mapping is for keys of a file.", hint="Give --keys instead of --where.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureTarget:
    """A table of a request.

    Args:
        name: Its name or location, as the request has it.
        context: The table, and the engine that rewrites its files.
        keys: Its keys by column.
        names: The name of the key of each column.
        deleting: The same table with the options of a key that may delete; None for the same options.
    """

    name: str
    context: Context
    keys: Mapping[str, Sequence[str]] = field(repr=False)
    names: Mapping[str, str] = field(default_factory=dict)
    deleting: DeltaLog | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The tables of a request.

    Args:
        chosen: Those with a column of a key.
        passed_over: The others, with the reason.
        keys: The keys by their names.
    """

    chosen: tuple[ErasureTarget, ...]
    passed_over: Mapping[str, str]
    keys: Mapping[str, Sequence[str]] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureOutcome:
    """The result for one table: an erasure, or the error that ended it. What was done before the error is right."""

    target: ErasureTarget
    erasure: Erasure | None = None
    error: DeltaError | None = None


def choose(
    request: ErasureRequest,
    tables: Mapping[str, Context],
    *,
    named: Iterable[str] = (),
    options: Mapping[str, str] | None = None,
    deleting: Mapping[str, str] | None = None,
) -> Targets:
    """Read the keys of a request, and choose its tables.

    Args:
        request: The request.
        tables: The tables to choose from, by their names.
        named: Those that the user named. They have to have all columns; without a mapping others may lack them.
        options: Storage options for a file of keys or a mapping at a URI.
        deleting: Options of the key that may delete.

    Raises:
        TableNotFoundError: There is no table at a location.
        InvalidArgumentError: The keys or the mapping cannot be read, or the mapping names a table that is not there.
    """
    request.check()
    mapping = None if request.mapping_file is None else read_mapping(request.mapping_file, options)
    if mapping is not None:
        named_by = {_plain(name): name for name in tables}
        mapping = {named_by.get(_plain(name), name): columns for name, columns in mapping.items()}
    keys = {} if request.keys_file is None else keys_of_file(request.keys_file, request.column, options)
    if mapping is not None and (absent := sorted(set(mapping) - set(tables))):
        raise InvalidArgumentError(
            f"The mapping names {absent[0]}, which is not among the tables of this request.",
            hint="Name the tables as the mapping does, or their database.",
        )
    whole = set(named)
    chosen: list[ErasureTarget] = []
    passed_over: dict[str, str] = {}
    for name, context in tables.items():
        snapshot = existing_table(context.log.update())
        if request.where is not None:
            own: Mapping[str, Sequence[str]] = keys_of_condition(request.where, snapshot)
            keys = {**keys, **{column: [*keys.get(column, ()), *texts] for column, texts in own.items()}}
        else:
            own = keys_of_table(name, snapshot.schema, keys, mapping, some=name not in whole)
        if not own:
            passed_over[name] = _NO_COLUMN if mapping is None else "the mapping does not name it"
            continue
        other = None if deleting is None else DeltaLog.for_table(context.log.uri, options=deleting)
        names = dict((mapping or {}).get(name) or zip(own, own, strict=True))
        chosen.append(ErasureTarget(name=name, context=context, keys=own, names=names, deleting=other))
    return Targets(chosen=tuple(chosen), passed_over=passed_over, keys=keys)


def _plain(name: str) -> str:
    """Return a location in one spelling; a name in a metastore unchanged."""
    return normalize_uri(name) if "/" in name else name


def look_at(targets: Sequence[ErasureTarget], request: ErasureRequest) -> list[ErasureOutcome]:
    """Look at all tables without changing one, clones before the tables whose files they read.

    Raises:
        DeltaError: A table cannot be read, or a key does not fit it.
    """
    found = [_run(target, request, dry_run=True) for target in targets]
    clones = {outcome.target.context.log.uri: outcome.erasure.plan.clones for outcome in found if outcome.erasure}
    ordered: dict[str, ErasureOutcome] = {}
    by_location = {outcome.target.context.log.uri: outcome for outcome in found}

    def add(location: str) -> None:
        if location in by_location and location not in ordered:
            waiting = by_location.pop(location)
            for clone in clones[location]:
                add(clone)
            ordered[location] = waiting

    for location in list(by_location):
        add(location)
    return list(ordered.values())


def erase_all(planned: Sequence[ErasureOutcome], request: ErasureRequest) -> list[ErasureOutcome]:
    """Erase the keys from the tables of a plan, in its order. A table that fails does not stop the others."""
    done = []
    for outcome in planned:
        try:
            done.append(_run(outcome.target, request, dry_run=False))
        except DeltaError as error:
            done.append(ErasureOutcome(target=outcome.target, error=error))
    return done


def _run(target: ErasureTarget, request: ErasureRequest, *, dry_run: bool) -> ErasureOutcome:
    command = Erase(
        keys=target.keys,
        history=None if dry_run else request.history,
        dry_run=dry_run,
        object_versions=request.object_versions,
        deleting=target.deleting,
    )
    return ErasureOutcome(target=target, erasure=run(command, target.context))
