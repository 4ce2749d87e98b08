"""Ask a JVM with a version's jars which classes and members it has. Nothing of Spark is started."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from py4j import java_gateway
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError, get_return_value

from jvm_contract.calls import NEW
from jvm_contract.register import ANY, Member, member_of

_OPEN = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util", "java.lang.invoke")]
_NAMED = tuple(f"org/apache/spark/sql/{part}/" for part in ("catalyst", "connector", "execution", "types"))


class Classes:
    """The classes of some jars.

    Args:
        gateway: A JVM that has them.
        jars: The folder with the jars.
    """

    def __init__(self, gateway: JavaGateway, jars: Path) -> None:
        self._java: Any = gateway.jvm.java
        self._text: Any = gateway.jvm.scala.runtime.ScalaRunTime.stringOf
        self._loader = self._java.lang.ClassLoader.getSystemClassLoader()
        self._jars = jars
        self.members = cache(self._members)
        self.above = cache(self._above)

    def _class(self, name: str) -> Any | None:
        try:
            return self._java.lang.Class.forName(name, False, self._loader)
        except Py4JJavaError:
            return None

    def _members(self, name: str) -> frozenset[Member] | None:
        """Return what a class declares itself, or None if there is no such class."""
        found = self._class(name)
        if found is None:
            return None
        try:
            declared = (found.getDeclaredMethods(), found.getDeclaredConstructors(), found.getDeclaredFields())
            methods, constructors, fields = (_texts(self._text(items)) for items in declared)
        except Py4JJavaError:  # One of the types that it names is missing, so that nobody can use it.
            return None
        members = {member_of(text) for text in [*methods, *constructors]}
        members |= {Member(name, text.rpartition(".")[2], None) for text in fields}
        return frozenset(members)

    def _above(self, name: str) -> tuple[str, ...]:
        """Return the names of a class and of all that it extends, the nearest first."""
        found = self._class(name)
        order: list[str] = []
        waiting = [found] if found is not None else []
        while waiting:
            item = waiting.pop(0)
            text = str(item.getName())
            if text not in order:
                order.append(text)
                parent = item.getSuperclass()
                waiting += [*([] if parent is None else [parent]), *item.getInterfaces()]
        return tuple(order)

    def is_public(self, name: str) -> bool:
        """Return whether a class may be used by anybody."""
        found = self._class(name)
        return found is not None and bool(self._java.lang.reflect.Modifier.isPublic(found.getModifiers()))

    def has(self, member: Member) -> bool:
        """Return whether a class has a member, declared by itself or by what it extends."""
        if member.parameters == ANY:
            return bool(self.alike(member))
        places = [member.owner] if member.name == NEW else self.above(member.owner)
        return any(member._replace(owner=place) in (self.members(place) or ()) for place in places)

    def alike(self, member: Member) -> list[str]:
        """Return the signatures of a class's members of the same name."""
        found = (self.members(place) or frozenset() for place in self.above(member.owner))
        return sorted({str(item) for items in found for item in items if item.name == member.name})

    def abstract_methods(self, name: str) -> frozenset[str] | None:
        """Return the names of an interface's abstract methods; None if there is no such interface."""
        found = self._class(name)
        if found is None:
            return None
        texts = _texts(self._text(found.getMethods()))
        return frozenset(member_of(text).name for text in texts if " abstract " in text[: text.index("(")])

    @cached_property
    def simple_names(self) -> frozenset[str]:
        """The names of the classes of Spark's plans, expressions and catalogs, without their packages."""
        names = set()
        for jar in self._jars.glob("spark-*.jar"):
            with zipfile.ZipFile(jar) as archive:
                files = (item for item in archive.namelist() if item.startswith(_NAMED) and item.endswith(".class"))
                names |= {item.removesuffix(".class") for item in files}
        return frozenset(part for name in names for part in re.split(r"[/$]", name)[-2:] if part[:1].isupper())


def _texts(joined: str) -> list[str]:
    """Split Scala's text of an array of members. Commas between parameters have no space behind them."""
    inside = joined.removeprefix("Array(").removesuffix(")") if joined != "Array()" else ""
    return inside.split(", ") if inside else []


@contextmanager
def jvm_with(jars: Path) -> Iterator[JavaGateway]:
    """Start a JVM with the jars of a folder, and end it afterwards. Errors are py4j's, also beside a Spark session."""
    (py4j,) = jars.glob("py4j-*.jar")
    port, token, process = _launch(py4j, f"{jars}/*")
    # Without finalizers, since the JVM ends soon: in the middle of ast.parse they make Python 3.11 fail.
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True, enable_memory_management=False)
    gateway = JavaGateway(gateway_parameters=parameters)
    # A Spark session in this process replaces this function: the new one asks Spark's classes about each error.
    answers = java_gateway.get_return_value
    java_gateway.get_return_value = get_return_value
    try:
        yield gateway
    finally:
        java_gateway.get_return_value = answers
        gateway.close()
        process.stdin.close()
        process.wait(60)


@contextmanager
def classes_of(jars: Path) -> Iterator[Classes]:
    """Start a JVM with the jars of a folder, and end it afterwards."""
    with jvm_with(jars) as gateway:
        yield Classes(gateway, jars)


def _launch(py4j: Path, classpath: str) -> tuple[int, str, Any]:
    port, token, process = launch_gateway(
        jarpath=str(py4j),
        classpath=classpath,
        javaopts=_OPEN,
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    return int(port), token.decode() if isinstance(token, bytes) else str(token), process
