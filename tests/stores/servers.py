"""Stores that are servers: MinIO, Versity's gateway, SeaweedFS, rclone, HDFS, and moto's imitation of S3."""

from __future__ import annotations

import importlib.metadata
import json
import re
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path

from java_servers import NotToBeHad
from ports import free_ports
from s3_server import S3Server
from store_servers import MinioServer, NoServer, StoreServer, VersityServer

from tests.stores.places import KEYS, NotRun, Place, need, output_of, process, s3_place

__all__ = [
    "deaf_moto", "hdfs", "minio", "moto", "rclone_server", "seaweedfs", "two_seaweedfs", "two_versity", "versity",
    "weed_servers",
]  # fmt: skip


def answers(url: str) -> Callable[[], bool]:
    """Return a function that asks whether a server answers, whatever it says."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask() -> bool:
        try:
            direct.open(url, timeout=10).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    return ask


@contextmanager
def _of_the_stack(kind: type[StoreServer], folder: Path) -> Iterator[StoreServer]:
    try:
        server = kind(folder, root=KEYS)
    except NoServer as error:
        raise NotRun(str(error)) from error
    try:
        yield server
    finally:
        server.stop()


def _version(*command: str) -> str:
    """Find the version in what a program says of itself."""
    said = output_of(*command)
    found = re.search(r"\d+(?:\.\d+)+(?:-\d{14}-[0-9a-f]{12})?", said)
    return found[0] if found else said


@contextmanager
def minio(folder: Path) -> Iterator[Place]:
    """Start MinIO over one folder."""
    with _of_the_stack(MinioServer, folder) as server:
        yield s3_place(server.endpoint, _version(server.command[0], "--version"))


@contextmanager
def versity(folder: Path) -> Iterator[Place]:
    """Start Versity's gateway over a folder."""
    with _of_the_stack(VersityServer, folder) as server:
        yield s3_place(server.endpoint, _version(server.command[0], "--version"))


@contextmanager
def two_versity(folder: Path) -> Iterator[Place]:
    """Start two of Versity's gateways over one folder, whose connections take turns."""
    with _of_the_stack(VersityServer, folder) as first:
        (port,) = free_ports(1)
        second = [word.replace(first.address, f"127.0.0.1:{port}") for word in first.command]
        ready = answers(f"http://127.0.0.1:{port}/health")
        ports = [int(first.address.rpartition(":")[2]), port]
        with process(folder, second, ready, first.variables), balanced(ports) as endpoint:
            yield s3_place(endpoint, _version(first.command[0], "--version"))


@contextmanager
def weed_servers(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Start SeaweedFS: master, volumes, filer and an S3 gateway. Gives the program, the port of S3, and the filer."""
    weed = need("weed")
    (s3, filer, filer_grpc, master, master_grpc, volume, volume_grpc, s3_grpc) = free_ports(8)
    configuration = folder / "s3.json"
    identity = {
        "name": "root",
        "credentials": [{"accessKey": KEYS[0], "secretKey": KEYS[1]}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    configuration.write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    command = [weed, "server", "-dir", str(folder / "data"), "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"]
    command += [
        f"-s3.port={s3}",
        f"-s3.port.grpc={s3_grpc}",
        f"-s3.config={configuration}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    command += [f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}"]
    command += [f"-master.port={master}", f"-master.port.grpc={master_grpc}", "-master.volumeSizeLimitMB=64"]
    command += [f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", "-volume.max=100"]
    with process(folder, command, answers(f"http://127.0.0.1:{s3}/")):
        yield weed, s3, f"127.0.0.1:{filer}.{filer_grpc}"


@contextmanager
def seaweedfs(folder: Path) -> Iterator[Place]:
    """Start SeaweedFS with one S3 gateway."""
    with weed_servers(folder) as (weed, s3, _):
        yield s3_place(f"http://127.0.0.1:{s3}", _version(weed, "version"))


@contextmanager
def two_seaweedfs(folder: Path) -> Iterator[Place]:
    """Start SeaweedFS with two S3 gateways, whose connections take turns."""
    with weed_servers(folder) as (weed, s3, filer):
        port, grpc = free_ports(2)
        command = [
            weed,
            "s3",
            "-ip.bind=127.0.0.1",
            f"-port={port}",
            f"-port.grpc={grpc}",
            "-port.iceberg=0",
            "-port.lance=0",
        ]
        command += [f"-filer={filer}", f"-config={folder / 's3.json'}"]
        with process(folder, command, answers(f"http://127.0.0.1:{port}/")), balanced([s3, port]) as endpoint:
            yield s3_place(endpoint, _version(weed, "version"))


@contextmanager
def rclone_server(folder: Path) -> Iterator[Place]:
    """Start rclone's S3 server over a folder."""
    rclone = need("rclone")
    (port,) = free_ports(1)
    (folder / "data").mkdir()
    command = [rclone, "serve", "s3", str(folder / "data"), "--addr", f"127.0.0.1:{port}", "--config", "/dev/null"]
    pair = {"RCLONE_AUTH_KEY": f'"{",".join(KEYS)}"'}  # a list with commas, so that one item takes quotes
    with process(folder, command, answers(f"http://127.0.0.1:{port}/"), pair):
        yield s3_place(f"http://127.0.0.1:{port}", _version(rclone, "version"))


@contextmanager
def moto(folder: Path) -> Iterator[Place]:
    """Start moto's server, which answers requests at the same time."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with process(folder, command, answers(f"http://127.0.0.1:{port}/")):
        yield s3_place(f"http://127.0.0.1:{port}", importlib.metadata.version("moto"))


@contextmanager
def deaf_moto(folder: Path) -> Iterator[Place]:
    """Start the tests' imitation of an S3 that does not know If-None-Match."""
    del folder
    server = S3Server(ignore_conditions=True)
    try:
        yield s3_place(server.endpoint, importlib.metadata.version("moto"))
    finally:
        server.stop()


@contextmanager
def hdfs(folder: Path) -> Iterator[Place]:
    """Start a NameNode and a DataNode."""
    from hadoop_servers import hadoop_version, jars_of_pyspark
    from hdfs_cluster import HdfsCluster

    try:
        import hdfs_native  # noqa: F401
    except ImportError as error:
        raise NotRun("there is no package hdfs-native") from error
    try:
        cluster = HdfsCluster(folder)
    except (NotToBeHad, AssertionError) as error:
        raise NotRun(str(error)) from error
    try:
        version = hadoop_version(jars_of_pyspark())
        yield Place(uri=f"{cluster.uri}/trial", version=version, shown="hdfs://NAMENODE/trial")
    finally:
        cluster.stop()


# -- two gateways of one store ----------------------------------------------------------------------------------------


@contextmanager
def balanced(ports: list[int]) -> Iterator[str]:
    """Pass connections on to several ports in turn, as a balancer before several gateways does. Gives its address."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        turns = cycle(ports)

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:  # It was closed: the run is over.
                    return
                threading.Thread(target=_pass_on, args=(client, next(turns)), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def _pass_on(client: socket.socket, port: int) -> None:
    """Copy bytes in both directions until both sides are done."""
    with client:
        try:
            server = socket.create_connection(("127.0.0.1", port))
        except OSError:
            return
        with server:
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # One side hung up; the other one sees it.
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
