"""Compile the engine's Java with the jars of a version of Spark, by the compiler in them, as a session does."""

from __future__ import annotations

import os
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from pydelta.engines.spark.compiled import compile_all


def compile_errors(jars: Path, folder: Path | None = None) -> list[str]:
    """Return what does not compile, at most one line.

    Args:
        jars: The folder with the jars.
        folder: The folder with the sources, by default the engine's.
    """
    home = os.environ.get("JAVA_HOME")
    (py4j,) = jars.glob("py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(py4j),
        classpath=f"{jars}/*",
        java_path=f"{home}/bin/java" if home else "java",
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        compile_all(gateway) if folder is None else compile_all(gateway, folder)
    except Py4JJavaError as error:
        return [f"  {str(error.java_exception.getMessage()).splitlines()[0]}\n    in the engine's Java"]
    finally:
        gateway.shutdown()
    return []
