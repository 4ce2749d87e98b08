"""Send files and partitions to the JVM in one buffer, regardless of their number."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

__all__ = ["Bulk"]

_DIRECT_BYTES: Final = 64 * 1024


class Bindings(Protocol):
    """The parts of ``Jvm`` that are used: JVM names and small conversions."""

    view: Any
    gateway: Any
    java_system: Any
    object_class: Any
    arrays: Any
    partition_directory: Any
    empty_row: Any
    python_utils: Any
    to_seq: Any

    def array(self, java_class: Any, items: Sequence[Any]) -> Any:
        """Return a JVM array."""


class Bulk:
    """Sends files and partitions to the JVM in about twenty calls, regardless of their number.

    Hadoop's ``ArrayWritable`` reads all statuses from one buffer. The JVM groups them by their owner field, which holds
    the partition's position. Method handles compose position -> row and statuses -> directory.
    """

    def __init__(self, jvm: Bindings) -> None:
        self._jvm = jvm
        view = jvm.view
        self._for_name = view.java.lang.Class.forName
        invoke = view.java.lang.invoke
        self._handles: Any = invoke.MethodHandles
        self._proxies: Any = invoke.MethodHandleProxies
        self._handle_class: Any = invoke.MethodHandle
        self._method_type: Any = invoke.MethodType
        self._status: Any = view.org.apache.hadoop.fs.FileStatus
        self._writable: Any = view.org.apache.hadoop.io.ArrayWritable
        self._io: Any = view.java.io
        self._buffer: Any = view.org.apache.hadoop.io.DataInputBuffer
        self._copy: Any = jvm.java_system.arraycopy
        self._one: Any = view.java.util.Collections.singletonList
        self._collectors: Any = view.java.util.stream.Collectors
        self._class_class: Any = view.java.lang.Class
        find = self._for_name
        self._types = {
            "status": find("org.apache.hadoop.fs.FileStatus"),
            "statuses": find("[Lorg.apache.hadoop.fs.FileStatus;"),
            "object": find("java.lang.Object"),
            "objects": find("[Ljava.lang.Object;"),
            "string": find("java.lang.String"),
            "int": view.java.lang.Integer.TYPE,
            "list": find("java.util.List"),
            "row": find("org.apache.spark.sql.catalyst.InternalRow"),
            "directory": find("org.apache.spark.sql.execution.datasources.PartitionDirectory"),
            "function": find("java.util.function.Function"),
            "bifunction": find("java.util.function.BiFunction"),
        }
        lookup = self._handles.publicLookup()
        types = self._types
        self._owner = self._proxies.asInterfaceInstance(
            types["function"], lookup.findVirtual(types["status"], "getOwner", self._signature("string"))
        )
        module = jvm.partition_directory
        self._apply = lookup.findVirtual(
            module.getClass(), "apply", self._signature("directory", "row", "statuses")
        ).bindTo(module)
        to_array = lookup.findVirtual(types["list"], "toArray", self._signature("objects", "objects"))
        empty = jvm.array(jvm.object_class, [jvm.gateway.new_array(self._status, 0)])
        self._to_statuses = self._handles.insertArguments(to_array, 1, empty).asType(
            self._signature("statuses", "object")
        )
        parse = lookup.findStatic(find("java.lang.Integer"), "parseInt", self._signature("int", "string"))
        self._position = parse.asType(self._signature("int", "object"))
        self._get = lookup.findVirtual(types["list"], "get", self._signature("object", "int"))

    def _signature(self, result: str, *arguments: str) -> Any:
        classes = [self._types[name] for name in arguments]
        return self._method_type.methodType(self._types[result], self._jvm.array(self._class_class, classes))

    def statuses(self, blocks: Iterable[memoryview], count: int) -> Any:
        """Convert encoded records to an array of ``FileStatus``. A few are passed directly, more through a file."""
        writable = self._writable(self._types["status"])
        parts = iter(blocks)
        head = count.to_bytes(4, "big") + b"".join(itertools.islice(parts, 1))
        rest = next(parts, None)
        if rest is None and len(head) <= _DIRECT_BYTES:
            buffer = self._buffer()
            buffer.reset(head, len(head))
            writable.readFields(buffer)
            return writable.get()
        with tempfile.NamedTemporaryFile(prefix="pydelta-files-", buffering=1 << 20) as file:
            file.write(head)
            for block in itertools.chain([] if rest is None else [rest], parts):
                file.write(block)
            file.flush()
            stream = self._io.DataInputStream(
                self._io.BufferedInputStream(self._io.FileInputStream(file.name), 1 << 20)
            )
            try:
                writable.readFields(stream)
            finally:
                stream.close()
        return writable.get()

    def directories(self, statuses: Any, count: int, rows: Any | None) -> Any:
        """Convert an array of ``FileStatus`` to ``Seq[PartitionDirectory]``."""
        jvm = self._jvm
        typed = jvm.gateway.new_array(self._status if rows is None else jvm.object_class, count)
        self._copy(statuses, 0, typed, 0, count)  # py4j selects methods only by the array's class.
        if rows is None:
            return jvm.to_seq(self._one(jvm.partition_directory.apply(jvm.empty_row, typed)))
        groups = jvm.arrays.stream(typed).collect(self._collectors.groupingBy(self._owner))
        row_at = self._get.bindTo(rows).asType(self._signature("row", "int"))
        row_of = self._handles.filterArguments(row_at, 0, jvm.array(self._handle_class, [self._position]))
        both = jvm.array(self._handle_class, [row_of, self._to_statuses])
        compose = self._handles.filterArguments(self._apply, 0, both)
        groups.replaceAll(self._proxies.asInterfaceInstance(self._types["bifunction"], compose))
        # Do not use groups.values(): py4j treats a Java map as a Python mapping and would transfer its values one by
        # one.
        return jvm.python_utils.toScalaMap(groups).values().toSeq()
