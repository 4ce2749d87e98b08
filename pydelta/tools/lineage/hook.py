"""Report a commit: the table that it wrote, its version, its schema, and the number of rows."""

from __future__ import annotations

from typing import Any, Final

from pydelta.protocol.actions import AddFile, CommitInfo
from pydelta.tools.lineage.events import Tables, dataset_name, input_of, output_of, place_of_input
from pydelta.tools.lineage.runs import URL, current_run, emitter
from pydelta.txn.hooks import HookContext, after_commits_where, environment_has

__all__ = ["tell_of_commit"]

_READS_ITSELF: Final = frozenset(
    {"DELETE", "UPDATE", "MERGE", "OPTIMIZE", "REORG", "RESTORE", "ADD CONSTRAINT", "COMPUTE STATS"}
)
"""Operations that take rows from the previous version of the table."""
_CHANGED: Final = {
    "DELETE": ("numDeletedRows",),
    "UPDATE": ("numUpdatedRows",),
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
}


@after_commits_where(environment_has(URL))
def tell_of_commit(context: HookContext) -> None:
    """Send the events of a commit if OPENLINEAGE_URL is set; see ``pydelta.txn.hooks``. Never waits."""
    to = emitter()
    if to is None:
        return
    info = next((action for action in context.actions if isinstance(action, CommitInfo)), None)
    operation = ((info.operation if info is not None else None) or "COMMIT").upper()
    adds = [action for action in context.actions if isinstance(action, AddFile)]
    run = to.run(_job(operation, context), "STREAM" if operation == "STREAMING UPDATE" else "COMMAND")
    output = output_of(
        context.snapshot,
        run.engine,
        rows=_rows(operation, info),
        files=len(adds),
        size=sum(add.size for add in adds),
    )
    inputs = _inputs(operation, info, context, run.engine)
    running = current_run()
    if running is not None:
        for dataset in inputs:
            running.read(dataset)
        running.wrote(output, context.now_ms)
        return
    began_ms = context.now_ms - _duration_ms(info)
    to.send("START", run, Tables(inputs=inputs), at_ms=began_ms)
    to.send("COMPLETE", run, Tables(inputs=inputs, outputs=[output]), at_ms=context.now_ms)


def _job(operation: str, context: HookContext) -> str:
    _, name = dataset_name(context.snapshot.table_uri)
    return f"{operation.lower().replace(' ', '_')}.{name.strip('/').replace('/', '.')}"


def _inputs(operation: str, info: CommitInfo | None, context: HookContext, engine: str) -> list[dict[str, Any]]:
    found = []
    if operation in _READS_ITSELF and context.previous.version >= 0:
        found.append(input_of(context.previous, engine))
    source = ((info.get("operationParameters") if info is not None else None) or {}).get("source")
    if operation in ("CLONE", "CONVERT") and isinstance(source, str) and "/" in source:
        found.append(place_of_input(source))
    return found


def _metrics(info: CommitInfo | None) -> dict[str, Any]:
    metrics = info.get("operationMetrics") if info is not None else None
    return metrics if isinstance(metrics, dict) else {}


def _rows(operation: str, info: CommitInfo | None) -> int | None:
    """Return the rows written (or changed, for DELETE, UPDATE and MERGE); None if the commit does not record them."""
    metrics = _metrics(info)
    names = _CHANGED.get(operation, ("numOutputRows",))
    found = [_number(metrics.get(name)) for name in names]
    known = [value for value in found if value is not None]
    return sum(known) if known else None


def _duration_ms(info: CommitInfo | None) -> int:
    return _number(_metrics(info).get("executionTimeMs")) or 0


def _number(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() else None
