"""Check Spark Connect's clients, rewrite the requests that concern the engine, and pass on the rest.

::

    client --TLS, token--> Front (this process) --the server's own token--> Spark Connect, on the loopback
    function of foreachBatch --that token--> Front as well: its process looks for Spark's port on "localhost"

Calls pass as streams of bytes in both directions, with metadata, deadlines, cancellation and errors, so that every
method of the service works, known or not. Only requests that carry a plan are parsed (``requests``).
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from pydelta.api.console.addresses import LOOPBACK, in_url
from pydelta.api.console.guard import Guard
from pydelta.api.server.allowed import check_request
from pydelta.api.server.replies import error_metadata, execution_reply
from pydelta.api.server.requests import Commands, analysis, execution, session_of, with_user
from pydelta.api.server.seen import SeenSessions
from pydelta.api.server.texts import Texts
from pydelta.engines.spark.java_objects import kinds
from pydelta.errors import AccessDeniedError, DeltaEnvironmentError

if TYPE_CHECKING:
    from pydelta.api.access.roles import Access
    from pydelta.api.server.spark.sessions import Sessions

__all__ = ["Front"]

_CALLS: Final = 256  # The number of concurrent calls. Each holds a thread, even while it waits.
_SERVICE: Final = "/spark.connect.SparkConnectService/"
_EXECUTIONS: Final = frozenset({_SERVICE + "ExecutePlan", _SERVICE + "ReattachExecute"})
_LIMIT: Final = 128 << 20  # Bytes per message, the same limit as Spark Connect's.
_AUTHORIZATION: Final = "authorization"
_ASIDE: Final = "127.0.0.2"
"""The address of Spark's own server; the front keeps "localhost", by which Spark calls it."""
_NEVER: Final = 365 * 86400.0  # Seconds. gRPC reports centuries for a call without a deadline.
_LAST_WORDS: Final = 2.0  # Seconds that replies in flight may still take.
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", _LIMIT),
    ("grpc.max_send_message_length", _LIMIT),
    ("grpc.so_reuseport", 0),  # Fail if the port is in use.
]

_Rewrite: TypeAlias = Callable[[bytes], bytes]
_Check: TypeAlias = Callable[[str, Any], _Rewrite]
"""Checks a call (method, context): aborts it, or returns the function that rewrites its requests."""


class Front:
    """The server that clients of Spark Connect connect to.

    Args:
        guard: Authenticates the clients.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._token = secrets.token_urlsafe(32)
        self._commands = Commands()
        self.seen = SeenSessions()
        """The sessions of clients with their users."""
        self.behind = _free_address()
        """The address of Spark Connect's own server: a loopback address and a port."""
        self._threads = ThreadPoolExecutor(_CALLS, thread_name_prefix="connect")
        self._channel: Any = None  # It opens after the JVM's fork, which gRPC's threads would not survive.
        self._servers: list[Any] = []

    def settings(self) -> dict[str, str]:
        """Return the settings that Spark must start with. They contain a secret."""
        return {"spark.connect.authenticate.token": self._token}

    def start(self, sessions: Sessions, host: str, port: int) -> int:
        """Listen, and show clients' requests to the sessions' parsers; port 0 picks a free one.

        Args:
            sessions: Those of Spark's running server.
            host: An address of this machine.
            port: The port to listen on.

        Returns:
            The port.

        Raises:
            DeltaEnvironmentError: The port is in use, the address is not this machine's, or the certificate is invalid.
        """
        sessions.texts = Texts(self._commands).planner_of
        aside, behind = self.behind
        self._channel = grpc.insecure_channel(f"{aside}:{behind}", options=_OPTIONS)
        if aside != LOOPBACK:
            self._listen(self._of_spark, LOOPBACK, behind, Guard())
        return self._listen(self._signed if self._guard.asks else None, host, port, self._guard)

    def stop(self) -> None:
        """Close all open connections."""
        for ending in [server.stop(_LAST_WORDS) for server in self._servers]:
            ending.wait()
        if self._channel is not None:
            self._channel.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _listen(self, check: _Check | None, host: str, port: int, guard: Guard) -> int:
        passing = _Passing(self._channel, self._token, self._commands, check)
        server = grpc.server(self._threads, handlers=(passing,), options=_OPTIONS)
        address = f"{in_url(host)}:{port}"
        try:
            if guard.certificate and guard.key:
                credentials = grpc.ssl_server_credentials([(guard.key, guard.certificate)])
                bound = server.add_secure_port(address, credentials)
            else:
                bound = server.add_insecure_port(address)
        except RuntimeError as error:
            raise DeltaEnvironmentError(
                f"Spark Connect cannot listen on {address}.",
                hint="Another process may be using the port, or the certificate and the key may not match.",
            ) from error
        server.start()
        self._servers.append(server)
        return int(bound)

    def _signed(self, method: str, context: Any) -> Callable[[bytes], bytes]:
        """Return a function that adds the user of the token to a request, because sessions belong to users."""
        user = self._guard.user_of(_shown(context))
        if user is None:
            token = "NAME:PASSWORD" if self._guard.access else "…"
            context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                f"This server asks for a token: connect with sc://host:port/;token={token}, as its operator gave it to "
                "you.",
            )
        name = method.removeprefix(_SERVICE)
        try:
            sign = with_user(name, str(user))
        except KeyError:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"This server has no method {method}.")
            raise
        return sign if self._guard.access is None else self._limited(self._guard.access, name, str(user), sign)

    def _limited(self, access: Access, method: str, user: str, sign: _Rewrite) -> _Rewrite:
        """Return a function that also remembers the session, and refuses what the user's role does not allow."""

        def check(data: bytes) -> bytes:
            signed = sign(data)
            self.seen.add(user, session_of(method, signed))
            if not access.users[user].role.admin:
                check_request(method, signed)
            return signed

        return check

    def _of_spark(self, method: str, context: Any) -> Callable[[bytes], bytes]:
        """Accept calls with the token of Spark's own processes, which name the session they work in."""
        if not secrets.compare_digest(_shown(context).encode(), f"Bearer {self._token}".encode()):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "This address is for Spark's own processes.")
        return bytes


def _checked(requests: Iterator[bytes], check: _Rewrite, context: Any) -> Iterator[bytes]:
    """Check the first request before the call is passed on, because later an error would not have this status."""
    first: list[bytes] = []
    try:
        for data in requests:
            first.append(check(data))
            break
    except AccessDeniedError as error:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
    except DecodeError:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The request cannot be read.")
    return chain(first, map(check, requests))


def _shown(context: Any) -> str:
    return str(dict(context.invocation_metadata()).get(_AUTHORIZATION, ""))


def _free_address() -> tuple[str, int]:
    """Find a port that is free on both loopback addresses, or on one if the machine has no other."""
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        port = int(found.getsockname()[1])
        with socket.socket() as beside:
            try:
                beside.bind((_ASIDE, port))
            except OSError:
                return LOOPBACK, port
    return _ASIDE, port


class _Passing(grpc.GenericRpcHandler):
    """Passes every method of every service on, as a stream of bytes to a stream of bytes."""

    def __init__(self, channel: Any, upstream_token: str, commands: Commands, check: _Check | None) -> None:
        self._channel = channel
        self._bearer = f"Bearer {upstream_token}"
        self._check = check
        self._rewrites: Mapping[str, Callable[[bytes], bytes]] = {
            _SERVICE + "ExecutePlan": lambda data: execution(data, commands),
            _SERVICE + "AnalyzePlan": analysis,
        }

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call."""
        method = handler_call_details.method

        def handle(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            return self._pass(method, requests, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    def _pass(self, method: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        metadata = [(name, value) for name, value in context.invocation_metadata() if name != _AUTHORIZATION]
        if self._check is not None:
            requests = _checked(requests, self._check(method, context), context)
        rewrite = self._rewrites.get(method)
        sent = map(rewrite, requests) if rewrite is not None else requests
        left = context.time_remaining()
        call = self._channel.stream_stream(method)(
            sent,
            metadata=[*metadata, (_AUTHORIZATION, self._bearer)],
            timeout=None if left is None or left > _NEVER else left,
        )
        if not context.add_callback(call.cancel):
            call.cancel()
        try:
            yield from map(execution_reply, call) if method in _EXECUTIONS else call
        except grpc.RpcError as error:
            context.set_trailing_metadata(error_metadata(error.trailing_metadata() or (), kinds.of))
            context.set_code(error.code())
            context.set_details(error.details() or "")
            return
        context.set_trailing_metadata(call.trailing_metadata() or ())
