"""Keep the requests of erasures with their deadlines in a Delta table, without a key in it.

::

    file(request, deadline) --> a row in the state "open"
    due() --> open requests, the earliest deadline first --> run --> "proven", "incomplete" or "failed"

A row says where the file of keys is, not what is in it. Who no longer needs the file deletes it after the erasure.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from pydelta.api.python.local import LocalTable, open_table
from pydelta.commands.erase.command import History, KeptObjects
from pydelta.errors import DeltaError, InvalidArgumentError, TableNotFoundError
from pydelta.tools.erasure.running import ErasureRequest
from pydelta.txn.commit import author

if TYPE_CHECKING:
    from pydelta.tools.erasure.performing import Performed

__all__ = ["Filed", "Register"]

_TIME: Final = pa.timestamp("us", tz="UTC")
_SCHEMA: Final = pa.schema(
    {
        "id": pa.string(),
        "requested": _TIME,
        "deadline": pa.date32(),
        "by": pa.string(),
        "tables": pa.list_(pa.string()),
        "databases": pa.list_(pa.string()),
        "keysFile": pa.string(),
        "keyColumn": pa.string(),
        "mappingFile": pa.string(),
        "history": pa.string(),
        "objectVersions": pa.string(),
        "state": pa.string(),
        "ended": _TIME,
        "report": pa.string(),
    }
)
_OPEN: Final = ("open", "incomplete", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed:
    """A request in the register.

    Args:
        id: Its id.
        deadline: The day by which it has to be done; None for none.
        tables, databases: What it is about.
        request: The request.
        state: ``open``, ``proven``, ``incomplete`` or ``failed``.
    """

    id: str
    deadline: dt.date | None
    tables: tuple[str, ...]
    databases: tuple[str, ...]
    request: ErasureRequest
    state: str = "open"


class Register:
    """A register of requests.

    Args:
        location: The location of its table, which is created with the first request.
        options: Storage options.
    """

    def __init__(self, location: str, options: Mapping[str, str] | None = None) -> None:
        self._location, self._options = location, options

    def check(self, request: ErasureRequest) -> None:
        """Refuse a request that the register cannot hold.

        Raises:
            InvalidArgumentError: Its keys are in a condition, which the register would have to show.
        """
        request.check()
        if request.keys_file is None:
            raise InvalidArgumentError(
                "A register holds no keys, so a request by --where cannot be filed.", hint="Give a file with --keys."
            )

    def file(
        self,
        request: ErasureRequest,
        *,
        tables: Sequence[str],
        databases: Sequence[str] = (),
        deadline: str | None = None,
    ) -> str:
        """Add a request in the state ``open``.

        Args:
            request: The request. Its keys have to be in a file.
            tables: Locations or names of tables.
            databases: Databases, all of whose tables are meant.
            deadline: The day by which it has to be done, as in 2027-01-31; None for a request that runs now.

        Returns:
            Its id.

        Raises:
            InvalidArgumentError: The keys are in a condition, the deadline is not a day, or a request that waits has no
                policy for earlier versions.
        """
        self.check(request)
        day = None if deadline is None else _day(deadline)
        if day is not None and request.history is None:
            raise InvalidArgumentError(
                "A request that waits needs its consent now: nobody is asked when it runs.", hint="Add --history drop."
            )
        row = {
            "id": str(uuid.uuid4()),
            "requested": dt.datetime.now(dt.UTC),
            "deadline": day,
            "by": author(),
            "tables": [_absolute(table) for table in tables],
            "databases": list(databases),
            "keysFile": _absolute(str(request.keys_file), is_file=True),
            "keyColumn": request.column,
            "mappingFile": None if request.mapping_file is None else _absolute(request.mapping_file, is_file=True),
            "history": request.history,
            "objectVersions": request.object_versions,
            "state": "open",
            "ended": None,
            "report": None,
        }
        table = LocalTable.create(self._location, _SCHEMA, mode="ignore", options=self._options)
        table.append(pa.Table.from_pylist([row], schema=_SCHEMA))
        return str(row["id"])

    def due(self) -> list[Filed]:
        """Return the requests that are not proven: those with the earliest deadline first, those without one last.

        Raises:
            TableNotFoundError: There is no register.
        """
        rows = [row for row in self._table().scan().to_pylist() if row["state"] in _OPEN]
        rows.sort(key=lambda row: (row["deadline"] or dt.date.max, row["requested"]))
        return [_filed(row) for row in rows]

    def run_due(self, perform: Callable[[Filed], Performed]) -> Iterator[tuple[Filed, Performed | DeltaError]]:
        """Run what is due, note each outcome, and iterate over the outcomes.

        Args:
            perform: Performs a request.
        """
        for filed in self.due():
            done: Performed | DeltaError
            try:
                done = perform(filed)
            except DeltaError as error:
                self.close(filed.id, "failed")
                done = error
            else:
                self.close(filed.id, done.status, done.written)
            yield filed, done

    def note(
        self, request: ErasureRequest, done: Performed, *, tables: Sequence[str], databases: Sequence[str] = ()
    ) -> None:
        """Add a request that was run at once, with its outcome."""
        self.close(self.file(request, tables=tables, databases=databases), done.status, done.written)

    def close(self, id_: str, state: str, report: Path | None = None) -> None:
        """Set the outcome of a request.

        Args:
            id_: Its id.
            state: ``proven``, ``incomplete`` or ``failed``.
            report: Where its report is.
        """
        row = {
            "id": id_,
            "state": state,
            "ended": dt.datetime.now(dt.UTC),
            "report": None if report is None else str(report.absolute()),
        }
        schema = pa.schema([_SCHEMA.field(name) for name in row])
        self._table().merge(pa.Table.from_pylist([row], schema=schema), on="id", not_matched=None)

    def _table(self) -> LocalTable:
        try:
            return open_table(self._location, options=self._options)
        except TableNotFoundError as error:
            raise TableNotFoundError(
                f"There is no register of erasures at {self._location}.",
                hint="The first request makes it: pydelta erase TABLE… --keys FILE --register LOCATION --deadline DAY.",
            ) from error


def _day(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise InvalidArgumentError(f"The deadline {text!r} is not a day.", hint="Write it as 2027-01-31.") from None


def _absolute(place: str, *, is_file: bool = False) -> str:
    """Return a location so that it means the same in every folder; the name of a table is returned unchanged."""
    is_local = (is_file or "/" in place) and "://" not in place and not place.startswith("file:")
    return str(Path(place).absolute()) if is_local else place


def _filed(row: Mapping[str, Any]) -> Filed:
    return Filed(
        id=row["id"],
        deadline=row["deadline"],
        tables=tuple(row["tables"] or ()),
        databases=tuple(row["databases"] or ()),
        request=ErasureRequest(
            keys_file=row["keysFile"],
            column=row["keyColumn"],
            mapping_file=row["mappingFile"],
            history=cast("History | None", row["history"]),
            object_versions=cast("KeptObjects", row["objectVersions"]),
        ),
        state=row["state"],
    )
