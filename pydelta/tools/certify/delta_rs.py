"""Run the operations of a plan with delta-rs (the package deltalake), and read tables with it."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError, first_line
from pydelta.errors.redaction import hide_text
from pydelta.log import DeltaLog
from pydelta.storage.kinds import kind_of
from pydelta.storage.options import s3_options
from pydelta.storage.uris import normalize_uri, scheme_of, split_location
from pydelta.tools.certify.history import PlannedStep, Row
from pydelta.tools.certify.local_worker import Failed, StepDone, table_of, tuples_of, version_of

__all__ = ["DeltaRsWorker", "import_deltalake", "read_with_delta_rs"]


def import_deltalake() -> ModuleType:
    """Import the package deltalake.

    Raises:
        DeltaEnvironmentError: It is not installed.
    """
    try:
        import deltalake
    except ModuleNotFoundError as error:
        raise DeltaEnvironmentError(
            "delta-rs is not installed, so it can neither write nor read here.",
            hint="pip install 'deltalake>=1.0', or leave delta-rs out of --with.",
        ) from error
    return deltalake


def _place(uri: str, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Translate a location and its options for delta-rs. The options hold secrets.

    Raises:
        InvalidArgumentError: The settings of this kind of store cannot be translated.
    """
    scheme = scheme_of(uri)
    if scheme == "file":
        return normalize_uri(uri), {}
    if kind_of(scheme).name != "s3":
        raise InvalidArgumentError(
            f"delta-rs is only tested on local paths and S3, not on {scheme}://.", hint="Leave it out of --with."
        )
    _, bucket, key = split_location(normalize_uri(uri))
    connection = s3_options(bucket, options)
    found = {"conditional_put": "etag"}
    for ours, theirs in (("endpoint", "AWS_ENDPOINT_URL"), ("region", "AWS_REGION")):
        value = connection.get(ours)
        if isinstance(value, str) and value:
            found[theirs] = value
    found.setdefault("AWS_REGION", "us-east-1")
    if connection.allow_http:
        found["AWS_ALLOW_HTTP"] = "true"
    if connection.credential is not None:
        found["AWS_ACCESS_KEY_ID"] = connection.credential.access_key.reveal()
        found["AWS_SECRET_ACCESS_KEY"] = connection.credential.secret_key.reveal()
        if connection.credential.token is not None:
            found["AWS_SESSION_TOKEN"] = connection.credential.token.reveal()
    return f"s3://{bucket}/{key}", found


class DeltaRsWorker:
    """Runs operations on a table; arguments as in ``LocalWorker``."""

    def __init__(self, uri: str, options: Mapping[str, str], process: int) -> None:
        del process
        self._rs = import_deltalake()
        self._uri, self._options = _place(uri, options)
        self._log = DeltaLog.for_table(uri, options=options)

    def _open(self) -> Any:
        return self._rs.DeltaTable(self._uri, storage_options=self._options)

    def run(self, step: PlannedStep) -> StepDone:
        """Run an operation."""
        table = self._open()
        named = self._rs.CommitProperties(custom_metadata={"userMetadata": step.op})
        where = f"k = {step.key}"
        if step.kind == "read":
            return StepDone(version=table.version(), rows=tuples_of(table.to_pyarrow_table()))
        if step.kind == "checkpoint":
            table.create_checkpoint()
            return StepDone(version=table.version())
        if step.kind == "append":
            rows = table_of(step)
            self._rs.write_deltalake(
                self._uri, rows, mode="append", storage_options=self._options, commit_properties=named
            )
        elif step.kind == "delete":
            table.delete(where, commit_properties=named)
        elif step.kind == "update":
            table.update(new_values={"rev": step.op}, predicate=where, commit_properties=named)
        elif step.kind == "optimize":
            table.optimize.compact(commit_properties=named)
        elif step.kind == "merge":
            self._merge(table, step, named)
        return StepDone(version=version_of(self._log, step.op))

    def _merge(self, table: Any, step: PlannedStep, named: Any) -> None:
        source = table_of(PlannedStep(op=step.op, kind="append", key=step.key, rows=1))
        merging = table.merge(
            source, "t.k = s.k", source_alias="s", target_alias="t", commit_properties=named
        ).when_matched_update({"rev": f"'{step.op}'"})
        values = {"op": "s.op", "n": "s.n", "k": "s.k", "rev": f"'{step.op}'"}
        merging.when_not_matched_insert(values).execute()

    def failure(self, error: Exception) -> Failed:
        """Classify an error. Only a conflict has a known outcome."""
        reason = hide_text(f"{type(error).__name__}: {first_line(error)}")
        if type(error).__name__ == "CommitFailedError":
            return Failed(known=True, trouble="conflict", error=reason)
        return Failed(known=False, trouble="store", error=reason)

    def close(self) -> None:
        """Do nothing, because there is nothing to stop."""


def read_with_delta_rs(uri: str, options: Mapping[str, str], version: int) -> tuple[Row, ...]:
    """Read a version of a table."""
    rs = import_deltalake()
    place, given = _place(uri, options)
    return tuples_of(rs.DeltaTable(place, version=version, storage_options=given).to_pyarrow_table())
